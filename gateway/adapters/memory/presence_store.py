"""Members of trees as one connection of one node to the in-memory grid has them; see ``presence_table``."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.adapters.memory.grid_connection import GridConnection
from gateway.core.types import SessionId, TopicPath
from gateway.ports import Enter, Entered, Fenced, Leave, MemberPage, TellMembers, Untold


class MemoryPresenceStore:
    """``PresenceStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection

    async def enter(self, entries: Sequence[Enter]) -> list[Entered | Fenced]:
        """See the port."""
        return await self._connection.run(lambda grid, now: [grid.enter(each, now) for each in entries])

    async def leave(self, leaves: Sequence[Leave]) -> list[bool | Fenced]:
        """See the port."""
        return await self._connection.run(lambda grid, now: [grid.leave_tree(each, now) for each in leaves])

    async def watch(self, partitions: Sequence[int], *, duration: float) -> list[Untold]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.presence.watch(partitions, duration, now))

    async def tell_members(self, tell: TellMembers) -> str | None:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.presence.tell_members(tell, grid.generation, now))

    async def all_told(self, untold: Untold) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.presence.all_told(untold))

    async def tell_due(self, partitions: Sequence[int], *, limit: int) -> int:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: grid.presence.tell_due(partitions, limit, grid.generation, now)
        )

    async def trees(self, partition: int) -> list[TopicPath]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: grid.presence.trees(partition))

    async def members(self, tree: TopicPath, *, step: str | None, count: int) -> MemberPage:
        """See the port."""
        found = await self._connection.run(lambda grid, _now: grid.presence.members(tree))
        page = sorted(each for each in found if step is None or each > step)
        return MemberPage(page[:count], page[count - 1] if len(page) > count else None)

    async def counts(self, trees: Sequence[TopicPath]) -> list[int]:
        """See the port."""
        return await self._connection.run(lambda grid, _now: [len(grid.presence.members(each)) for each in trees])

    async def discard(self, tree: TopicPath, sessions: Sequence[SessionId]) -> int:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: sum(grid.presence.discard(each, tree, grid.generation, now) for each in sessions)
        )
