"""What sessions missed that come back at about the same time, found for all of them together.

They make an index of their own. Each event is matched there once, and its text is shared by all who get it: a storm
costs what its events cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.partition import Partition
from gateway.app.delivery.replay.replay import Replay, update_of
from gateway.app.delivery.replay.stretches import Stretches
from gateway.app.delivery.replicas import Replicas
from gateway.app.runtime.portions import portions
from gateway.catalogue import metrics as catalogue
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.topics.selection_index import SelectionIndex
from gateway.core.types import TopicPath
from gateway.core.wire.codes import NotReplayed
from gateway.ports import GridUnavailable, StreamPosition, TopicValue

GATHER: Final = 0.01
"""Seconds in which sessions gather that missed something, so that it is looked at once for all of them: nothing against
the time that they have been away, and in a storm some of them come in it."""

REST: Final = 2.0
"""Times as long as the last finding took, until the next one begins: however much was missed, a storm leaves most of
the loop to others, and the more each finding costs the more sessions share it."""

LONGEST_REST: Final = 0.25
"""Seconds of that at most; clients wait five for their welcome."""

MATCHED_AT_ONCE: Final = 64
"""Events matched between two looks at the clock."""

MATCHING_SECONDS: Final = 0.002
"""Seconds of matching before others get their turn of the loop (P20)."""

INDEXED_AT_ONCE: Final = 50
"""Sessions put into the index of those who wait before others get their turn: about a millisecond."""

RESUMED_AT_ONCE: Final = 20
"""Sessions that go on together when they have what they missed: a welcome each, two or three milliseconds."""

RUN_BYTES: Final = 16 * 1024
"""Bytes of updates above which a run is ended, as of live ones."""


class Segment:
    """Updates that go to the same sessions, one after the other in the stream.

    Attributes:
        first: number of the first.
        packets: them.
        numbers: of each, in the stream.
        sizes: of the values, in bytes.
        size: of all packets, in bytes.
        to: the sessions.
    """

    __slots__ = ("numbers", "packets", "size", "sizes", "to")

    def __init__(self, to: tuple[Replay, ...]) -> None:
        self.to = to
        self.packets: list[Outgoing] = []
        self.numbers: list[int] = []
        self.sizes: list[int] = []
        self.size = 0

    def add(self, number: int, value: TopicValue) -> None:
        """Add the next one."""
        update = update_of(value)
        self.packets.append(update)
        self.numbers.append(number)
        self.sizes.append(len(value.value))
        self.size += len(update.body)


class Gathering:
    """Finds what sessions missed, one crowd after the other: who comes while one is served is of the next one.

    Args:
        context: of the node.
        replicas: the copies of partitions.
        stretches: what is at hand of the streams.

    Attributes:
        matched: events that were matched with those who wait.
        finds: how often that was begun for some of them.
    """

    def __init__(self, context: Context, replicas: Replicas, stretches: Stretches) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._traffic = context.journal.traffic
        self._depth = context.parameters.topic_depth
        self._replicas = replicas
        self._stretches = stretches
        self._background = context.background
        self._waiting: dict[Replay, asyncio.Future[None]] = {}
        self._serves = False
        self.matched = 0
        self.finds = 0

    async def find(self, replay: Replay) -> None:
        """Find what a session missed, with all others who come at about the same time."""
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[replay] = found
        self._begin()
        await found

    def _begin(self) -> None:
        if self._waiting and not self._serves:
            self._serves = True
            self._background.once(self._serve(), "replay")

    async def _serve(self) -> None:
        """Serve those who have gathered, until nobody has."""
        rest = GATHER
        try:
            while True:
                await asyncio.sleep(rest)
                gathered, self._waiting = self._waiting, {}
                if not gathered:
                    return
                self.finds += 1
                began = self._clock.monotonic()
                await self._find_for(gathered)
                rest = max(GATHER, min(LONGEST_REST, REST * (self._clock.monotonic() - began)))
        finally:
            self._serves = False
            self._begin()  # after a bug, which is told of, others are served all the same

    async def _find_for(self, gathered: dict[Replay, asyncio.Future[None]]) -> None:
        """Find what sessions missed, for all of them together, and let them go on."""
        try:
            await self._find_all(list(gathered))
        except BaseException:
            for replay in gathered:
                for number in list(replay.wanted):
                    replay.refuse(number, NotReplayed.GAP)
            raise
        finally:
            async for together in portions(list(gathered.values()), RESUMED_AT_ONCE):
                for found in together:
                    if not found.done():
                        found.set_result(None)

    async def _find_all(self, replays: Sequence[Replay]) -> None:
        index: SelectionIndex[Replay] = SelectionIndex(depth=self._depth)
        by_partition: dict[int, list[Replay]] = {}
        async for some in portions(replays, INDEXED_AT_ONCE):
            for replay in some:
                index.set(replay, replay.selections)
                for number in replay.wanted:
                    by_partition.setdefault(number, []).append(replay)
        for number, concerned in by_partition.items():
            await self._find_in(number, concerned, index)

    async def _find_in(self, number: int, replays: Sequence[Replay], index: SelectionIndex[Replay]) -> None:
        partition = self._replicas.whole(number)
        if partition is None:
            return  # ``settle`` refuses it
        lowest = await self._reach(partition, replays)
        if lowest is None:
            return
        entries = self._stretches.since(partition, lowest)
        if entries is None:
            return
        upto = lowest._replace(sequence=lowest.sequence + len(entries))
        waiting = {each for each in replays if number in each.wanted}
        segment = Segment(())
        looked = self._clock.monotonic()
        for at, value in enumerate(entries):
            if at % MATCHED_AT_ONCE == 0 and self._clock.monotonic() - looked >= MATCHING_SECONDS:
                await asyncio.sleep(0)
                looked = self._clock.monotonic()
            self.matched += 1
            matching = index.match(value.topic)
            if matching is not segment.to or segment.size >= RUN_BYTES:
                self._hand_out(number, segment, waiting)
                segment = Segment(matching)
            if matching:
                segment.add(lowest.sequence + at + 1, value)
        self._hand_out(number, segment, waiting)
        self._metrics.add(catalogue.REPLAY_EVENTS, len(entries))
        for replay in waiting:
            replay.upto[number] = upto

    async def _reach(self, partition: Partition, replays: Sequence[Replay]) -> StreamPosition | None:
        """Have everything read that somebody missed; refuse those for whom there is not all of it.

        Returns:
            The furthest place from which on everything is at hand; None if nobody is left.
        """
        number = partition.number
        places = sorted({each.wanted[number] for each in replays})
        first, behind = 0, len(places)
        why = NotReplayed.GAP
        before = self._stretches.reads
        # Nearly always the furthest place is at hand, or can be read; else the first is looked for by halves.
        at = 0
        while first < behind:
            try:
                if await self._stretches.reach(partition, places[at]):
                    behind = at
                else:
                    first = at + 1
            except GridUnavailable:
                first, why = len(places), NotReplayed.BEHIND
                break
            at = (first + behind) // 2
        if self._stretches.reads > before:
            self._metrics.add(catalogue.REPLAY_READS, self._stretches.reads - before)
        lost = set(places[:first])
        for replay in replays:
            if number in replay.wanted and replay.wanted[number] in lost:
                replay.refuse(number, why)
        return places[first] if first < len(places) else None

    def _hand_out(self, number: int, segment: Segment, waiting: set[Replay]) -> None:
        """Hand updates to those of the sessions that have not had them."""
        if not segment.packets:
            return
        whole = Run(tuple(segment.packets))
        tails: dict[int, Run] = {}
        begins = [0] * len(segment.packets)
        numbers = segment.numbers
        for replay in segment.to:
            if replay not in waiting:
                continue
            had = replay.wanted[number].sequence
            if had < numbers[0]:
                replay.add(number, whole)
                begins[0] += 1
            elif had < numbers[-1]:
                first = next(at for at, each in enumerate(numbers) if each > had)
                if first not in tails:
                    tails[first] = Run(tuple(segment.packets[first:]))
                replay.add(number, tails[first])
                begins[first] += 1
        if self._traffic is not None:
            for packet, size, receivers in zip(segment.packets, segment.sizes, accumulate(begins), strict=True):
                self._traffic.delivered(TopicPath(packet.topic or ""), size, receivers)
