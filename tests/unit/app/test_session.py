"""A session that was exported by one node, as the next one holds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.app.session.session import Session, StoredUnder
from gateway.core.session.export import export, restore
from gateway.core.types import Attempt, Epoch, GridGeneration, Incarnation, NodeId, NodeRef, SessionId, TokenGeneration
from gateway.core.wire.errors import InvalidExport
from gateway.core.wire.packets import Reply
from gateway.ports import SessionRecord
from tests.support.machines import NOW, opened
from tests.support.session_twins import lived

FIRST = NodeRef(NodeId("n1"), Incarnation("a"))
NEXT = NodeRef(NodeId("n2"), Incarnation("b"))
STORED_UNDER = StoredUnder(GridGeneration(3), expired_leases=0)
RECORD = SessionRecord(
    id=SessionId("s"), principal="alice", window=60.0, owner=FIRST, epoch=Epoch(4), selections=("+a/**",)
)


def taken_over(data: bytes, record: SessionRecord) -> Session:
    """Restore a session as the node does that has claimed it."""
    session = restore(data, NOW, lambda machine: Session(record, machine, stored_under=STORED_UNDER))
    session.take_over(record, stored_under=STORED_UNDER)
    return session


def test_the_grid_says_whose_a_session_is_and_the_export_what_it_owes() -> None:
    first = Session(RECORD, opened(), stored_under=STORED_UNDER)
    first.reply(Reply(request=1))  # type: ignore[arg-type]
    first.loss_declared(GridGeneration(5))
    claimed = replace(RECORD, owner=NEXT, epoch=Epoch(5), token_generation=TokenGeneration(2), attempt=Attempt(1))

    session = taken_over(export(first, NOW), claimed)

    assert (session.owner, session.epoch) == (NEXT, 5)
    assert (session.token_generation, session.attempt) == (2, 1)
    assert session.answers.unseen == first.answers.unseen
    assert (session.declared, session.known_generation) == (5, 3)
    assert session.machine.flush(1000) == first.machine.flush(1000)
    assert session.connection is None
    assert not session.dropped


def test_what_another_session_owes_is_not_taken_over() -> None:
    data = export(lived().first, NOW)

    with pytest.raises(InvalidExport, match="of session 's' of 'alice', and not of 't' of 'alice'"):
        taken_over(data, replace(RECORD, id=SessionId("t")))
    with pytest.raises(InvalidExport, match="and not of 's' of 'bob'"):
        taken_over(data, replace(RECORD, principal="bob"))


def test_the_selections_of_both_are_one_object_where_they_are_the_same() -> None:
    """As after a failover: ten thousand sessions of one application have the list once."""
    session = taken_over(export(lived().first, NOW), RECORD)

    assert session.written is session.selections
