"""The streams of the journal that an in-memory grid holds."""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field

from gateway.core.journal import JOURNAL_PARTITIONS
from gateway.core.types import GridGeneration, Incarnation
from gateway.ports import Appended, JournalBatch


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry of a stream.

    Attributes:
        id: generation and sequence.
        count: of its events.
        events: as they were appended.
    """

    id: tuple[int, int]
    count: int
    events: bytes


@dataclass(slots=True)
class JournalStream:
    """One partition of the journal.

    Attributes:
        incarnation: begun when the grid has nothing of it.
        entries: by id.
        last: id of the newest entry there ever was.
        committed: id up to which the reader has committed; None while it never did.
        lost: events cut before the reader had them.
        unclaimed: events cut while nobody had ever committed.
        producers: number of the last batch of each node incarnation.
    """

    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    entries: deque[JournalEntry] = field(default_factory=deque)
    last: tuple[int, int] = (0, 0)
    committed: tuple[int, int] | None = None
    lost: int = 0
    unclaimed: int = 0
    producers: dict[Incarnation, int] = field(default_factory=dict)


class Journal:
    """All streams. Every method is one atomic step.

    Args:
        length: entries kept per partition.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._streams: dict[int, JournalStream] = {}

    def append(self, batch: JournalBatch, producer: Incarnation, generation: GridGeneration) -> Appended:
        """See ``JournalStore.append``, for one batch."""
        if not 0 <= batch.partition < JOURNAL_PARTITIONS:
            raise IndexError(f"there is no partition {batch.partition} of the journal")
        stream = self._streams.setdefault(batch.partition, JournalStream())
        if stream.producers.get(producer, 0) >= batch.number:
            return Appended(duplicate=True)
        sequence = stream.last[1] + 1 if stream.last[0] == generation else 0
        stream.last = (generation, sequence)
        stream.entries.append(JournalEntry(stream.last, batch.count, batch.events))
        stream.producers[producer] = batch.number
        return self._cut(stream)

    def stream(self, partition: int) -> JournalStream | None:
        """Look into a partition; None if nothing was ever appended to it."""
        return self._streams.get(partition)

    def inventory(self) -> set[str]:
        """Name everything that is kept."""
        return {f"journal {partition}" for partition in self._streams}

    def _cut(self, stream: JournalStream) -> Appended:
        unread = unclaimed = 0
        while len(stream.entries) > self._length:
            old = stream.entries.popleft()
            if stream.committed is None:
                unclaimed += old.count
            elif old.id > stream.committed:
                unread += old.count
        stream.lost += unread
        stream.unclaimed += unclaimed
        return Appended(cut_unread=unread, cut_unclaimed=unclaimed)
