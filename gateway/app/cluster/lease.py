"""This node's lease: taken, kept, and taken again when it is lost; whoever looks after it waits for whoever is at it.

A lease belongs to the generation of the grid in which it was taken. In a grid that lost writes it may be gone with the
rest, which means nothing: every session is written again there anyway. Gone from the grid that gave it, it has expired:
then every session may be another node's, or on the clock (P3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gateway.app.context import Context
from gateway.app.journal.node_events import LeaseFoundLost
from gateway.core.types import GridGeneration
from gateway.ports import LeaseLost, LeaseTable, MasterWish


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of keeping the lease.

    Attributes:
        table: the nodes of the cluster.
        expired: whether it had expired, so that every session has to be verified.
    """

    table: LeaseTable
    expired: bool


class NodeLease:
    """Takes and keeps the lease of one node.

    Args:
        context: of the node.
        saved_ago: tells since when all that happened to the node's sessions is in the grid, in seconds; see
            ``NodeDirectory.renew``.
        expired: called when it has expired: before another one is taken, as with that comes the right to write; and
            again when that is there, as what was written meanwhile bears the term of the lease before, so that whoever
            takes that over may put it on the clock.

    Attributes:
        taken: whether there has been a lease yet.
    """

    def __init__(self, context: Context, expired: Callable[[], None], saved_ago: Callable[[], float]) -> None:
        self._saved_ago = saved_ago
        self._me = context.me
        self._grid = context.grid
        self._length = context.parameters.lease
        self._announce = context.announce
        self._expired = expired
        self._grid_generation = GridGeneration(0)
        self._one_at_a_time = asyncio.Lock()
        self.taken = False

    async def take(self) -> None:
        """Take the first lease.

        Raises:
            GridUnavailable: the grid is unreachable.
        """
        async with self._one_at_a_time:
            await self._join()

    async def keep(self, *, watch: float = 0.0, wish: MasterWish = MasterWish.KEEP) -> Kept:
        """Extend the lease, or take another one in its place.

        Args:
            watch: as for ``NodeDirectory.renew``.
            wish: likewise.

        Raises:
            GridUnavailable: the grid is unreachable.
            LeaseLost: another one was taken and has expired already, so slow is the grid.
        """
        async with self._one_at_a_time:
            if self._grid_generation != self._grid.generation:
                await self._join()
            try:
                return Kept(await self._renew(watch, wish), expired=False)
            except LeaseLost:
                self._announce(LeaseFoundLost(self._me))
                self._expired()
            await self._join()
            self._expired()
            return Kept(await self._renew(watch, wish), expired=True)

    async def _renew(self, watch: float, wish: MasterWish) -> LeaseTable:
        return await self._grid.nodes.renew(
            self._me, lease=self._length, watch=watch, wish=wish, saved_ago=self._saved_ago()
        )

    async def _join(self) -> None:
        grid_generation = self._grid.generation
        await self._grid.nodes.join(self._me, lease=self._length, saved_ago=self._saved_ago())
        self._grid_generation = grid_generation
        self.taken = True
