"""A node's copy of the topic partitions its sessions care about (ADR 0002, docs/explanation/why-not-pubsub.md).

A partition is read once, however many sessions arrive: its position is noted, its stream followed from there, and its
values read meanwhile. What comes twice is told apart by its version, so there is neither a hole nor a duplicate, and
snapshots come from memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from gateway.app.delivery.matching import MatchingQueue, MatchingQueues
from gateway.app.delivery.partition import Partition
from gateway.app.delivery.recent_entries import RecentEntries
from gateway.app.runtime.portions import portions
from gateway.core.topics.versions import is_later
from gateway.core.types import EventId, GridGeneration, TopicPath, Version
from gateway.ports import GridUnavailable, StreamPosition, TailBatch, TopicStore, TopicTail, TopicValue

RETRY_READ: Final = 0.2
"""Seconds before a partition's values are read again after the grid failed in the middle."""


PLACES_AT_ONCE: Final = 2_000
"""Places of a partition that are looked at for values that the grid has lost before others get their turn: a tenth of a
millisecond, as mostly nothing is left there. All 64 partitions may do so at the same time."""

RESTORE_BATCH: Final = 200
"""Values per restore step, so that a grid that has just come back is not blocked by one large command."""


UNKNOWN_EVENT: Final = EventId("")
"""Of a removal that nobody remembers."""


NEVER: Final = GridGeneration(0)
"""In the place of the generation of a grid, before its stream is followed."""


Change: TypeAlias = tuple[TopicValue, bool]
"""A value that is newer than the copy had it, and whether it is the successor of that, as the stream brought it (False:
updates between may be missing)."""


def _nobody(_: Partition) -> None:
    """Nobody wants to be told."""


async def _nothing(_: Sequence[TopicValue]) -> None:
    """Nothing is done with it."""


def _not_noted(_: Partition, __: Iterable[TopicPath]) -> None:
    """Nobody wants to know."""


