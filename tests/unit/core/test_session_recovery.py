"""The session machine between connections: detached, reattached, restarted, exported (protocol 5.4 and 5.5)."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from gateway.core.stream.byte_form import part
from gateway.core.stream.export import RUNS
from gateway.core.stream.machine import SessionMachine, StreamParameters
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.sender import Sender
from gateway.core.stream.transitions import Role, State
from gateway.core.types import PacketId, TokenGeneration
from gateway.core.wire import codec
from gateway.core.wire.errors import LocalProtocolError, RemoteProtocolError
from gateway.core.wire.packets import Ack, Bye, Notice, Ping, SessionBody
from tests.support.machines import (
    NOW,
    PARAMETERS,
    PLENTY,
    array,
    bodies,
    body,
    incoming,
    numbered,
    opened,
    reply,
    resuming,
    sending,
    update,
)

# --- Detached -------------------------------------------------------------------------------------------------------


def test_a_server_numbers_what_waits_and_goes_on_for_an_absent_client() -> None:
    machine = opened()
    machine.submit(reply("a"))
    machine.submit(reply("b"))
    machine.detach()
    machine.submit(reply("c"))

    assert machine.state is State.DETACHED
    assert (machine.last_numbered, machine.waiting) == (3, 0)
    assert machine.flush(PLENTY) == []


def test_a_client_keeps_what_waits_without_a_number() -> None:
    machine = sending("a", role=Role.CLIENT)
    machine.detach()
    machine.submit(reply("b"))

    assert (machine.last_numbered, machine.waiting) == (1, 1)

    machine.resume()
    machine.reattach(received=PacketId(1), now=NOW)
    assert machine.flush(PLENTY) == [numbered("b", 2)]


def test_what_was_to_be_said_about_the_old_connection_is_forgotten() -> None:
    machine = opened()
    machine.receive([incoming(1), Ping()], NOW)
    machine.send_link(Ping())
    machine.tick(NOW + PARAMETERS.ack_delay)
    machine.detach()

    assert not machine.has_output


def test_a_full_buffer_at_the_detach_is_a_gap() -> None:
    machine = sending("a", "b", "c", "d", "e", "f")
    machine.detach()

    assert machine.state is State.GAP
    assert (machine.discarded, machine.unacknowledged, machine.waiting) == (2, 0, 0)
    assert machine.lost(PacketId(1), generation=None) is None


def test_a_full_buffer_while_away_is_a_gap() -> None:
    machine = sending("a", "b", "c")
    machine.receive([], NOW)
    machine.detach()
    machine.submit(reply("d"))
    assert machine.discarded == 0

    machine.submit(reply("e"))
    machine.submit(reply("f"))

    assert machine.state is State.GAP
    assert machine.discarded == 2
    assert machine.lost(PacketId(1)) == 5
    assert machine.lost(PacketId(4)) == 2


def test_a_buffer_that_overflows_while_resuming_is_a_gap_too() -> None:
    machine = resuming(sending("a", "b", "c", "d"))
    assert machine.can_reattach(received=PacketId(4), oldest=PacketId(1))

    machine.submit(reply("e"))

    assert machine.state is State.GAP
    assert not machine.can_reattach(received=PacketId(4), oldest=PacketId(1))


def test_after_a_gap_only_a_restart_leads_on() -> None:
    machine = sending("a", "b", "c", "d", "e")
    machine.detach()
    machine.resume()
    assert not machine.can_reattach(received=PacketId(4), oldest=PacketId(1))
    with pytest.raises(LocalProtocolError, match="reattach makes no sense in state gap"):
        machine.reattach(received=PacketId(4), now=NOW)

    machine.restart(NOW)

    assert machine.state is State.ATTACHED
    assert machine.discarded == 0


# --- Reattaching ----------------------------------------------------------------------------------------------------


def test_everything_unacknowledged_is_sent_again_in_order_before_anything_new() -> None:
    machine = resuming(sending("a", "b", "c"))

    assert machine.can_reattach(received=PacketId(1), oldest=PacketId(1))
    assert machine.reattach(received=PacketId(1), now=NOW) == 2
    machine.submit(reply("d"))

    assert machine.has_output
    assert machine.flush(PLENTY) == [array(numbered("b", 2), "c", "d")]
    assert not machine.has_output


def test_resending_stops_without_room_and_new_packets_wait_behind_it() -> None:
    machine = resuming(sending("a", "b"))
    machine.reattach(received=PacketId(0), now=NOW)
    machine.submit(update("t", "t1"))
    machine.submit(update("t", "t2"))

    assert machine.flush(0) == []
    assert machine.flush(1) == [numbered("a", 1)]
    assert machine.conflated == 1
    assert machine.has_output
    assert machine.flush(PLENTY) == [array(numbered("b", 2), body("t2", folded=1))]


def test_what_was_resent_stays_until_it_is_acknowledged() -> None:
    machine = resuming(sending("a", "b"))
    machine.reattach(received=PacketId(0), now=NOW)
    machine.flush(PLENTY)
    machine.detach()
    machine.resume()

    assert machine.reattach(received=PacketId(1), now=NOW) == 1
    assert machine.flush(PLENTY) == [numbered("b", 2)]


def test_resent_packets_carry_acknowledgements() -> None:
    machine = resuming(sending("a", "b"))
    machine.reattach(received=PacketId(0), now=NOW)
    machine.receive([incoming(1)], NOW)

    assert machine.flush(PLENTY) == [array(numbered("a", 1, 1), "b")]


def test_what_the_handshake_acknowledged_is_not_acknowledged_again() -> None:
    machine = opened()
    machine.receive([incoming(1)], NOW)
    resuming(machine).reattach(received=PacketId(0), now=NOW + 10)
    machine.submit(reply("a"))

    assert machine.next_deadline() == NOW + 10 + PARAMETERS.ping_interval
    assert machine.flush(PLENTY) == [numbered("a", 1)]


@pytest.mark.parametrize(
    ("received", "oldest", "possible"),
    [
        (1, 1, False),  # packet 2 has been acknowledged and is no longer kept
        (2, 1, True),
        (4, 1, True),
        (5, 1, False),  # never sent
        (4, 3, True),  # the client's next packet is the one awaited
        (4, 4, False),  # the client no longer has packet 3
    ],
)
def test_reattaching_is_possible_if_neither_side_misses_what_the_other_no_longer_has(
    received: int, oldest: int, possible: bool
) -> None:
    machine = sending("a", "b", "c", "d")
    machine.receive([incoming(1, received=2), incoming(2)], NOW)
    resuming(machine)

    assert machine.can_reattach(received=PacketId(received), oldest=PacketId(oldest)) is possible


def test_reattaching_is_decided_only_while_resuming() -> None:
    machine = sending("a")
    machine.receive([], NOW)

    assert not machine.can_reattach(received=PacketId(0), oldest=PacketId(1))
    machine.detach()
    assert not machine.can_reattach(received=PacketId(0), oldest=PacketId(1))


@pytest.mark.parametrize("received", [0, 3])
def test_a_peer_whose_packets_are_not_kept_cannot_be_reattached(received: int) -> None:
    machine = sending("a", "b")
    machine.receive([Ack(PacketId(1))], NOW)
    resuming(machine)

    with pytest.raises(RemoteProtocolError, match=f"cannot resend from packet {received + 1}: packets 2 to 2 are kept"):
        machine.reattach(received=PacketId(received), now=NOW)
    assert machine.state is State.RESUMING


def test_a_resume_that_is_cut_can_be_repeated() -> None:
    machine = resuming(sending("a"))
    machine.detach()
    assert machine.state is State.DETACHED

    machine.resume()
    assert machine.reattach(received=PacketId(0), now=NOW) == 1


# --- In which numbering the peer is ----------------------------------------------------------------------------------


def generations(*, began: int | None, presented: int | None, heard: bool) -> SessionMachine:
    machine = sending("a", "b")
    machine.detach()
    machine.resume()
    machine.restart(NOW, generation=None if began is None else TokenGeneration(began))
    machine.submit(reply("c"))
    machine.flush(PLENTY)
    if heard:
        machine.receive([], NOW)
    machine.detach()
    machine.resume()
    return machine


@pytest.mark.parametrize(
    ("began", "presented", "heard", "same"),
    [
        (7, 6, False, False),
        (7, 6, True, False),
        (7, 7, False, True),
        (7, 8, False, True),
        (None, 8, False, False),
        (None, 8, True, True),
        (7, None, False, False),
        (7, None, True, True),
        (None, None, False, False),
        (None, None, True, True),
    ],
)
def test_ids_of_an_earlier_numbering_are_not_compared_with_those_of_this_one(
    began: int | None, presented: int | None, heard: bool, same: bool
) -> None:
    machine = generations(began=began, presented=presented, heard=heard)
    generation = None if presented is None else TokenGeneration(presented)

    assert machine.can_reattach(received=PacketId(1), oldest=PacketId(1), generation=generation) is same
    assert machine.lost(PacketId(0), generation=generation) == (1 if same else None)


def test_a_session_opened_on_this_node_remembers_its_generation_too() -> None:
    machine = SessionMachine(Role.SERVER, PARAMETERS)
    machine.open(NOW, generation=TokenGeneration(3))
    machine.detach()
    machine.resume()

    assert not machine.can_reattach(received=PacketId(0), oldest=PacketId(1), generation=TokenGeneration(2))
    assert machine.can_reattach(received=PacketId(0), oldest=PacketId(1), generation=TokenGeneration(3))


# --- Restarting and ending ------------------------------------------------------------------------------------------


def test_a_restart_numbers_from_one_in_both_directions_and_drops_the_rest() -> None:
    machine = sending("a", "b")
    machine.receive([incoming(1), incoming(2)], NOW)
    machine.submit(reply("c"))
    resuming(machine).submit(reply("d"))
    assert machine.lost(PacketId(1)) == 3

    machine.restart(NOW)

    assert (machine.received, machine.last_numbered, machine.waiting, machine.unacknowledged) == (0, 0, 0, 0)
    machine.submit(reply("e"))
    assert machine.flush(PLENTY) == [numbered("e", 1)]
    assert machine.receive([incoming(1)], NOW) == bodies(1)


def test_a_restart_drops_what_a_client_had_not_numbered_yet() -> None:
    """It submits its unanswered requests again, and these are among them."""
    machine = sending("a", role=Role.CLIENT)
    machine.detach()
    machine.submit(reply("b"))
    machine.resume()
    machine.restart(NOW)

    assert machine.waiting == 0
    assert machine.flush(PLENTY) == []


def test_nothing_lost_is_told_as_zero() -> None:
    machine = resuming(sending("a", "b"))

    assert machine.lost(PacketId(2)) == 0
    assert machine.lost(PacketId(9)) == 0


def test_what_waits_counts_as_lost() -> None:
    machine = sending("a")
    machine.receive([], NOW)
    machine.submit(reply("b"))

    assert machine.lost(PacketId(1)) == 1


def test_conflated_updates_are_counted_since_the_last_connection() -> None:
    machine = opened()
    for name in ("t1", "t2", "t3"):
        machine.submit(update("t", name))
    machine.flush(0)
    resuming(machine)
    assert machine.conflated == 2

    machine.reattach(received=PacketId(0), now=NOW)

    assert machine.conflated == 0


def test_the_numbers_of_a_welcome_are_adopted() -> None:
    machine = sending("a", "b", "c", "d", "e")
    machine.adopt(replace(PARAMETERS, resend_packets=5, ping_timeout=50.0))

    assert machine.flush(PLENTY) == [numbered("e", 5)]
    assert machine.parameters.ping_timeout == 50.0


def test_a_closed_session_writes_only_its_last_words() -> None:
    machine = sending("a")
    machine.submit(reply("b"))
    machine.send_link(Bye("over"))
    machine.close()

    assert machine.state is State.CLOSED
    assert machine.is_settled
    assert machine.flush(PLENTY) == [codec.encode_link(Bye("over"))]
    assert not machine.has_output
    assert machine.next_deadline() is None
    machine.detach()
    machine.close()
    with pytest.raises(LocalProtocolError, match="submit makes no sense in state closed"):
        machine.submit(reply("c"))


def test_a_closed_session_has_nothing_to_resend() -> None:
    machine = resuming(sending("a", "b"))
    machine.reattach(received=PacketId(0), now=NOW)
    machine.close()

    assert not machine.has_output
    assert machine.last_numbered == 2


# --- As a value -----------------------------------------------------------------------------------------------------


def interesting_machines() -> dict[str, SessionMachine]:
    flowing = sending("a", "b")
    flowing.receive([incoming(1), Ping(), incoming(1)], NOW)
    flowing.send_link(Ping("token"))
    flowing.ping()

    folded = opened()
    for name in ("t1", "t2"):
        folded.submit_run(Run.of(update("t", name)))
    folded.submit(reply("r"))
    folded.flush(0)

    gap = sending("a", "b", "c", "d", "e")
    gap.detach()

    resent = resuming(sending("a", "b", "c"))
    resent.reattach(received=PacketId(0), now=NOW)
    resent.flush(1)

    acknowledging = opened(Role.CLIENT)
    acknowledging.receive([incoming(1)], NOW)
    acknowledging.tick(NOW + 1)

    told = SessionMachine(Role.SERVER, PARAMETERS)
    told.open(NOW, generation=TokenGeneration(5))

    closed = sending("a")
    closed.close()
    return {
        "fresh": SessionMachine(Role.CLIENT, PARAMETERS),
        "flowing": flowing,
        "folded": folded,
        "gap": gap,
        "resent": resent,
        "acknowledging": acknowledging,
        "told": told,
        "closed": closed,
    }


@pytest.mark.parametrize("name", interesting_machines())
def test_a_restored_machine_is_where_the_exported_one_was(name: str) -> None:
    machine = interesting_machines()[name]
    exported = machine.export(NOW + 2)
    restored = SessionMachine.restore(exported, NOW + 2)

    assert restored.export(NOW + 2) == exported
    assert repr(restored) == repr(machine)
    assert restored.next_deadline() == machine.next_deadline()
    assert restored.exceeds(packets=1, size=1) == machine.exceeds(packets=1, size=1)
    if machine.state is not State.FRESH:
        assert restored.flush(20) == machine.flush(20)
        assert restored.flush(PLENTY) == machine.flush(PLENTY)
        assert restored.export(NOW + 3) == machine.export(NOW + 3)


def test_on_another_clock_as_much_time_has_passed() -> None:
    machine = sending("a")
    machine.receive([incoming(1)], NOW)

    restored = SessionMachine.restore(machine.export(NOW + 0.125), 5.0)

    assert restored.next_deadline() == 5.0 + PARAMETERS.ack_delay - 0.125
    assert restored.export(5.0) == machine.export(NOW + 0.125)


def test_what_is_held_twice_is_exported_once() -> None:
    run = Run.of(Outgoing("t", b"x" * 200))
    once, twice = opened(), opened()
    once.submit_run(run)
    twice.submit_run(run)
    twice.submit_run(run)

    assert len(twice.export(NOW)) < len(once.export(NOW)) + 100
    first, second = SessionMachine.restore(twice.export(NOW), NOW).kept()
    assert first is second


def test_every_attribute_of_a_machine_is_exported() -> None:
    """A new attribute that ``export`` forgets would be lost at a handoff; this test makes whoever adds it look."""
    exported_as = {
        "_buffer": {"next", "kept"},
        "_outbox": {"waiting", "folded", "conflated", "spared"},
        "parameters": {"bounds", "times"},
        "_heard": {"silent"},
    }
    names = {
        name
        for slot in (*Sender.__slots__, *SessionMachine.__slots__)
        for name in exported_as.get(slot, {slot.lstrip("_")})
    }

    assert names | {RUNS} == set(orjson.loads(part(opened().export(NOW))[0]))


def test_every_number_of_a_policy_is_exported() -> None:
    parameters = StreamParameters(
        resend_packets=1,
        resend_bytes=2,
        message_bytes=3,
        ack_packets=4,
        ack_delay=5.0,
        ping_interval=6.0,
        ping_timeout=7.0,
    )

    assert SessionMachine.restore(SessionMachine(Role.CLIENT, parameters).export(NOW), NOW).parameters == parameters


def test_exports_differ_if_their_machines_do() -> None:
    machine = sending("a")
    before = machine.export(NOW)
    machine.submit(reply("b"))

    assert machine.export(NOW) != before


def test_a_real_body_survives_the_way_through_the_codec() -> None:
    sender, receiver = opened(), opened(Role.CLIENT)
    notice: SessionBody = Notice("values_reread", "current values follow")
    assert isinstance(notice, Notice)
    sender.submit(Outgoing(None, codec.encode_notice(notice)))

    (message,) = sender.flush(PLENTY)

    assert receiver.receive(codec.decode_from_server(message), NOW) == [notice]
