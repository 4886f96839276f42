"""Logs and copies: what is sent once for many, what has no room, what is no frame, and who may have a copy."""

from __future__ import annotations

import pytest

from gateway.core.mirror.choosing import choose
from gateway.core.mirror.copies import Copies
from gateway.core.mirror.frames import SessionCut, read_frame
from gateway.core.mirror.log import WHOLE_AT_ONCE, MirrorLog
from gateway.core.mirror.run_numbers import MOST_RUNS
from gateway.core.session.handoff import GONE, ClaimRank, Given
from gateway.core.session.server_session import ServerSession
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import Role
from gateway.core.types import (
    Epoch,
    EventId,
    GridGeneration,
    Incarnation,
    NodeId,
    NodeRef,
    PacketId,
    SessionId,
    TokenGeneration,
)
from gateway.core.wire.errors import InvalidExport
from tests.support.session_twins import PLENTY, small_parameters

pytestmark = pytest.mark.promise("P12")


class Pair:
    """A log, and the copies made of it."""

    def __init__(self, *, most_bytes: int = 0, rate: float = 1e9) -> None:
        self.now = 0.0
        self.log: MirrorLog[ServerSession] = MirrorLog(
            1,
            epoch_of=lambda _: Epoch(3),
            cut_of=lambda _: SessionCut(frozenset({7}), {}),
            wake=lambda: None,
            wake_later=lambda: None,
            rate=rate,
        )
        self.copies = Copies(most_bytes)

    def session(self, name: str) -> ServerSession:
        parameters = small_parameters(packets=10_000, size=1 << 20, message_bytes=4096, ack_packets=100)
        machine = SessionMachine(Role.SERVER, parameters)
        machine.open(0.0, generation=TokenGeneration(1))
        session = ServerSession(
            SessionId(name), principal="alice", window=60.0, machine=machine, declared=GridGeneration(1)
        )
        self.log.add(session)
        return session

    def frame(self, place: int = 1) -> bytes:
        frame = self.log.frame({7: EventId(f"7-1-{place}")}, self.now)
        assert frame is not None
        return frame

    def tick(self, place: int = 1) -> int:
        frame = self.frame(place)
        self.copies.apply(read_frame(frame))
        return len(frame)


def send(sessions: list[ServerSession], run: Run) -> None:
    for session in sessions:
        session.machine.submit_run(run)
        session.machine.flush(PLENTY)


def test_what_many_are_sent_is_sent_to_the_backup_once_and_held_there_once() -> None:
    pair = Pair()
    sessions = [pair.session(f"s{number}") for number in range(30)]
    pair.tick()
    send(sessions, Run.of(Outgoing("a", b'"type":"update"' + b"x" * 5000 + b"}")))
    assert pair.tick(2) < 8000
    kept = {id(run) for each in sessions for run in pair.copies.copy_of(each.id).session.machine.kept()}  # type: ignore[union-attr]
    assert len(kept) == 1
    send(sessions[:1], Run.of(Outgoing("a", b"{}")))
    assert pair.tick(3) < 500


def test_a_run_that_is_forgotten_is_sent_again_by_both_sides_alike() -> None:
    pair = Pair()
    session, other = pair.session("s"), pair.session("t")
    pair.tick()
    first = Run.of(Outgoing("a", b"first}"))
    send([session], first)
    for number in range(MOST_RUNS + 10):
        send([session], Run.of(Outgoing("a", b"%d}" % number)))
        if not number % 500:
            pair.tick(number + 2)
            session.machine.receive_ack(session.machine.last_numbered, 0.0)
    pair.tick(9)
    send([other], first)
    pair.tick(10)
    copy = pair.copies.copy_of(other.id)
    assert copy is not None
    assert [run.text for run in copy.session.machine.kept()] == [b"first}"]


def test_sessions_are_written_whole_at_a_bounded_rate() -> None:
    pair = Pair(rate=100.0)
    for number in range(WHOLE_AT_ONCE + 30):
        pair.session(f"s{number}")
    pair.tick()
    assert (len(pair.copies), pair.log.waiting) == (WHOLE_AT_ONCE, 30)
    pair.now = 0.1
    pair.tick(2)
    assert (len(pair.copies), pair.log.waiting) == (WHOLE_AT_ONCE + 10, 20)
    pair.now = 10.0
    pair.tick(3)
    assert pair.log.waiting == 0


