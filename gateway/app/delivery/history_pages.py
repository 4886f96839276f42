"""Pages of the history of all topics that a selector matches, in the order of each partition (P14).

```text
log a    ──1────4──────7──…        read as far as it goes, or a portion
log b    ─────3────────────9
page:      1  3  4     7 │         up to where the first portion ends: behind it there may be more of a
```

A page is found anew for each request; nothing is kept here between two of them. So a reader may be as slow as it likes,
and goes on at any node: the place up to which it has read is its own. Topics without history have their current value
in the place of its event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.partition import Partition
from gateway.app.delivery.replicas import Replicas
from gateway.app.runtime.portions import portions
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.selectors import Selector, matches, partitions
from gateway.core.topics.versions import place_of
from gateway.core.types import EventId, TopicPath
from gateway.core.wire import codec
from gateway.ports import HistoryQuestion, StreamPosition, TopicValue

MOST_EVENTS: Final = 500
"""Events of a page: some milliseconds of a node and of Redis."""

PAGE_BYTES: Final = 128 * 1024
"""Bytes of encoded events above which a page is ended: an eighth of what a session may have waiting by default."""

LEAST_PORTION: Final = 2
"""Events that are read of each topic at first, so that one with a single event is read to its end."""

QUESTIONS_AT_ONCE: Final = 100
"""Histories that one call reads: others have their turn between two of them."""

TOPICS_AT_ONCE: Final = 1_000
"""Topics of a partition that are matched without a pause: not quite a millisecond."""

VALUES_PER_HISTORY: Final = 8
"""Values that are read in the time that reading a history takes. Who asks for topics that nobody here has subscribed to
has all values of their partition read for it each time, and is charged for that (P20)."""

PUT_BACK_LEASES: Final = 0.5
"""Leases, from when the grid lost writes, for which nothing is read: the nodes put back what they have seen (P10), each
as soon as it is there again. A reader that goes past an event before it is put back would never be given it, nor be
told of a gap. Whoever is away for longer is about to lose its lease."""

MOST_NAMED: Final = 20
"""Topics named of which something is missing."""

NOWHERE: Final = (0, 0)
"""A place before every event."""

Place = tuple[int, int]
"""Of an event in its partition: generation and sequence."""


@dataclass(slots=True)
class Page:
    """A part of a history; see ``HistoryPart``.

    Attributes:
        events: encoded.
        found: the same as they were published, each with whether it is a current value in the place of its event.
        size: bytes of them.
        positions: by partition, up to where nothing is missing.
        complete: whether that is all.
        missing: topics of which something is not kept any more, some of them; None if there is no gap.
        room: events that it has room for.
        work: histories that were asked, and a share for the events that were read.
    """

    events: list[bytes] = field(default_factory=list)
    found: list[tuple[TopicValue, bool]] = field(default_factory=list)
    size: int = 0
    positions: dict[int, EventId] = field(default_factory=dict)
    complete: bool = True
    missing: list[str] | None = None
    room: int = MOST_EVENTS
    work: int = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be added."""
        return self.room <= 0 or self.size >= PAGE_BYTES

    def add(self, event: TopicValue, *, snapshot: bool) -> None:
        """Add the next event."""
        topic, version, name, value, _ = event
        body = codec.encode_update(topic, version, name, value, snapshot=snapshot)
        self.events.append(body)
        self.found.append((event, snapshot))
        self.size += len(body)
        self.room -= 1

    def lacks(self, topic: str = "") -> None:
        """Note that something of a topic is missing, or that it cannot be told of which."""
        self.missing = [] if self.missing is None else self.missing
        if topic and len(self.missing) < MOST_NAMED:
            self.missing.append(topic)


class _Reading:
    """What was read of one topic's history for a page.

    Attributes:
        events: in order.
        is_last: whether there are no more.
        portion: events to read next.
    """

    __slots__ = ("events", "is_last", "portion")

    def __init__(self, portion: int) -> None:
        self.events: list[TopicValue] = []
        self.is_last = False
        self.portion = portion

    @property
    def end(self) -> Place:
        """Where the last one is."""
        return place_of(self.events[-1].event) if self.events else NOWHERE

    def count_up_to(self, end: Place) -> int:
        """Count the events up to a place."""
        return sum(place_of(each.event) <= end for each in self.events)


