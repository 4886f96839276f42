"""Events on their way to the grid: bounded in number and in bytes, counted where they do not fit."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gateway.core.journal import JOURNAL_PARTITIONS
from gateway.ports import JournalBatch

BATCH_EVENTS: Final = 500
"""Events in one entry of a stream, at most."""

BATCH_BYTES: Final = 64 * 1024
"""Bytes in one entry of a stream, unless a single event has more: some 50 µs of the grid, in front of nobody."""


@dataclass(slots=True)
class _Partition:
    """What waits for one stream.

    Attributes:
        lines: encoded events in order; those of *sent* are still among them.
        number: of the last batch that was made.
        sent: the batch of which it is not known yet whether the grid has it; it is asked for again as it is.
    """

    lines: deque[bytes] = field(default_factory=deque)
    number: int = 0
    sent: JournalBatch | None = None


class Buffer:
    """What waits to be written.

    Args:
        most_events: events that may wait.
        most_bytes: bytes that may wait.

    Attributes:
        events: that wait.
        bytes: that wait.
    """

    def __init__(self, *, most_events: int, most_bytes: int) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._partitions = [_Partition() for _ in range(JOURNAL_PARTITIONS)]
        self.events = 0
        self.bytes = 0

    def put(self, partition: int, line: bytes) -> bool:
        """Add an event; False if there is no room, and then it is for the caller to count it."""
        if self.events >= self._most_events or self.bytes + len(line) > self._most_bytes:
            return False
        self._partitions[partition].lines.append(line)
        self.events += 1
        self.bytes += len(line)
        return True

    def batches(self) -> list[JournalBatch]:
        """Make the next batch of every partition that has events; one of unknown fate comes again as it was."""
        batches = []
        for number, partition in enumerate(self._partitions):
            if partition.sent is None and partition.lines:
                partition.sent = self._next(number, partition)
            if partition.sent is not None:
                batches.append(partition.sent)
        return batches

    def written(self, batch: JournalBatch) -> None:
        """The grid has a batch: forget its events."""
        partition = self._partitions[batch.partition]
        partition.sent = None
        for _ in range(batch.count):
            line = partition.lines.popleft()
            self.events -= 1
            self.bytes -= len(line)

    def _next(self, number: int, partition: _Partition) -> JournalBatch:
        lines: list[bytes] = []
        size = 0
        for line in partition.lines:
            if lines and (size + len(line) > BATCH_BYTES or len(lines) == BATCH_EVENTS):
                break
            lines.append(line)
            size += len(line)
        partition.number += 1
        return JournalBatch(number, partition.number, len(lines), b"\n".join(lines))
