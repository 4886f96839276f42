"""Three linked clusters: carriers of links, and the Redis of each cluster. Their links are struck in ``link``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Final

from gateway.local.admin import UNREACHABLE
from gateway.local.grid_server import GridRestart
from tests.chaos.faults.fault import ZONES, Parameters, fault
from tests.chaos.zone_target import CLUSTERS, ZoneTarget
from tests.cluster.zone_stacks import ZoneStack

AWAY: Final = frozenset({"zone-redis-killed", "zone-redis-stopped"})
"""The faults in which the nodes of a cluster have no grid."""


def _cluster(random: Random) -> Parameters:
    return {"cluster": random.choice(CLUSTERS)}


def _node(random: Random) -> Parameters:
    return {**_cluster(random), "chosen": round(random.random(), 2)}


def _claim_nodes(parameters: Parameters) -> set[str]:
    return {f"zone-nodes:{parameters['cluster']}"}


def _claim_redis(parameters: Parameters) -> set[str]:
    return {f"zone-redis:{parameters['cluster']}"}


async def _carrier(stack: ZoneStack, chosen: float) -> str:
    """Choose a node that sends to other clusters, or any if nobody can tell."""
    try:
        carriers = await stack.carriers()
    except UNREACHABLE:
        carriers = []
    nodes = sorted(carriers) or stack.stack.node_names
    return nodes[int(chosen * len(nodes)) % len(nodes)]


@fault("zone-carrier-killed", seconds=(0.1, 4.0), claims=_claim_nodes, draw=_node, grids=ZONES)
async def _killed(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """A node that sends to other clusters is killed, and comes back."""
    stack = target.clusters[parameters["cluster"]]
    node = await _carrier(stack, parameters["chosen"])
    await stack.stack.kill_node(node)
    yield
    await stack.stack.start_node(node)


@fault("zone-carrier-stopped", seconds=(0.3, 7.0), claims=_claim_nodes, draw=_node, grids=ZONES)
async def _stopped(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """A node that sends to other clusters is stopped with SIGSTOP, and wakes."""
    stack = target.clusters[parameters["cluster"]]
    node = await _carrier(stack, parameters["chosen"])
    stack.stack.pause_node(node)
    yield
    stack.stack.resume_node(node)


@fault("zone-redis-killed", seconds=(0.1, 3.0), claims=_claim_redis, draw=_cluster, grids=ZONES)
async def _redis_killed(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """The Redis of a cluster is killed, and comes back with all that it has written."""
    stack = target.clusters[parameters["cluster"]].stack
    await stack.grid.process.kill()
    yield
    await stack.restart_redis(GridRestart.AS_IT_WAS)


@fault("zone-redis-stopped", seconds=(0.3, 6.0), claims=_claim_redis, draw=_cluster, grids=ZONES, settles=2.0)
async def _redis_stopped(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """The Redis of a cluster is stopped with SIGSTOP, and wakes."""
    process = target.clusters[parameters["cluster"]].stack.grid.process
    process.pause()
    yield
    process.resume()
