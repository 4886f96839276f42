"""The streams of the journal that an in-memory grid holds."""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gateway.core.journal import JOURNAL_PARTITIONS
from gateway.core.types import GridGeneration, Incarnation
from gateway.ports import Appended, JournalBatch

PRODUCER_LIFE: Final = 24 * 3600.0
"""Seconds without a batch after which a node incarnation is forgotten, as on Redis."""


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
        producers: number of the last batch of each node incarnation, and when it came.
        total: events that the stream ever had.
    """

    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    entries: deque[JournalEntry] = field(default_factory=deque)
    last: tuple[int, int] = (0, 0)
    committed: tuple[int, int] | None = None
    lost: int = 0
    unclaimed: int = 0
    producers: dict[Incarnation, tuple[int, float]] = field(default_factory=dict)
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
        self, batch: JournalBatch, producer: Incarnation, generation: GridGeneration, now: float, *, hooks: bool = False
    ) -> Appended:
        """See ``JournalStore.append``, for one batch.

        Args:
            batch: what to append.
            producer: the node incarnation that appends.
            generation: of the grid.
            now: the grid's clock, in seconds.
            hooks: whether a hook has a cursor there.
        """
        if not 0 <= batch.partition < JOURNAL_PARTITIONS:
            raise IndexError(f"there is no partition {batch.partition} of the journal")
        stream = self._streams.setdefault(batch.partition, JournalStream())
        known = stream.producers.get(producer)
        if known is None:
            # A node was started: the moment to forget those that are no more.
            stream.producers = {each: last for each, last in stream.producers.items() if last[1] + PRODUCER_LIFE >= now}
        elif known[0] >= batch.number:
            return Appended(duplicate=True)
        sequence = stream.last[1] + 1 if stream.last[0] == generation else 0
        stream.last = (generation, sequence)
        stream.total += batch.count
        stream.entries.append(JournalEntry(stream.last, batch.count, batch.events, stream.total))
        stream.producers[producer] = (batch.number, now)
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
