"""Clusters of node processes, each with a Redis of its own, put into zones and joined by their admin APIs.

```text
cluster A: n1, n2 ──▶ Redis        each node takes zone links behind a proxy, so that its links can be cut
cluster B: n1, n2 ──▶ Redis
```
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from gateway.local import linked_clusters
from gateway.local.linked_clusters import LINKED_SECONDS, LinkedCluster, make_certificates, zone_settings
from gateway.local.ports import LOOPBACK, free_port
from gateway.local.proxy import FaultProxy
from gateway.local.stack import Stack
from tests.support.stack import cluster
from tests.support.times import scaled

NODES: Final = 2

LEASE: Final = 2.0
"""Seconds, on a quiet machine, after which a node that was killed is missed, and its links are carried by another."""


class ZoneStack(LinkedCluster):
    """One cluster.

    Args:
        name: of the cluster.
        stack: its processes.
        proxies: before the places where its nodes take zone links, by node.

    Attributes:
        proxies: as given.
    """

    def __init__(self, name: str, stack: Stack, proxies: dict[str, FaultProxy]) -> None:
        super().__init__(name, stack)
        self.proxies = proxies

    def log_events(self) -> Iterator[dict[str, Any]]:
        """Read what its nodes have logged."""
        for node in self.stack.node_names:
            for line in self.stack.log_of(node).read_text("utf-8").splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    yield {"level": "error", "event": "not a log event", "line": line}


@asynccontextmanager
async def zone_stacks(folder: Path, *names: str, **settings: Any) -> AsyncIterator[list[ZoneStack]]:
    """Run clusters of node processes that are not linked yet.

    Args:
        folder: for data and logs.
        names: of the clusters.
        settings: of all nodes.
    """
    certificates = folder / "certificates"
    make_certificates(certificates, names)
    async with AsyncExitStack() as exits:
        found = []
        for name in names:
            listen = {f"n{number}": free_port() for number in range(1, NODES + 1)}
            proxies = {
                node: await exits.enter_async_context(FaultProxy(LOOPBACK, port)) for node, port in listen.items()
            }
            stack = await exits.enter_async_context(
                cluster(
                    folder / name,
                    nodes=NODES,
                    balancer=False,
                    node_environment={
                        node: {
                            "GATEWAY_ZONE_LISTEN": f"{LOOPBACK}:{port}",
                            "GATEWAY_ZONE_ADVERTISE": f"{LOOPBACK}:{proxies[node].port}",
                        }
                        for node, port in listen.items()
                    },
                    **zone_settings(name, certificates),
                    lease=scaled(LEASE),
                    lease_renew=scaled(LEASE / 4),
                    **settings,
                )
            )
            found.append(ZoneStack(name, stack, proxies))
        yield found


async def all_linked(*stacks: ZoneStack, out: Collection[int]) -> None:
    """Wait until each cluster sends over so many links."""
    await linked_clusters.all_linked(*stacks, out=out, timeout=scaled(LINKED_SECONDS))
