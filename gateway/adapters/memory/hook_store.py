"""Hooks in the in-memory grid, as one connection sees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gateway.adapters.memory.grid_connection import GridConnection
from gateway.core.hooks.cursor import Cursor, Page
from gateway.core.hooks.hook import HookName
from gateway.core.types import NodeRef
from gateway.ports import HookHolder


class MemoryHookStore:
    """``HookStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection

    async def hold(self, node: NodeRef, names: Collection[HookName], *, lease: float) -> Mapping[HookName, HookHolder]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.hooks.hold(node, names, lease, grid.generation, now))

    async def release(self, node: NodeRef, names: Collection[HookName]) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.hooks.release(node, names))

    async def holders(self) -> Mapping[HookName, HookHolder]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.hooks.holders(now))

    async def read(self, name: HookName, term: int, *, known: bool, entries: int) -> Sequence[Page]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.hooks.read(name, term, known, entries, grid.journal))

    async def advance(self, name: HookName, term: int, cursors: Mapping[int, Cursor]) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.hooks.advance(name, term, cursors))

    async def tell(self, name: HookName, status: bytes) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.hooks.tell(name, status))

    async def told(self) -> Mapping[HookName, bytes]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.hooks.told())

    async def behind(self, name: HookName) -> int | None:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.hooks.behind(name, grid.journal))

    async def ask_again(self, name: HookName) -> bool:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.hooks.ask_again(name))

    async def asked(self) -> Collection[HookName]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.hooks.asked())

    async def answered(self, name: HookName) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.hooks.answered(name))

    async def forget(self, name: HookName) -> bool:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.hooks.forget(name, now))
