"""One topic partition as a node holds it: the newest values, the place in its stream, and what came last."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from gateway.app.delivery.matching import MatchingQueue
from gateway.app.delivery.recent_entries import RecentEntries
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.topics.selectors import Selector, matches
from gateway.core.types import EventId, GridGeneration, TopicPath, Version
from gateway.core.wire import codec
from gateway.ports import StreamPosition, TopicValue

SEARCH_AT_ONCE: Final = 1_000
"""Topics that are searched for a selector without a pause: not quite a millisecond, once per selector."""

MATCHED_SELECTORS: Final = 256
"""Selectors per partition whose topics are remembered until a new topic comes."""

SNAPSHOT_BYTES: Final = 1024 * 1024
"""Bytes of encoded snapshots that a partition keeps, about: some thousand usual ones. Sessions that want the same at
about the same time share them, and a reader of a hundred thousand topics does not leave them all behind."""

RUN_BYTES: Final = 256
"""Bytes counted for each of them besides its body: the run and its place in the table."""

NOWHERE: Final = StreamPosition(GridGeneration(0), 0)
"""The place in a stream that is not followed yet."""


NOTHING: Final = TopicValue(TopicPath(""), Version(0), EventId(""), b"")
"""Stands at a place that no topic has."""


class TopicValues:
    """The newest value of each topic. Each topic has a place, and keeps it for as long as it is here.

    So whoever goes through all of them in several steps knows by one number what it has seen, whatever changes
    meanwhile. A topic that is let go of leaves its place to the next new one: there are no more places than there were
    topics at once. Who has passed that place has not seen the new one, as of a topic at a place behind all others.

    Attributes:
        places: where the value of each topic is.
        newest: the values by place; ``NOTHING`` at a place that no topic has.
        refilled: topics that have got the place of another one, since somebody began to keep this list; None if nobody
            does.
    """

    __slots__ = ("_free", "newest", "places", "refilled")

    def __init__(self) -> None:
        self.places: dict[TopicPath, int] = {}
        self.newest: list[TopicValue] = []
        self.refilled: list[TopicPath] | None = None
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[TopicPath]:
        return iter(self.places)

    def __contains__(self, topic: TopicPath) -> bool:
        return topic in self.places

    def get(self, topic: TopicPath) -> TopicValue | None:
        """Return the newest value of a topic; None if it is not here."""
        place = self.places.get(topic)
        return None if place is None else self.newest[place]

    @property
    def end(self) -> int:
        """The place behind all that topics have, or have had."""
        return len(self.newest)

    def at(self, place: int) -> TopicValue | None:
        """Return the newest value at a place; None if its topic has been let go of."""
        value = self.newest[place]
        return None if value is NOTHING else value

    def add(self, value: TopicValue) -> None:
        """Take in the value of a topic that is not here yet."""
        if self._free:
            place = self.places[value.topic] = self._free.pop()
            self.newest[place] = value
            if self.refilled is not None:
                self.refilled.append(value.topic)
        else:
            self.places[value.topic] = len(self.newest)
            self.newest.append(value)

    def remove(self, topic: TopicPath) -> None:
        """Let go of a topic, if it is here. Its place is free, and the others keep theirs."""
        place = self.places.pop(topic, None)
        if place is not None:
            self.newest[place] = NOTHING
            self._free.append(place)


class Snapshots:
    """Snapshot packets of values, encoded once for all sessions that want them at about the same time."""

    __slots__ = ("_bytes", "_runs")

    def __init__(self) -> None:
        self._runs: dict[TopicPath, Run] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def bytes(self) -> int:
        """Bytes of what is kept, about."""
        return self._bytes

    def of(self, value: TopicValue) -> Run:
        """Return the packet of the newest value of a topic."""
        runs = self._runs
        run = runs.get(value.topic)
        if run is None:
            topic, version, event, text, _ = value
            body = codec.encode_update(topic, version, event, text, snapshot=True)
            run = runs[topic] = Run.of(Outgoing(topic, body))
            self._bytes += run.size + RUN_BYTES
            while self._bytes > SNAPSHOT_BYTES and len(runs) > 1:
                self.forget(next(iter(runs)))
        return run

    def forget(self, topic: TopicPath) -> None:
        """The topic has another value now; no effect if nothing of it is kept."""
        run = self._runs.pop(topic, None)
        if run is not None:
            self._bytes -= run.size + RUN_BYTES


class Partition:
    """The copy of one topic partition.

    Attributes:
        number: which one.
        values: the newest value of each topic.
        snapshots: encoded, of those that were asked for last.
        recent: what its stream brought last.
        removals: topics that were removed, and when that was noted or the grid was last asked whether it remembers it,
            the earliest first; some of them may have a value again.
        departures: the same of topics of presence, which the grid forgets sooner.
        generation: of the grid when the entries were written that its stream brings.
        holders: sessions and pending subscriptions that need it.
        complete: set once all values have been read; cleared while they are read again.
        awaited: the places in its stream that somebody waits for it to come to.
        queue: where what its stream brings waits until it is applied; None until its stream is followed.
        reader: reads the values; None when they have been read.
    """

    __slots__ = (
        "_matching",
        "awaited",
        "complete",
        "departures",
        "generation",
        "holders",
        "number",
        "queue",
        "reader",
        "recent",
        "removals",
        "snapshots",
        "values",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.values = TopicValues()
        self.snapshots = Snapshots()
        self.recent = RecentEntries(NOWHERE)
        self.removals: OrderedDict[TopicPath, float] = OrderedDict()
        self.departures: OrderedDict[TopicPath, float] = OrderedDict()
        self.generation = NOWHERE.grid_generation
        self._matching: dict[Selector, tuple[TopicPath, ...]] = {}
        self.holders = 0
        self.queue: MatchingQueue | None = None
        self.complete = asyncio.Event()
        self.awaited: dict[asyncio.Future[None], StreamPosition] = {}
        self.reader: asyncio.Task[None] | None = None

    @property
    def position(self) -> StreamPosition:
        """The place of the last batch of its stream that was applied, or from which the stream is followed.

        Every session that is sent updates of this partition has been handed all that it is to have up to here.
        """
        return self.recent.position

    async def come_to(self, position: StreamPosition) -> None:
        """Wait until it has come to a place in its stream, or is given up, or is read anew from a later one."""
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.awaited[reached] = position
        try:
            await reached
        finally:
            del self.awaited[reached]

    def advanced(self) -> None:
        """It has come further; those go on who waited for that. Whoever calls it asks first whether any do."""
        for reached, position in self.awaited.items():
            if position <= self.position and not reached.done():
                reached.set_result(None)

    def give_up(self) -> None:
        """Nobody holds it any more: whoever waits still, waits for a session that is gone."""
        self.complete.set()
        for reached in self.awaited:
            if not reached.done():
                reached.set_result(None)

    def continues(self, position: StreamPosition) -> bool:
        """Tell whether the stream of today goes on behind a place: in another generation, entries may be lost."""
        # 0 is that of a stream that never had an entry.
        return position.grid_generation in {self.position.grid_generation, 0}

    @property
    def handed_out(self) -> StreamPosition | None:
        """The place up to which sessions have been handed all, that of the batch which is being applied included.

        None if it cannot be told: a new generation of the grid has just begun in the middle of it.
        """
        applied = () if self.queue is None else self.queue.applied()
        if not applied:
            return self.position
        generation, sequence = self.position
        return StreamPosition(generation, sequence + len(applied)) if generation == self.generation else None

    def since(self, position: StreamPosition) -> list[TopicValue] | None:
        """List all that sessions have been sent since a place in the stream, in order.

        Args:
            position: where; see ``RecentEntries.after``. It may lie in the batch that is being applied.

        Returns:
            The entries up to ``position``, and what has been applied of the batch behind it; None if some of them are
            not at hand.
        """
        applied = () if self.queue is None else self.queue.applied()
        if position > self.position:
            ahead = position.sequence - self.position.sequence
            is_here = position.grid_generation == self.position.grid_generation and ahead <= len(applied)
            return list(applied[ahead:]) if is_here else None
        found = self.recent.after(position)
        if found is not None:
            found.extend(applied)
        return found

    def matching(self, selector: Selector) -> tuple[TopicPath, ...] | None:
        """Find the topics here that a selector matches; thousands of sessions that fail over share a few selectors.

        Returns:
            The topics; None if there are too many here to look at all of them without a pause.
        """
        if selector.literal:
            topic = TopicPath(selector.text)
            return (topic,) if topic in self.values else ()
        found = self._matching.get(selector)
        if found is None:
            if len(self.values) > SEARCH_AT_ONCE:
                return None
            if len(self._matching) >= MATCHED_SELECTORS:
                self._matching.clear()
            found = self._matching[selector] = tuple([each for each in self.values if matches(selector, each)])
        return found

    def knows(self, selector: Selector) -> bool:
        """Tell whether ``matching`` finds the topics of a selector without a search."""
        return selector.literal or selector in self._matching

    def let_go(self, topic: TopicPath) -> None:
        """Keep nothing of a topic; whoever calls it says ``extended`` then."""
        self.values.remove(topic)
        self.snapshots.forget(topic)
        self.removals.pop(topic, None)
        self.departures.pop(topic, None)

    def extended(self) -> None:
        """A topic has come that was not here before, or has gone."""
        self._matching.clear()

    def snapshot(self, value: TopicValue) -> Run:
        """Return the snapshot packet of the newest value of a topic, encoded once for all sessions."""
        return self.snapshots.of(value)
