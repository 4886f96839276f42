"""Enforces the age of histories, and drops those that shall not be any more (P14). The living nodes share the work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.app.context import Context
from gateway.app.runtime.partition_turns import each_in_turn
from gateway.catalogue import history_metrics as catalogue
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import NodeRef
from gateway.ports import GridUnavailable

SWEEP_SECONDS: Final = 30.0
"""Seconds between two sweeps, on average: by so much may an event be older than its age. A sweep of as many topics with
history as there can be takes Redis a fifth of a second, in small steps."""

TOPICS_AT_ONCE: Final = 100
"""Histories that one call sweeps: a millisecond of Redis, unless much is cut."""


class HistorySweeper:
    """Sweeps the histories of its share of the partitions, again and again.

    Args:
        context: of the node.
        loaded: tells whether it is known which topics have history.
    """

    def __init__(self, context: Context, *, loaded: Callable[[], bool]) -> None:
        self._me = context.me
        self._clock = context.clock
        self._metrics = context.metrics
        self._grid = context.grid
        self._history = context.grid.history
        self._destinations = context.destinations
        self._cluster = context.cluster
        self._loaded = loaded
        self._clean_with: tuple[NodeRef, ...] = ()
        """The living nodes when there was no history in this one's share, and there was to be none."""

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(self._clock.about(SWEEP_SECONDS))
            await self.sweep()

    async def sweep(self) -> None:
        """Sweep once, as far as the grid allows."""
        wanted = self._destinations.has_history
        alive = self._cluster.alive or (self._me,)
        if not self._loaded() or (not wanted and self._clean_with == alive):
            return
        mine = self._cluster.share(TOPIC_PARTITIONS)
        try:
            swept = await each_in_turn(self._grid, mine, self._sweep_in)
        except GridUnavailable:
            return
        if len(swept) == len(mine):
            self._clean_with = () if wanted or any(found for _, found in swept) else alive

    async def _sweep_in(self, number: int) -> int:
        """Sweep a partition; returns how many histories there were."""
        found, step = 0, None
        while True:
            page = await self._history.topics(number, step=step, count=TOPICS_AT_ONCE)
            found += len(page.topics)
            if page.topics:
                limits = [(topic, self._destinations.history(topic)) for topic in page.topics]
                self._metrics.add(catalogue.HISTORY_SWEPT, await self._history.sweep(number, limits))
            step = page.step
            if step is None:
                return found
