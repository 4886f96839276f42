"""Three linked clusters: carriers, their links, and the Redis of each; nothing of it may lose or repeat an event."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Final

from gateway.local.admin import UNREACHABLE
from gateway.local.grid_server import GridRestart
from gateway.local.proxy import Way
from tests.chaos.faults.fault import ZONES, Parameters, fault
from tests.cluster.zone_stacks import ZoneStack

NAMES: Final = ("A", "B", "C")
"""Of the clusters."""

AWAY: Final = frozenset({"zone-redis-killed", "zone-redis-stopped"})
"""The faults in which the nodes of a cluster have no grid."""

WAYS: Final = (("up",), ("down",), ("up", "down"))
"""In which a link is struck: what comes, what goes, or both."""

SLOWEST: Final = 2_000
"""Bytes a second of a slow link, at least."""

FASTEST: Final = 100_000
"""Likewise, at most."""

ZoneTarget = dict[str, ZoneStack]
"""The clusters, by name."""


def _cluster(random: Random) -> Parameters:
    return {"cluster": random.choice(NAMES)}


def _node(random: Random) -> Parameters:
    return {**_cluster(random), "chosen": round(random.random(), 2)}


def _link(random: Random) -> Parameters:
    return {**_cluster(random), "ways": list(random.choice(WAYS))}


def _claim_nodes(parameters: Parameters) -> set[str]:
    return {f"zone-nodes:{parameters['cluster']}"}


def _claim_links(parameters: Parameters) -> set[str]:
    return {f"zone-links:{parameters['cluster']}"}


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


def _ways(parameters: Parameters) -> list[Way]:
    return [Way(each) for each in parameters["ways"]]


@fault("zone-carrier-killed", seconds=(0.1, 4.0), claims=_claim_nodes, draw=_node, grids=ZONES)
async def _killed(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """A node that sends to other clusters is killed, and comes back."""
    stack = target[parameters["cluster"]]
    node = await _carrier(stack, parameters["chosen"])
    await stack.stack.kill_node(node)
    yield
    await stack.stack.start_node(node)


@fault("zone-carrier-stopped", seconds=(0.3, 7.0), claims=_claim_nodes, draw=_node, grids=ZONES)
async def _stopped(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """A node that sends to other clusters is stopped with SIGSTOP, and wakes."""
    stack = target[parameters["cluster"]]
    node = await _carrier(stack, parameters["chosen"])
    stack.stack.pause_node(node)
    yield
    stack.stack.resume_node(node)


@fault("zone-links-cut", seconds=(0.1, 2.0), claims=_claim_links, draw=_cluster, grids=ZONES)
async def _cut(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """All links that others have to a cluster are reset, and new ones refused."""
    proxies = target[parameters["cluster"]].proxies.values()
    for each in proxies:
        each.refuse()
        each.cut()
    yield
    for each in proxies:
        await each.start()


@fault("zone-links-stalled", seconds=(0.5, 8.0), claims=_claim_links, draw=_link, grids=ZONES)
async def _stalled(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """On the links to a cluster nothing passes, one way or both, and nobody is told."""
    proxies = target[parameters["cluster"]].proxies.values()
    for each in proxies:
        each.stall(*_ways(parameters))
    yield
    for each in proxies:
        each.heal()


@fault("zone-links-delayed", seconds=(0.5, 5.0), claims=_claim_links, draw=_link, grids=ZONES)
async def _delayed(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """What passes on the links to a cluster takes half a second longer."""
    proxies = target[parameters["cluster"]].proxies.values()
    for each in proxies:
        each.delay(0.5, *_ways(parameters))
    yield
    for each in proxies:
        each.heal()


def _slow(random: Random) -> Parameters:
    return {**_link(random), "rate": random.randint(SLOWEST, FASTEST)}


@fault("zone-links-limited", seconds=(0.5, 8.0), claims=_claim_links, draw=_slow, grids=ZONES)
async def _limited(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """The links to a cluster are slow."""
    proxies = target[parameters["cluster"]].proxies.values()
    for each in proxies:
        each.limit(parameters["rate"], *_ways(parameters))
    yield
    for each in proxies:
        each.heal()


@fault("zone-links-half-closed", seconds=(0.0, 0.5), claims=_claim_links, draw=_link, grids=ZONES)
async def _half_closed(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """The links to a cluster are closed in the middle, one way or both."""
    for each in target[parameters["cluster"]].proxies.values():
        each.half_close(*_ways(parameters))
    yield


@fault("zone-redis-killed", seconds=(0.1, 3.0), claims=_claim_redis, draw=_cluster, grids=ZONES)
async def _redis_killed(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """The Redis of a cluster is killed, and comes back with all that it has written."""
    stack = target[parameters["cluster"]].stack
    await stack.grid.process.kill()
    yield
    await stack.restart_redis(GridRestart.AS_IT_WAS)


@fault("zone-redis-stopped", seconds=(0.3, 6.0), claims=_claim_redis, draw=_cluster, grids=ZONES, settles=2.0)
async def _redis_stopped(target: ZoneTarget, parameters: Parameters) -> AsyncIterator[None]:
    """The Redis of a cluster is stopped with SIGSTOP, and wakes."""
    process = target[parameters["cluster"]].stack.grid.process
    process.pause()
    yield
    process.resume()
