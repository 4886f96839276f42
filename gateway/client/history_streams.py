"""Streams of topics with history: what ``subscribe(start=…)`` returns (P14); they are driven by ``LogReader``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Protocol

from gateway.client.queues import QUEUE_BYTES, QUEUE_SIZE
from gateway.client.streams import Feed, UpdateStream
from gateway.core.client.errors import PositionGone, SessionEnded, StreamOverflow
from gateway.core.client.log_reader import LogReader
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.client.types import Update
from gateway.core.topics.selectors import Selector
from gateway.core.types import EventId
from gateway.core.wire.packets import HistoryPart, ReadHistory


class Source(Protocol):
    """What a stream of topics with history needs of its session."""

    async def read_history(self, ask: ReadHistory, seconds: float | None = None) -> HistoryPart:
        """Ask for a page, however many connections it takes.

        Args:
            ask: which.
            seconds: how long it may take; None for the session's default.

        Raises:
            RequestRefused, SessionEnded: there will be none.
            RequestTimedOut: it was not had in time.
        """

    @property
    def interruptions(self) -> int:
        """How often it happened that live updates might not follow what came before."""

    def settled(self) -> frozenset[int]:
        """Name the partitions of which all current values have come; none while those of a subscribe have yet to."""


class HistoryFeed(Feed):
    """The session's half of such a stream.

    Args:
        selector: which topics.
        source: the session.
        start: where to begin.
        on_gap: ``tell`` to mark the first update behind a gap, ``refuse`` to raise instead.
        size: as of ``Feed``; but nothing is conflated.
        octets: likewise.
    """

    def __init__(
        self,
        selector: Selector,
        source: Source,
        *,
        start: str,
        on_gap: str,
        size: int = QUEUE_SIZE,
        octets: int = QUEUE_BYTES,
    ) -> None:
        super().__init__(selector, size=size, octets=octets)
        self._source = source
        self._refuses = on_gap == "refuse"
        self._lock = asyncio.Lock()
        self._asking: asyncio.Timeout | None = None
        self._gap_told = False
        self.reader = LogReader(start, size=size, octets=octets)

    @property
    def waiting(self) -> int:
        """See ``Feed``; there may be more in the history."""
        return len(self.reader)

    @property
    def waiting_bytes(self) -> int:
        """See ``Feed``."""
        return self.reader.bytes

    @property
    def conflated(self) -> int:
        """See ``Feed``."""
        return 0

    def offer(self, update: Update, octets: int) -> bool:
        """See ``Feed``."""
        if not self.ended:
            self.reader.offer(update, octets)
            self._wake()
        return False

    def failed_over(self) -> None:
        """See ``Feed``."""
        self.interrupted()

    def interrupted(self) -> None:
        """Live updates may not follow what came before."""
        self.reader.interrupt()
        self._wake()

    def settled(self) -> None:
        """The session may be live again."""
        self.reader.wake()
        self._wake()

    def end(self, error: SessionEnded | StreamOverflow | None, *, drop: bool = False) -> None:
        """See ``Feed``; nobody waits for a page any more."""
        if drop:
            self.reader.drop()
        super().end(error, drop=drop)
        if self._asking is not None:
            self._asking.reschedule(asyncio.get_running_loop().time())

    async def begin(self, seconds: float | None) -> None:
        """Find out where the partitions are, for who begins now or at a position, in so many seconds."""
        if not self.reader.earliest:
            await self._ask(seconds, limit=0)
            self.reader.consume()

    async def next(self) -> Update:
        """See ``Feed``; updates are taken by one task after the other."""
        async with self._lock:
            reader = self.reader
            reader.consume()
            while not len(reader):
                if self.ended:
                    if self._error is not None:
                        raise self._error.again()
                    raise StopAsyncIteration
                if reader.is_live or reader.is_waiting:
                    await self._wait()
                else:
                    await self._ask_until_ended()
                    reader.consume()
            if self._refuses and reader.is_at_gap and not self._gap_told:
                # It is not taken out: whoever reads on begins with it.
                self._gap_told = True
                raise PositionGone(
                    f"events behind the position are not kept any more, of {', '.join(reader.missing) or 'its topics'}"
                )
            self._gap_told = False
            return reader.take()

    async def _ask_until_ended(self) -> None:
        """Ask for a page, which is waited for as long as the session lives and the stream has not ended."""
        try:
            async with asyncio.timeout(None) as self._asking:
                await self._ask(inf)
        except TimeoutError:
            if not self.ended:
                raise
        finally:
            self._asking = None

    async def _ask(self, seconds: float | None, limit: int | None = None) -> None:
        source, reader = self._source, self.reader
        interruptions, settled = source.interruptions, source.settled()
        ask = ReadHistory(UNNUMBERED, self.selector.text, reader.after, reader.earliest, limit)
        part = await source.read_history(ask, seconds)
        holds = source.interruptions == interruptions and part.positions.keys() <= settled
        if not self.ended:
            reader.answered(part, holds=holds)
            if source.interruptions != interruptions or source.settled() != settled:
                reader.wake()  # what it would wait for has come while the page was under way


class HistoryStream(UpdateStream):
    """The events of the topics that one selector matches, from a place on: each once, in order, none folded.

    Topics without history have their current value in the place of what is not kept.
    """

    _feed: HistoryFeed

    @property
    def position(self) -> str | None:
        """Up to where all has been had: to be stored, and given as ``start`` to a stream of the same selector.

        An update counts as had when the next one is asked for. None if nothing has been had since the earliest event.
        """
        return self._feed.reader.position

    def done(self) -> None:
        """Say that the update which was taken last is done; asking for the next one does so, too."""
        self._feed.reader.consume()


Ask = Callable[[ReadHistory], Awaitable[HistoryPart]]
"""Asks for a page."""


async def read_history(ask: Ask, topic: str, after: dict[int, EventId], limit: int) -> list[Update]:
    """Read the history of a topic, as far as it goes or up to *limit* events."""
    reader = LogReader("earliest", size=1, octets=1)
    events: list[Update] = []
    while True:
        part = await ask(ReadHistory(UNNUMBERED, topic, after, limit=limit - len(events)))
        reader.answered(part, holds=False)
        while len(reader) and len(events) < limit:
            events.append(reader.take())
        if part.complete or len(events) >= limit:
            return events
        after = dict(part.positions)
