"""Ends values whose time is over (ADR 0118). The living nodes share the work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway.app.context import Context
from gateway.app.runtime.parameters import REMOVAL_GRACE
from gateway.catalogue import topic_metrics as catalogue
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import TopicPath
from gateway.ports import GridUnavailable

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks, on average: by so much and half as much again may a value outlive its time. A look is one
command on one Redis, and one for each partition on a Redis Cluster, also where nothing is to end: some 0.1 ms."""

ENDED_AT_ONCE: Final = 100
"""Values of each partition that a look ends before it looks again, and of all of them that one call ends: some
milliseconds of Redis."""


class ValueEndings:
    """Ends values of its share of the partitions, again and again.

    Args:
        context: of the node.
        may_end: tells whether it is known what the grid holds. In one that was rolled back, what has to end may have
            been published again since, and its node may have yet to give that back.
    """

    def __init__(self, context: Context, *, may_end: Callable[[], bool]) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._topics = context.grid.topics
        self._destinations = context.destinations
        self._keep = context.parameters.max_window + REMOVAL_GRACE
        self._cluster = context.cluster
        self._may_end = may_end

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._clock.about(LOOK_SECONDS))
            if self._may_end():
                await self.look()

    async def look(self) -> int:
        """End all that is due now, as far as the grid allows; returns how many values have ended."""
        mine = self._cluster.share(TOPIC_PARTITIONS)
        ended = 0
        try:
            while mine and (due := await self._topics.due(mine, limit=ENDED_AT_ONCE)):
                now = 0
                for start in range(0, len(due), ENDED_AT_ONCE):
                    now += await self._end(due[start : start + ENDED_AT_ONCE])
                ended += now
                if not now or len(due) < ENDED_AT_ONCE or not self._may_end():
                    break
        except GridUnavailable:
            pass  # what is left is due in the next look
        return ended

    async def _end(self, topics: Sequence[TopicPath]) -> int:
        kept = self._destinations.history
        ended = await self._topics.end([(each, kept(each)) for each in topics], keep=self._keep)
        if ended:
            self._metrics.add(catalogue.VALUES_ENDED, ended)
        return ended
