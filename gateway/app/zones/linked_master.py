"""What the master of a cluster does again and again, alone, while the cluster has links."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gateway.app.context import Context
from gateway.app.zones.knowledge import ZoneKnowledge
from gateway.ports import GridUnavailable


class LinkedMaster:
    """Does one thing; a cluster without links, and a node that is not the master, ask the grid nothing (P11).

    Args:
        context: of the node.
        knowledge: whether the cluster has links.
        work: what is done. If the grid is unreachable, it is tried again after the next pause.
        every: seconds between two times.
    """

    def __init__(
        self, context: Context, knowledge: ZoneKnowledge, work: Callable[[], Awaitable[None]], *, every: float
    ) -> None:
        self._cluster = context.cluster
        self._knowledge = knowledge
        self._work = work
        self._every = every
        self._linked = asyncio.Event()
        knowledge.on_change(self._look)

    async def run(self) -> None:
        """Do it for ever."""
        while True:
            await self._linked.wait()
            if self._cluster.is_master:
                with suppress(GridUnavailable):
                    await self._work()
            await asyncio.sleep(self._every)

    def _look(self) -> None:
        if self._knowledge.is_linked:
            self._linked.set()
        else:
            self._linked.clear()
