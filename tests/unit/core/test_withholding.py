"""Updates of topics to which the right was withdrawn, wherever they wait (protocol 6.5.4)."""

from __future__ import annotations

import pytest

from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.outbox import Outbox
from gateway.core.stream.resend import ResendBuffer
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.sender import WITHHELD
from gateway.core.stream.transitions import Role, State
from gateway.core.types import PacketId
from gateway.core.wire import codec
from gateway.core.wire.packets import NoticeCode
from tests.support.machines import PARAMETERS

PLENTY = 1 << 20


def update(topic: str, text: str = "") -> Outgoing:
    return Outgoing(topic, f'"type":"update","topic":"{topic}","text":"{text}"}}'.encode())


REPLY = Outgoing(None, b'"type":"reply"}')


def secret(topic: str) -> bool:
    return topic.startswith("secret")


def topics(packets: object) -> list[str | None]:
    return [packet.topic for packet in packets]  # type: ignore[attr-defined]


# --- Runs -------------------------------------------------------------------------------------------------------------


def test_a_run_without_such_updates_is_the_same_object() -> None:
    for run in (Run.of(update("a")), Run.of(REPLY), Run.of(update("a"), REPLY, update("b"))):
        assert run.without(secret) is run
        assert run.without(secret, WITHHELD) is run


def test_a_run_is_left_without_them() -> None:
    run = Run.of(update("a"), update("secret/x"), REPLY, update("secret/y"))
    left = run.without(secret)
    assert left is not None
    assert topics(left.packets) == ["a", None]
    assert left.size == len(update("a").body) + len(REPLY.body)
    assert Run.of(update("secret/x")).without(secret) is None
    assert run.count == 4  # other sessions share it


def test_a_stand_in_takes_their_place() -> None:
    run = Run.of(update("secret/x"), update("a")).without(secret, WITHHELD)
    assert run is not None
    assert run.packets == (WITHHELD, update("a"))


# --- What waits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folded", [False, True])
def test_what_waits_is_dropped(folded: bool) -> None:
    outbox = Outbox()
    outbox.push(Run.of(update("secret/x"), update("a")))
    outbox.push(Run.of(update("secret/y")))
    outbox.push(Run.of(REPLY))
    if folded:
        outbox.conflate()
    outbox.withhold(secret)
    assert topics(outbox) == ["a", None]
    assert outbox.count == 2
    assert outbox.bytes == len(update("a").body) + len(REPLY.body)
    assert outbox.is_folded == folded
    taken = outbox.take(packets=9, size=PLENTY)
    assert sum(run.count for run in taken) == 2
    assert outbox.bytes == 0


@pytest.mark.parametrize("folded", [False, True])
def test_an_outbox_of_nothing_else_begins_anew(folded: bool) -> None:
    outbox = Outbox()
    outbox.push(Run.of(update("secret/x")))
    if folded:
        outbox.conflate()
    outbox.withhold(secret)
    assert (outbox.count, outbox.bytes, outbox.is_folded) == (0, 0, False)


# --- What is numbered -------------------------------------------------------------------------------------------------


def test_numbers_stay_and_what_they_stood_for_is_gone() -> None:
    buffer = ResendBuffer(packets=10, size=PLENTY)
    buffer.append(Run.of(update("a"), update("secret/x"), update("secret/y")))
    buffer.append(Run.of(update("secret/z")))
    buffer.append(Run.of(REPLY))
    buffer.acknowledge(PacketId(2))
    buffer.withhold(secret, WITHHELD)
    assert list(buffer) == [WITHHELD, WITHHELD, REPLY]
    assert (buffer.oldest, buffer.next, buffer.count) == (3, 6, 3)
    assert buffer.bytes == 2 * len(WITHHELD.body) + len(REPLY.body)
    buffer.acknowledge(PacketId(5))
    assert buffer.bytes == 0


def opened() -> SessionMachine:
    machine = SessionMachine(Role.SERVER, PARAMETERS)
    machine.open(0.0)
    return machine


def written(messages: list[bytes]) -> list[tuple[int, object]]:
    packets = [packet for message in messages for packet in codec.decode_from_server(message)]
    return [(packet.id, packet.body) for packet in packets]  # type: ignore[union-attr]


def real(topic: str) -> Outgoing:
    return Outgoing(topic, codec.encode_update(topic, 1, "1-1", b"1", snapshot=False))  # type: ignore[arg-type]


def test_a_client_that_is_slow_is_not_sent_what_waits_for_it() -> None:
    machine = opened()
    machine.submit_run(Run.of(real("a"), real("secret/x")))
    assert machine.flush(0) == []
    machine.withhold(secret)
    assert [body.topic for _, body in written(machine.flush(PLENTY))] == ["a"]  # type: ignore[attr-defined]
    assert not machine.has_output


def test_a_client_that_was_away_is_sent_stand_ins_and_the_rest() -> None:
    machine = opened()
    machine.detach()
    machine.submit_run(Run.of(real("a"), real("secret/x")))
    machine.submit(real("b"))
    machine.withhold(secret)
    assert machine.state is State.DETACHED
    machine.resume()
    assert machine.reattach(received=PacketId(0), now=1.0) == 3
    (one, first), (two, second), (three, third) = written(machine.flush(PLENTY))
    assert (one, two, three) == (1, 2, 3)
    assert first.topic == "a"  # type: ignore[attr-defined]
    assert second.code == NoticeCode.WITHHELD  # type: ignore[attr-defined]
    assert third.topic == "b"  # type: ignore[attr-defined]
