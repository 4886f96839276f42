"""Streams of updates: what ``subscribe`` returns (promises P6 and P9 on the client's side).

```text
update ── selector matches? ── version grew? ── queue ── async for
                                                  │
                            full: newest per topic┘
```

**Versions.** A stream remembers the version that it delivered last, of many topics though not of all for ever. A live
update passes if its version is higher. A snapshot passes also with an equal version, if the stream has not delivered
that topic since it began or since the last failover: after a failover each topic's current value comes once more, so
that the application knows that it is current. A lower version never passes.

**Slow consumers.** Up to its bounds, in updates and in bytes, every update is kept, in order. Beyond, what waits is
folded to the newest update per topic until the queue has been emptied, and marked as by a server (protocol 6.4). If
even that is above the bound of bytes, the stream ends with ``StreamOverflow``. The connection is never held up for a
slow stream: replies to requests come over the same connection, and an application that publishes while it reads would
wait for itself.

**Two halves.** The session holds the ``Feed``, the application holds the ``UpdateStream``. So Python can tell when
nobody holds the stream any more, and its selection ends.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gateway.client.queues import QUEUE_BYTES, QUEUE_SIZE, ConflatingQueue, VersionFilter
from gateway.core.client.errors import SessionEnded, StreamOverflow
from gateway.core.client.types import Update
from gateway.core.topics.selectors import Selector, covers, matches, overlaps
from gateway.core.types import TopicPath


class Feed:
    """The session's half of a stream: what waits for its reader.

    Args:
        selector: which topics.
        size: updates to keep for a slow reader before conflating.
        octets: bytes of updates to keep; at most so many wait.

    Attributes:
        selector: as given.
        holes: selectors whose topics were taken out of it (``Session.unsubscribe``).
        ended: whether nothing is added any more.
        conflated: updates that others took the place of, at the server or here.
    """

    def __init__(self, selector: Selector, *, size: int = QUEUE_SIZE, octets: int = QUEUE_BYTES) -> None:
        if size < 1 or octets < 1:
            raise ValueError(f"a stream keeps at least 1 update and 1 byte, not {size} and {octets}")
        self.selector = selector
        self.holes: list[Selector] = []
        self.ended = False
        self._octets = octets
        self._queue = ConflatingQueue(size, octets)
        self._versions = VersionFilter()
        self._readers: deque[asyncio.Future[None]] = deque()
        self._error: SessionEnded | StreamOverflow | None = None
        self._folded = 0

    @property
    def waiting(self) -> int:
        """Updates that wait to be read."""
        return len(self._queue)

    @property
    def waiting_bytes(self) -> int:
        """Their size."""
        return self._queue.bytes

    @property
    def conflated(self) -> int:
        """See the class."""
        return self._folded + self._queue.conflated

    # --- For the reader -------------------------------------------------------------------------------------------

    async def next(self) -> Update:
        """Wait for the next update; see ``UpdateStream.__anext__``."""
        while not self._queue:
            if self.ended:
                self._wake()  # the readers behind this one have nothing to wait for either
                if self._error is not None:
                    raise self._error.again()
                raise StopAsyncIteration
            await self._wait()
        update = self._queue.pop()
        if self._queue:
            self._wake()
        return update

    async def _wait(self) -> None:
        reader = asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        try:
            await reader
        except asyncio.CancelledError:
            if reader.done() and not reader.cancelled():
                # Woken and cancelled at once: somebody else takes the update.
                self._wake()
            raise
        finally:
            if reader in self._readers:
                self._readers.remove(reader)

    def _wake(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                return

    # --- For the session ------------------------------------------------------------------------------------------

    def takes(self, topic: TopicPath) -> bool:
        """Tell whether it wants a topic."""
        return matches(self.selector, topic) and not any(matches(hole, topic) for hole in self.holes)

    def wants(self, selector: Selector) -> bool:
        """Tell whether it may want a topic that *selector* matches; if in doubt, it does."""
        return not any(covers(hole, selector) for hole in self.holes)

    def holes_in(self, selector: Selector) -> list[Selector]:
        """List what was taken out of it and may overlap *selector*."""
        return [hole for hole in self.holes if overlaps(hole, selector)]

    def offer(self, update: Update, octets: int) -> bool:
        """Take an update in that it wants, unless its version says that it is old.

        Args:
            update: as it came.
            octets: its size.

        Returns:
            Whether that ended it, because nothing can be spared any more.
        """
        if self.ended or not self._versions.passes(update):
            return False
        self._folded += update.folded
        self._queue.push(update, octets)
        overflows = self._queue.overflows
        if overflows:
            waiting, size = len(self._queue), self._queue.bytes
            self.end(
                StreamOverflow(
                    f"the stream of {self.selector.text} was read too slowly: the newest values of {waiting} topics "
                    f"wait, {size} bytes; its queue_bytes is {self._octets}"
                )
            )
        self._wake()
        return overflows

    def failed_over(self) -> None:
        """Another node serves the session: the current values follow."""
        self._versions.failed_over()

    def end(self, error: SessionEnded | StreamOverflow | None, *, drop: bool = False) -> None:
        """Add nothing any more; readers get what waits and then stop, or raise *error* if there is one.

        Args:
            error: why.
            drop: forget what waits.
        """
        if drop:
            self._queue.clear()
        if not self.ended:
            self.ended = True
            self._error = error
            self._wake()


class UpdateStream:
    """The updates of the topics that one selector matches; iterate over it with ``async for``.

    Several tasks may read one stream; each update goes to one of them. The iteration ends when the selector is
    unsubscribed, the stream or the session is closed, and raises the session's error if the session died. What waits
    in the queue is delivered before, unless the stream was closed.

    The session selects what its living streams want. Leaving ``async with stream`` closes the stream, and so does
    losing the last reference to it. Leaving an ``async for`` does not: the next one goes on where it stopped.

    Args:
        feed: where updates come from.
        close: ends a feed, and deselects what nobody wants any more.
    """

    def __init__(self, feed: Feed, close: Callable[[Feed], None]) -> None:
        self._feed = feed
        self._close = close
        self._finalizer = weakref.finalize(self, _abandon, asyncio.get_running_loop(), close, feed)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        state = "ended" if self.closed else "open"
        return f"<UpdateStream {self.selector} {state} waiting={self.waiting}>"

    @property
    def selector(self) -> str:
        """The selector in canonical form."""
        return self._feed.selector.text

    @property
    def waiting(self) -> int:
        """Updates that wait to be read."""
        return self._feed.waiting

    @property
    def waiting_bytes(self) -> int:
        """Their size in bytes: topics, and values as JSON text."""
        return self._feed.waiting_bytes

    @property
    def conflated(self) -> int:
        """Updates that others took the place of, because the connection or the reader of this stream was slow."""
        return self._feed.conflated

    @property
    def closed(self) -> bool:
        """Whether no further update will be added."""
        return self._feed.ended

    def close(self) -> None:
        """End the stream, drop what waits, and have deselected what no other stream wants; returns at once."""
        self._feed.end(None, drop=True)
        self._close(self._feed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        """Wait for the next update.

        Raises:
            StopAsyncIteration: the stream has ended.
            StreamOverflow: it has ended because it was read too slowly.
            SessionEnded: the session died of something.
        """
        return await self._feed.next()


def _abandon(loop: asyncio.AbstractEventLoop, close: Callable[[Feed], None], feed: Feed) -> None:
    """End a stream that nobody holds any more; called by the garbage collector, in whatever thread that runs."""
    if not feed.ended and not loop.is_closed():
        loop.call_soon_threadsafe(close, feed)
