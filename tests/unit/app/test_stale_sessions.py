"""When a node asks whose its sessions without clients are, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.stale_sessions import BATCH, FIRST_LOOK, StaleSessionSweeper
from gateway.app.runtime.clock import Clock
from gateway.app.session.session import Session, StoredUnder
from gateway.core.destinations.table import DestinationTable
from gateway.core.types import Epoch, GridGeneration, Incarnation, NodeId, NodeRef, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Fenced, GridUnavailable, Ownership, SessionChanges, SessionGone
from tests.support.clock import VirtualClock


class Bench:
    """Sessions, the store that has the rule, and a grid that answers as it is told."""

    def __init__(self, *, replicated: bool = True) -> None:
        self.clock = VirtualClock(100.0)
        self.generation = GridGeneration(1)
        self.asked: list[int] = []
        self.away = False
        self.taken: dict[Session, Exception] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.fenced: list[Session] = []
        self.gone: list[tuple[Session, ErrorCode]] = []
        self._sessions: dict[str, Session] = {}
        surroundings: Any = SimpleNamespace(
            me=None,
            clock=Clock(monotonic=self.clock),
            parameters=SimpleNamespace(replicated=replicated, restore_rate=1.0),
            grid=SimpleNamespace(generation=self.generation, sessions=self),
            metrics=SimpleNamespace(add=lambda *_: None),
            destinations=DestinationTable(),
        )
        self.store = FencedStore(cast("Context", surroundings))
        self.store.drop_by(self.dropped)
        self.stale_sessions = StaleSessionSweeper(cast("Context", surroundings), self.store)

    def session(self) -> Any:
        stand_in: Any = _Session(f"s{len(self._sessions)}", self.store.writes_under)
        self._sessions[stand_in.ownership.session] = stand_in
        self.stale_sessions.watch(stand_in)
        return stand_in

    async def after(self, seconds: float) -> int:
        """Let time pass, have a round, and tell how many sessions were asked for."""
        self.clock.advance(seconds)
        self.asked.clear()
        await self.stale_sessions.look()
        return sum(self.asked)

    def dropped(self, session: Session, why: Fenced | SessionGone) -> None:
        """What ``Sessions`` does."""
        if isinstance(why, Fenced):
            self.fenced.append(session)
        else:
            self.gone.append((session, why.reason))

    # What the grid does.

    async def confirm(self, proofs: Sequence[tuple[Ownership, TokenGeneration]]) -> list[bool]:
        if self.away:
            raise GridUnavailable("away")
        self.asked.append(len(proofs))
        return [self._sessions[ownership.session] not in self.taken for ownership, _ in proofs]

    async def change(self, ownership: Ownership, _changes: SessionChanges) -> None:
        self.meanwhile()
        raise self.taken[self._sessions[ownership.session]]


class _Session:
    """As much of a session as is looked at."""

    def __init__(self, name: str, stored_under: StoredUnder) -> None:
        self.ownership = Ownership(SessionId(name), NodeRef(NodeId("n1"), Incarnation("1")), Epoch(1))
        self.confirmed = TokenGeneration(1)
        self.stored_generation, self.expired_leases = stored_under
        self.restores = 0
        self.unsaved = False
        self.ending = False

    def claim(self) -> None:
        """What each way back does, with the grid and without it."""
        self.ownership = replace(self.ownership, epoch=Epoch(self.ownership.epoch + 1))


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
                session.claim()
            case _:
                session.claim()

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
