"""Stretches of the streams of partitions, from a place in the past up to what sessions have been sent.

```text
                 asked for ─┐
stream:  … ─── trimmed ───  │ ── read again, once ── │ ── Partition.recent ── │ half a batch │
                                 kept for others      since                    position
```

Those who come back after a failure were all lost at about the same time. So what one of them makes the node read, the
others find here. Meanwhile the stream goes on, and the oldest of what its tail has brought is let go of: it is added to
what is kept here before, so that it need not be read again either.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from gateway.app.delivery.partition import Partition
from gateway.app.runtime.clock import Clock
from gateway.ports import ENTRY_BYTES, StreamPosition, TopicStore, TopicValue

KEPT_SECONDS: Final = 10.0
"""Seconds for which what was read again is kept after it was asked for last: the clients of a node that died come back
within some seconds, most of them in the first."""

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all that; beyond, what was asked for longest ago goes. Of one stream the grid keeps 8 MiB (stream_bytes)."""

STRETCH_BYTES: Final = KEPT_BYTES // 2
"""Bytes of one stream, likewise; beyond, its oldest part goes. It grows for as long as it is asked for all the time."""

READS_IN_TURN: Final = 4
"""Reads of one stream for one who asks: what lies before and behind what is kept, and twice what is let go of while
that is read. A stream that grows by more than a node keeps at hand in the time of a read is too fast to be replayed."""


class _Earlier:
    """What was read again of one stream, and what its tail has brought behind it.

    Args:
        after: the place before the first entry.
        upto: the place of the last one.
        values: the entries, one for each number between.

    Attributes:
        after: as given, or later.
        upto: as given, or later.
        values: the entries between.
        size: bytes of them.
        used: when it was asked for last.
    """

    __slots__ = ("after", "size", "upto", "used", "values")

    def __init__(self, after: StreamPosition, upto: StreamPosition, values: Sequence[TopicValue]) -> None:
        self.after = after
        self.upto = upto
        self.values = list(values)
        self.size = _size(values)
        self.used = 0.0

    def precede(self, after: StreamPosition, values: Sequence[TopicValue]) -> None:
        """Take in what lies before the first entry."""
        self.values[:0] = values
        self.after = after
        self.size += _size(values)

    def follow(self, after: StreamPosition, upto: StreamPosition, values: Sequence[TopicValue]) -> None:
        """Take in what lies behind the last entry; no effect if there is a hole between, or nothing new.

        Args:
            after: the place before the first of *values*.
            upto: the place of the last one.
            values: entries, not necessarily one for each number: what was restored stands where it is no use.
        """
        is_one_generation = after.grid_generation == upto.grid_generation == self.upto.grid_generation
        if is_one_generation and after <= self.upto < upto and len(values) == upto.sequence - after.sequence:
            new = values[self.upto.sequence - after.sequence :]
            self.values += new
            self.upto = upto
            self.size += _size(new)

    def drop_oldest(self, bound: int) -> None:
        """Let the oldest entries go that are too many."""
        count = 0
        while self.size > bound:
            self.size -= _size(self.values[count : count + 1])
            count += 1
        del self.values[:count]
        self.after = self.after._replace(sequence=self.after.sequence + count)


