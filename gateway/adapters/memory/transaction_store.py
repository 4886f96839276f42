"""Transactions as one connection of one node to the in-memory grid has them; the steps are in ``transaction_table``."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.adapters.memory.grid_connection import GridConnection
from gateway.adapters.memory.state import GridData
from gateway.core.types import RequestNumber
from gateway.ports import Committed, OpenTransaction, Ownership, Reaped, Staged, TransactionRefused


class MemoryTransactionStore:
    """``TransactionStore`` of one connection to the in-memory grid: each commit is one step, which nobody can leave."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection

    async def begin(
        self, ownership: Ownership, transaction: RequestNumber, *, settled: RequestNumber
    ) -> TransactionRefused | None:
        """See the port."""

        def step(grid: GridData, now: float) -> TransactionRefused | None:
            grid.sessions.check(ownership, now)
            return grid.transactions.begin(ownership.session, transaction, settled, grid.generation, now)

        return await self._connection.run(step)

    async def stage(
        self, ownership: Ownership, transaction: RequestNumber, request: RequestNumber, operation: Staged
    ) -> TransactionRefused | None:
        """See the port."""

        def step(grid: GridData, now: float) -> TransactionRefused | None:
            grid.sessions.check(ownership, now)
            return grid.transactions.stage(
                ownership.session, transaction, request, operation, generation=grid.generation, now=now
            )

        return await self._connection.run(step)

    async def commit(
        self, ownership: Ownership, transaction: RequestNumber, request: RequestNumber, *, settled: RequestNumber
    ) -> Committed | TransactionRefused:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.commit(ownership, transaction, request, settled, now))

    async def roll_back(self, ownership: Ownership, transaction: RequestNumber) -> None:
        """See the port."""

        def step(grid: GridData, now: float) -> None:
            grid.sessions.check(ownership, now)
            grid.transactions.drop(ownership.session, transaction)

        await self._connection.run(step)

    async def reap(self, partition: int) -> Reaped:
        """See the port."""

        def step(grid: GridData, now: float) -> Reaped:
            rolled_back, kept = grid.transactions.reap(partition, now)
            return Reaped(rolled_back=rolled_back, kept=kept)

        return await self._connection.run(step)

    async def open(self, partition: int, *, limit: int) -> Sequence[OpenTransaction]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.transactions.open(partition, limit, now))
