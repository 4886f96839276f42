"""What returning sessions missed, from the resume that names positions to the turn in which they go on (P13).

```text
resume with positions ─▶ copies whole, as new as the grid was ─┬─ nothing was missed ──────────▶ settled
                         when the session was claimed          └─ gathered with others ──found─▶ settled
                         (bounded: PATIENCE)                                                      │ same turn
                                       welcome, what was missed, what comes from now on ◀── in the index
```

**Nothing falls between.** What a session is handed ends at the place that sessions in the index have been sent up to,
half a batch included. ``settle`` brings it there, and whoever calls it puts the session into the index before the loop
goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.partition import Partition
from gateway.app.delivery.read_barrier import ReadBarrier
from gateway.app.delivery.replay.gathering import Gathering
from gateway.app.delivery.replay.replay import Replay, update_of
from gateway.app.delivery.replay.stretches import Stretches
from gateway.app.delivery.replicas import Replicas
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.core.stream.runs import Run
from gateway.core.topics.topics import topic_partition
from gateway.core.types import EventId, TopicPath
from gateway.core.wire.codes import NotReplayed
from gateway.ports import GridUnavailable, StreamPosition

PATIENCE: Final = 2.0
"""Seconds that a returning session waits until this node has a copy of its partitions, as new as what its client may
have seen: some reads of the grid, and on a machine that a storm keeps busy some turns of the loop besides. It has no
welcome meanwhile; clients wait five seconds for one, and a copy is waited for two of them at most."""

READ_ON: Final = 3
"""Times that what came while something was found is read again, because the tail brought so much that it is not at hand
any more. A node that is busier than that sends current values."""

SEEN_AT_ONCE: Final = 100
"""Topics of one session whose newest events are looked at, to tell that nothing of them was missed."""

OUTBOX_SHARE: Final = 2
"""What is replayed to a session has at most the bound of its outbox, in bytes, divided by this: the rest is for what
comes meanwhile."""


class Replays:
    """Finds what sessions missed that come back with positions.

    Args:
        context: of the node.
        replicas: the copies of partitions.
        barrier: tells whether they are as new as what a client may have seen.
        hold: makes sure that copies are kept for a session.

    Attributes:
        stretches: what is at hand of the streams.
        gathering: finds what was missed.
    """

    def __init__(
        self,
        context: Context,
        replicas: Replicas,
        barrier: ReadBarrier,
        hold: Callable[[Session, frozenset[int]], None],
    ) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._traffic = context.journal.traffic
        self._depth = context.parameters.topic_depth
        self._most_events = context.parameters.replay_events
        self._most_bytes = context.parameters.outbox_bytes // OUTBOX_SHARE
        self._replicas = replicas
        self._barrier = barrier
        self._hold = hold
        self._patience: dict[int, tuple[asyncio.Task[None] | None, float]] = {}
        """By partition: what reads it, and until when sessions wait for that, by the clock."""
        self.stretches = Stretches(context.grid.topics, context.clock)
        self.gathering = Gathering(context, replicas, self.stretches)

    # --- For who resumes ----------------------------------------------------------------------------------------------

    async def collect(self, session: Session, positions: Mapping[int, EventId]) -> Replay:
        """Find what a session has missed since its client was at some places; it may take ``PATIENCE`` and a read.

        Args:
            session: what it selects decides; it is not sent updates meanwhile.
            positions: as its client names them.
        """
        needed = session.selections.partitions(self._depth)
        self._hold(session, needed)
        replay = Replay(
            session,
            wanted={number: StreamPosition.of(positions[number]) for number in needed if number in positions},
            refused={number: NotReplayed.UNNAMED for number in needed if number not in positions},
        )
        until = self._clock.monotonic() + PATIENCE
        await self._catch_up(replay, needed, until)
        self._judge(replay)
        if any(self._may_miss(number, position) for number, position in replay.wanted.items()):
            await self.gathering.find(replay)
            await self._read_on(replay)
        return replay

    async def _read_on(self, replay: Replay) -> None:
        """See to it that what has come since it was found is at hand, as ``settle`` must not wait."""
        for _ in range(READ_ON):
            short = [
                partition
                for number, position in replay.upto.items()
                if (partition := self._replicas.whole(number)) and not self.stretches.reaches(partition, position)
            ]
            if not short:
                return
            for partition in short:
                with suppress(GridUnavailable):
                    await self.stretches.reach(partition, replay.upto[partition.number])

    def settle(self, replay: Replay) -> None:
        """Bring a replay up to what sessions in the index have been sent by now.

        The session has to enter the index before anything else happens. If a copy is not whole, everything is refused:
        then the values are sent, when they are at hand, as if nobody had named positions.
        """
        selections = replay.session.selections
        if selections is not replay.selections:
            # Something was withdrawn meanwhile.
            replay.keep_only(selections, selections.partitions(self._depth))
        for number in list(replay.upto):
            self._bring_up(replay, number)
        while replay.size > self._most_bytes and replay.runs:
            replay.refuse(max(replay.runs, key=replay.size_of), NotReplayed.TOO_MANY)
        needed = selections.partitions(self._depth)
        if not self._barrier.passed(needed, replay.session.elsewhere_until):
            for number in needed:
                replay.refuse(number, NotReplayed.BEHIND)
        packets = sum(run.count for run in replay.packets())
        self._metrics.add(catalogue.DELIVERIES, packets)
        self._metrics.add(catalogue.REPLAYED_UPDATES, packets)
        for why in replay.refused.values():
            self._metrics.add(catalogue.NOT_REPLAYED, label=why.value)

    def has_values(self, replay: Replay) -> bool:
        """Tell whether the values that take the place of what cannot be replayed can be sent at once."""
        session = replay.session
        return self._barrier.passed(session.selections.partitions(self._depth), session.elsewhere_until)

    def close(self) -> None:
        """Forget what is kept."""
        self.stretches.close()

    # --- Inside -------------------------------------------------------------------------------------------------------

    async def _catch_up(self, replay: Replay, needed: Collection[int], until: float) -> None:
        """Wait until copies are whole, and as new as what the client may have seen; not for long.

        For a copy to be whole all wait together, since the first of them began to: it may take long, and those who come
        later must not each wait anew.

        Args:
            replay: what cannot be replayed is refused.
            needed: the partitions of all that the session selects.
            until: by the clock.
        """
        barrier, moment, now = self._barrier, replay.session.elsewhere_until, self._clock.monotonic()
        patience = {number: self._patience_for(number, until) for number in needed if not self._is_whole(number)}
        unread = [number for number, end in patience.items() if end > now]
        if unread:
            await self._wait(barrier.wait(unread, moment), max(patience[number] for number in unread))
        read = list(filter(self._is_whole, needed))
        if not barrier.passed(read, moment):
            await self._wait(barrier.wait(read, moment), until)
        ahead = [number for number, position in replay.wanted.items() if self._is_ahead(number, position)]
        if ahead:
            # What it names may be in the middle of a batch that is being applied here; or nowhere, as clients may name
            # what they like. One look at the ends of the streams tells, which all share who look at that time.
            reached = self._reach({number: replay.wanted[number] for number in ahead})
            await self._wait_for_one((reached, barrier.wait(ahead, now)), until)
        for number, position in list(replay.wanted.items()):
            partition = self._replicas.whole(number)
            if partition is None or self._is_ahead(number, position) or not barrier.passed((number,), moment):
                replay.refuse(number, NotReplayed.BEHIND)
            elif not partition.continues(position):
                replay.refuse(number, NotReplayed.GENERATION)

    def _patience_for(self, number: int, until: float) -> float:
        """Tell until when sessions wait for a partition that is being read; who waits first says so for all."""
        partition = self._replicas.get(number)
        reader = None if partition is None else partition.reader
        known = self._patience.get(number)
        if known is None or known[0] is not reader:
            known = self._patience[number] = (reader, until)
        return known[1]

    async def _reach(self, positions: Mapping[int, StreamPosition]) -> None:
        for number, position in positions.items():
            await self._replicas.reach(number, position)

    def _is_ahead(self, number: int, position: StreamPosition) -> bool:
        partition = self._replicas.whole(number)
        return partition is not None and position > partition.position

    def _is_whole(self, number: int) -> bool:
        return self._replicas.whole(number) is not None

    async def _wait(self, event: Awaitable[None], until: float) -> None:
        await self._wait_for_one((event,), until)

    async def _wait_for_one(self, events: Iterable[Awaitable[None]], until: float) -> None:
        tasks = [asyncio.ensure_future(each) for each in events]
        seconds = until - self._clock.monotonic()
        try:
            if seconds > 0:
                await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Also if whoever waits is cancelled: nobody else would end them.
            for each in tasks:
                each.cancel()

    def _judge(self, replay: Replay) -> None:
        """Refuse what would be too much to look at, the farthest first; and find out where nothing was missed."""
        distances: list[tuple[int, int]] = []
        for number, position in list(replay.wanted.items()):
            partition = self._replicas.whole(number)
            distance = 0 if partition is None else partition.position.sequence - position.sequence
            if partition is None or distance <= 0:
                continue  # ``settle`` will tell
            if position < partition.recent.since and self._has_all(replay, partition, position):
                replay.skip(number, partition.position)
            else:
                distances.append((distance, number))
        looked_at = 0
        for distance, number in sorted(distances):
            looked_at += distance
            if looked_at > self._most_events:
                replay.refuse(number, NotReplayed.TOO_MANY)

    def _has_all(self, replay: Replay, partition: Partition, position: StreamPosition) -> bool:
        """Tell whether no topic that a session selects in a partition has an event behind its place.

        So who has a topic that seldom changes, among many that often do, is not refused for the others.
        """
        if partition.queue is not None and partition.queue.applied():
            return False  # of half a batch nothing is known by the partition's place
        topics: set[TopicPath] = set()
        for entry in replay.selections.entries:
            selector = entry.selector
            if not entry.selects or (
                selector.literal and topic_partition(TopicPath(selector.text), self._depth) != partition.number
            ):
                continue
            matching = partition.matching(selector)
            if matching is None or len(topics) + len(matching) > SEEN_AT_ONCE:
                return False
            topics.update(matching)
        newest = [partition.values.get(topic) for topic in topics if replay.selections.selects(topic)]
        return all(each is None or (each.event and StreamPosition.of(each.event) <= position) for each in newest)

    def _may_miss(self, number: int, position: StreamPosition) -> bool:
        partition = self._replicas.whole(number)
        if partition is None or position != partition.position:
            return True
        return partition.queue is not None and bool(partition.queue.applied())

    def _bring_up(self, replay: Replay, number: int) -> None:
        """Add what has come in a partition since it was looked at, or refuse it."""
        partition, position = self._replicas.whole(number), replay.upto[number]
        since = None if partition is None else self.stretches.since(partition, position)
        if since is None:
            replay.refuse(number, NotReplayed.GAP)
            return
        replay.upto[number] = position._replace(sequence=position.sequence + len(since))
        missed = [each for each in since if replay.session.selections.selects(each.topic)]
        if missed:
            replay.add(number, Run(tuple([update_of(each) for each in missed])))
        if self._traffic is not None:
            for each in missed:
                self._traffic.delivered(each.topic, len(each.value), 1)
