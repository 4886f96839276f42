"""Pools for slow work on credentials, as a node has them."""

from __future__ import annotations

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.app.runtime.clock import Clock
from gateway.app.security.verifications import Pool, Verifications
from tests.support.clock import VirtualClock


def verifications(
    *, clock: VirtualClock | None = None, metrics: MemoryMetrics | None = None, log: MemoryEventLog | None = None
) -> Verifications:
    """Make the verifications of a node; their clock stands still unless it is moved."""
    return Verifications(
        clock=Clock(monotonic=clock or VirtualClock()),
        metrics=metrics or MemoryMetrics(),
        log=log or MemoryEventLog(),
    )


def pool(places: int = 2) -> Pool:
    """Make a pool of its own."""
    return verifications().pool(places)
