"""Which ends a node remembers, to repeat them in a grid that has lost them."""

from __future__ import annotations

from gateway.app.registry.recent_ends import AGE, MOST, RecentEnds
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Ownership, SessionRecord

ME = NodeRef(NodeId("n1"), Incarnation("a"))


def ownership(number: int) -> Ownership:
    return Ownership(SessionId(f"s{number}"), ME, Epoch(1))


def test_ends_are_remembered_for_a_time_in_their_order() -> None:
    now = 0.0
    ends = RecentEnds(lambda: now)
    for number in range(3):
        ends.put(ownership(number), ErrorCode.SESSION_CLOSED)
        now += AGE / 2
    assert [each.session for each in ends] == [ownership(1), ownership(2)]
    now += AGE
    assert list(ends) == []


def test_only_so_many_are_remembered() -> None:
    ends = RecentEnds(lambda: 0.0)
    for number in range(MOST + 2):
        ends.put(ownership(number), ErrorCode.SESSION_CLOSED)
    assert len(list(ends)) == MOST
    assert next(iter(ends)).session == ownership(2)


def test_what_takes_room_is_left_out() -> None:
    record = SessionRecord(
        id=SessionId("s"),
        principal="alice",
        properties={"large": "x" * 1000},
        selections=("+a/**",),
        window=60,
        owner=ME,
        publish_partitions=frozenset({3}),
        principal_properties={"also": "large"},
        roles=frozenset({"reader"}),
    )
    ends = RecentEnds(lambda: 0.0)
    ends.put(record, ErrorCode.REVOKED)
    (end,) = ends
    assert end.session == SessionRecord(
        id=record.id, principal="alice", window=60, owner=ME, publish_partitions=frozenset({3})
    )
    assert end.reason is ErrorCode.REVOKED
