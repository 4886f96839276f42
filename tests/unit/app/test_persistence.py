"""Which sessions a node writes again: those that were stored in another generation, or under a lease that lapsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from gateway.app.clock import Clock
from gateway.app.context import Context
from gateway.app.persistence import Persistence
from gateway.app.session import Saved, Session
from gateway.core.frozen import SessionPolicy
from gateway.core.session import SessionMachine
from gateway.core.transitions import Role
from gateway.core.types import Epoch, GridGeneration, Incarnation, NodeId, NodeRef, SessionId
from gateway.ports import Restored, SessionChanges, SessionRecord

ME = NodeRef(NodeId("n1"), Incarnation("a"))
POLICY = SessionPolicy(
    resend_packets=10,
    resend_bytes=1000,
    message_bytes=1000,
    ack_packets=5,
    ack_delay=1,
    ping_interval=9,
    ping_timeout=99,
)


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


def bench() -> tuple[Grid, Persistence, Session]:
    """Make a grid, what writes to it, and a session that is stored there."""
    grid = Grid()
    policy = SimpleNamespace(replicated=True)
    context: Any = SimpleNamespace(grid=grid, metrics=None, clock=Clock(), policy=policy)
    persistence = Persistence(cast("Context", context))
    record = SessionRecord(id=SessionId("s"), principal="alice", window=60.0, owner=ME, epoch=Epoch(1))
    return grid, persistence, Session(record, SessionMachine(Role.SERVER, POLICY), saved=persistence.saved)


async def test_what_was_stored_under_a_lease_that_lapsed_is_written_again() -> None:
    grid, persistence, session = bench()
    assert not persistence.must_restore(session)
    persistence.lease_lapsed()
    assert persistence.must_restore(session)
    assert await persistence.restore([session]) == [Restored.WRITTEN]
    assert not persistence.must_restore(session)
    assert grid.recreated == [False], "nothing was lost: what the grid does not hold has ended"


async def test_a_lease_that_lapses_while_a_session_is_written_again_has_it_written_once_more() -> None:
    """The survivors put on the clock what bears the term of the lease that lapsed, and would end it (P7)."""
    grid, persistence, session = bench()
    session.unsaved = True
    grid.meanwhile = persistence.lease_lapsed
    await persistence.restore([session])
    assert persistence.must_restore(session)
    grid.meanwhile = lambda: None
    await persistence.restore([session])
    assert not persistence.must_restore(session)


async def test_a_lease_that_lapses_while_a_session_is_created_has_it_written_again() -> None:
    """Nobody knows of it yet when the sessions of the node are looked through."""
    grid, persistence, session = bench()
    grid.meanwhile = persistence.lease_lapsed
    await persistence.create(session)
    assert persistence.must_restore(session)


async def test_a_grid_that_is_lost_while_a_session_is_written_has_it_made_anew() -> None:
    grid, persistence, session = bench()

    def lose() -> None:
        grid.generation = GridGeneration(2)

    session.unsaved = True
    grid.meanwhile = lose
    await persistence.restore([session])
    assert session.saved == Saved(GridGeneration(1), lease=0)
    assert persistence.must_restore(session)
    grid.meanwhile = lambda: None
    await persistence.restore([session])
    assert grid.recreated == [False, True]


async def test_a_change_that_meets_a_restore_has_the_session_written_again() -> None:
    """The restore may have been executed behind the change, with what the session was before it (P4)."""
    grid, persistence, session = bench()

    async def change(_right: object, _changes: object) -> None:
        await persistence.restore([session])

    stores: Any = grid
    stores.change = change
    await persistence.change(session, SessionChanges())
    assert persistence.must_restore(session)
