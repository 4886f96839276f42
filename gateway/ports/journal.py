"""The session journal in the grid, as the nodes that write it see it. See ``gateway.ports`` for the rules for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """Events that are appended in one step.

    Attributes:
        partition: which stream of the journal, from 0 to ``JOURNAL_PARTITIONS - 1``.
        number: of the batch among those of this node incarnation in this partition, from 1; above all before it.
        count: how many events there are.
        events: as ``gateway.core.journal.write_records`` writes them.
    """

    partition: int
    number: int
    count: int
    events: bytes


class Appended(NamedTuple):
    """A batch is in the journal.

    Attributes:
        duplicate: it was there before.
        cut_unread: events that the cap cut before the reader of the journal had them, to make room.
        cut_unclaimed: events that it cut while no reader had ever committed anything.
    """

    duplicate: bool = False
    cut_unread: int = 0
    cut_unclaimed: int = 0


class JournalStore(Protocol):
    """The streams of the journal. Appending a batch is one atomic step.

    Order: whoever appends to a partition waits for the answer, or gives the batch up, before the next one there.
    Everything that sessions wait for passes in front.

    Ids: an entry's id is ``<grid generation>-<sequence>``; it grows within a partition and stands for no other entry
    there, also when the grid came back with less than it had. A partition that came back with nothing begins a new
    *incarnation*, which its readers are told.

    Bound: a partition keeps as many entries as the grid was told to; what is cut before the reader committed it is
    counted in the step that cuts it.
    """

    async def append(self, batches: Sequence[JournalBatch]) -> list[Appended | Exception]:
        """Append batches, each exactly once however often it is asked for.

        A batch whose number is not above the last one that this node incarnation appended in the partition is there
        already, and is not appended again. The grid remembers that number for a day after the last append.

        Args:
            batches: what to append; one for each partition at most.

        Returns:
            For each what became of it; an error means that it was not appended, and the others may have been. Only of
            one with ``GridUnavailable`` itself it is unknown.

        Raises:
            GridUnavailable: of each it is unknown whether it was appended; ask again with the same batches.
        """
