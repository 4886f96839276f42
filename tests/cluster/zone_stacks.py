"""Clusters of node processes, each with a Redis of its own, put into zones and joined by their admin APIs.

```text
cluster A: n1, n2 ──▶ Redis        each node takes zone links behind a proxy, so that its links can be cut
cluster B: n1, n2 ──▶ Redis
```
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from gateway.adapters.link_authority import ZONES, make_certificates
from gateway.local.admin import UNREACHABLE
from gateway.local.ports import LOOPBACK, free_port
from gateway.local.proxy import FaultProxy
from gateway.local.stack import Stack
from tests.cluster.admin_calls import ask
from tests.support.faults import eventually
from tests.support.stack import cluster
from tests.support.times import PATIENCE, scaled

SECRET: Final = "a secret of the zone and its joins"
NODES: Final = 2

LEASE: Final = 2.0
"""Seconds, on a quiet machine, after which a node that was killed is missed, and its links are carried by another."""

LINKED: Final = 3 * PATIENCE
"""Seconds, on a quiet machine, until all links have to be up."""


class ZoneStack:
    """One cluster.

    Args:
        name: of the cluster.
        stack: its processes.
        proxies: before the places where its nodes take zone links, by node.

    Attributes:
        name: as given.
        stack: as given.
        proxies: as given.
        joins: names of the joins by which it sends.
    """

    def __init__(self, name: str, stack: Stack, proxies: dict[str, FaultProxy]) -> None:
        self.name = name
        self.stack = stack
        self.proxies = proxies
        self.joins: list[str] = []

    @property
    def urls(self) -> list[str]:
        """Where clients connect."""
        return [self.stack.node_url(node) for node in self.stack.node_names]

    async def ask(self, method: str, path: str, **body: Any) -> Any:
        """See ``tests.cluster.admin_calls.ask``."""
        return await ask(self.stack, method, path, **body)

    async def here(self) -> dict[str, Any]:
        """Tell what other clusters have to know of this one, once all nodes have told it."""
        found: dict[str, Any] = {}

        async def told() -> bool:
            found.update((await self.ask("GET", "/v1/zones"))["here"])
            return len(found["urls"]) == len(self.stack.node_names)

        await eventually(told, f"the nodes of {self.name} tell where they take links")
        return found

    async def links(self) -> list[dict[str, Any]]:
        """List the links of its nodes, as they last told."""
        members = (await self.ask("GET", "/v1/zone/members"))["items"] if await self._is_in_zone() else []
        joins = (await self.ask("GET", "/v1/joins"))["items"]
        return [link for each in (*members, *joins) for link in each["links"]]

    async def carriers(self) -> list[str]:
        """List the nodes that send to other clusters now."""
        up = [each for each in await self.links() if each["direction"] == "out" and each["state"] == "up"]
        return sorted({each["node"].partition(":")[0].partition("/")[0] for each in up})

    def log_events(self) -> Iterator[dict[str, Any]]:
        """Read what its nodes have logged."""
        for node in self.stack.node_names:
            for line in self.stack.log_of(node).read_text("utf-8").splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    yield {"level": "error", "event": "not a log event", "line": line}

    async def _is_in_zone(self) -> bool:
        return any(each["current"] for each in (await self.ask("GET", "/v1/zones"))["items"])


@asynccontextmanager
async def zone_stacks(folder: Path, *names: str, **settings: Any) -> AsyncIterator[list[ZoneStack]]:
    """Run clusters of node processes that are not linked yet.

    Args:
        folder: for data and logs.
        names: of the clusters.
        settings: of all nodes.
    """
    made = make_certificates(folder / "certificates", names, now=time.time(), kind=ZONES)
    async with AsyncExitStack() as exits:
        found = []
        for name, certificate, key in made.nodes:
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
                    cluster=name,
                    zone_tls_certificate=certificate,
                    zone_tls_key=key,
                    zone_tls_ca=made.ca,
                    lease=scaled(LEASE),
                    lease_renew=scaled(LEASE / 4),
                    **settings,
                )
            )
            found.append(ZoneStack(name, stack, proxies))
        yield found


async def zone_of(name: str, *members: ZoneStack) -> None:
    """Put clusters into one zone."""
    first, *others = members
    await first.ask("PUT", "/v1/zone", zone=name, secret=SECRET)
    urls = (await first.here())["urls"]
    for each in others:
        await each.ask("PUT", "/v1/zone", zone=name, urls=urls, secret=SECRET)


async def join(source: ZoneStack, target: ZoneStack, *selectors: str) -> None:
    """Have what matches go from one cluster to another one."""
    of_source, of_target = await source.here(), await target.here()
    both: dict[str, Any] = {"selectors": selectors, "secret": f"{SECRET} from {source.name} to {target.name}"}
    await target.ask(
        "PUT", f"/v1/joins/from-{source.name}", direction="in", fingerprints=of_source["fingerprints"], **both
    )
    name = f"to-{target.name}"
    await source.ask(
        "PUT",
        f"/v1/joins/{name}",
        direction="out",
        urls=of_target["urls"],
        fingerprints=of_target["fingerprints"],
        **both,
    )
    source.joins.append(name)


async def all_linked(*stacks: ZoneStack, out: Collection[int]) -> None:
    """Wait until each cluster sends over so many links."""

    async def linked() -> bool:
        try:
            links = [await each.links() for each in stacks]
        except UNREACHABLE:
            return False
        up = [sum(each["direction"] == "out" and each["state"] == "up" for each in of) for of in links]
        return up == list(out)

    await eventually(linked, f"links are up: {list(out)}", within=LINKED)
