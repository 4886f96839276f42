"""The pace of claims, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from gateway.adapters.memory import MemoryMetrics
from gateway.app import storms
from gateway.app.clock import Clock
from gateway.app.policy import StormPolicy
from gateway.app.storms import Turnstile
from tests.support.clock import VirtualClock, eventually

RATE = 200.0
"""Claims per second of the cluster; also how long the turnstile's timer waits, which is of real time."""


@pytest.mark.parametrize("nodes", [1, 2])
async def test_each_node_lets_its_share_of_the_claims_through(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    monkeypatch.setattr(storms, "GREETING_PATIENCE", 3600.0)  # of real time, too
    clock = VirtualClock()
    policy = StormPolicy(admission_rate=0.0, admission_wait=0.0, claim_rate=RATE, claims_at_once=0)
    turnstile = Turnstile(policy, nodes=lambda: nodes, clock=Clock(monotonic=clock), metrics=MemoryMetrics())
    burst = int(max(1, RATE / nodes * storms.CLAIM_BURST))
    claims = [asyncio.create_task(turnstile.enter(returning=True)) for _ in range(burst + 9)]

    def through() -> int:
        return sum(claim.done() for claim in claims)

    for more in range(10):
        await eventually(lambda more=more: through() >= burst + more)  # type: ignore[misc]
        for _ in range(3):
            turnstile._next()
            await asyncio.sleep(0)
        assert through() == burst + more, "no more while the clock stands still"
        clock.advance(nodes / RATE)
    await asyncio.gather(*claims)
    turnstile.close()
