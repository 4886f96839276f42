"""The one rule of fencing, line by line, and that no other code judges what the grid refuses."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

import gateway.app
from gateway.app.context import Context
from gateway.app.registry import fencing
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.fencing import Fate, NotWritten, Outdated, Refusal, SessionLost
from gateway.app.runtime.clock import Clock
from gateway.app.session.session import Session
from gateway.catalogue import metrics as catalogue
from gateway.catalogue.metric import Metric
from gateway.core.destinations.table import DestinationTable
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.transitions import Role
from gateway.core.types import (
    Attempt,
    Epoch,
    GridGeneration,
    Incarnation,
    NodeId,
    NodeRef,
    SessionId,
    TokenGeneration,
)
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    ClaimRefused,
    Fenced,
    GridState,
    GridUnavailable,
    Ownership,
    Restored,
    SessionChanges,
    SessionGone,
    SessionRecord,
)
from tests.support.machines import PARAMETERS

ME: Final = NodeRef(NodeId("n1"), Incarnation("run1"))
OTHER: Final = NodeRef(NodeId("n2"), Incarnation("run1"))
FENCED: Final = Fenced("another node has it")
GONE: Final = SessionGone(ErrorCode.SESSION_CLOSED)


class Bench:
    """A session, and a grid that refuses its writes as long as it is told to."""

    def __init__(self) -> None:
        self.generation = GridGeneration(1)
        self.state = GridState.UP
        self.sessions = self
        self.refusal: Exception | None = None
        self.restored = Restored.WRITTEN
        self.held: SessionRecord | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        self.tried: list[Ownership] = []
        self.restores: list[Epoch] = []
        self.dropped: list[Refusal] = []
        self.counted: list[Metric] = []
        context: Any = SimpleNamespace(
            me=ME,
            grid=self,
            metrics=SimpleNamespace(add=self.counted.append),
            clock=Clock(),
            destinations=DestinationTable(),
            parameters=SimpleNamespace(replicated=True, restore_rate=float("inf")),
        )
        self.store = FencedStore(cast("Context", context))
        self.store.drop_by(self._drop)
        record = SessionRecord(id=SessionId("s"), principal="alice", window=60.0, owner=ME, epoch=Epoch(3))
        machine = SessionMachine(Role.SERVER, PARAMETERS)
        self.session = Session(record, machine, stored_under=self.store.writes_under)

    def _drop(self, session: Session, refusal: Refusal) -> None:
        session.dropped = True
        self.dropped.append(refusal)

    async def write(self) -> None:
        await self.store.change(self.session, SessionChanges())

    def claim_anew(self) -> None:
        self.session.epoch = Epoch(self.session.epoch + 1)

    # What the grid does.

    async def change(self, ownership: Ownership, _changes: SessionChanges) -> None:
        self.tried.append(ownership)
        self.meanwhile()
        if self.refusal is not None:
            raise self.refusal

    async def disconnect(self, ownership: Ownership) -> None:
        await self.change(ownership, SessionChanges())

    async def end(self, ownership: Ownership, *, reason: ErrorCode, **_: object) -> None:
        await self.change(ownership, SessionChanges())

    async def reclaim(self, *_: object, **__: object) -> ClaimRefused:
        return ClaimRefused(ErrorCode.SESSION_CLOSED)

    async def find(self, _session: SessionId) -> SessionRecord | None:
        return self.held

    async def restore(self, records: list[SessionRecord], *, recreate: bool) -> list[Restored]:
        self.restores += [record.epoch for record in records]
        if self.restored is Restored.WRITTEN:
            self.refusal = None
        return [self.restored for _ in records]


REFUSALS: Final = pytest.mark.parametrize("refusal", [FENCED, GONE], ids=["fenced", "gone"])


# --- The lines of the table -------------------------------------------------------------------------------------------


@REFUSALS
async def test_a_refusal_of_what_this_node_has_claimed_since_is_outdated(refusal: Refusal) -> None:
    bench = Bench()
    bench.refusal, bench.meanwhile = refusal, bench.claim_anew
    with pytest.raises(Outdated):
        await bench.write()
    assert (bench.dropped, bench.counted) == ([], [])


@REFUSALS
async def test_a_refusal_of_what_this_node_has_claimed_since_restores_nothing(refusal: Refusal) -> None:
    """Even if the session must be restored: that is done for what is written next, with the new ownership."""
    bench = Bench()
    bench.session.unsaved = True
    bench.refusal, bench.meanwhile = refusal, bench.claim_anew
    with pytest.raises(Outdated):
        await bench.write()
    assert bench.restores == []
    bench.meanwhile = lambda: None
    await bench.write()
    assert bench.restores == [4]


@REFUSALS
@pytest.mark.parametrize("unsaved", [False, True])
async def test_a_refusal_while_it_is_ended_here_is_left_to_whoever_ends_it(refusal: Refusal, *, unsaved: bool) -> None:
    bench = Bench()
    bench.session.ending, bench.session.unsaved = True, unsaved
    bench.refusal = refusal
    with pytest.raises(SessionLost):
        await bench.write()
    assert (bench.dropped, bench.counted, bench.restores) == ([], [], [])


@pytest.mark.promise("P10")
@REFUSALS
@pytest.mark.parametrize("why", ["unsaved", "generation", "lease"])
async def test_a_refusal_by_a_grid_that_is_behind_is_answered_by_writing_again(refusal: Refusal, why: str) -> None:
    bench = Bench()
    bench.refusal = refusal
    match why:
        case "unsaved":
            bench.session.unsaved = True
        case "generation":
            bench.generation = GridGeneration(2)
        case _:
            bench.store.lease_expired()
    await bench.write()
    assert (bench.restores, len(bench.tried)) == ([3], 2)
    assert not bench.store.must_restore(bench.session)
    assert (bench.dropped, bench.counted) == ([], [])


@pytest.mark.promise("P3")
@REFUSALS
@pytest.mark.parametrize("result", [Restored.FENCED, Restored.GONE])
async def test_what_cannot_be_restored_is_lost(refusal: Refusal, result: Restored) -> None:
    bench = Bench()
    bench.session.unsaved = True
    bench.refusal, bench.restored = refusal, result
    with pytest.raises(SessionLost):
        await bench.write()
    assert [type(each) for each in bench.dropped] == [Fenced if result is Restored.FENCED else SessionGone]


@pytest.mark.promise("P3")
async def test_what_another_node_has_is_dropped_and_counted() -> None:
    bench = Bench()
    bench.refusal = FENCED
    with pytest.raises(SessionLost):
        await bench.write()
    assert (bench.dropped, bench.counted) == ([FENCED], [catalogue.FENCED_WRITES])


async def test_what_has_ended_is_dropped_and_not_counted_as_fenced() -> None:
    bench = Bench()
    bench.refusal = GONE
    with pytest.raises(SessionLost):
        await bench.write()
    assert (bench.dropped, bench.counted) == ([GONE], [])


@pytest.mark.promise("P10")
async def test_what_has_no_answer_is_marked_for_the_recovery() -> None:
    bench = Bench()
    bench.refusal = GridUnavailable("no answer")
    with pytest.raises(GridUnavailable):
        await bench.write()
    assert bench.session.unsaved
    assert (bench.dropped, bench.counted, bench.restores) == ([], [], [])


# --- How a writer takes it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "fate"),
    [(None, Fate.WRITTEN), (FENCED, Fate.REFUSED), (GONE, Fate.REFUSED), (GridUnavailable("away"), Fate.UNKNOWN)],
)
async def test_what_nobody_waits_for_tells_what_became_of_it(refusal: Exception | None, fate: Fate) -> None:
    bench = Bench()
    bench.refusal = refusal
    assert await bench.store.attempt(bench.write) is fate


async def test_what_must_be_known_is_asked_until_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "LOOK_AGAIN", 0.0)
    bench = Bench()
    bench.refusal = GridUnavailable("away")

    def come_back() -> None:
        if len(bench.tried) == 3:
            bench.refusal = None

    bench.meanwhile = come_back
    await bench.store.until_known(bench.write)
    assert len(bench.tried) == 3


class Watched(Bench):
    """A grid that is back after some looks at its state."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = 0
        self._back_after = looks

    @property
    def state(self) -> GridState:
        self.looks += 1
        return GridState.UP if self.looks >= self._back_after else GridState.UNREACHABLE

    @state.setter
    def state(self, _: GridState) -> None: ...


