"""Stretches of the streams of partitions, from a place in the past up to what sessions have been sent.

```text
                 asked for ─┐
stream:  … ─── trimmed ───  │ ── read again, once ── │ ── Partition.recent ── │ half a batch │
                                 kept for others      since                    position
```

Those who come back after a failure were all lost at about the same time. So what one of them makes the node read, the
others find here.
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


class _Earlier:
    """What was read again of one stream.

    Attributes:
        after: the place before the first entry.
        upto: the place of the last one.
        values: the entries, one for each number between.
        size: bytes of them.
        used: when it was asked for last.
    """

    __slots__ = ("after", "size", "upto", "used", "values")

    def __init__(self, after: StreamPosition, upto: StreamPosition, values: Sequence[TopicValue], used: float) -> None:
        self.after = after
        self.upto = upto
        self.values = list(values)
        self.used = used
        self.size = sum([ENTRY_BYTES + len(each.topic) + len(each.value) for each in values])


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
            if self.since(partition, position) is not None:
                return True
            begin = partition.recent.since
            earlier = self._earlier.get(partition.number)
            if earlier is not None and earlier.after.grid_generation == begin.grid_generation:
                if earlier.after > position:
                    earlier = await self._read(partition.number, position, earlier.after, before=earlier)
                if earlier is not None and earlier.upto < begin:
                    earlier = await self._read(partition.number, earlier.upto, begin, behind=earlier)
            else:
                earlier = await self._read(partition.number, position, begin)
            # While it was read, the oldest of what the tail had brought may have gone.
            return earlier is not None and self.since(partition, position) is not None

    async def _read(
        self,
        number: int,
        after: StreamPosition,
        upto: StreamPosition,
        *,
        before: _Earlier | None = None,
        behind: _Earlier | None = None,
    ) -> _Earlier | None:
        self.reads += 1
        values = await self._store.between(number, after, upto)
        if values is None or len(values) != upto.sequence - after.sequence:
            return None
        now = self._clock.monotonic()
        if before is not None:
            found = _Earlier(after, before.upto, [*values, *before.values], now)
        elif behind is not None:
            found = _Earlier(behind.after, upto, [*behind.values, *values], now)
        else:
            found = _Earlier(after, upto, values, now)
        self._earlier[number] = found
        self._earlier.move_to_end(number)
        while len(self._earlier) > 1 and sum(each.size for each in self._earlier.values()) > KEPT_BYTES:
            self._earlier.popitem(last=False)
        self._sweep_later()
        return found

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
            rest = partition.since(earlier.upto)
            if rest is None:
                return None
            earlier.used = self._clock.monotonic()
            self._earlier.move_to_end(partition.number)
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
        self._sweep_later()

    def close(self) -> None:
        """Forget everything."""
        self._earlier.clear()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
