"""Rolls back transactions that nobody goes on with, and finishes commits whose node has left them (P16).

The living nodes share the work. A client that is there needs none of it: who owns its session goes on with its
transactions. This is for those whose clients are gone, and for what a commit holds whose node has died in the middle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.app.context import Context
from gateway.app.runtime.partition_turns import each_in_turn
from gateway.catalogue import transaction_metrics as catalogue
from gateway.core.topics.topics import SESSION_PARTITIONS
from gateway.ports import FINISH_SECONDS, GridUnavailable, Reaped

IDLE_LOOKS: Final = 6
"""Looks for each one where there are no transactions: an idle cluster asks a command of each partition a minute."""


class TransactionReaper:
    """Looks after the transactions of its share of the partitions, again and again.

    Args:
        context: of the node.
        may_reap: tells whether the grid has all it had; in one that was rolled back, what is overdue may be in use.
    """

    def __init__(self, context: Context, *, may_reap: Callable[[], bool]) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._grid = context.grid
        self._transactions = context.grid.transactions
        self._cluster = context.cluster
        self._may_reap = may_reap
        self._idle = 0

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._clock.about(FINISH_SECONDS))
            self._idle -= 1
            if self._idle <= 0 and self._may_reap():
                await self.look()

    async def look(self) -> Reaped:
        """Look once, as far as the grid allows; returns what came of it."""
        mine = self._cluster.share(SESSION_PARTITIONS)
        found: list[Reaped] = []

        async def reap(number: int) -> None:
            reaped = await self._transactions.reap(number)
            self._metrics.add(catalogue.TRANSACTIONS, reaped.rolled_back, label="abandoned")
            self._metrics.add(catalogue.TRANSACTIONS, reaped.finished, label="finished")
            found.append(reaped)

        with suppress(GridUnavailable):
            await each_in_turn(self._grid, mine, reap)
        if len(found) == len(mine):
            self._idle = 0 if any(each.kept for each in found) else IDLE_LOOKS
        return Reaped(*map(sum, zip(Reaped(), *found, strict=True)))
