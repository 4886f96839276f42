"""A fault proxy on every link of a stack, so that each of them can fail alone.

```text
clients ──▶ [entry] ──▶ HAProxy ──▶ [nodes: n1] ──▶ n1 ──▶ [grid: n1] ──▶ Redis
                                └─▶ [nodes: n2] ──▶ n2 ──▶ [grid: n2] ──▶
```

Health and agent checks of HAProxy do not pass here: they go to the admin ports of the nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from gateway.local.ports import LOOPBACK, PortPlan
from gateway.local.proxy import FaultProxy

ENTRY: Final = "clients"
"""Name of the link between clients and HAProxy."""


class Links:
    """The proxies of one stack.

    Attributes:
        entry: between clients and HAProxy.
        nodes: between HAProxy and each node, by node.
        grid: between each node and Redis, by node; empty if the grid is not the stack's own.
    """

    def __init__(self, ports: PortPlan, *, grid: bool) -> None:
        """Describe the links; nothing listens yet.

        Args:
            ports: of the stack.
            grid: whether the nodes reach Redis through proxies as well.
        """
        self.entry = FaultProxy(LOOPBACK, ports.entry)
        self.nodes = {name: FaultProxy(LOOPBACK, each.listen) for name, each in ports.nodes.items()}
        self.grid = {name: FaultProxy(LOOPBACK, ports.grid) for name in ports.nodes} if grid else {}

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"ws://{LOOPBACK}:{self.entry.port}/v1/connect"

    def grid_url(self, node: str) -> str:
        """Where *node* reaches its Redis."""
        return f"redis://{LOOPBACK}:{self.grid[node].port}/0"

    def by_name(self) -> dict[str, FaultProxy]:
        """Return all proxies: ``clients``, ``n1`` (before the node) and ``n1-grid`` (behind it)."""
        return {
            ENTRY: self.entry,
            **self.nodes,
            **{f"{node}-grid": proxy for node, proxy in self.grid.items()},
        }

    async def start(self) -> None:
        """Begin to listen everywhere.

        Raises:
            OSError: a port is taken.
        """
        for proxy in self:
            await proxy.start()

    async def stop(self) -> None:
        """Stop listening and reset every connection."""
        await asyncio.gather(*(proxy.stop() for proxy in self))

    def __iter__(self) -> Iterator[FaultProxy]:
        return iter(self.by_name().values())
