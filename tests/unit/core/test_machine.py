"""The session machine on a connection: writing, receiving, acknowledging, heartbeats (protocol section 5).

What happens between connections is in ``test_session_recovery``, two machines together in ``tests/property``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.stream.machine import Received, SessionMachine
from gateway.core.stream.runs import Run
from gateway.core.stream.transitions import Role, State
from gateway.core.types import PacketId
from gateway.core.wire import codec
from gateway.core.wire.codes import OUT_OF_ORDER, PROTOCOL_ERROR, ErrorCode
from gateway.core.wire.errors import LocalProtocolError
from gateway.core.wire.packets import Ack, Bye, Error, GoAway, Hello, Packet, Ping, Pong
from tests.support.machines import (
    NOW,
    PARAMETERS,
    PLENTY,
    array,
    bodies,
    body,
    ids,
    incoming,
    numbered,
    opened,
    reply,
    resuming,
    sending,
    update,
    violation,
)

# --- Beginning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", Role)
def test_a_new_machine_has_numbered_nothing(role: Role) -> None:
    machine = SessionMachine(role, PARAMETERS)

    assert machine.state is State.FRESH
    assert (machine.received, machine.last_numbered, machine.oldest) == (0, 0, 1)
    assert (machine.unacknowledged, machine.resend_bytes, machine.waiting, machine.waiting_bytes) == (0, 0, 0, 0)
    assert machine.is_settled
    assert not machine.has_output
    assert machine.next_deadline() is None


def test_before_it_is_opened_packets_make_no_sense() -> None:
    machine = SessionMachine(Role.SERVER, PARAMETERS)

    for misuse in (
        lambda: machine.submit(reply("a")),
        lambda: machine.flush(PLENTY),
        lambda: machine.receive([], NOW),
        machine.detach,
        machine.resume,
        lambda: machine.restart(NOW),
    ):
        with pytest.raises(LocalProtocolError, match="in state fresh"):
            misuse()


def test_it_cannot_be_opened_twice() -> None:
    with pytest.raises(LocalProtocolError, match="open makes no sense in state attached"):
        opened().open(NOW)


def test_its_representation_tells_where_it_stands() -> None:
    machine = sending("a", "b")
    machine.submit(reply("c"))

    assert repr(machine) == "<SessionMachine server attached received=0 sent=2 kept=2 waiting=1>"


# --- Writing --------------------------------------------------------------------------------------------------------


def test_what_is_submitted_is_numbered_when_it_is_written() -> None:
    machine = opened()
    machine.submit(reply("a"))
    assert (machine.waiting, machine.last_numbered, machine.has_output) == (1, 0, True)
    assert machine.waiting_bytes == len(body("a"))

    assert machine.flush(PLENTY) == [numbered("a", 1)]

    assert (machine.waiting, machine.last_numbered, machine.has_output) == (0, 1, False)
    assert (machine.unacknowledged, machine.resend_bytes) == (1, len(body("a")))


def test_several_packets_share_a_message() -> None:
    machine = opened()
    for name in ("a", "b", "c"):
        machine.submit(reply(name))

    assert machine.flush(PLENTY) == [array(numbered("a", 1), "b", "c")]


def test_nothing_to_write_is_no_message() -> None:
    assert opened().flush(PLENTY) == []


def test_link_packets_come_first() -> None:
    machine = opened()
    machine.submit(reply("a"))
    machine.send_link(GoAway("moving", 1.0))

    (message,) = machine.flush(PLENTY)

    assert message == b"[%b,%b]" % (codec.encode_link(GoAway("moving", 1.0)), numbered("a", 1))


def test_messages_are_as_large_as_allowed_and_not_larger() -> None:
    packet, three = len(numbered("a", 1)), len(array(numbered("a", 1), "b", "c"))
    for limit, expected in ((three, [[1, 2, 3], [4]]), (three - 1, [[1, 2], [3, 4]]), (packet, [[1], [2], [3], [4]])):
        machine = opened(parameters=replace(PARAMETERS, message_bytes=limit))
        for name in "abcd":
            machine.submit(reply(name))

        messages = machine.flush(PLENTY)

        assert [ids([message]) for message in messages] == expected
        assert all(len(message) <= limit for message in messages)


def test_a_packet_larger_than_a_message_is_written_alone() -> None:
    machine = opened(parameters=replace(PARAMETERS, message_bytes=30))
    for name in ("a", "x" * 100, "b"):
        machine.submit(reply(name))

    assert machine.flush(PLENTY) == [numbered("a", 1), numbered("x" * 100, 2), numbered("b", 3)]


def test_room_that_runs_out_leaves_the_rest_as_it_is_until_there_is_none() -> None:
    machine = opened()
    for number in range(1, 5):
        machine.submit(update("t", f"t{number}"))

    assert machine.flush(1) == [numbered("t1", 1)]
    assert (machine.waiting, machine.conflated) == (3, 0)
    assert machine.flush(1) == [numbered("t2", 2)]

    assert machine.flush(0) == []
    assert (machine.waiting, machine.conflated) == (1, 1)


def test_without_room_nothing_is_numbered_and_updates_conflate() -> None:
    machine = opened()
    for outgoing in (update("t", "t1"), reply("r"), update("t", "t2")):
        machine.submit(outgoing)

    assert machine.flush(0) == []
    assert (machine.last_numbered, machine.waiting, machine.conflated) == (0, 2, 1)
    assert machine.has_output

    machine.submit(update("t", "t3"))
    assert machine.flush(PLENTY) == [array(numbered("t3", 1, folded=2), "r")]
    assert machine.conflated == 2


def replayed(*names: str) -> list[Run]:
    """What a peer has missed of one topic, a run for each update."""
    return [Run.of(update("t", name)) for name in names]


def test_what_is_replayed_is_not_folded_for_want_of_room_nor_is_what_comes_behind_it() -> None:
    machine = opened()
    machine.submit_replay(replayed("t1", "t2"))
    machine.submit(update("t", "t3"))
    assert machine.is_spared

    assert machine.flush(0) == []
    assert machine.flush(1) == [numbered("t1", 1)]
    assert machine.flush(0) == []
    assert machine.flush(PLENTY) == [array(numbered("t2", 2), "t3")]
    assert (machine.conflated, machine.is_spared) == (0, False)


def test_what_is_replayed_is_not_folded_either_while_the_peer_has_to_acknowledge() -> None:
    names = [f"t{number}" for number in range(1, 7)]
    machine = opened()
    machine.submit_replay(replayed(*names))
    assert machine.flush(PLENTY) == [array(numbered("t1", 1), "t2", "t3", "t4")]
    assert machine.flush(PLENTY) == []

    machine.receive([Ack(PacketId(4))], NOW)

    assert machine.flush(PLENTY) == [array(numbered("t5", 5), "t6")]
    assert machine.conflated == 0


def test_what_is_replayed_is_folded_by_who_bounds_it() -> None:
    machine = opened()
    machine.submit_replay(replayed("t1", "t2", "t3"))

    machine.conflate()

    assert not machine.is_spared
    assert machine.flush(PLENTY) == [numbered("t3", 1, folded=2)]


def test_when_what_was_replayed_has_gone_out_updates_are_folded_as_ever() -> None:
    machine = opened()
    machine.submit_replay(replayed("t1"))
    machine.flush(PLENTY)
    machine.submit(update("t", "t2"))
    machine.submit(update("t", "t3"))

    assert machine.flush(0) == []

    assert (machine.waiting, machine.conflated) == (1, 1)


def test_nothing_to_replay_changes_nothing() -> None:
    machine = opened()

    machine.submit_replay([])

    assert not machine.is_spared


def test_writing_stops_when_the_room_is_used_up() -> None:
    machine = opened()
    for name in "abc":
        machine.submit(reply(name))

    assert machine.flush(1) == [numbered("a", 1)]
    assert machine.flush(len(body("b")) + 1) == [array(numbered("b", 2), "c")]


def test_link_packets_use_up_room_but_wait_for_none() -> None:
    machine = opened()
    machine.submit(reply("a"))
    machine.send_link(Bye("over"))

    assert machine.flush(1) == [codec.encode_link(Bye("over"))]
    assert machine.waiting == 1


def test_numbering_stops_at_the_bound_of_unacknowledged_packets() -> None:
    machine = sending("a", "b", "c", "d", "e")
    assert machine.last_numbered == 4
    assert machine.flush(PLENTY) == []

    machine.receive([Ack(PacketId(2))], NOW)

    assert machine.flush(PLENTY) == [numbered("e", 5)]


def test_numbering_stops_at_the_bound_of_unacknowledged_bytes() -> None:
    machine = sending("a" * 20, "b" * 20, "c", parameters=replace(PARAMETERS, resend_bytes=40))

    assert machine.last_numbered == 2


@pytest.mark.promise("P9")
def test_what_waits_counts_against_the_bounds_by_packets_and_by_bytes() -> None:
    machine = opened()
    machine.submit_run(Run.of(update("t", "t1")))
    machine.submit(reply("r"))
    assert machine.exceeds(packets=1, size=1000)
    assert machine.exceeds(packets=2, size=0)
    assert not machine.exceeds(packets=2, size=1000)


# --- Receiving ------------------------------------------------------------------------------------------------------


def test_packets_in_order_are_handed_on() -> None:
    machine = opened()

    assert machine.receive([incoming(1), incoming(2)], NOW) == bodies(1, 2)
    assert machine.receive([incoming(3)], NOW) == bodies(3)
    assert machine.received == 3


def test_duplicates_are_ignored_and_counted() -> None:
    machine = opened()
    machine.receive([incoming(1), incoming(2)], NOW)

    assert machine.receive([incoming(1), incoming(2), incoming(3)], NOW) == bodies(3)
    assert machine.duplicates == 2


def test_a_missing_predecessor_closes_the_connection_in_a_way_that_resuming_mends() -> None:
    machine = opened()

    items = machine.receive([incoming(1), incoming(3), incoming(2)], NOW)

    assert items[:-1] == bodies(1)
    assert violation(items).close is OUT_OF_ORDER
    assert str(violation(items)) == "packet 3 came after packet 1: one in between is missing"
    assert machine.received == 1


@pytest.mark.parametrize("packet", [Ack(PacketId(2)), Pong(PacketId(2)), incoming(1, received=2)])
def test_every_packet_that_acknowledges_frees_the_buffer(packet: Packet) -> None:
    machine = sending("a", "b", "c")

    machine.receive([packet], NOW)

    assert (machine.oldest, machine.unacknowledged) == (3, 1)
    assert machine.resend_bytes == len(body("c"))


def test_it_is_settled_when_nothing_waits_and_all_is_acknowledged() -> None:
    machine = opened()
    machine.submit(reply("a"))
    assert not machine.is_settled

    machine.flush(PLENTY)
    assert not machine.is_settled

    machine.receive([Ack(PacketId(1))], NOW)
    assert machine.is_settled


@pytest.mark.parametrize("packet", [Ack(PacketId(3)), Pong(PacketId(3)), incoming(1, received=3)])
def test_what_was_never_sent_cannot_be_acknowledged(packet: Packet) -> None:
    machine = sending("a", "b")

    items = machine.receive([packet], NOW)

    assert violation(items).close is PROTOCOL_ERROR
    assert str(violation(items)) == "packet 3 is acknowledged, but 2 is the last that was sent"
    assert machine.unacknowledged == 2


def test_what_has_yet_to_be_resent_cannot_be_acknowledged_either() -> None:
    """It used to be accepted, and ``has_output`` then stayed true for ever with nothing to write: a busy node."""
    machine = resuming(sending("a", "b", "c"))
    machine.reattach(received=PacketId(0), now=NOW)
    machine.flush(1)

    items = machine.receive([Ack(PacketId(3))], NOW)

    assert str(violation(items)) == "packet 3 is acknowledged, but 1 is the last that was sent"
    assert ids(machine.flush(PLENTY)) == [2, 3]
    assert not machine.has_output


@pytest.mark.parametrize("packet", [Error(ErrorCode.INTERNAL, "sorry"), Bye("enough"), Ping("token")])
@pytest.mark.parametrize("role", Role)
def test_link_packets_that_concern_the_application_are_handed_on(role: Role, packet: Received) -> None:
    assert isinstance(packet, Error | Bye | Ping)

    assert opened(role).receive([packet], NOW) == [packet]


def test_only_a_client_is_told_to_go_away() -> None:
    go_away = GoAway("moving", 1.0)

    assert opened(Role.CLIENT).receive([go_away], NOW) == [go_away]
    assert "goaway packet has no place" in str(violation(opened(Role.SERVER).receive([go_away], NOW)))


def test_a_handshake_packet_has_no_place_on_an_attached_connection() -> None:
    items = opened().receive([incoming(1), Hello(principal="p"), incoming(2)], NOW)

    assert items[:-1] == bodies(1)
    assert violation(items).close is PROTOCOL_ERROR
    assert "a hello packet has no place" in str(violation(items))


def test_nothing_is_received_without_a_connection() -> None:
    machine = sending("a")
    machine.detach()

    with pytest.raises(LocalProtocolError, match="receive makes no sense in state detached"):
        machine.receive([], NOW)


# --- Acknowledging --------------------------------------------------------------------------------------------------


def test_an_acknowledgement_travels_with_the_next_session_packet_once() -> None:
    machine = opened()
    machine.receive([incoming(1), incoming(2)], NOW)
    machine.submit(reply("a"))
    machine.submit(reply("b"))

    assert machine.flush(PLENTY) == [array(numbered("a", 1, 2), "b")]
    assert machine.next_deadline() == NOW + PARAMETERS.ping_interval


def test_it_is_sent_alone_after_the_delay() -> None:
    machine = opened()
    machine.receive([incoming(1)], NOW)
    machine.receive([incoming(2)], NOW + 0.2)
    assert machine.next_deadline() == NOW + PARAMETERS.ack_delay

    machine.tick(NOW + 0.24)
    assert machine.flush(PLENTY) == []

    machine.tick(NOW + PARAMETERS.ack_delay)
    assert machine.flush(PLENTY) == [codec.encode_link(Ack(PacketId(2)))]
    assert not machine.has_output


def test_it_is_due_at_once_after_so_many_packets() -> None:
    machine = opened()
    machine.receive([incoming(1), incoming(2)], NOW)
    machine.receive([incoming(3)], NOW + 0.1)

    assert machine.next_deadline() == NOW + 0.1
    machine.tick(NOW + 0.1)
    assert machine.flush(PLENTY) == [codec.encode_link(Ack(PacketId(3)))]


def test_a_due_acknowledgement_is_not_sent_alone_if_a_packet_can_carry_it() -> None:
    machine = opened()
    machine.receive([incoming(1)], NOW)
    machine.tick(NOW + PARAMETERS.ack_delay)
    machine.submit(reply("a"))

    assert machine.flush(PLENTY) == [numbered("a", 1, 1)]
    assert not machine.has_output


def test_a_due_acknowledgement_follows_link_packets() -> None:
    machine = opened()
    machine.receive([incoming(1)], NOW)
    machine.tick(NOW + PARAMETERS.ack_delay)
    machine.send_link(Ping())

    assert machine.flush(PLENTY) == [b"[%b,%b]" % (codec.encode_link(Ping()), codec.encode_link(Ack(PacketId(1))))]


@pytest.mark.promise("P9")
def test_answers_wait_for_room_and_do_not_pile_up() -> None:
    """A client that asks and never reads must not make a node write without end (P9)."""
    machine = opened()
    for number in range(1, 6):
        machine.receive([Ping(), incoming(number)], NOW)
        machine.tick(NOW + PARAMETERS.ack_delay)
        assert machine.flush(0) == []

    assert machine.has_output
    assert machine.flush(PLENTY) == [codec.encode_link(Pong(PacketId(5)))]
    assert not machine.has_output


# --- Heartbeats -----------------------------------------------------------------------------------------------------


def test_a_ping_is_answered_and_acknowledges_as_well() -> None:
    machine = opened()
    machine.receive([incoming(1), Ping()], NOW)

    assert machine.flush(PLENTY) == [codec.encode_link(Pong(PacketId(1)))]
    assert machine.next_deadline() == NOW + PARAMETERS.ping_interval


def test_a_pong_is_sent_even_if_a_packet_carries_the_acknowledgement() -> None:
    machine = opened()
    machine.receive([Ping(), incoming(1)], NOW)
    machine.submit(reply("a"))

    assert machine.flush(PLENTY) == [b"[%b,%b]" % (codec.encode_link(Pong(PacketId(1))), numbered("a", 1))]


def test_a_pong_takes_its_room() -> None:
    machine = opened()
    machine.receive([Ping()], NOW)
    machine.submit(reply("a"))

    assert machine.flush(1) == [codec.encode_link(Pong(PacketId(0)))]


def test_the_server_pings_after_silence_and_only_once() -> None:
    machine = opened()
    assert not machine.tick(NOW + 19.9)
    assert not machine.has_output
    assert machine.next_deadline() == NOW + PARAMETERS.ping_interval

    assert not machine.tick(NOW + PARAMETERS.ping_interval)
    assert machine.flush(PLENTY) == [codec.encode_link(Ping())]
    assert machine.next_deadline() == NOW + PARAMETERS.ping_timeout

    assert not machine.tick(NOW + 30)
    assert not machine.has_output


def test_anything_heard_ends_the_silence() -> None:
    machine = opened()
    machine.tick(NOW + PARAMETERS.ping_interval)
    machine.receive([Ack(PacketId(0))], NOW + 30)

    assert machine.next_deadline() == NOW + 30 + PARAMETERS.ping_interval
    assert not machine.tick(NOW + 46)


@pytest.mark.parametrize("role", Role)
def test_either_side_gives_up_a_silent_peer(role: Role) -> None:
    machine = opened(role)

    assert not machine.tick(NOW + 44.9)
    assert machine.tick(NOW + PARAMETERS.ping_timeout)


def test_a_client_does_not_ping_by_itself() -> None:
    machine = opened(Role.CLIENT)
    assert machine.next_deadline() == NOW + PARAMETERS.ping_timeout

    machine.tick(NOW + 30)

    assert not machine.has_output


def test_a_renewed_token_travels_with_a_ping() -> None:
    machine = opened()
    machine.ping("token")

    assert machine.flush(PLENTY) == [codec.encode_link(Ping("token"))]


def test_without_a_connection_time_does_nothing() -> None:
    machine = sending("a")
    machine.receive([incoming(1)], NOW)
    machine.detach()

    assert machine.next_deadline() is None
    assert not machine.tick(NOW + 1000)
    assert not machine.flush(PLENTY)
