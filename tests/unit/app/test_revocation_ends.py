"""When revocations end, if a node's clock is set meanwhile (P8)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryEventLog
from gateway.app.registry.readers import Readers
from gateway.app.runtime.background import Background
from gateway.app.runtime.clock import Clock
from gateway.app.security import revocations as revoking
from gateway.app.security.enforcement import Enforcement
from gateway.app.security.revocations import FORGET_GRACE, Revocations
from gateway.core.policy.revocations import Revocation, RevocationKind
from gateway.ports import AllRevocations, RevocationChanges, RevocationNews
from tests.support.clock import VirtualClock

HOUR = 3600.0
START = 1_700_000_000.0


class Connected:
    """The sessions of some principals, whose clients are connected; notes whose are closed."""

    def __init__(self, *principals: str) -> None:
        self._sessions = [SimpleNamespace(id=f"s-{each}", principal=each, credential=None) for each in principals]
        self.closed: list[str] = []
        self.readers = Readers()

    def __iter__(self) -> Iterator[SimpleNamespace]:
        return iter(list(self._sessions))

    def revoke(self, session: SimpleNamespace) -> bool:
        self._sessions.remove(session)
        self.closed.append(session.principal)
        return True


class Bench:
    """What a node knows of revocations, whom it has closed for them, and what it has had forgotten by the grid."""

    def __init__(self) -> None:
        self.monotonic, self.wall = VirtualClock(100.0), VirtualClock(START)
        self.forgotten: list[str] = []
        context: Any = SimpleNamespace(
            clock=Clock(monotonic=self.monotonic, wall=self.wall),
            grid=SimpleNamespace(revocations=self),
            metrics=SimpleNamespace(watch=lambda *_, **__: None),
            log=SimpleNamespace(emit=lambda *_, **__: None),
            parameters=SimpleNamespace(revocations=10),
            background=Background(MemoryEventLog()),
            announce=lambda _: None,
        )
        self.connected = Connected("alice", "bob")
        store: Any = SimpleNamespace(replicated=False)
        sessions: Any = self.connected
        self.revocations = Revocations(context, Enforcement(context, sessions, store))

    async def add(self, revocation: Revocation) -> None:
        """The grid takes it."""

    async def forget(self, over: Sequence[Revocation]) -> None:
        self.forgotten += [each.value for each in over]

    def pass_(self, seconds: float) -> None:
        self.monotonic.advance(seconds)
        self.wall.advance(seconds)

    async def looks(self) -> list[str]:
        """Let it look for revocations that are over."""
        looking = asyncio.create_task(self.revocations.forget())
        await some_turns()
        looking.cancel()
        return self.forgotten


async def some_turns() -> None:
    """Let everything come to an end that waits for nothing but its turn."""
    for _ in range(5):
        await asyncio.sleep(0)


def of_alice() -> Revocation:
    """Make a revocation that lasts for half an hour from the start."""
    return Revocation(kind=RevocationKind.PRINCIPAL, value="alice", reason="", made=START, until=START + HOUR / 2)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_a_clock_that_is_set_ends_no_revocation_before_its_time(
    step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was set ahead let in who is revoked, and had the grid forget it, for all nodes and for good."""
    monkeypatch.setattr(revoking, "FORGET_INTERVAL", 0.0)
    bench = Bench()
    await bench.revocations._hear(AllRevocations((of_alice(),), lost_writes=False))
    bench.wall.now += step
    assert bench.revocations.is_revoked(principal="alice")
    assert await bench.looks() == []
    bench.wall.now -= step
    bench.pass_(HOUR / 2)
    assert not bench.revocations.is_revoked(principal="alice")
    assert await bench.looks() == []
    bench.pass_(FORGET_GRACE)
    assert await bench.looks() == ["alice"]


NEWS: Final[dict[str, RevocationNews]] = {
    "all": AllRevocations((of_alice(),), lost_writes=False),
    "changes": RevocationChanges((of_alice(),)),
}
"""A revocation as the grid may tell of it: with all others, or by itself."""


@pytest.mark.parametrize("news", NEWS)
@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_where_a_clock_was_set_who_is_revoked_is_closed_all_the_same(step: float, news: str) -> None:
    """One that was set ahead left the client of whoever was revoked connected, for as long as it liked."""
    bench = Bench()
    bench.wall.now += step
    await bench.revocations._hear(NEWS[news])
    await some_turns()
    assert bench.connected.closed == ["alice"]


@pytest.mark.parametrize("news", NEWS)
async def test_a_revocation_that_is_over_closes_nobody(news: str) -> None:
    bench = Bench()
    bench.pass_(HOUR / 2)
    await bench.revocations._hear(NEWS[news])
    await some_turns()
    assert bench.connected.closed == []


async def test_a_clock_that_is_set_ahead_makes_no_revocation_of_the_future() -> None:
    """One that seems to be made later wins over those that are made after it, when the grid has lost writes."""
    bench = Bench()
    bench.wall.now += HOUR
    made = await bench.revocations.revoke(RevocationKind.PRINCIPAL, "alice", reason="", until=START + HOUR / 2)
    assert made.made == START