@pytest.mark.promise("P20")
async def test_all_who_wait_for_the_grid_share_its_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of an outage each of ten thousand sessions may have a request that waits (P20)."""
    monkeypatch.setattr(fencing, "LOOK_AGAIN", 0.0)
    bench = Watched(looks=3)
    await asyncio.gather(*(bench.store.until_available() for _ in range(100)))
    assert bench.looks == 3


async def test_nobody_looks_at_the_grid_when_nobody_waits_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "LOOK_AGAIN", 0.0)
    bench = Watched(looks=1)
    waiting = asyncio.ensure_future(bench.store.until_available())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    for _ in range(5):
        await asyncio.sleep(0)
    assert bench.looks == 0
    await bench.store.until_available()
    assert bench.looks == 1


@pytest.mark.parametrize(
    ("outcomes", "expected", "tries"),
    [
        (["done"], "done", 1),
        ([GridUnavailable(), Outdated(), "done"], "done", 3),
        ([GridUnavailable(), SessionLost()], None, 2),
        ([], None, 0),
    ],
)
async def test_a_step_that_nobody_waits_for_is_taken_until_it_is_taken_or_not_wanted(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[Exception | str], expected: str | None, tries: int
) -> None:
    monkeypatch.setattr(fencing, "LOOK_AGAIN", 0.0)
    left, tried = list(outcomes), 0

    async def step() -> str:
        nonlocal tried
        tried += 1
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert await Bench().store.until_taken(lambda: bool(left), step) == expected
    assert tried == tries


@pytest.mark.promise("P7")
async def test_a_window_that_starts_while_the_client_comes_back_is_not_taken_for_one_that_runs() -> None:
    bench = Bench()
    await bench.store.disconnect(bench.session)
    assert bench.session.on_clock
    bench.session.on_clock = False
    bench.meanwhile = bench.claim_anew
    await bench.store.disconnect(bench.session)
    assert not bench.session.on_clock


@pytest.mark.promise("P7")
@pytest.mark.parametrize("comes_back", [True, False])
async def test_no_window_starts_between_a_claim_and_its_client(*, comes_back: bool) -> None:
    """Nothing would fence what is written by the epoch of the claim, and nobody would write that the client is back."""
    bench = Bench()
    session = bench.session
    async with session.resuming:
        writing = asyncio.create_task(bench.store.attempt(lambda: bench.store.disconnect(session)))
        for _ in range(3):
            await asyncio.sleep(0)
        bench.claim_anew()
        assert session.record().connected, "nor is it written again as one without a client"
        for _ in range(3):
            await asyncio.sleep(0)
        assert not bench.tried
        session.connection = cast("Any", object()) if comes_back else None
    assert await writing is (Fate.REFUSED if comes_back else Fate.WRITTEN)
    assert bench.tried == ([] if comes_back else [session.ownership])
    assert session.on_clock is not comes_back


# --- Claims, ends, and what others say --------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [False, True])
async def test_a_refused_claim_drops_what_has_ended_unless_it_is_ended_here(*, ending: bool) -> None:
    bench = Bench()
    bench.session.ending = ending
    await bench.store.claim_held(bench.session, TokenGeneration(1), Attempt(1), now=0.0, identity=None)
    assert bool(bench.dropped) is not ending


@pytest.mark.promise("P3")
async def test_an_end_that_another_node_has_forestalled_drops_the_copy() -> None:
    bench = Bench()
    bench.session.ending = True
    bench.refusal = FENCED
    assert not await bench.store.end(bench.session, ErrorCode.SESSION_CLOSED)
    assert len(bench.dropped) == len(bench.counted) == 1


@pytest.mark.promise("P7")
async def test_an_end_goes_on_after_a_claim_by_this_node() -> None:
    bench = Bench()
    bench.refusal = FENCED

    def claim_once() -> None:
        if len(bench.tried) == 1:
            bench.claim_anew()
        else:
            bench.refusal = None

    bench.meanwhile = claim_once
    assert await bench.store.end(bench.session, ErrorCode.SESSION_CLOSED)
    assert [each.epoch for each in bench.tried] == [3, 4]
    assert (bench.dropped, bench.counted) == ([], [])


@pytest.mark.promise("P3")
@pytest.mark.parametrize(("epoch", "drops"), [(2, False), (3, False), (4, True)])
def test_the_word_of_another_node_counts_if_its_claim_is_newer(epoch: int, *, drops: bool) -> None:
    bench = Bench()
    bench.store.claimed_elsewhere(bench.session, Epoch(epoch))
    assert bool(bench.dropped) is drops


@pytest.mark.parametrize(
    ("owner", "held_here", "refusal", "released"),
    [
        (ME, False, None, True),
        (ME, False, FENCED, False),
        (ME, False, GONE, False),
        (ME, True, None, False),
        (OTHER, False, None, False),
        (None, False, None, False),
    ],
)
async def test_what_the_grid_holds_for_this_node_and_it_does_not_serve_is_put_on_the_clock(
    owner: NodeRef | None, refusal: Refusal | None, *, held_here: bool, released: bool
) -> None:
    bench = Bench()
    bench.refusal = refusal
    if owner is not None:
        bench.held = SessionRecord(id=SessionId("s"), principal="alice", window=60.0, owner=owner, epoch=Epoch(7))
    epoch = await bench.store.release(SessionId("s"), is_held=lambda: held_here)
    assert epoch == (7 if released else None)
    assert [each.epoch for each in bench.tried] == ([7] if owner is ME and not held_here else [])


# --- Nobody else ------------------------------------------------------------------------------------------------------

APPLICATION: Final = Path(gateway.app.__file__).parent
THE_PLACE: Final = {"registry/fencing.py", "registry/fenced_store.py", "registry/fenced_presence.py"}
WRITES: Final = {"create", "claim", "change", "confirm", "disconnect", "end", "end_all", "restore"}
"""Steps of ``SessionStore`` by an owner; the others read, or are the cluster's."""


