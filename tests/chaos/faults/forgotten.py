"""A grid with replicas loses data everywhere: it is emptied, rolled back, full, or all of it stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Final

from tests.chaos.faults.fault import REPLICATED, Parameters, every_node, fault
from tests.chaos.replicated import ClusterServers
from tests.chaos.target import Target

RESTORED: Final = 6.0
"""Seconds in which nodes write back what the grid has forgotten; nothing else may happen to them meanwhile, as they
alone know it."""

EVERYTHING: Final = "everything"
"""In the place of a hash tag: all masters, and their replicas."""


def _claim(parameters: Parameters) -> set[str]:
    del parameters
    return {"grid"}


def _claim_memory(parameters: Parameters) -> set[str]:
    del parameters
    return {"grid"} | every_node()


def _one_or_all(random: Random) -> Parameters:
    return {"tag": random.choice((EVERYTHING, random.choice(ClusterServers.tags)))}


def _one(random: Random) -> Parameters:
    return {"tag": random.choice(ClusterServers.tags)}


def _tag(parameters: Parameters) -> str | None:
    return None if parameters["tag"] == EVERYTHING else str(parameters["tag"])


@fault(
    "masters-flushed",
    seconds=(0.0, 0.1),
    draw=_one_or_all,
    claims=_claim_memory,
    grids=REPLICATED,
    settles=RESTORED,
)
async def _flushed(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """FLUSHALL under open connections, of one master or of all, and with them of their replicas."""
    async with target.grid_forgets():
        for shard in await target.replicated.shards(_tag(parameters)):
            await target.replicated.tell(shard.master, "FLUSHALL")
        yield


@fault(
    "masters-emptied",
    seconds=(0.1, 3.0),
    draw=_one_or_all,
    claims=_claim_memory,
    grids=REPLICATED,
    settles=RESTORED,
)
async def _emptied(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """One master or all are killed together with their replicas, and come back empty."""
    grid = target.replicated
    async with target.grid_forgets():
        shards = await grid.shards(_tag(parameters))
        grid.kill(shards)
        yield
        await grid.restart(shards)


@fault(
    "masters-rolled-back",
    seconds=(0.1, 3.0),
    draw=_one_or_all,
    claims=_claim_memory,
    grids=REPLICATED,
    settles=RESTORED,
)
async def _rolled_back(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """One master or all are killed together with their replicas, and come back with an older copy of their data."""
    grid = target.replicated
    async with target.grid_forgets(target.saved_at):
        shards = await grid.shards(_tag(parameters))
        grid.kill(shards)
        yield
        await grid.restart(shards, rolled_back=True)


@fault(
    "empty-replica-promoted",
    seconds=(0.5, 2.0),
    draw=_one,
    claims=_claim_memory,
    grids=REPLICATED,
    settles=RESTORED,
)
async def _empty_promoted(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """A replica is promoted that has lost all it had; the master that it replaces was killed."""
    grid = target.replicated
    async with target.grid_forgets():
        (shard,) = await grid.shards(parameters["tag"])
        await grid.cut_replication(shard.master)
        for replica in shard.replicas:
            await grid.empty_replica(replica)
        shard.master.kill()
        yield
        await grid.come_back(parameters["tag"], shard.master, emptied=True)


@fault("masters-full", seconds=(0.5, 5.0), draw=_one_or_all, claims=_claim, grids=REPLICATED)
async def _full(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """One master or all have no memory left and refuse writes (OOM)."""
    grid = target.replicated
    masters = [shard.master for shard in await grid.shards(_tag(parameters))]
    for master in masters:
        await grid.tell(master, "CONFIG", "SET", "maxmemory", "1")
    yield
    for master in masters:
        await grid.tell(master, "CONFIG", "SET", "maxmemory", "0")


@fault("servers-stopped", seconds=(0.3, 7.0), draw=_one_or_all, claims=_claim, grids=REPLICATED, settles=RESTORED)
async def _stopped(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """One master or all are stopped with SIGSTOP together with their replicas, so that nobody can take over."""
    grid = target.replicated
    async with target.tail_is_lost():
        servers = [each for shard in await grid.shards(_tag(parameters)) for each in shard.servers]
        for each in servers:
            each.suspend()
        yield
        for each in servers:
            each.resume()
        await grid.whole()
