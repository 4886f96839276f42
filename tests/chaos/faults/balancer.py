"""Faults of HAProxy."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.local.processes import ProcessFailed
from tests.chaos.faults.fault import Parameters, fault
from tests.chaos.target import Target


@fault("haproxy-killed", seconds=(0.1, 2.0), claims=lambda _: {"balancer"})
async def _killed(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """HAProxy is killed with SIGKILL, which cuts every client, and started again."""
    await target.balancer.kill()
    yield
    try:
        await target.stack.start_haproxy()
    except ProcessFailed:
        # It waits for all nodes that run, of which one may be hung on purpose.
        if not target.balancer.running:
            raise


@fault("haproxy-reloaded", seconds=(0.5, 1.0), claims=lambda _: {"balancer"})
async def _reloaded(target: Target, parameters: Parameters) -> AsyncIterator[None]:
    """HAProxy is reloaded: a new process takes the port over, the old one keeps its connections."""
    target.stack.reload_haproxy()
    yield
