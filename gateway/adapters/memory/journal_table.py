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
        total: events that the stream had up to and with these.
    """

    id: tuple[int, int]
    count: int
    events: bytes
    total: int = 0


@dataclass(slots=True)
class JournalStream:
    """One partition of the journal.

    Attributes:
        incarnation: begun when the grid has nothing of it.
        entries: by id.
        last: id of the newest entry there ever was.
        committed: id up to which the reader has committed; None while it never did.
        lost: events cut before the reader had them.
        unclaimed: events cut while nobody had ever committed, and no hook was there.
        producers: number of the last batch of each node incarnation.
        total: events that the stream ever had.
    """

    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    entries: deque[JournalEntry] = field(default_factory=deque)
    last: tuple[int, int] = (0, 0)
    committed: tuple[int, int] | None = None
    lost: int = 0
    unclaimed: int = 0
    producers: dict[Incarnation, int] = field(default_factory=dict)
    total: int = 0


class Journal:
    """All streams. Every method is one atomic step.

    Args:
        length: entries kept per partition.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._streams: dict[int, JournalStream] = {}

    def append(
        self, batch: JournalBatch, producer: Incarnation, generation: GridGeneration, *, hooks: bool = False
    ) -> Appended:
        """See ``JournalStore.append``, for one batch.

        Args:
            batch: what to append.
            producer: the node incarnation that appends.
            generation: of the grid.
            hooks: whether a hook has a cursor there.
        """
        if not 0 <= batch.partition < JOURNAL_PARTITIONS:
            raise IndexError(f"there is no partition {batch.partition} of the journal")
        stream = self._streams.setdefault(batch.partition, JournalStream())
        if stream.producers.get(producer, 0) >= batch.number:
            return Appended(duplicate=True)
        sequence = stream.last[1] + 1 if stream.last[0] == generation else 0
        stream.last = (generation, sequence)
        stream.total += batch.count
        stream.entries.append(JournalEntry(stream.last, batch.count, batch.events, stream.total))
        stream.producers[producer] = batch.number
        return self._cut(stream, hooks=hooks)

    def stream(self, partition: int) -> JournalStream | None:
        """Look into a partition; None if nothing was ever appended to it."""
        return self._streams.get(partition)

    def inventory(self) -> set[str]:
        """Name everything that is kept."""
        return {f"journal {partition}" for partition in self._streams}

    def _cut(self, stream: JournalStream, *, hooks: bool) -> Appended:
        unread = unclaimed = 0
        while len(stream.entries) > self._length:
            old = stream.entries.popleft()
            if stream.committed is None:
                unclaimed += 0 if hooks else old.count
            elif old.id > stream.committed:
                unread += old.count
        stream.lost += unread
        stream.unclaimed += unclaimed
        return Appended(cut_unread=unread, cut_unclaimed=unclaimed)
