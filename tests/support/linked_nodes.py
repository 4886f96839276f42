"""Whole nodes in the test process that have links over the memory twin, which are cut, slow or deaf when told to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.adapters.memory.peers import MemoryPeerLinks, MemoryPeerNetwork
from gateway.app.cluster.handoff import taker
from gateway.bootstrap import assembly
from gateway.core.mirror.frames import FEATURE
from gateway.core.types import NodeRef
from gateway.settings import Settings
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.times import scaled

TIMES: dict[str, Any] = {"lease": scaled(5.0), "lease_renew": scaled(0.2), "drain_jitter": 0.0}
"""Settings of linked nodes: they find each other soon, and none is taken for dead."""

TAKE_SECONDS = 1.0
"""Seconds for a former owner to give a session, on a quiet machine. The gateway has 0.25, about what all nodes of a
test process together may need beside other tests, and then a session fails over that should be handed over."""


def is_linked(*nodes: TestNode) -> bool:
    """Tell whether all of them have links to each other."""
    return all(
        one is other or (one.gateway.node.links is not None and one.gateway.node.links.state(other.gateway.me).up)
        for one in nodes
        for other in nodes
    )


class LinkedNodes:
    """Nodes with links.

    Args:
        patch: has the nodes of the process use links of memory.

    Attributes:
        grid: that they share.
        network: between them.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.grid = MemoryGridServer()
        self.network = MemoryPeerNetwork()

        def links_of(_: Settings, me: NodeRef, *__: object, started: float, **___: object) -> MemoryPeerLinks:
            return MemoryPeerLinks(self.network, me, started=started, features=(FEATURE,))

        patch.setattr(assembly, "links_of", links_of)
        patch.setattr(taker, "TAKE_SECONDS", scaled(TAKE_SECONDS))

    @asynccontextmanager
    async def run(self, *names: str, **settings: Any) -> AsyncIterator[list[TestNode]]:
        """Run nodes until the end of the block; they have links when it begins."""
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(running_node(name, memory=self.grid, **(TIMES | settings)))
                for name in names
            ]
            await eventually(lambda: is_linked(*nodes))
            yield nodes
