"""The stream of one topic partition of an in-memory grid."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.core.types import GridGeneration
from gateway.ports import ENTRY_BYTES, Arrived, StreamPosition, TopicValue

FIRST_SEQUENCE: Final = 1
"""What a stream numbers the first publish of a generation with; as on Redis, so that event ids look the same."""

ORIGIN: Final = StreamPosition(GridGeneration(0), 0)
"""The end of a stream that never had an entry."""


@dataclass(slots=True)
class _Run:
    """The entries of one generation in a stream: their sequences are contiguous."""

    generation: GridGeneration
    last: int

    @property
    def entries(self) -> int:
        return self.last - FIRST_SEQUENCE + 1


class Stream:
    """The stream of one topic partition, bounded in length.

    Args:
        length: entries kept; older ones are trimmed.
        most_bytes: bytes kept; likewise. 0 for no limit. The last entry is always kept.
    """

    def __init__(self, length: int, most_bytes: int) -> None:
        self._entries: deque[TopicValue] = deque()
        # How those came that were not published here: None if it is not known. By place, from the first entry ever.
        self._arrived: dict[int, Arrived | None] = {}
        self._length = length
        self._most_bytes = most_bytes
        self._bytes = 0
        self._runs: list[_Run] = []
        self._appended = 0

    def append(
        self,
        generation: GridGeneration,
        make: Callable[[StreamPosition], TopicValue],
        *,
        came: tuple[Arrived | None] | None = None,
    ) -> TopicValue:
        """Append what *make* returns for the position the entry gets.

        Args:
            generation: of the grid.
            make: makes the entry.
            came: how it came, if it was not published here.
        """
        if not self._runs or self._runs[-1].generation != generation:
            self._runs.append(_Run(generation, FIRST_SEQUENCE - 1))
        self._runs[-1].last += 1
        self._appended += 1
        value = make(self.end)
        self._entries.append(value)
        if came is not None:
            self._arrived[self._appended] = came[0]
        self._bytes += _entry_bytes(value)
        while len(self._entries) > self._length or (0 < self._most_bytes < self._bytes and len(self._entries) > 1):
            self._arrived.pop(self._appended - len(self._entries) + 1, None)
            self._bytes -= _entry_bytes(self._entries.popleft())
        while sum(run.entries for run in self._runs[1:]) > len(self._entries):
            # No position in the oldest run can be continued from any more.
            del self._runs[0]
        return value

    @property
    def end(self) -> StreamPosition:
        """Position of the last entry."""
        return StreamPosition(self._runs[-1].generation, self._runs[-1].last) if self._runs else ORIGIN

    def after(self, position: StreamPosition, limit: int) -> tuple[list[TopicValue], StreamPosition] | None:
        """Read up to *limit* entries that follow *position*, and the position of the last of them.

        Returns:
            None if the stream does not continue from there: it was trimmed past it, or never held it.
        """
        missing = self._count_after(position)
        if missing is None or missing > len(self._entries):
            return None
        if not missing:
            return [], position
        count = min(missing, limit)
        first = len(self._entries) - missing
        # A reader is nearly always near the end, and a deque is indexed fast near its ends.
        values = [self._entries[index] for index in range(first, first + count)]
        return values, self._position_before_end(missing - count)

    def arrived(self, end: StreamPosition, count: int) -> dict[int, Arrived | None]:
        """Tell how those of the *count* entries before and at a position came that were not published here."""
        behind = self._count_after(end) or 0
        first = self._appended - behind - count + 1
        return {at: self._arrived[first + at] for at in range(count) if first + at in self._arrived}

    def _count_after(self, position: StreamPosition) -> int | None:
        if position == ORIGIN:
            return self._appended
        if position.sequence < FIRST_SEQUENCE and position.grid_generation > self.end.grid_generation:
            return 0  # nothing has been published in that generation
        count = 0
        for run in reversed(self._runs):
            if run.generation == position.grid_generation:
                return count + run.last - position.sequence if position.sequence <= run.last else None
            count += run.entries
        return None

    def _position_before_end(self, count: int) -> StreamPosition:
        for run in reversed(self._runs):
            if count < run.entries:
                return StreamPosition(run.generation, run.last - count)
            count -= run.entries
        return ORIGIN

    def __len__(self) -> int:
        return len(self._entries)


def _entry_bytes(value: TopicValue) -> int:
    return len(value.topic.encode()) + len(value.value) + ENTRY_BYTES
