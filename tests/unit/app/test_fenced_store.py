"""Which sessions a node writes again: those that were stored in another generation, or under a lease that expired.

And what it writes of a list of selections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.app.context import Context
from gateway.app.registry.fenced_store import RESTORE_BATCH, FencedStore
from gateway.app.runtime.clock import Clock
from gateway.app.session.session import Session, StoredUnder
from gateway.core.destinations.table import DestinationTable
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.transitions import Role
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import Epoch, GridGeneration, Incarnation, NodeId, NodeRef, SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    GridState,
    GridUnavailable,
    Ownership,
    Restored,
    SelectionChanges,
    SessionChanges,
    SessionEnd,
    SessionRecord,
)
from tests.support.clock import eventually
from tests.support.machines import PARAMETERS

ME = NodeRef(NodeId("n1"), Incarnation("a"))


class Grid:
    """A grid that stores everything, and in which something happens while it does."""

    def __init__(self) -> None:
        self.generation = GridGeneration(1)
        self.sessions = self
        self.meanwhile: Callable[[], None] = lambda: None
        self.recreated: list[bool] = []

    async def create(self, record: SessionRecord) -> None:
        self.meanwhile()

    async def restore(self, records: Sequence[SessionRecord], *, recreate: bool) -> list[Restored]:
        self.meanwhile()
        self.recreated.append(recreate)
        return [Restored.WRITTEN] * len(records)


class Ends:
    """Takes the place of what ends sessions: a grid that holds some of those that were ended, and counts its calls.

    Args:
        grid: whose stores these are then.
        answers: what writing a session again comes to, by its id; those that are not here are WRITTEN.
    """

    def __init__(self, grid: Grid, answers: dict[str, Restored] | None = None) -> None:
        self.calls: list[int] = []
        self.ended: dict[SessionId, ErrorCode] = {}
        self.failing: set[int] = set()
        self._answers = answers or {}
        stores: Any = grid
        stores.restore, stores.end, stores.end_all = self._restore, self._end, self._end_all
        stores.state = GridState.UP

    def _called(self, sessions: int) -> None:
        self.calls.append(sessions)
        if len(self.calls) in self.failing:
            raise GridUnavailable("it went away once more")

    async def _restore(self, records: Sequence[SessionRecord], *, recreate: bool) -> list[Restored]:
        assert not recreate, "what is not there has ended"
        self._called(len(records))
        return [self._answers.get(record.id, Restored.WRITTEN) for record in records]

    async def _end(self, ownership: Ownership, *, reason: ErrorCode, **_: object) -> None:
        self._called(1)
        self.ended[ownership.session] = reason

    async def _end_all(self, ends: Sequence[SessionEnd], **_: object) -> list[bool]:
        self._called(len(ends))
        self.ended |= {ownership.session: reason for ownership, reason, _ in ends}
        return [True] * len(ends)


def bench() -> tuple[Grid, FencedStore, Session]:
    """Make a grid, what writes to it, and a session that is stored there."""
    grid = Grid()
    parameters = SimpleNamespace(replicated=True, restore_rate=float("inf"))
    context: Any = SimpleNamespace(
        me=ME, grid=grid, metrics=None, clock=Clock(), parameters=parameters, destinations=DestinationTable()
    )
    store = FencedStore(cast("Context", context))
    record = SessionRecord(id=SessionId("s"), principal="alice", window=60.0, owner=ME, epoch=Epoch(1))
    return (
        grid,
        store,
        Session(record, SessionMachine(Role.SERVER, PARAMETERS), stored_under=store.writes_under),
    )


async def test_what_was_stored_under_a_lease_that_expired_is_written_again() -> None:
    grid, store, session = bench()
    assert not store.must_restore(session)
    store.lease_expired()
    assert store.must_restore(session)
    assert await store.restore([session]) == [Restored.WRITTEN]
    assert not store.must_restore(session)
    assert grid.recreated == [False], "nothing was lost: what the grid does not hold has ended"


@pytest.mark.promise("P7")
async def test_a_lease_that_expires_while_a_session_is_written_again_has_it_written_once_more() -> None:
    """The survivors put on the clock what bears the term of the lease that expired, and would end it (P7)."""
    grid, store, session = bench()
    session.unsaved = True
    grid.meanwhile = store.lease_expired
    await store.restore([session])
    assert store.must_restore(session)
    grid.meanwhile = lambda: None
    await store.restore([session])
    assert not store.must_restore(session)


async def test_a_lease_that_expires_while_a_session_is_created_has_it_written_again() -> None:
    """Nobody knows of it yet when the sessions of the node are looked through."""
    grid, store, session = bench()
    grid.meanwhile = store.lease_expired
    await store.create(session)
    assert store.must_restore(session)


async def test_a_grid_that_is_lost_while_a_session_is_written_has_it_made_anew() -> None:
    grid, store, session = bench()

    def lose() -> None:
        grid.generation = GridGeneration(2)

    session.unsaved = True
    grid.meanwhile = lose
    await store.restore([session])
    assert session.stored_under == StoredUnder(GridGeneration(1), expired_leases=0)
    assert store.must_restore(session)
    grid.meanwhile = lambda: None
    await store.restore([session])
    assert grid.recreated == [False, True]


@pytest.mark.promise("P4")
async def test_a_change_that_meets_a_restore_has_the_session_written_again() -> None:
    """The restore may have been executed behind the change, with what the session was before it (P4)."""
    grid, store, session = bench()

    async def change(_ownership: object, _changes: object) -> None:
        await store.restore([session])

    stores: Any = grid
    stores.change = change
    await store.change(session, SessionChanges())
    assert store.must_restore(session)


# --- Ends, again ------------------------------------------------------------------------------------------------------


async def ended(store: FencedStore, grid: Grid, count: int) -> dict[SessionId, ErrorCode]:
    """Have so many sessions end, half of them seen and half of them unseen; returns why."""
    Ends(grid)
    reasons: dict[SessionId, ErrorCode] = {}
    for number in range(count):
        record = SessionRecord(id=SessionId(f"s{number}"), principal="alice", window=60.0, owner=ME, epoch=Epoch(3))
        reason = reasons[record.id] = ErrorCode.REVOKED if number % 3 else ErrorCode.SESSION_CLOSED
        if number % 2:
            await store.end(Ownership(record.id, ME, Epoch(3)), reason)
        else:
            await store.end(
                Session(record, SessionMachine(Role.SERVER, PARAMETERS), stored_under=store.writes_under), reason
            )
    return reasons


@pytest.mark.promise("P7")
async def test_many_ends_are_repeated_in_few_steps() -> None:
    """After an outage there may be 4,096 of them, and a round trip for each is seconds in which they are alive (P7)."""
    grid, store, _ = bench()
    reasons = await ended(store, grid, 10 * RESTORE_BATCH)
    again = Ends(grid)

    await store.end_again()

    assert again.ended == reasons
    assert len(again.calls) == 2 * 10, "each step writes the sessions again, then ends them"
    assert max(again.calls) == RESTORE_BATCH


async def test_what_has_ended_or_is_somebody_elses_is_not_ended_again() -> None:
    grid, store, _ = bench()
    reasons = await ended(store, grid, 6)
    again = Ends(grid, {"s0": Restored.GONE, "s2": Restored.FENCED})

    await store.end_again()

    assert again.ended == {session: reason for session, reason in reasons.items() if session not in {"s0", "s2"}}


@pytest.mark.parametrize("failing", [{1}, {2}, {3}, {4}, {1, 3, 5}])
async def test_ends_are_repeated_until_the_grid_has_taken_them(failing: set[int]) -> None:
    grid, store, _ = bench()
    reasons = await ended(store, grid, RESTORE_BATCH + 10)
    again = Ends(grid)
    again.failing = failing

    await store.end_again()

    assert again.ended == reasons


# --- Lists of selections: what changes is written, and in doubt all of it ------------------------------------------


class Changes:
    """Takes the place of ``change``: notes what is written, and lets something happen meanwhile."""

    def __init__(self, grid: Grid) -> None:
        self.written: list[SessionChanges] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        stores: Any = grid
        stores.change = self._change

    async def _change(self, _ownership: object, changes: SessionChanges) -> None:
        self.written.append(changes)
        if self.meanwhile is not None:
            await self.meanwhile()

    def last(self) -> object:
        return self.written[-1].selection_changes or self.written[-1].selections


def selected(session: Session, *texts: str) -> Selections:
    for text in texts:
        session.selections = session.selections.select(parse_selector(text))
    return session.selections


async def test_one_entry_of_a_list_is_written_as_one() -> None:
    grid, store, session = bench()
    changes = Changes(grid)
    await store.select(session, selected(session, "a/b", "b/**"))
    assert changes.last() == SelectionChanges(added=("+a/b", "+b/**"))
    for number in range(40):
        await store.select(session, selected(session, f"c/{number}"))
        assert changes.last() == SelectionChanges(added=(f"+c/{number}",))
    await store.select(session, selected(session, "a/*"))
    assert changes.last() == SelectionChanges(removed=("a/b",), added=("+a/*",))


async def test_a_list_is_written_whole_where_nobody_knows_what_the_grid_holds() -> None:
    grid, store, session = bench()
    changes = Changes(grid)

    async def lose_the_answer() -> None:
        raise GridUnavailable("no answer")

    async def restore() -> None:
        await store.restore([session])

    await store.select(session, selected(session, "a"))
    changes.meanwhile = lose_the_answer
    with pytest.raises(GridUnavailable):
        await store.select(session, selected(session, "b"))
    changes.meanwhile = None
    await store.select(session, selected(session, "c"))
    assert changes.last() == ("+a", "+b", "+c"), "it may have the second entry or not"
    await store.restore([session])
    await store.select(session, selected(session, "d"))
    assert changes.last() == ("+a", "+b", "+c", "+d")
    await store.select(session, selected(session, "e"))
    assert changes.last() == SelectionChanges(added=("+e",))
    changes.meanwhile = restore
    await store.select(session, selected(session, "f"))
    changes.meanwhile = None
    await store.restore([session])  # as the recovery does with what is marked
    await store.select(session, selected(session, "g"))
    assert changes.last() == ("+a", "+b", "+c", "+d", "+e", "+f", "+g"), "the restore may have come behind the sixth"


async def test_a_list_is_written_whole_into_a_grid_that_may_have_gone_back() -> None:
    grid, store, session = bench()
    changes = Changes(grid)
    await store.select(session, selected(session, "a"))
    grid.generation = GridGeneration(2)
    await store.select(session, selected(session, "b"))
    assert changes.last() == ("+a", "+b")


async def test_what_a_claim_returned_is_known_to_be_in_the_grid() -> None:
    grid, store, session = bench()
    changes = Changes(grid)
    held = selected(session, "a", "b")
    record = replace(session.record(), selections=("+a", "+b"))
    session.take_over(record, stored_under=store.writes_under)
    assert session.selections is held, "the very list that is here, with all that was made of it"
    session.take_over(replace(record, selections=("+b", "+x")), stored_under=store.writes_under)
    await store.select(session, selected(session, "c"))
    assert changes.last() == SelectionChanges(added=("+c",))


@pytest.mark.promise("P7")
async def test_two_writes_under_way_leave_all_places_to_the_end_of_the_session() -> None:
    grid, store, session = bench()
    written: list[frozenset[int] | None] = []
    answer = asyncio.Event()

    async def change(_: Ownership, changes: SessionChanges) -> None:
        written.append(changes.publish_partitions)
        await answer.wait()

    stores: Any = grid
    stores.change, stores.state = change, GridState.UP
    both = asyncio.gather(store.prepare(session, {1}), store.prepare(session, {2}))
    await eventually(lambda: len(written) == 2)
    answer.set()
    await both
    assert written[-1] == frozenset({1, 2}), "as the one that is written last counts"
    assert session.publish_partitions == {1, 2}