def test_a_copy_that_would_be_wrong_is_given_up_until_it_is_written_anew() -> None:
    pair = Pair(rate=1.0)
    sessions = [pair.session(f"s{number}") for number in range(WHOLE_AT_ONCE)]
    pair.tick()
    send(sessions, Run.of(Outgoing("a", b"a}")))
    sessions[0].machine.withhold(lambda topic: topic == "a")
    pair.tick(2)
    assert sessions[0].id not in pair.copies
    assert sessions[1].id in pair.copies
    pair.now = 5.0
    pair.tick(3)
    assert sessions[0].id in pair.copies


@pytest.mark.promise("P20")
def test_copies_take_a_bounded_part_of_memory_and_who_has_none_is_told() -> None:
    pair = Pair(most_bytes=200_000)
    sessions = [pair.session(f"s{number}") for number in range(10)]
    pair.tick()
    for place in range(2, 60):
        send(sessions[:1], Run.of(Outgoing("a", b"x" * 10_000)))
        pair.tick(place)
        for slot in pair.copies.refused:
            pair.log.refused(slot, place)
            pair.log.write_again(slot)
        pair.copies.refused.clear()
    assert pair.copies.size <= 200_000
    assert sessions[9].id in pair.copies


def test_who_has_no_room_has_no_copy_until_it_is_written_again_whatever_happens_to_it() -> None:
    pair = Pair(most_bytes=1)
    session = pair.session("s")
    pair.tick()
    (slot,) = pair.copies.refused
    pair.log.refused(slot, 1)
    tap = pair.log.tap(session)
    assert tap is not None
    send([session], Run.of(Outgoing("a", b'"type":"update"}')))
    pair.tick(2)
    assert (tap.is_whole, tap.must_rewrite, len(pair.copies)) == (False, True, 0)
    pair.copies._most_bytes = 0
    pair.log.write_again(slot)
    pair.tick(3)
    send([session], Run.of(Outgoing("a", b'"type":"update"}')))
    pair.tick(4)
    copy = pair.copies.copy_of(SessionId("s"))
    assert copy is not None
    assert copy.session.machine.last_numbered == session.machine.last_numbered == 2


@pytest.mark.promise("P13")
@pytest.mark.parametrize("is_told_late", [False, True])
def test_a_refusal_that_crosses_a_rewrite_leaves_no_copy_that_goes_stale(*, is_told_late: bool) -> None:
    """The backup had no room for what was before, and has room for what it has been sent since."""
    pair = Pair(most_bytes=1)
    session = pair.session("s")
    pair.tick()
    said = pair.copies.refused.copy()
    if is_told_late:
        pair.copies.refused.clear()
    pair.copies._most_bytes = 0
    session.machine.withhold(lambda topic: topic == "a")
    pair.tick(2)
    assert said == [1]
    if is_told_late:
        assert not pair.log.refused(1, 1), "what was said of the first frame"
    assert pair.copies.refused == []
    send([session], Run.of(Outgoing("b", b'"type":"update"}')))
    pair.tick(3)
    copy = pair.copies.copy_of(session.id)
    assert copy is not None
    assert copy.session.machine.last_numbered == session.machine.last_numbered == 1
    pair.log.write_again(1)
    send([session], Run.of(Outgoing("b", b'"type":"update"}')))
    pair.tick(4)
    assert copy.session.machine.last_numbered == 2


def test_nothing_is_counted_for_what_was_acknowledged() -> None:
    pair = Pair()
    sessions = [pair.session(f"s{number}") for number in range(4)]
    pair.tick()
    empty = pair.copies.size
    for place in range(2, 20):
        send(sessions, Run.of(Outgoing("a", b"x" * 1000)))
        pair.tick(place)
    for session in sessions:
        session.machine.receive_ack(session.machine.last_numbered, 0.0)
    pair.tick(30)
    assert pair.copies.size == empty
    for session in sessions:
        pair.log.remove(session)
    pair.tick(31)
    assert (pair.copies.size, len(pair.copies)) == (0, 0)


def test_who_is_not_copied_any_more_notes_nothing() -> None:
    """M5: afterwards the session is made of the same parts as if it had never been copied."""
    pair = Pair()
    session = pair.session("s")
    pair.tick()
    send([session], Run.of(Outgoing("a", b"a}")))
    pair.log.close()
    machine = session.machine
    assert (type(machine.buffer).__name__, type(machine.outbox).__name__) == ("ResendBuffer", "Outbox")
    assert type(session.pending).__name__ == "PendingRequests"
    assert machine.unacknowledged == 1
    send([session], Run.of(Outgoing("a", b"b}")))
    assert machine.last_numbered == PacketId(2)


