"""What returning sessions missed, from the resume that names positions to the turn in which they go on (P13).

```text
resume with positions ─▶ copies whole, and as far as the client is ─┬─ nothing was missed ─────────▶ settled
                         (bounded: PATIENCE)                        └─ gathered with others ──found─▶ settled
                                                                                                       │ same turn
                                       welcome, what was missed, what comes from now on ◀── in the index
```

**Nothing falls between.** What a session is handed ends at the place that sessions in the index have been sent up to,
half a batch included. ``settle`` brings it there, and whoever calls it puts the session into the index before the loop
goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.partition import Partition
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

PATIENCE: Final = 1.0
"""Seconds that a returning session waits until this node has a copy of its partitions and is as far in their streams as
its client is: some reads of the grid. It has no welcome meanwhile; clients wait five seconds for one."""

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
        hold: makes sure that copies are kept for a session.

    Attributes:
        stretches: what is at hand of the streams.
        gathering: finds what was missed.
    """

    def __init__(self, context: Context, replicas: Replicas, hold: Callable[[Session, frozenset[int]], None]) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._traffic = context.journal.traffic
        self._depth = context.parameters.topic_depth
        self._most_events = context.parameters.replay_events
        self._most_bytes = context.parameters.outbox_bytes // OUTBOX_SHARE
        self._replicas = replicas
        self._hold = hold
        self._reached: dict[int, list[tuple[StreamPosition, asyncio.Future[None]]]] = {}
        self._patience: dict[int, float] = {}
        """Until when sessions wait for a copy to be whole, by the clock; the first of them begins it."""
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
        for number in replay.wanted:
            if self._replicas.whole(number) is None:
                self._patience.setdefault(number, until)
        for number, position in list(replay.wanted.items()):
            why = await self._catch_up(number, position, until)
            if why is not None:
                replay.refuse(number, why)
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
        if not self.whole(needed):
            for number in needed:
                replay.refuse(number, NotReplayed.BEHIND)
        packets = sum(run.count for run in replay.packets())
        self._metrics.add(catalogue.DELIVERIES, packets)
        self._metrics.add(catalogue.REPLAYED_UPDATES, packets)
        for why in replay.refused.values():
            self._metrics.add(catalogue.NOT_REPLAYED, label=why.value)

    def whole(self, numbers: Iterable[int]) -> bool:
        """Tell whether the copies of partitions are whole."""
        return all(self._replicas.whole(number) is not None for number in numbers)

    # --- For who delivers ---------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether somebody waits until a partition has come further; for whoever asks for every batch."""
        return bool(self._reached)

    def advanced(self, number: int) -> None:
        """A partition may have come further: those go on who waited for that."""
        left: list[tuple[StreamPosition, asyncio.Future[None]]] = []
        partition = self._replicas.get(number)
        for position, reached in self._reached.pop(number, ()):
            if partition is not None and position > partition.position:
                left.append((position, reached))
            elif not reached.done():
                reached.set_result(None)
        left = [each for each in left if not each[1].done()]
        if left:
            self._reached[number] = left

    def close(self) -> None:
        """Forget what is kept."""
        self.stretches.close()

    # --- Inside -------------------------------------------------------------------------------------------------------

    async def _catch_up(self, number: int, position: StreamPosition, until: float) -> NotReplayed | None:
        """Wait until the copy of a partition is whole, and as far as a client is; not for long.

        For a copy to be whole all wait together, since the first of them began to: it may take long, and those who come
        later must not each wait anew.

        Args:
            number: of the partition.
            position: of the client.
            until: by the clock.

        Returns:
            Why nothing can be replayed; None if it can, as far as is known by now.
        """
        if self._replicas.whole(number) is None:
            await self._wait(self._replicas.complete([number]), min(until, self._patience.get(number, until)))
        partition = self._replicas.whole(number)
        if partition is None:
            return NotReplayed.BEHIND
        self._patience.pop(number, None)
        if position > partition.position:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reached.setdefault(number, []).append((position, reached))
            await self._wait(reached, until)
            self.advanced(number)  # forgets those who have given up
            partition = self._replicas.whole(number)
        if partition is None or position > partition.position:
            return NotReplayed.BEHIND
        return None if partition.continues(position) else NotReplayed.GENERATION

    async def _wait(self, event: Awaitable[None], until: float) -> None:
        task = asyncio.ensure_future(event)
        seconds = until - self._clock.monotonic()
        if seconds > 0:
            await asyncio.wait([task], timeout=seconds)
        if not task.done():
            task.cancel()

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
