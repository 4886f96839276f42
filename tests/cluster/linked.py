"""Whether the nodes of a cluster of processes have their links."""

from __future__ import annotations

from gateway.local import admin
from gateway.local.stack import Stack


async def links(stack: Stack, node: str) -> tuple[float, float]:
    """Tell how many links of a node are up, and down."""
    try:
        metrics = await stack.metrics(node)
    except admin.UNREACHABLE:
        return -1, -1
    return metrics['gateway_links{state="up"}'], metrics['gateway_links{state="down"}']


async def all_linked(stack: Stack, *nodes: str) -> bool:
    """Tell whether each of *nodes* has a link to every other one, and nobody else is missed."""
    others = len(nodes) - 1
    return [await links(stack, node) for node in nodes] == [(others, 0)] * len(nodes)