def offences(source: str) -> list[str]:
    """List what of a module knows the rule or writes past it: handlers of refusals, and writes of sessions."""
    found = []
    tree = ast.parse(source)
    steps = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            caught = {each.id for each in ast.walk(node.type) if isinstance(each, ast.Name)}
            found += [f"{node.lineno}: except {name}" for name in sorted(caught & {"Fenced", "SessionGone"})]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "suppress":
            caught = {ast.unparse(each) for each in node.args}
            found += [f"{node.lineno}: suppress {name}" for name in sorted(caught & {"Fenced", "SessionGone"})]
        elif isinstance(node, ast.Attribute):
            is_store = node.attr == "sessions" and ast.unparse(node.value).endswith("grid")
            writes = node.attr in WRITES and ast.unparse(node.value).endswith("grid.sessions")
            if writes or (is_store and id(node) not in steps):  # by another name nobody would find what is done to it
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_the_search_finds_what_it_looks_for() -> None:
    assert offences("try: pass\nexcept (GridUnavailable, Fenced): pass") == ["2: except Fenced"]
    assert offences("with suppress(SessionGone): pass") == ["1: suppress SessionGone"]
    assert offences("self._grid.sessions.end(ownership)") == ["1: self._grid.sessions.end"]
    assert offences("store = self._grid.sessions") == ["1: self._grid.sessions"]
    assert offences("self._grid.sessions.find(session)") == []
    assert all(offences((APPLICATION / each).read_text()) for each in THE_PLACE)


@pytest.mark.promise("P3")
def test_no_other_code_judges_a_refusal_or_writes_past_the_store() -> None:
    found = {
        name: offences(path.read_text())
        for path in APPLICATION.rglob("*.py")
        if (name := path.relative_to(APPLICATION).as_posix()) not in THE_PLACE
    }
    assert {name: each for name, each in found.items() if each} == {}


def test_whatever_the_rule_raises_is_not_taken_for_an_answer_of_the_grid() -> None:
    assert not issubclass(NotWritten, Fenced | SessionGone | GridUnavailable)
