"""The port of the journal on the in-memory grid; the steps themselves are in ``journal_table``."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.adapters.memory.connection import Connection
from gateway.core.types import NodeRef
from gateway.ports import Appended, JournalBatch


class MemoryJournal:
    """``JournalStore`` of one connection to the in-memory grid.

    Args:
        connection: of the node.
        node: the node, whose batches are numbered.
    """

    def __init__(self, connection: Connection, node: NodeRef) -> None:
        self._connection = connection
        self._producer = node.incarnation

    async def append(self, batches: Sequence[JournalBatch]) -> list[Appended | Exception]:
        """See the port."""
        return await self._connection.run(
            lambda grid, _now: [grid.journal.append(each, self._producer, grid.generation) for each in batches]
        )
