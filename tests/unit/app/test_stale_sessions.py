"""When a node asks whose its sessions without clients are, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.stale_sessions import BATCH, FIRST_LOOK, StaleSessionSweeper
from gateway.app.runtime.clock import Clock
from gateway.app.session.session import Session
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Fenced, GridUnavailable, SessionChanges, SessionGone
from tests.support.clock import VirtualClock


class Bench:
    """Sessions, and a grid that answers as it is told."""

    def __init__(self, *, replicated: bool = True) -> None:
        self.clock = VirtualClock(100.0)
        self.replicated = replicated
        self.asked: list[int] = []
        self.away = False
        self.taken: dict[Session, Exception] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.fenced: list[Session] = []
        self.gone: list[tuple[Session, ErrorCode]] = []
        surroundings: Any = SimpleNamespace(clock=Clock(monotonic=self.clock))
        self.stale_sessions = StaleSessionSweeper(
            cast("Context", surroundings),
            cast("FencedStore", self),
            refused=self.let_go,
        )

    def session(self) -> Any:
        stand_in: Any = _Session()
        self.stale_sessions.watch(stand_in)
        return stand_in

    async def after(self, seconds: float) -> int:
        """Let time pass, have a round, and tell how many sessions were asked for."""
        self.clock.advance(seconds)
        self.asked.clear()
        await self.stale_sessions.look()
        return sum(self.asked)

    def let_go(self, session: Session, ownership: object, why: Fenced | SessionGone) -> None:
        """What ``Sessions`` does."""
        if session.ending or session.ownership is not ownership:
            return
        if isinstance(why, Fenced):
            self.fenced.append(session)
        else:
            self.gone.append((session, why.reason))

    # What ``FencedStore`` does.

    async def refused(self, sessions: Sequence[Session]) -> list[Session]:
        if self.away:
            raise GridUnavailable("away")
        self.asked.append(len(sessions))
        return [each for each in sessions if each in self.taken]

    async def change(self, session: Session, _changes: SessionChanges) -> None:
        self.meanwhile()
        raise self.taken[session]


class _Session:
    """As much of a session as is looked at."""

    def __init__(self) -> None:
        self.ownership = object()
        self.ending = False


async def test_it_asks_ever_more_seldom() -> None:
    bench = Bench()
    bench.session()
    asked_at = [second for second in range(1, 3601) if await bench.after(1.0)]
    assert asked_at == [FIRST_LOOK * 2**doubling for doubling in range(10)], "ten times in an hour"


async def test_nobody_is_asked_for_whose_client_is_back() -> None:
    bench = Bench()
    session = bench.session()
    bench.stale_sessions.forget(session)
    bench.stale_sessions.forget(session)
    assert await bench.after(FIRST_LOOK) == 0


async def test_nobody_is_asked_for_who_is_not_in_the_grid() -> None:
    bench = Bench(replicated=False)
    bench.session()
    assert await bench.after(FIRST_LOOK) == 0


async def test_what_is_another_nodes_is_let_go() -> None:
    bench = Bench()
    kept, fenced, gone = bench.session(), bench.session(), bench.session()
    bench.taken = {fenced: Fenced("n2 has it"), gone: SessionGone(ErrorCode.SESSION_CLOSED)}
    assert await bench.after(FIRST_LOOK) == 3
    assert (bench.fenced, bench.gone) == ([fenced], [(gone, ErrorCode.SESSION_CLOSED)])
    assert kept in bench.stale_sessions._since


@pytest.mark.parametrize("why", [Fenced("n2 has it"), SessionGone(ErrorCode.SESSION_CLOSED)])
@pytest.mark.parametrize("meanwhile", ["it is ending here", "its client is back", "its client was back and is gone"])
async def test_what_happens_meanwhile_counts(why: Exception, meanwhile: str) -> None:
    bench = Bench()
    session = bench.session()
    bench.taken = {session: why}

    def happen() -> None:
        match meanwhile:
            case "it is ending here":
                session.ending = True
            case "its client is back":
                bench.stale_sessions.forget(session)
            case _:
                session.ownership = object()

    bench.meanwhile = happen
    await bench.after(FIRST_LOOK)
    assert not bench.fenced
    assert not bench.gone


async def test_who_could_not_be_asked_for_is_asked_for_in_the_next_round() -> None:
    bench = Bench()
    session, *_ = [bench.session() for _ in range(2 * BATCH + 1)]
    bench.away = True
    assert await bench.after(FIRST_LOOK) == 0
    bench.stale_sessions.forget(session)
    bench.away = False
    assert await bench.after(1.0) == 2 * BATCH
    assert bench.asked == [BATCH, BATCH]
    assert await bench.after(FIRST_LOOK) == 0, "from then on as seldom as the others"
