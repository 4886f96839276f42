"""Proxies between nodes: one for each node and each other node that it may dial, so that a pair of them can be parted.

A node advertises one address for all others, so that it cannot lead each of them to a proxy of its own. A library that
is preloaded into the node that dials does so, as before a grid with replicas (``grid_links``).

```text
n1 ──▶ [n1, n2] ──▶ link port of n2        n2 ──▶ [n2, n1] ──▶ link port of n1
```
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import combinations, permutations
from typing import Final

from gateway.local.ports import LOOPBACK, free_port
from gateway.local.proxy import FaultProxy, Way
from tests.support import preloaded

_BREAKING_THEM: Final = "links between nodes can be broken"


def unavailable(grid: str) -> str:
    """Tell why there are no proxies between nodes on this machine; empty if there are, whatever the grid."""
    del grid
    return preloaded.unavailable(_BREAKING_THEM)


def pairs(nodes: Sequence[str]) -> list[str]:
    """Name all pairs of nodes, as plans do: ``n1-n2``."""
    return ["-".join(pair) for pair in combinations(nodes, 2)]


class NodeLinks:
    """The proxies.

    Args:
        nodes: names of all nodes.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self._library = preloaded.library(preloaded.CONNECT_ELSEWHERE, _BREAKING_THEM)
        self._ports = {node: free_port() for node in nodes}
        self._proxies = {
            (dialer, other): FaultProxy(LOOPBACK, self._ports[other]) for dialer, other in permutations(nodes, 2)
        }

    def address(self, node: str) -> str:
        """Where a node listens for the others: a setting."""
        return f"{LOOPBACK}:{self._ports[node]}"

    def between(self, pair: str) -> list[tuple[FaultProxy, dict[Way, Way]]]:
        """Return the proxies between two nodes.

        Args:
            pair: which, as ``pairs`` names it.

        Returns:
            Each with what its ways are for the pair: up is what the first node says to the second.
        """
        one, _, other = pair.partition("-")
        same, reverse = {way: way for way in Way}, {Way.UP: Way.DOWN, Way.DOWN: Way.UP}
        return [(self._proxies[one, other], same), (self._proxies[other, one], reverse)]

    def environment(self) -> dict[str, Mapping[str, str]]:
        """Variables with which each node reaches the others through its proxies, once these listen."""
        return {
            node: preloaded.elsewhere(
                self._library,
                {self._ports[other]: proxy.port for (dialer, other), proxy in self._proxies.items() if dialer == node},
            )
            for node in self._ports
        }

    def __iter__(self) -> Iterator[FaultProxy]:
        return iter(self._proxies.values())


@asynccontextmanager
async def node_links(nodes: Sequence[str]) -> AsyncIterator[NodeLinks]:
    """Have the proxies listen for as long as the block lasts.

    Args:
        nodes: names of all nodes.
    """
    links = NodeLinks(nodes)
    try:
        for proxy in links:
            await proxy.start()
        yield links
    finally:
        await asyncio.gather(*(proxy.stop() for proxy in links))
