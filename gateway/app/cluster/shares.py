"""How living nodes share work that is no node's own, partition by partition."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.types import NodeRef


def share_of(me: NodeRef, alive: Sequence[NodeRef], partitions: int) -> range:
    """Tell which partitions a node sees to: each is somebody's, as long as all know of the same nodes.

    Args:
        me: the node.
        alive: those that hold their lease, as the node knows; it counts as the first one if it is not among them.
        partitions: how many there are.
    """
    return range(alive.index(me) if me in alive else 0, partitions, len(alive) or 1)
