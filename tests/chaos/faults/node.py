"""Faults of nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

from tests.chaos import grid_links, node_links
from tests.chaos.faults.fault import Parameters, a_node, every_node, fault
from tests.chaos.target import LINKED, NODES, Target

RECOVERS = 4.0
"""Seconds in which the sessions of a node find another one, or come back to it."""


def _claim(parameters: Parameters) -> set[str]:
    return {f"node:{parameters['node']}"}


def _claim_with_grid_link(parameters: Parameters) -> set[str]:
    return {f"node:{parameters['node']}", f"grid-link:{parameters['node']}"}


@fault("node-killed", seconds=(0.2, 6.0), draw=a_node, claims=_claim, settles=RECOVERS)
async def _killed(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A node is killed with SIGKILL and started again."""
    await target.kill(parameters["node"])
    yield
    await target.back(parameters["node"])


@fault("node-stopped", seconds=(0.3, 2.0), draw=a_node, claims=_claim, settles=RECOVERS)
async def _stopped(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A node is stopped with SIGSTOP for less than its lease, and goes on."""
    target.stack.pause_node(parameters["node"])
    yield
    target.stack.resume_node(parameters["node"])


@fault("node-stopped-long", seconds=(4.0, 8.0), draw=a_node, claims=_claim, settles=RECOVERS)
async def _stopped_long(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A node is stopped with SIGSTOP until others have taken over, and goes on with what it believes."""
    target.stack.pause_node(parameters["node"])
    yield
    target.stack.resume_node(parameters["node"])
    await target.ready(parameters["node"])


@fault("node-drained", seconds=(0.0, 2.0), draw=a_node, claims=_claim, settles=RECOVERS, planned=True)
async def _drained(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A node is drained by SIGTERM and started again."""
    await target.drain(parameters["node"])
    yield
    await target.back(parameters["node"])
    await asyncio.sleep(LINKED)


def _claim_all(parameters: Parameters) -> set[str]:
    """Everything but clients and HAProxy is well meanwhile, so that nothing may be lost."""
    del parameters
    return {"grid"} | every_node() | {f"node-link:{pair}" for pair in node_links.pairs(NODES)}


@fault("nodes-restarted", seconds=(10.0, 20.0), claims=_claim_all, settles=RECOVERS, planned=True)
async def _restarted(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """All nodes are drained and started again as planned, one after the other."""
    restarts = asyncio.create_task(_restart_all(target), name="chaos-restart-all")
    yield
    await restarts


async def _restart_all(target: Target) -> None:
    for node in NODES:
        await target.drain(node)
        await target.back(node)
        await asyncio.sleep(LINKED)


def _some_sessions(random: Random) -> Parameters:
    return {"to": random.choice(NODES), "sessions": random.randint(1, 6)}


@fault("sessions-moved", seconds=(0.5, 1.0), draw=_some_sessions, claims=lambda _: {"moves"})
async def _moved(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """An administrator moves some sessions to a node."""
    await target.move_sessions(parameters["to"], parameters["sessions"])
    yield


@fault(
    "node-starts-without-grid",
    seconds=(1.5, 5.0),
    draw=a_node,
    claims=_claim_with_grid_link,
    settles=RECOVERS,
    unavailable=grid_links.unavailable,
)
async def _starts_without_grid(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A node is killed and starts while it cannot reach Redis."""
    node = parameters["node"]
    proxies = target.grid_link(node)
    await target.kill(node)
    for proxy in proxies:
        proxy.refuse()
        proxy.cut()
    target.stack.launch_node(node)
    yield
    for proxy in proxies:
        await proxy.start()
    await target.ready(node)


def _a_node_and_a_pause(random: Random) -> Parameters:
    return {"node": random.choice(NODES), "between": round(random.uniform(0.0, 1.0), 2)}


@fault("node-flaps", seconds=(0.5, 3.0), draw=_a_node_and_a_pause, claims=_claim, settles=RECOVERS)
async def _flaps(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A node is killed, started, and killed again while it starts."""
    node = parameters["node"]
    await target.kill(node)
    target.stack.launch_node(node)
    await asyncio.sleep(parameters["between"])
    await target.kill(node)
    yield
    await target.back(node)
