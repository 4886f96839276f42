"""The incident: one node is killed, and another one drained, while clients are served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.local.processes import ProcessFailed
from gateway.local.stack import Stack
from scripts.demo_pipeline.clients import Crowd
from scripts.demo_pipeline.truth import Happened

BACK_SECONDS: Final = 60.0
"""How long all clients may take to be back."""

EVERY: Final = 0.2
"""Seconds between two publishes."""

CALM: Final = 2.0
"""Seconds before each fault and after the last, so that there is something to see before and after."""

Say = Callable[[str], None]


async def play(stack: Stack, clients: int, say: Say) -> list[Happened]:
    """Play it on a stack that runs.

    Args:
        stack: with a balancer, at least three nodes, and their journal on.
        clients: how many.
        say: is told what happens.

    Returns:
        What happened, as clients saw it.

    Raises:
        ProcessFailed: not everybody came back in time, or a node did not do as it was told.
    """
    crowd = Crowd()
    await crowd.arrive(stack.url, clients)
    await crowd.publish(stack.url, EVERY)
    spread = ", ".join(f"{len(crowd.on(node))} on {node}" for node in stack.node_names)
    say(f"{clients} clients are connected: {spread}")
    await asyncio.sleep(CALM)

    dead = crowd.busiest(stack.node_names)
    say(f"{dead} dies (kill -9), with {len(crowd.on(dead))} clients")
    death = await _disturb(crowd, "death", dead, lambda: stack.kill_node(dead))
    await stack.start_node(dead)
    await stack.balanced()
    await asyncio.sleep(CALM)

    drained = crowd.busiest([node for node in stack.node_names if node != dead])
    say(f"{drained} is drained for a deploy, with {len(crowd.on(drained))} clients")
    drain = await _disturb(crowd, "drain", drained, lambda: stack.drain_node(drained))
    await stack.start_node(drained)
    await stack.balanced()
    await asyncio.sleep(CALM)
    await crowd.leave()
    return [death, drain]


async def _disturb(crowd: Crowd, kind: str, node: str, act: Callable[[], Awaitable[object]]) -> Happened:
    names = crowd.on(node)
    before = {name: len(crowd.clients[name].seen) for name in names}
    crowd.slowest = 0.0
    if not await crowd.all_back(names, act, BACK_SECONDS):
        raise ProcessFailed(f"not all {len(names)} clients of {node} were back in {BACK_SECONDS:g} s")
    # The publish that is on its way now began among those that came back.
    await asyncio.sleep(CALM)
    seen = {name: crowd.clients[name].seen[before[name]] for name in names}
    return Happened(kind, node, seen, clock_ms=1000 * crowd.slowest)