class Stretches:
    """Finds what the streams brought since some place in them.

    Args:
        store: where streams are read again.
        clock: time.

    Attributes:
        reads: how often a stream was read again.
    """

    def __init__(self, store: TopicStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._earlier: OrderedDict[int, _Earlier] = OrderedDict()
        """By partition; what was asked for last comes last."""
        self._locks: dict[int, asyncio.Lock] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self.reads = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of what was read again and is kept."""
        return sum([each.size for each in self._earlier.values()])

    def reaches(self, partition: Partition, position: StreamPosition) -> bool:
        """Tell whether what came since a place in a stream is at hand, without looking at it."""
        recent = partition.recent
        if position > recent.position:
            return partition.since(position) is not None
        if recent.since <= position:
            return True
        earlier = self._earlier.get(partition.number)
        return earlier is not None and earlier.after <= position <= earlier.upto and earlier.upto >= recent.since

    async def reach(self, partition: Partition, position: StreamPosition) -> bool:
        """See to it that ``since`` has an answer, if it can: what is not at hand is read, once for all who ask.

        Returns:
            Whether it has; False if the grid does not hold all of it any more.

        Raises:
            GridUnavailable: nobody can tell now.
        """
        if self.since(partition, position) is not None:
            return True
        if not partition.continues(position) or position > partition.position:
            return False
        async with self._locks.setdefault(partition.number, asyncio.Lock()):
            for _ in range(READS_IN_TURN):
                if self.since(partition, position) is not None:
                    return True
                if not await self._read_missing(partition, position):
                    return False
            return self.since(partition, position) is not None

    async def _read_missing(self, partition: Partition, position: StreamPosition) -> bool:
        """Read one stretch that is not at hand; False if there is none, or the grid does not hold it any more."""
        number, recent = partition.number, partition.recent
        begin, end = recent.since, recent.position
        # While something is read, the oldest of this is let go of.
        at_hand = recent.after(begin) or ()
        earlier = self._earlier.get(number)
        if earlier is None or earlier.after.grid_generation != begin.grid_generation:
            values = await self._read(number, position, begin)
            earlier = None if values is None else _Earlier(position, begin, values)
        elif position < earlier.after:
            values = await self._read(number, position, after := earlier.after)
            if values is not None and after == earlier.after:
                earlier.precede(position, values)
        elif earlier.upto < begin:
            values = await self._read(number, after := earlier.upto, begin)
            if values is not None:
                earlier.follow(after, begin, values)
        else:
            return False
        if values is None or earlier is None:
            return False
        earlier.follow(begin, end, at_hand)
        self._earlier[number] = earlier
        self._use(partition, earlier)
        while len(self._earlier) > 1 and self.kept_bytes > KEPT_BYTES:
            self._earlier.popitem(last=False)
        self._sweep_later()
        return True

    async def _read(self, number: int, after: StreamPosition, upto: StreamPosition) -> Sequence[TopicValue] | None:
        self.reads += 1
        values = await self._store.between(number, after, upto)
        return None if values is None or len(values) != upto.sequence - after.sequence else values

    def _use(self, partition: Partition, earlier: _Earlier) -> None:
        """Somebody asks for it: it is kept for longer, and what the tail has brought since is kept with it."""
        recent = partition.recent
        earlier.follow(earlier.upto, recent.position, recent.after(earlier.upto) or ())
        earlier.used = self._clock.monotonic()
        self._earlier.move_to_end(partition.number)

    def since(self, partition: Partition, position: StreamPosition) -> list[TopicValue] | None:
        """List all that sessions have been sent of a partition since a place in its stream, as far as it is at hand.

        Returns:
            The entries, in order, one for each number behind the place; None if some are missing, or were not published
            as they stand there: restored ones say that the grid has lost writes.
        """
        found = partition.since(position)
        if found is None:
            earlier = self._earlier.get(partition.number)
            if earlier is None or not earlier.after <= position <= earlier.upto:
                return None
            self._use(partition, earlier)
            rest = partition.since(earlier.upto)
            if rest is None:
                return None
            found = earlier.values[position.sequence - earlier.after.sequence :] + rest
        generation = partition.position.grid_generation
        if found and found[-1].event != f"{partition.number}-{generation}-{position.sequence + len(found)}":
            return None
        prefix = f"{partition.number}-{generation}-"
        return found if all(each.event.startswith(prefix) for each in found) else None

    def _sweep_later(self) -> None:
        if self._sweep is None and self._earlier:
            self._sweep = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget_unused)

    def _forget_unused(self) -> None:
        self._sweep = None
        oldest = self._clock.monotonic() - KEPT_SECONDS
        for number in [number for number, earlier in self._earlier.items() if earlier.used <= oldest]:
            del self._earlier[number]
        for earlier in self._earlier.values():
            earlier.drop_oldest(STRETCH_BYTES)
        self._sweep_later()

    def close(self) -> None:
        """Forget everything."""
        self._earlier.clear()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None


def _size(values: Sequence[TopicValue]) -> int:
    return sum([ENTRY_BYTES + len(each.topic) + len(each.value) for each in values])
