"""The other nodes, as this one last saw them, and how the living ones share work that is no node's own."""

from __future__ import annotations

from gateway.core.types import NodeRef
from gateway.ports import LeaseTable, Master


class ClusterView:
    """Who held a lease when this node last looked, and who was the master.

    One task writes it, with each renewal of this node's lease (``Membership``). Everybody may read it at any time. It
    may be as old as a renewal, and no right follows from it (P3).

    Args:
        me: this node.

    Attributes:
        table: what that look found; nobody before the first one.
    """

    def __init__(self, me: NodeRef) -> None:
        self._me = me
        self.table = LeaseTable((), ())

    @property
    def alive(self) -> tuple[NodeRef, ...]:
        """The nodes that held their lease."""
        return self.table.alive

    @property
    def nodes(self) -> list[NodeRef]:
        """These and this one, which may be new, or have lost its lease; in an order that is the same everywhere."""
        return sorted({*self.alive, self._me})

    @property
    def master(self) -> Master | None:
        """The master of the cluster; None if there was none."""
        return self.table.master

    @property
    def is_master(self) -> bool:
        """Whether this node was the master."""
        return self.master is not None and self.master.node == self._me

    def share(self, partitions: int) -> range:
        """Tell which partitions this node sees to: each is somebody's, as long as all nodes see the same ones alive.

        A node that is not among them yet takes the share of the first one.

        Args:
            partitions: how many there are.
        """
        alive = self.table.alive
        return range(alive.index(self._me) if self._me in alive else 0, partitions, len(alive) or 1)