class HistoryPages:
    """Finds pages.

    Args:
        context: of the node.
        replicas: the node's copies of partitions: they tell which topics there are.
        history_of: tells how much history a topic keeps; None for none.
    """

    def __init__(
        self, context: Context, replicas: Replicas, history_of: Callable[[TopicPath], HistoryLimits | None]
    ) -> None:
        self._grid = context.grid
        self._depth = context.parameters.topic_depth
        self._put_back = PUT_BACK_LEASES * context.parameters.lease
        self._replicas = replicas
        self._history_of = history_of

    async def find(
        self, selector: Selector, after: Mapping[int, EventId], *, earliest: bool, limit: int | None = None
    ) -> Page:
        """Find the events behind places.

        Args:
            selector: which topics.
            after: by partition, the event up to which all is known.
            earliest: whether all others are read from the earliest event that is kept; if not, from now on.
            limit: most events; None for as many as a page has.

        Raises:
            GridUnavailable: see ``HistoryStore.read``.
        """
        page = Page(room=MOST_EVENTS if limit is None else min(limit, MOST_EVENTS))
        if not page.is_full:
            await self._until_put_back()
        needed = partitions(selector, self._depth)
        page.positions.update({number: event for number, event in after.items() if number in needed})
        if not earliest:
            for number in sorted(needed - after.keys()):
                position = await self._grid.topics.position(number)
                page.positions[number] = position.event(number)
        for number in sorted(needed):
            if page.is_full:
                page.complete = False
                break
            await self._find_in(number, selector, page)
        return page

    async def _until_put_back(self) -> None:
        """Wait until the nodes have had the time to put back what the grid has lost."""
        ago = self._grid.lost_writes_ago()
        if ago is not None and ago < self._put_back:
            await asyncio.sleep(self._put_back - ago)
            await self._until_put_back()  # it may have lost some again

    async def _find_in(self, number: int, selector: Selector, page: Page) -> None:
        """Find those of one partition."""
        if selector.literal:
            upto = await self._grid.topics.position(number)
            await self._read_in(number, upto, (TopicPath(selector.text),), None, page)
            return
        is_new = self._replicas.get(number) is None
        self._replicas.hold((number,))
        try:
            await self._replicas.complete((number,))
            partition = self._replicas.whole(number)
            while partition is None:  # its place in the stream was lost in this moment
                await asyncio.sleep(0)
                await self._replicas.complete((number,))
                partition = self._replicas.whole(number)
            if is_new:
                page.work += len(partition.values) // VALUES_PER_HISTORY
            upto = partition.position
            topics = await self._matching(partition, selector, page.positions.get(number))
            await self._read_in(number, upto, topics, partition, page)
        finally:
            self._replicas.release((number,))

    async def _matching(self, partition: Partition, selector: Selector, after: EventId | None) -> Sequence[TopicPath]:
        """Name the topics that have news."""
        place = NOWHERE if after is None else place_of(after)
        known = partition.matching(selector)
        if known is not None:
            return [topic for topic in known if _is_news(partition.values.get(topic), place)]
        found: list[TopicPath] = []
        async for some in portions(list(partition.values), TOPICS_AT_ONCE):
            found += [
                topic for topic in some if matches(selector, topic) and _is_news(partition.values.get(topic), place)
            ]
        return found

    async def _read_in(
        self,
        number: int,
        upto: StreamPosition,
        topics: Collection[TopicPath],
        partition: Partition | None,
        page: Page,
    ) -> None:
        after = page.positions.get(number)
        if after is not None and place_of(after)[0] > self._grid.generation:
            # It is of a grid that is not there any more: nobody can tell what followed.
            page.lacks()
            after = None
        kept = [topic for topic in topics if self._history_of(topic) is not None]
        readings = await self._read(number, kept, after, page)
        ends = [each.end for each in readings.values() if not each.is_last]
        end = min(ends, default=None)
        place = NOWHERE if after is None else place_of(after)
        sources = [[(place_of(each.event), each, False) for each in reading.events] for reading in readings.values()]
        plain = [topic for topic in topics if topic not in readings]
        current = (
            await self._grid.topics.read(plain)
            if partition is None
            else [partition.values.get(topic) for topic in plain]
        )
        sources.append(
            sorted(
                (place_of(each.event), each, True)
                for each in current
                if each is not None and _is_news(each, place) and (each.value or after is not None)
            )
        )
        known = (upto.grid_generation, upto.sequence)
        if partition is not None:
            # Topics are read one after the other, and which of them have news is known up to here: before what was
            # published since to one of them, something may stand of another. All of it is for the next page, or live.
            sources = [[each for each in source if each[0] <= known] for source in sources]
            end = None if end is not None and end >= known else end
        last: Place | None = None
        for found, event, snapshot in merge(*sources):
            if (end is not None and found > end) or page.is_full:
                page.complete = False
                break
            page.add(event, snapshot=snapshot)
            last = found
        else:
            if end is None:
                reached = max(place, known)
                last = reached if last is None else max(last, reached)
            else:
                page.complete = False
        if last is not None and last > NOWHERE:
            page.positions[number] = EventId(f"{number}-{last[0]}-{last[1]}")

    async def _read(
        self, number: int, topics: Sequence[TopicPath], after: EventId | None, page: Page
    ) -> dict[TopicPath, _Reading]:
        """Read as much of each history as a page needs; a topic whose history ends, or has a hole, sets the end."""
        portion = max(LEAST_PORTION, min(page.room, 2 * page.room // max(1, len(topics))))
        readings = {topic: _Reading(portion) for topic in topics}
        wanted = [(topic, after) for topic in topics]
        blocked = False
        first = True
        while wanted and not blocked:
            for start in range(0, len(wanted), QUESTIONS_AT_ONCE):
                asked = wanted[start : start + QUESTIONS_AT_ONCE]
                found = await self._grid.history.read(
                    number, [HistoryQuestion(topic, begin, readings[topic].portion) for topic, begin in asked]
                )
                for (topic, _), part in zip(asked, found, strict=True):
                    reading = readings[topic]
                    page.work += 1 + len(part.events) // 16
                    if part.has_gap and not first:
                        # What is behind the hole is for the next page, which begins by saying so.
                        blocked = True
                        continue
                    if part.has_gap:
                        page.lacks(topic)
                    reading.events += part.events
                    reading.is_last = part.is_last
                    reading.portion = min(2 * reading.portion, MOST_EVENTS)
            first = False
            unread = {topic: each for topic, each in readings.items() if not each.is_last}
            end = min((each.end for each in unread.values()), default=None)
            if end is None:
                break
            if sum(each.count_up_to(end) for each in readings.values()) >= page.room:
                break
            wanted = [(topic, each.events[-1].event) for topic, each in unread.items() if each.end == end]
        return readings


def _is_news(value: TopicValue | None, after: Place) -> bool:
    """Tell whether something was published to a topic behind a place; not if nobody knows when it was removed."""
    return value is not None and bool(value.event) and place_of(value.event) > after