class Replicas:
    """All partitions this node has a copy of.

    Args:
        store: where values are read.
        tail: where streams are followed.
        queues: let partitions take turns where it takes long to find who selects what came.
        changed: called with what has changed in a partition, in order; each portion of what came together at once.
        failed: told of a bug met while values were read; they are read again.
        lost: told of a bug met in what a stream brought, and of which partition: its values have to be read again.
        completed: told of a partition all values of which have been read, or read again.
        brought_last: given what the stream of a partition brought last before the grid lost writes.
        removed: told of removals that a partition may have now, with the topics of each portion of them at once.

    Attributes:
        restored: values that were written back into a grid that had lost them.
        moved: partitions whose place (``Partition.handed_out``) may have changed, or that have come or gone, since
            somebody emptied it.
    """

    def __init__(
        self,
        store: TopicStore,
        tail: TopicTail,
        *,
        queues: MatchingQueues,
        changed: Callable[[Partition, Sequence[Change]], None],
        failed: Callable[[Exception], None],
        lost: Callable[[int, Exception], None],
        completed: Callable[[Partition], None] = _nobody,
        brought_last: Callable[[Sequence[TopicValue]], Awaitable[None]] = _nothing,
        removed: Callable[[Partition, Iterable[TopicPath]], None] = _not_noted,
    ) -> None:
        self._removed = removed
        self._brought_last = brought_last
        self._completed = completed
        self._store = store
        self._tail = tail
        self._queues = queues
        self._lost = lost
        self._changed = changed
        self._failed = failed
        self._partitions: dict[int, Partition] = {}
        self._closed = False
        self.restored = 0
        self.moved: set[int] = set()

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, number: int) -> Partition | None:
        """Return the copy of a partition, complete or not; None if nobody needs it."""
        return self._partitions.get(number)

    def whole(self, number: int) -> Partition | None:
        """Return the copy of a partition of which all values are here; None if it is not whole, or nobody needs it."""
        partition = self._partitions.get(number)
        return partition if partition is not None and partition.complete.is_set() else None

    def hold(self, numbers: Iterable[int]) -> None:
        """Keep copies of partitions until ``release``; starts reading those that are new. Does not wait."""
        for number in numbers:
            partition = self._partitions.get(number)
            if partition is None:
                partition = self._partitions[number] = Partition(number)
                self._read(partition)
            partition.holders += 1

    def release(self, numbers: Iterable[int]) -> None:
        """Give up what ``hold`` asked for; a partition that nobody holds any more is dropped."""
        for number in numbers:
            partition = self._partitions[number]
            partition.holders -= 1
            if partition.holders == 0:
                del self._partitions[number]
                self.moved.add(number)
                self._tail.unfollow(number)
                self._forget_waiting(partition)
                if partition.reader is not None:
                    partition.reader.cancel()
                partition.give_up()

    async def complete(self, numbers: Iterable[int]) -> None:
        """Wait until partitions that are held have been read; for as long as the grid is unreachable."""
        for number in numbers:
            partition = self._partitions.get(number)
            if partition is not None:
                await partition.complete.wait()

    async def reach(self, number: int, position: StreamPosition) -> None:
        """Wait until a partition that is held is whole, and has come to a place in its stream.

        However long that takes; but not for a partition that is given up meanwhile.
        """
        while (partition := self._partitions.get(number)) is not None:
            if not partition.complete.is_set():
                await partition.complete.wait()
            elif position > partition.position:
                await partition.come_to(position)
            else:
                return

    def take_in(self, batch: TailBatch, applied: Callable[[], None]) -> None:
        """Apply what the stream brought, at once or, where it takes long to find who selects the topics, in turns.

        Nothing old comes once the partition is given up, or read anew from a later position.

        Args:
            batch: the next one of its partition.
            applied: called when all of it has been; never if the partition is given up or read anew before.
        """
        partition = self._partitions.get(batch.partition)
        queue = None if partition is None else partition.queue
        if partition is None or queue is None:
            applied()
            return
        partition.generation = batch.position.grid_generation
        self.moved.add(batch.partition)
        if self._queues.put(queue, batch.values):
            self._applied(partition, queue, batch)
            applied()
        else:
            queue.when_done(partial(self._applied_later, partition, queue, batch, applied))

    def _applied_later(
        self, partition: Partition, queue: MatchingQueue, batch: TailBatch, applied: Callable[[], None]
    ) -> None:
        self._applied(partition, queue, batch)
        applied()

    def _applied(self, partition: Partition, queue: MatchingQueue, batch: TailBatch) -> None:
        if partition.queue is queue:  # else its stream is followed anew since
            if removed := partition.recent.add(batch):
                self._removed(partition, removed)
            self.moved.add(partition.number)
            if partition.awaited:
                partition.advanced()

    def read_again(self, number: int) -> None:
        """The place in a partition's stream is lost: read its values again and follow from a new position."""
        partition = self._partitions.get(number)
        if partition is not None:
            self._read(partition)

    async def close(self) -> None:
        """Stop reading."""
        self._closed = True
        readers = [each.reader for each in self._partitions.values() if each.reader is not None]
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    def _read(self, partition: Partition) -> None:
        if self._closed:
            return
        if partition.reader is not None:
            partition.reader.cancel()
        partition.complete.clear()
        self.moved.add(partition.number)
        partition.reader = asyncio.create_task(self._read_values(partition), name=f"read-partition-{partition.number}")

    async def _read_values(self, partition: Partition) -> None:
        before = partition.recent
        while True:
            # A copy that costs little, however many they are: each page then takes out what it shows to be there.
            known: list[TopicValue | None] = list(partition.values.newest)
            try:
                position = await self._store.position(partition.number)
                # Following starts before the values are read: what is published meanwhile comes by the stream.
                self._follow(partition, position)
                if _lost_writes(before.position, position):
                    await self._brought_last(before.after(before.since) or ())
                async for page in self._store.values(partition.number):
                    _take_out(known, partition, page)
                    await self._apply_page(partition, page)
                await self._until_given_back(partition, known)
                # The values are of this place, or before. Whoever is told of an earlier one and comes back would be
                # sent again, as updates, what they have shown (P2).
                reached = await self._store.position(partition.number)
                if reached > partition.position:
                    await partition.come_to(reached)
            except GridUnavailable:
                await asyncio.sleep(RETRY_READ)
                continue
            except Exception as error:  # noqa: BLE001 - sessions wait for this partition and must not wait for ever
                self._failed(error)
                await asyncio.sleep(RETRY_READ)
                continue
            partition.complete.set()
            self.moved.add(partition.number)
            partition.reader = None
            partition.advanced()
            self._completed(partition)
            return

    def _follow(self, partition: Partition, position: StreamPosition) -> None:
        """Follow a partition's stream from a position; of what came before it nothing comes any more."""
        self._forget_waiting(partition)
        number = partition.number
        partition.recent = RecentEntries(position)
        self.moved.add(number)
        partition.queue = MatchingQueue(
            lambda values: self._apply(partition, values, live=True),
            lambda bug: self._lost(number, bug),
            lambda is_full: self._tail.pause(number) if is_full else self._tail.resume(number),
        )
        self._tail.follow(number, position)

    def _forget_waiting(self, partition: Partition) -> None:
        if partition.queue is not None:
            self._queues.drop(partition.queue)
            partition.queue = None

    async def _apply_page(self, partition: Partition, page: Sequence[TopicValue]) -> None:
        """Apply values that were read; it takes its turns like what a stream brings."""
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = MatchingQueue(lambda values: self._apply_read(partition, values), applied.set_exception)
        try:
            if page and not self._queues.put(queue, page):
                queue.when_done(lambda: applied.set_result(None))
                await applied
        finally:
            self._queues.drop(queue)

    def _apply_read(self, partition: Partition, values: Sequence[TopicValue]) -> None:
        self._apply(partition, values, live=False)
        if removed := [each.topic for each in values if not each.value]:
            self._removed(partition, removed)

    async def _until_given_back(self, partition: Partition, known: Sequence[TopicValue | None]) -> None:
        """Give back what the grid has lost, however long it refuses that: it can be read meanwhile.

        To begin anew would be to leave the place from which the stream is followed, and to show current values in place
        of all updates that have come since. Should that place be lost too, the partition is read again anyway.
        """
        while True:
            try:
                await self._give_back(partition, known)
            except GridUnavailable:
                await asyncio.sleep(RETRY_READ)
            else:
                return

    async def _give_back(self, partition: Partition, known: Sequence[TopicValue | None]) -> None:
        """Give back what of the values that were known is not taken out, some places in a turn of the loop (P20)."""
        places = partition.values.places
        async for some in portions(enumerate(known), PLACES_AT_ONCE):
            # What stands at a place that no topic has any more is left out.
            await self._restore(
                partition, [each for place, each in some if each is not None and places.get(each.topic) == place]
            )

    async def _restore(self, partition: Partition, lost: Sequence[TopicValue]) -> None:
        """Restore what the grid has lost and this node still has (P6, P10); the grid takes only what is later.

        What it has then is taken in from it, because its version has risen: whoever comes from a node that had to show
        what the grid still had must find a higher one here. Topics that the grid does not take back were removed, so
        long ago that it has forgotten; they are let go of.
        """
        for start in range(0, len(lost), RESTORE_BATCH):
            batch = lost[start : start + RESTORE_BATCH]
            self.restored += await self._store.restore(batch)
            found = list(zip(batch, await self._store.read([each.topic for each in batch]), strict=True))
            # What was published since has another event: the stream brings it, behind the updates before it.
            given = [now for each, now in found if now is not None and now.event == each.event]
            self._apply_read(partition, given)
            gone = [each for each, now in found if now is None]
            # The removal itself is not known any more; its version was higher, and so is that of all that follows.
            removals = [
                TopicValue(each.topic, Version(each.version + 1), UNKNOWN_EVENT, b"") for each in gone if each.value
            ]
            self._apply(partition, removals, live=False)
            for each in gone:
                known = partition.values.get(each.topic)
                if known is not None and not known.value:  # else it was published while the grid answered
                    partition.let_go(each.topic)
            if gone:
                partition.extended()

    def _apply(self, partition: Partition, values: Iterable[TopicValue], *, live: bool) -> None:
        # Flat, without the methods of ``TopicValues``: it is done for every update.
        self.moved.add(partition.number)
        places, newest, snapshots = partition.values.places, partition.values.newest, partition.snapshots
        changes: list[Change] = []
        for value in values:
            topic = value.topic
            place = places.get(topic)
            if place is None:
                # A value that another node has put back is no update: those before it were lost with the grid.
                successor = live and StreamPosition.of(value.event).grid_generation >= partition.generation
                partition.values.add(value)
                partition.extended()
                changes.append((value, successor))
                continue
            known = newest[place]
            if known.version >= value.version:
                continue
            if value.version == known.version + 1:
                successor = True
            elif value.event == known.event:
                # The same publish, shown with a higher version since the grid lost writes. Whoever has it has it.
                newest[place] = value
                snapshots.forget(topic)
                continue
            elif value.event and not is_later(value.event, known.event):
                continue  # what is here is later, and is given back to the grid
            else:
                # After a lost position, or in a new generation of the grid, the stream may go on later than it ended.
                successor = False
            newest[place] = value
            snapshots.forget(topic)
            changes.append((value, live and successor))
        if changes:
            self._changed(partition, changes)


def _lost_writes(before: StreamPosition, now: StreamPosition) -> bool:
    """Tell whether a stream, which was at a place before, may not have all any more that it had up to there."""
    return before.grid_generation > NEVER and (now.grid_generation != before.grid_generation or now < before)


def _take_out(known: list[TopicValue | None], partition: Partition, page: Sequence[TopicValue]) -> None:
    """Take out of the values that were known, by place, those that the grid has, or later ones, as a page shows."""
    places = partition.values.places
    for value in page:
        place = places.get(value.topic)
        if place is None or place >= len(known):
            continue  # it was not known
        before = known[place]
        if before is None or before.topic != value.topic:
            continue  # that topic has been let go of, and this one has got its place
        if before.event == value.event or not is_later(before.event, value.event):
            known[place] = None
