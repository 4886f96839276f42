"""Streams of updates: what ``subscribe`` returns (promises P6 and P9 on the client's side).

```text
update ── selector matches? ── version grew? ── queue ── async for
                                                  │
                            full: newest per topic┘
```

**Versions.** A stream remembers the version of every topic it has delivered. A live update passes if its version is
higher. A snapshot passes also with an equal version, if the stream has not delivered that topic since it began or since
the last failover: after a failover each topic's current value comes once more, so that the application knows that it
is current. A lower version never passes.

**Slow consumers.** Up to a bound every update is kept, in order. Beyond, what waits is folded to the newest update per
topic until the queue has been emptied. So a stream holds at most its bound or one update per topic, whichever is more,
and reading it late gives current values and not old ones. The connection is never held up for a slow stream: replies
to requests come over the same connection, and an application that publishes while it reads would wait for itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from types import TracebackType
from typing import Final, Self

from gateway.client.errors import SessionEnded
from gateway.client.types import Update
from gateway.core.selectors import Selector, matches
from gateway.core.types import TopicPath

QUEUE_SIZE: Final = 10_000
"""Updates a stream keeps before it conflates: ten seconds of a busy topic, some MB of memory."""

ROUTES_KEPT: Final = 16_384
"""Topics for which it is remembered which streams match; beyond, the memory is emptied and fills again."""


class ConflatingQueue:
    """First in, first out up to a bound; beyond it, the newest update per topic.

    Args:
        size: updates to keep before conflating; at least 1.

    Attributes:
        conflated: updates that were replaced by newer ones.
    """

    __slots__ = ("_folded", "_queue", "_size", "conflated")

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: deque[Update] = deque()
        self._folded: OrderedDict[str, Update] = OrderedDict()
        self.conflated = 0

    def __len__(self) -> int:
        return len(self._queue) + len(self._folded)

    def push(self, update: Update) -> None:
        """Add an update at the end, or in the place of an older one of its topic."""
        if self._folded:
            self._fold(update)
        elif len(self._queue) < self._size:
            self._queue.append(update)
        else:
            while self._queue:
                self._fold(self._queue.popleft())
            self._fold(update)

    def pop(self) -> Update:
        """Take the first one out.

        Raises:
            IndexError: the queue is empty.
        """
        return self._folded.popitem(last=False)[1] if self._folded else self._queue.popleft()

    def clear(self) -> None:
        """Forget what waits."""
        self._queue.clear()
        self._folded.clear()

    def _fold(self, update: Update) -> None:
        if update.topic in self._folded:
            self.conflated += 1
        self._folded[update.topic] = update


class VersionFilter:
    """Decides which updates of each topic a stream delivers; see the module."""

    __slots__ = ("_epoch", "_seen")

    def __init__(self) -> None:
        self._epoch = 0
        self._seen: dict[str, tuple[int, int]] = {}

    def failed_over(self) -> None:
        """Let one snapshot of each topic pass again, also with the version delivered last."""
        self._epoch += 1

    def passes(self, update: Update) -> bool:
        """Tell whether to deliver *update*; if so, it counts as delivered."""
        seen = self._seen.get(update.topic)
        if seen is not None:
            version, epoch = seen
            if update.version < version:
                return False
            if update.version == version and not (update.snapshot and epoch < self._epoch):
                return False
        self._seen[update.topic] = (update.version, self._epoch)
        return True


class UpdateStream:
    """The updates of the topics that one selector matches; iterate over it with ``async for``.

    Several tasks may read one stream; each update goes to one of them. The iteration ends when the selector is
    unsubscribed, the stream or the session is closed, and raises the session's error if the session died. What waits
    in the queue is delivered before.

    Leaving ``async with stream`` closes the stream.

    Args:
        selector: which topics.
        size: updates to keep for a slow consumer before conflating.
    """

    def __init__(self, selector: Selector, *, size: int = QUEUE_SIZE) -> None:
        if size < 1:
            raise ValueError(f"a stream keeps at least 1 update, not {size}")
        self._selector = selector
        self._queue = ConflatingQueue(size)
        self._versions = VersionFilter()
        self._readers: deque[asyncio.Future[None]] = deque()
        self._ended = False
        self._error: SessionEnded | None = None

    def __repr__(self) -> str:
        state = "ended" if self._ended else "open"
        return f"<UpdateStream {self._selector.text} {state} waiting={len(self._queue)}>"

    @property
    def selector(self) -> str:
        """The selector in canonical form."""
        return self._selector.text

    @property
    def waiting(self) -> int:
        """Updates that wait to be read."""
        return len(self._queue)

    @property
    def conflated(self) -> int:
        """Updates that were replaced by newer ones of their topic because this stream was read too slowly."""
        return self._queue.conflated

    @property
    def closed(self) -> bool:
        """Whether no further update will be added."""
        return self._ended

    def close(self) -> None:
        """Drop what waits and end the iteration. The session keeps its selection; see ``Session.unsubscribe``."""
        self._queue.clear()
        self.end(None)

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
            SessionEnded: the session died of something.
        """
        while not self._queue:
            if self._ended:
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

    def offer(self, update: Update) -> None:
        """Take an update in that the selector matches, unless its version says that it is old."""
        if not self._ended and self._versions.passes(update):
            self._queue.push(update)
            self._wake()

    def failed_over(self) -> None:
        """Another node serves the session: the current values follow."""
        self._versions.failed_over()

    def end(self, error: SessionEnded | None) -> None:
        """Add nothing any more; readers get what waits and then stop, or raise *error* if there is one."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wake()


class Streams:
    """All streams of a session, and which of them each topic goes to."""

    def __init__(self) -> None:
        self._streams: list[UpdateStream] = []
        self._routes: dict[str, tuple[UpdateStream, ...]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: UpdateStream) -> None:
        """Begin to hand updates to *stream*."""
        self._streams = [each for each in self._streams if not each.closed]
        self._streams.append(stream)
        self._routes.clear()

    def discard(self, stream: UpdateStream) -> None:
        """End *stream* and forget it; nothing happens if it is not here."""
        stream.end(None)
        if stream in self._streams:
            self._streams.remove(stream)
            self._routes.clear()

    def unsubscribe(self, selector: Selector) -> None:
        """End the streams of exactly this selector."""
        for stream in [each for each in self._streams if each.selector == selector.text]:
            self.discard(stream)

    def dispatch(self, update: Update) -> None:
        """Hand an update to the streams whose selector matches its topic."""
        routes = self._routes.get(update.topic)
        if routes is None:
            routes = self._route(update.topic)
        for stream in routes:
            stream.offer(update)

    def _route(self, topic: str) -> tuple[UpdateStream, ...]:
        if len(self._routes) >= ROUTES_KEPT:
            self._routes.clear()
        routes = tuple(stream for stream in self._streams if matches(stream._selector, TopicPath(topic)))  # noqa: SLF001 - same module
        self._routes[topic] = routes
        return routes

    def failed_over(self) -> None:
        """Tell every stream that current values follow."""
        for stream in self._streams:
            stream.failed_over()

    def end(self, error: SessionEnded | None) -> None:
        """End every stream."""
        for stream in self._streams:
            stream.end(error)
        self._streams.clear()
        self._routes.clear()