@pytest.mark.promise("P3")
def test_a_copy_is_given_to_later_claims_only_and_stays_as_it_was_given() -> None:
    pair = Pair()
    session = pair.session("s")
    pair.tick(5)

    def give(epoch: int) -> Given:
        return pair.copies.give(session.id, ClaimRank(session.attempt, Epoch(epoch)))

    assert give(3) is GONE, "its own node has that epoch"
    given = give(5)
    assert given.cuts == {7: "7-1-5"}
    send([session], Run.of(Outgoing("a", b"a}")))
    pair.tick(6)
    assert give(4) is GONE
    assert give(5) == given
    assert give(6).session == given.session
    pair.copies.forget(session.id)
    assert give(7) is GONE
    send([session], Run.of(Outgoing("a", b"b}")))
    pair.tick(7)


def test_a_log_with_a_hole_or_another_one_is_refused() -> None:
    pair = Pair()
    pair.session("s")
    first = pair.frame()
    pair.session("t")
    second = pair.frame(2)
    with pytest.raises(InvalidExport, match="frame 2 of log 1 came after 0"):
        pair.copies.apply(read_frame(second))
    other = Copies()
    other.apply(read_frame(first))
    with pytest.raises(InvalidExport):
        other.apply(read_frame(first))


def test_copies_that_count_otherwise_are_noticed() -> None:
    pair = Pair()
    session = pair.session("s")
    pair.tick()
    copy = pair.copies.copy_of(session.id)
    assert copy is not None
    copy.session.machine.buffer.follow(Run.of(Outgoing("a", b"a bug}")))
    send([session], Run.of(Outgoing("a", b"a}")))
    with pytest.raises(InvalidExport, match="count other packets"):
        pair.tick(2)


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_a_damaged_frame_is_an_invalid_export_and_no_other_error(at: int) -> None:
    pair = Pair()
    session = pair.session("s")
    pair.tick()
    send([session], Run.of(Outgoing("a", b"a}")))
    frame = bytearray(pair.frame(2))
    frame[at % len(frame)] ^= 0x15
    try:
        pair.copies.apply(read_frame(bytes(frame)))
    except InvalidExport:
        return


def node(name: str, run: str = "1") -> NodeRef:
    return NodeRef(NodeId(name), Incarnation(run))


def test_the_backup_is_in_another_failure_domain_if_there_is_one() -> None:
    nodes = {node(f"n{number}"): f"rack{number % 3}" for number in range(12)}
    for me, domain in nodes.items():
        chosen = choose(me, domain, {other: rack for other, rack in nodes.items() if other != me})
        assert chosen is not None
        assert chosen.is_apart
        assert nodes[chosen.node] != domain
    alone = choose(node("n1"), "r", {node("n2"): "r"})
    assert alone == (node("n2"), False)
    assert choose(node("n1"), "", {node("n2"): ""}) == (node("n2"), True)
    assert choose(node("n1"), "r", {}) is None


def test_the_choice_is_spread_and_changes_for_those_alone_whose_backup_goes() -> None:
    nodes = [node(f"n{number}") for number in range(12)]

    def choices(among: list[NodeRef]) -> dict[NodeRef, NodeRef]:
        found = {me: choose(me, "", {other: "" for other in among if other != me}) for me in nodes}
        return {me: chosen.node for me, chosen in found.items() if chosen is not None}

    before = choices(nodes)
    assert len(set(before.values())) >= 5
    gone = before[nodes[0]]
    after = choices([each for each in nodes if each != gone])
    assert all(after[me] == before[me] for me in nodes if before[me] != gone)
    assert after[nodes[0]] != gone


def test_a_run_that_went_to_nobody_who_is_copied_is_sent_with_the_first_who_is() -> None:
    pair = Pair()
    session, other = pair.session("s"), pair.session("t")
    pair.tick()
    pair.log.remove(other)
    pair.tick(2)
    run = Run.of(Outgoing("a", b"a}"))
    pair.log.sent_together(run, (other,))
    assert pair.log.frame({7: EventId("7-1-2")}, pair.now) is None
    send([session], run)
    pair.tick(3)
    copy = pair.copies.copy_of(session.id)
    assert copy is not None
    assert [each.text for each in copy.session.machine.kept()] == [b"a}"]
