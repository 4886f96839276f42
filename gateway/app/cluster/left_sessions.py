"""Counts the disconnected sessions that no living node counts: those that nodes which are gone have left in the grid.

Their nodes were restarted or have died, and nobody has come back for them yet. They take the grid's memory until their
windows end, so they count (P20): read from the grid itself, and shared by the living nodes, partition by partition, as
reaping is. What one of them finds it tells the others as if the sessions were its own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from gateway.app.context import Context
from gateway.core.topics.topics import SESSION_PARTITIONS
from gateway.core.types import NodeRef
from gateway.ports import GridUnavailable

PAGE: Final = 100
"""Sessions that are looked at in a step: a fraction of a millisecond of the grid's time, unless lists are long."""

REAPS: Final = 6
"""Looks of the reaper for each count, half a minute by default: what the nodes do not know for so long after one of
them is gone, or count twice when somebody has come back, is little beside what takes hours to be left."""


class LeftSessions:
    """Counts what disconnected sessions of nodes that are gone take in the grid.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._me = context.me
        self._grid = context.grid
        self._stored = context.limits.stored
        self._pause = REAPS * context.parameters.reap
        self._renew = context.parameters.renew
        self._clock = context.clock
        self._cluster = context.cluster

    async def run(self) -> None:
        """Count for ever."""
        while not self._cluster.alive:  # noqa: ASYNC110 - a fraction of the time that the first count takes to matter
            # Not renewed yet: what nodes that are not known count would be counted twice.
            await asyncio.sleep(self._renew)
        while True:
            with suppress(GridUnavailable):  # what was found before is the best that is known
                await self.count()
            await asyncio.sleep(self._clock.about(self._pause))

    async def count(self) -> None:
        """Count once, this node's part of the partitions.

        Raises:
            GridUnavailable: what was found before stays for the partitions that were not reached.
        """
        nodes = self._cluster.nodes
        mine, alive = range(nodes.index(self._me), SESSION_PARTITIONS, len(nodes)), set(nodes)
        for partition in range(SESSION_PARTITIONS):
            self._stored.left(partition, await self._sizes(partition, alive) if partition in mine else {})

    async def _sizes(self, partition: int, alive: set[NodeRef]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        start: int | None = 0
        while start is not None:
            page = await self._grid.sessions.left(partition, besides=alive, start=start, limit=PAGE)
            for principal, size in page.sizes.items():
                sizes[principal] = sizes.get(principal, 0) + size
            start = page.next
        return sizes
