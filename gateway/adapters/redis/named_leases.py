"""Leases of things with names, each of which one node has, with terms: links to other clusters, and hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from gateway.adapters.redis import scripts
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.scripts import Argument
from gateway.core.types import NodeRef
from gateway.ports import TERMS_OF_A_GENERATION

Name = TypeVar("Name", bound=str)
Holder = TypeVar("Holder")


class NamedLeases(Generic[Name, Holder]):
    """Who has what of one kind.

    Args:
        grid: for commands, and to be told of a grid that does not fit.
        generation: key of the grid's own record, which has the generation and the last term.
        held: key of these leases.
        most: leases that there may be.
        name: makes a name of what the grid holds.
        holder: makes what is told of a lease: its node, its term, and the seconds until somebody else may take it.
    """

    def __init__(
        self,
        grid: GridConnection,
        *,
        generation: str,
        held: str,
        most: int,
        name: Callable[[str], Name],
        holder: Callable[[NodeRef, int, float], Holder],
    ) -> None:
        self._grid = grid
        self._generation = generation
        self._held = held
        self._most = most
        self._name = name
        self._holder = holder

    async def take(self, node: NodeRef, names: Collection[Name], *, lease: float) -> Mapping[Name, Holder] | None:
        """Have a node take what nobody has, and keep what it has.

        Returns:
            Who has each of them then; None if there would be more leases than there may be, and nothing was done.

        Raises:
            GridUnavailable: see ``gateway.ports``.
        """
        wanted: list[Argument] = list(dict.fromkeys(names))
        if not wanted:
            return {}
        reply = await self._grid.batcher.call(
            scripts.CARRIER_TAKE(
                *(self._generation, self._held, self._grid.clock.argument(), self._grid.generation),
                *(str(node), max(1, round(lease * 1000)), self._most, TERMS_OF_A_GENERATION, *wanted),
            )
        )
        if reply == b"stale":
            raise self._grid.stale()
        if reply == b"many":
            return None
        return dict(zip(dict.fromkeys(names), map(self._read, reply), strict=True))

    async def release(self, node: NodeRef, names: Collection[Name]) -> None:
        """Have a node give back what it has of these.

        Raises:
            GridUnavailable: see ``gateway.ports``.
        """
        if names:
            await self._grid.batcher.call(scripts.CARRIER_RELEASE(self._held, str(node), *names))

    async def holders(self) -> Mapping[Name, Holder]:
        """Tell who has what.

        Raises:
            GridUnavailable: see ``gateway.ports``.
        """
        reply = await self._grid.batcher.call(scripts.CARRIERS(self._held, self._grid.clock.argument()))
        return {self._name(name.decode()): self._read(held) for name, held in zip(reply[::2], reply[1::2], strict=True)}

    def _read(self, held: bytes) -> Holder:
        node, term, left = held.decode().split(" ")
        return self._holder(NodeRef.parse(node), int(term), int(left) / 1000)
