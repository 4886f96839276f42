"""Faults of a grid that is one Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.local.grid_server import GridRestart
from tests.chaos.faults.fault import SINGLE, Parameters, every_node, fault, meanwhile
from tests.chaos.target import Target

RESTORED = 6.0
"""Seconds in which nodes write back what a Redis has forgotten; nothing else may happen to them meanwhile, as only they
know it."""


def _claim(parameters: Parameters) -> set[str]:
    del parameters
    return {"grid"}


def _claim_memory(parameters: Parameters) -> set[str]:
    return {"grid"} | every_node()


@fault("redis-killed", seconds=(0.1, 5.0), claims=_claim, grids=SINGLE, settles=3.0)
async def _killed(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """Redis is killed with SIGKILL and comes back with its append-only file."""
    async with target.grid_changes():
        await target.stack.grid.process.kill()
        yield
        await target.stack.grid.start()


@fault("redis-emptied", seconds=(0.1, 3.0), claims=_claim_memory, grids=SINGLE, settles=RESTORED)
async def _emptied(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """Redis is killed and comes back empty."""
    async with target.grid_forgets():
        await target.stack.grid.process.kill()
        yield
        await target.stack.restart_redis(GridRestart.EMPTY)


@fault("redis-rolled-back", seconds=(0.1, 3.0), claims=_claim_memory, grids=SINGLE, settles=RESTORED)
async def _rolled_back(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """Redis is killed and comes back with an older copy of its data."""
    assert target.saved is not None, "a copy is made before the first fault"
    async with target.grid_forgets(target.saved_at):
        await target.stack.grid.process.kill()
        yield
        await target.stack.restart_redis(GridRestart.OLDER, snapshot=target.saved)


@fault("redis-flushed", seconds=(0.0, 0.1), claims=_claim_memory, grids=SINGLE, settles=RESTORED)
async def _flushed(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """FLUSHALL under open connections."""
    async with target.grid_forgets():
        await target.command("FLUSHALL")
        yield


@fault("redis-full", seconds=(0.5, 5.0), claims=_claim, grids=SINGLE)
async def _full(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """Redis has no memory left and refuses writes (OOM)."""
    await target.command("CONFIG", "SET", "maxmemory", "1")
    yield
    await target.command("CONFIG", "SET", "maxmemory", "0")


@fault("redis-without-replicas", seconds=(0.5, 5.0), claims=_claim, grids=SINGLE)
async def _without_replicas(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """Redis refuses writes because too few replicas are in touch (NOREPLICAS)."""
    await target.command("CONFIG", "SET", "min-replicas-to-write", "1")
    yield
    await target.command("CONFIG", "SET", "min-replicas-to-write", "0")


@fault("redis-stopped", seconds=(0.3, 7.0), claims=_claim, grids=SINGLE, settles=2.0)
async def _stopped(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """Redis is stopped with SIGSTOP: its port accepts, and nothing answers."""
    target.stack.grid.process.pause()
    yield
    target.stack.grid.process.resume()


@fault("redis-clients-killed", seconds=(0.1, 2.0), claims=_claim, grids=SINGLE)
async def _clients_killed(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """Redis closes the connections of its clients (CLIENT KILL), again and again."""
    async with meanwhile(lambda: target.command("CLIENT", "KILL", "TYPE", "normal"), 0.5):
        yield
