"""When revocations end, if a node's clock is set meanwhile (P8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.app.runtime.clock import Clock
from gateway.app.security import revocations as revoking
from gateway.app.security.revocations import FORGET_GRACE, Revocations
from gateway.core.policy.revocations import Revocation, RevocationKind
from gateway.ports import AllRevocations
from tests.support.clock import VirtualClock

HOUR = 3600.0
START = 1_700_000_000.0


class Bench:
    """What a node knows of revocations, and what it has had forgotten by the grid."""

    def __init__(self) -> None:
        self.monotonic, self.wall = VirtualClock(100.0), VirtualClock(START)
        self.forgotten: list[str] = []
        context: Any = SimpleNamespace(
            clock=Clock(monotonic=self.monotonic, wall=self.wall),
            grid=SimpleNamespace(revocations=self),
            metrics=SimpleNamespace(watch=lambda *_, **__: None),
            log=SimpleNamespace(emit=lambda *_, **__: None),
            parameters=None,
            background=None,
        )
        self.revocations = Revocations(context, SimpleNamespace(enforce=lambda _: None))  # type: ignore[arg-type]

    async def forget(self, over: Sequence[Revocation]) -> None:
        self.forgotten += [each.value for each in over]

    def pass_(self, seconds: float) -> None:
        self.monotonic.advance(seconds)
        self.wall.advance(seconds)

    async def looks(self) -> list[str]:
        """Let it look for revocations that are over."""
        looking = asyncio.create_task(self.revocations.forget())
        for _ in range(5):
            await asyncio.sleep(0)
        looking.cancel()
        return self.forgotten


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_a_clock_that_is_set_ends_no_revocation_before_its_time(
    step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was set ahead let in who is revoked, and had the grid forget it, for all nodes and for good."""
    monkeypatch.setattr(revoking, "FORGET_INTERVAL", 0.0)
    bench = Bench()
    made = Revocation(kind=RevocationKind.PRINCIPAL, value="alice", reason="", made=START, until=START + HOUR / 2)
    await bench.revocations._hear(AllRevocations((made,), lost_writes=False))
    bench.wall.now += step
    assert bench.revocations.is_revoked(principal="alice")
    assert await bench.looks() == []
    bench.wall.now -= step
    bench.pass_(HOUR / 2)
    assert not bench.revocations.is_revoked(principal="alice")
    assert await bench.looks() == []
    bench.pass_(FORGET_GRACE)
    assert await bench.looks() == ["alice"]
