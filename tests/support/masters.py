"""Nodes of one cluster whose master is known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from gateway.adapters.memory import MemoryGridServer
from tests.support.nodes import FREQUENT_RENEWALS, TestNode, eventually, running_node
from tests.support.times import scaled

EXPIRING: Final[dict[str, Any]] = {"lease": scaled(1.0), "lease_renew": scaled(0.1), "drain_jitter": 0.0}
"""Settings of nodes of which one is to lose its lease, and the role with it."""

STEADY: Final[dict[str, Any]] = EXPIRING | {"lease": FREQUENT_RENEWALS["lease"]}
"""Settings of nodes that keep the role until they give it up, however busy the machine is."""


@asynccontextmanager
async def cluster_with_master(*names: str, **settings: Any) -> AsyncIterator[list[TestNode]]:
    """Run nodes over one grid in memory, until all of them know that the first is the master.

    Args:
        names: of the nodes.
        settings: of all of them, besides ``STEADY``.
    """
    memory = MemoryGridServer()
    async with AsyncExitStack() as stack:
        nodes: list[TestNode] = []
        for name in names:
            nodes.append(await stack.enter_async_context(running_node(name, memory=memory, **(STEADY | settings))))
            await eventually(lambda: all(master_of(node) == names[0] for node in nodes))
        yield nodes


def master_of(node: TestNode) -> str | None:
    """Tell the master as *node* knows it; None without one."""
    master = node.gateway.node.cluster.master
    return None if master is None else master.node.node
