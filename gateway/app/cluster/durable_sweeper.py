"""Removes durable subscriptions that nobody has used for their life. The living nodes share the work."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from gateway.app.context import Context
from gateway.app.registry.durable_removal import DurableRemoval
from gateway.app.runtime.partition_turns import each_in_turn
from gateway.catalogue import durable_metrics as catalogue
from gateway.catalogue import log_events as events
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.ports import Durable, GridUnavailable

SWEEP_SECONDS: Final = 900.0
"""Seconds between two sweeps, on average: lives are days. A sweep is a look at 64 sets: a few milliseconds of the grid
in a quarter of an hour, also where there are no durable subscriptions (P11)."""

REMOVED_AT_ONCE: Final = 100
"""Subscriptions that one call removes: a millisecond of Redis."""


class DurableSweeper:
    """Sweeps the durable subscriptions of its share of the partitions, again and again.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._log = context.log
        self._grid = context.grid
        self._durables = context.grid.durables
        self._removal = DurableRemoval(context.grid.durables, context.grid.queues)
        self._cluster = context.cluster

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(self._clock.about(SWEEP_SECONDS))
            await self.sweep()

    async def sweep(self) -> None:
        """Sweep once, as far as the grid allows."""
        with suppress(GridUnavailable):
            await each_in_turn(self._grid, self._cluster.share(TOPIC_PARTITIONS), self._sweep_in)

    async def _sweep_in(self, number: int) -> None:
        for each in await self._durables.due(number, limit=REMOVED_AT_ONCE):
            await self._expire(each)

    async def _expire(self, each: Durable) -> None:
        principal, name = each.name
        if await (self._removal if each.terms.shared else self._durables).expire(each.name):
            self._metrics.add(catalogue.DURABLE_EXPIRED)
            self._log.emit(events.DURABLE_EXPIRED, principal=principal, durable=name)
