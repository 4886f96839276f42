"""The last entries of a partition's stream, as the tail brought them: what a session may have missed (P13).

Whoever knows a place in the stream, be it that of a session that comes from another node or of a client, can be brought
from there to the place of this node without asking the grid, as long as what lies between is still here.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

from gateway.core.types import TopicPath
from gateway.ports import ENTRY_BYTES, StreamPosition, TailBatch, TopicValue

RECENT_ENTRIES: Final = 2_000
"""Entries of one partition that are kept: some seconds of a busy one, in which those come back who come back at all."""

RECENT_BYTES: Final = 1024 * 1024
"""Bytes of them, likewise: in all 64 partitions together 64 MiB. Most of it is held for other reasons, too: the newest
value of each topic, and what waits to be acknowledged."""


_Kept: TypeAlias = tuple[tuple[TopicValue, ...], int, StreamPosition, StreamPosition]
"""A batch that is kept: its values, their bytes, the place before the first and that of the last of them. A plain
tuple, because one is made for each batch that comes."""


class RecentEntries:
    """The entries between two places of a stream, without a hole.

    Args:
        position: where the stream is followed from: nothing before it is ever here.

    Attributes:
        since: the place before the oldest entry that is kept.
        position: of the newest entry, or where the stream is followed from.
        count: how many entries are kept.
        bytes: how many bytes they have.
    """

    __slots__ = ("_kept", "bytes", "count", "position", "since")

    def __init__(self, position: StreamPosition) -> None:
        self._kept: deque[_Kept] = deque()
        self.since = self.position = position
        self.count = 0
        self.bytes = 0

    def add(self, batch: TailBatch) -> list[TopicPath]:
        """Keep what came next; the oldest goes. The values stay the objects that they are.

        Returns:
            The topics of the removals among them: here each value is looked at anyway.
        """
        values = batch.values
        removed: list[TopicPath] = []
        if not values:
            self.position = batch.position
            return removed
        size = ENTRY_BYTES * len(values)
        for topic, _, _, value, _ in values:
            size += len(topic) + len(value)
            if not value:
                removed.append(topic)
        self._kept.append((values, size, self.position, batch.position))
        self.position = batch.position
        self.count += len(values)
        self.bytes += size
        while self.count > RECENT_ENTRIES or self.bytes > RECENT_BYTES:
            self._drop_oldest()
        return removed

    def _drop_oldest(self) -> None:
        """Drop the oldest batch; of one that is too large by itself, its second half stays."""
        values, size, after, position = self._kept.popleft()
        self.count -= len(values)
        self.bytes -= size
        self.since = position
        half = len(values) // 2
        if not self._kept and half and _is_whole(values, after, position):
            rest = values[half:]
            rest_size = sum([ENTRY_BYTES + len(each.topic) + len(each.value) for each in rest])
            self.since = StreamPosition(position.grid_generation, position.sequence - len(rest))
            self._kept.append((rest, rest_size, self.since, position))
            self.count = len(rest)
            self.bytes = rest_size

    def after(self, position: StreamPosition) -> list[TopicValue] | None:
        """List what came after a place in the stream, in order.

        A value that was restored, and has the event of an earlier publish, may be among them though it lies before the
        place. Who has it ignores it, as its version is not higher.

        Args:
            position: a place in this partition's stream.

        Returns:
            The entries up to ``position``; None if some of them are not kept any more, or the place is none that this
            node has come by: of an earlier generation of the grid than what is kept, or ahead of it.
        """
        if not self.since <= position <= self.position:
            return None
        found: list[TopicValue] = []
        for values, _, after, last in self._kept:
            if after >= position:
                found.extend(values)
            elif last > position:
                found.extend(_behind(values, after, last, position))
        return found


def _is_whole(values: tuple[TopicValue, ...], after: StreamPosition, position: StreamPosition) -> bool:
    """Tell whether there is a value for each number between two places: else one was skipped as not the gateway's."""
    return after.grid_generation == position.grid_generation and position.sequence - after.sequence == len(values)


def _behind(
    values: tuple[TopicValue, ...], after: StreamPosition, last: StreamPosition, position: StreamPosition
) -> tuple[TopicValue, ...]:
    """Cut a batch behind a place that lies within it."""
    if _is_whole(values, after, last):
        return values[position.sequence - after.sequence :]
    for at in range(len(values) - 1, -1, -1):
        if after < StreamPosition.of(values[at].event) <= position:
            return values[at + 1 :]
    return values
