"""Proxies between each node and each server of a grid with replicas.

Servers of such a grid tell each other's addresses to nodes, so that a URL cannot lead a node to a proxy. The addresses
stay true here: a library that is preloaded into a node has its connections to a server go to the proxy in between. The
servers, and who watches them, go past all proxies.

```text
n1 ──▶ [n1, 7000] ──▶ Redis 7000        n2 ──▶ [n2, 7000] ──▶ Redis 7000
   └─▶ [n1, 7001] ──▶ Redis 7001           └─▶ [n2, 7001] ──▶ Redis 7001
```
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from gateway.local.proxy import FaultProxy
from tests.support import preloaded
from tests.support.redis_server import HOST

_BREAKING_THEM: Final = "links between nodes and several Redis can be broken"


def unavailable(grid: str) -> str:
    """Tell why nodes have no proxies before a kind of grid on this machine; empty if they have some."""
    # To one Redis they are led by its URL.
    return "" if grid == "single" else preloaded.unavailable(_BREAKING_THEM)


class GridLinks:
    """The proxies.

    Args:
        nodes: names of all nodes.
        ports: of all servers: masters, replicas and Sentinels.
    """

    def __init__(self, nodes: Sequence[str], ports: Sequence[int]) -> None:
        self._library = preloaded.library(preloaded.CONNECT_ELSEWHERE, _BREAKING_THEM)
        self._proxies = {node: {port: FaultProxy(HOST, port) for port in ports} for node in nodes}

    def of(self, node: str, port: int | None = None) -> list[FaultProxy]:
        """Return the proxies between a node and one server, or all of them."""
        proxies = self._proxies[node]
        return list(proxies.values()) if port is None else [proxies[port]]

    def environment(self) -> dict[str, Mapping[str, str]]:
        """Variables with which each node reaches the servers through its proxies, once these listen."""
        return {
            node: preloaded.elsewhere(self._library, {port: proxy.port for port, proxy in proxies.items()})
            for node, proxies in self._proxies.items()
        }

    def __iter__(self) -> Iterator[FaultProxy]:
        return (proxy for proxies in self._proxies.values() for proxy in proxies.values())


@asynccontextmanager
async def grid_links(nodes: Sequence[str], ports: Sequence[int]) -> AsyncIterator[GridLinks]:
    """Have the proxies listen for as long as the block lasts.

    Args:
        nodes: names of all nodes.
        ports: of all servers.
    """
    links = GridLinks(nodes, ports)
    try:
        for proxy in links:
            await proxy.start()
        yield links
    finally:
        await asyncio.gather(*(proxy.stop() for proxy in links))
