"""Faults of a grid with replicas: a master that Sentinels watch, and a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Final

from tests.chaos.account.forgotten import NOTHING
from tests.chaos.faults.fault import REPLICATED, Parameters, every_node, fault, meanwhile, nothing
from tests.chaos.replicated import ClusterServers
from tests.chaos.target import NODES, Target

RESTORED: Final = 6.0
"""Seconds in which nodes adopt a new master and write back what it lacks."""


def _claim(parameters: Parameters) -> set[str]:
    del parameters
    return {"grid"}


def _claim_memory(parameters: Parameters) -> set[str]:
    del parameters
    return {"grid"} | every_node()


def _claim_node(parameters: Parameters) -> set[str]:
    return {"grid", f"node:{parameters['node']}"}


def _a_master(random: Random) -> Parameters:
    return {"tag": random.choice(ClusterServers.tags)}


def _a_master_and_a_node(random: Random) -> Parameters:
    return {**_a_master(random), "node": random.choice(NODES)}


def _a_tail(random: Random) -> Parameters:
    return {**_a_master(random), "tail": round(random.uniform(0.3, 2.0), 2)}


def _a_tail_and_a_node(random: Random) -> Parameters:
    return {**_a_tail(random), "node": random.choice(NODES)}


@asynccontextmanager
async def _master_lost(target: Target, tag: str, *, tail: float = 0.0) -> AsyncIterator[None]:
    """Kill a master and wait for what is in the block; then a replica takes over, and the dead one comes back empty.

    Args:
        target: the cluster.
        tag: hash tag whose master is hit.
        tail: seconds before it dies from which on its replica gets nothing any more.
    """
    grid = target.replicated
    master = await grid.master(tag)
    async with target.tail_is_lost() as lost:
        if tail:
            await grid.cut_replication(master)
            await asyncio.sleep(tail)
        master.kill()
        yield
        if not await grid.come_back(tag, master):
            # Nobody took over for a minute, as it may be after a step of the clocks, and its data had gone with it.
            lost.kept = NOTHING


@asynccontextmanager
async def _told_to_masters(target: Target, strike: Sequence[str], heal: Sequence[str]) -> AsyncIterator[None]:
    """Send all masters a command, wait for what is in the block, and send the same servers another.

    Others may be masters by then, and one that goes on as it was struck would be of no use if it became one again.
    """
    struck = await target.replicated.everywhere(*strike)
    yield
    for server in struck:
        await target.replicated.tell(server, *heal)


@fault("master-killed", seconds=(0.5, 4.0), draw=_a_master, claims=_claim, grids=REPLICATED, settles=RESTORED)
async def _killed(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A master is killed with SIGKILL, a replica promoted; the dead one comes back empty, as a replica."""
    async with _master_lost(target, parameters["tag"]):
        yield


@fault("master-stopped", seconds=(0.2, 8.0), draw=_a_master, claims=_claim, grids=REPLICATED, settles=RESTORED)
async def _stopped(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A master is stopped with SIGSTOP and wakes up, perhaps after a replica was promoted."""
    grid = target.replicated
    master = await grid.master(parameters["tag"])
    async with target.tail_is_lost():
        master.suspend()
        yield
        master.resume()
        await grid.whole()


@fault("master-failed-over", seconds=(0.1, 2.0), draw=_a_master, claims=_claim, grids=REPLICATED, settles=RESTORED)
async def _failed_over(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """An operator has a replica take over from a master that runs (SENTINEL FAILOVER, CLUSTER FAILOVER)."""
    grid = target.replicated
    master = await grid.master(parameters["tag"])
    async with target.tail_is_lost():
        await grid.fail_over(parameters["tag"])
        yield
        # Sentinels give up if the vote or the replica takes too long; the master goes on then.
        with suppress(AssertionError):
            await grid.promoted(parameters["tag"], master)
        await grid.whole()


@fault("tail-lost", seconds=(0.5, 2.0), draw=_a_tail, claims=_claim_memory, grids=REPLICATED, settles=RESTORED)
async def _tail_lost(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A replica is promoted that lacks the last moments of its master."""
    async with _master_lost(target, parameters["tag"], tail=parameters["tail"]):
        yield


@fault(
    "tail-lost-with-node",
    seconds=(0.5, 2.0),
    draw=_a_tail_and_a_node,
    claims=_claim_memory,
    grids=REPLICATED,
    settles=RESTORED,
)
async def _tail_lost_with_node(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A machine with a master and a node dies, and the replica that is promoted lacks its last moments."""
    async with _master_lost(target, parameters["tag"], tail=parameters["tail"]):
        await target.kill(parameters["node"])
        yield
    await target.back(parameters["node"])


@fault(
    "node-starts-during-failover",
    seconds=(0.2, 2.0),
    draw=_a_master_and_a_node,
    claims=_claim_node,
    grids=REPLICATED,
    settles=RESTORED,
)
async def _starts_during_failover(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A node is started just when a master has died."""
    await target.kill(parameters["node"])
    async with _master_lost(target, parameters["tag"]):
        target.stack.launch_node(parameters["node"])
        yield
    await target.ready(parameters["node"])


@fault("masters-paused", seconds=(0.3, 3.0), claims=_claim, grids=REPLICATED)
async def _paused(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """All masters answer no write for a time (CLIENT PAUSE)."""
    async with _told_to_masters(target, ("CLIENT", "PAUSE", "60000", "WRITE"), ("CLIENT", "UNPAUSE")):
        yield


@fault("masters-without-replicas", seconds=(0.3, 3.0), claims=_claim, grids=REPLICATED)
async def _without_replicas(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """All masters refuse writes because too few replicas are in touch (NOREPLICAS)."""
    setting = ("CONFIG", "SET", "min-replicas-to-write")
    async with _told_to_masters(target, (*setting, "9"), (*setting, "0")):
        yield


@fault("masters-close-connections", seconds=(0.1, 2.0), claims=_claim, grids=REPLICATED)
async def _clients_killed(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """All masters close the connections of their clients (CLIENT KILL), again and again."""
    async with meanwhile(lambda: target.replicated.everywhere("CLIENT", "KILL", "TYPE", "normal"), 0.5):
        yield


@fault("sentinels-away", seconds=(0.5, 6.0), claims=_claim, grids=frozenset({"sentinel"}), draw=nothing)
async def _sentinels_away(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """All Sentinels are killed, and the master closes the connections of its clients before they are back."""
    grid = target.replicated
    master = await grid.master("all")
    grid.kill_sentinels()
    await grid.tell(master, "CLIENT", "KILL", "TYPE", "normal")
    yield
    await grid.restart_sentinels()
    await grid.whole()


def _some_slots(random: Random) -> Parameters:
    return {"tags": sorted(random.sample(ClusterServers.tags, random.randint(1, 8)))}


@fault("slots-moved", seconds=(0.1, 0.5), draw=_some_slots, claims=_claim, grids=frozenset({"cluster"}), settles=2.0)
async def _slots_moved(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """Slots move to other masters under load, with all their keys."""
    await target.replicated.move(parameters["tags"])
    yield
    # Copies from before have keys of slots that others serve by now.
    if target.saves:
        await target.save()
