"""The port of nodes on the in-memory grid; the steps themselves are in ``lease_table``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from gateway.adapters.memory.connection import Connection
from gateway.core.types import NodeRef
from gateway.ports import LapsedLease, LeaseTable, NodeEntry, NodeReport, Ownership


class MemoryNodeDirectory:
    """``NodeDirectory`` of one connection to the in-memory grid."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def join(self, node: NodeRef, *, lease: float) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.leases.join(node, lease, now))

    async def renew(self, node: NodeRef, *, lease: float, watch: float = 0.0) -> LeaseTable:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.renew(node, lease, now, watch))

    async def leave(self, node: NodeRef) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.leases.leave(node))

    async def take_over(self, lapsed: NodeRef, *, by: NodeRef, within: float) -> LapsedLease | None:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.take_over(lapsed, by, within, now))

    async def finish_takeover(self, lapsed: NodeRef, *, by: NodeRef) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.leases.finish_takeover(lapsed, by))

    async def grant(self, nodes: Sequence[NodeRef], *, lease: float) -> Sequence[NodeRef]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.grant(nodes, lease, now))

    async def report(self, node: NodeRef, report: NodeReport) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.leases.report(node, report))

    async def entries(self) -> Sequence[NodeEntry]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.leases.entries(now))

    async def tell_claimed(self, to: NodeRef, *rights: Ownership) -> None:
        """See the port."""

        def tell(_grid: object, _now: float) -> None:
            for right in rights:
                self._connection.server.tell(to, right)

        await self._connection.run(tell)

    def claimed_elsewhere(self, node: NodeRef) -> AsyncIterator[Ownership]:
        """See the port. What is told from this call on is kept for the reader; the iterator ends with ``close``."""
        return self._connection.mailbox(node)
