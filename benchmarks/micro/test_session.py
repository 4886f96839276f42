"""One packet's way through outbox, resend buffer and session machine."""

# ruff: noqa: D103, S101 - names tell what is measured; results are checked as in tests

from __future__ import annotations

from typing import Final

from pytest_benchmark.fixture import BenchmarkFixture

from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.messages import SharedFrame
from gateway.core.stream.outbox import Outbox
from gateway.core.stream.parameters import StreamParameters
from gateway.core.stream.resend import ResendBuffer
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import Role
from gateway.core.types import EventId, PacketId, Version
from gateway.core.wire import codec
from gateway.core.wire.fast_path import acknowledged
from gateway.core.wire.packets import Ack, Pong

PARAMETERS: Final = StreamParameters(
    resend_packets=1_024,
    resend_bytes=1_048_576,
    message_bytes=65_536,
    ack_packets=64,
    ack_delay=0.25,
    ping_interval=20.0,
    ping_timeout=45.0,
)
"""The defaults of a node."""
BODY: Final = codec.encode_update("market/17", Version(8), EventId("25-1-8"), b'"%b"' % (b"x" * 98), snapshot=False)
OUTGOING: Final = Outgoing("market/17", BODY)
RUN: Final = Run.of(OUTGOING)
PONG: Final = codec.encode_link(Pong(PacketId(0)))
TEN: Final = 10
"""Updates that wait when a busy session is written."""
ROOM: Final = 65_536


def attached() -> SessionMachine:
    machine = SessionMachine(Role.SERVER, PARAMETERS)
    machine.open(0.0)
    return machine


def test_outbox_push_and_take(benchmark: BenchmarkFixture) -> None:
    outbox = Outbox()

    def push_and_take() -> None:
        outbox.push(RUN)
        outbox.take(packets=TEN, size=ROOM)

    benchmark(push_and_take)
    assert not outbox


def test_resend_append_and_acknowledge(benchmark: BenchmarkFixture) -> None:
    buffer = ResendBuffer(packets=PARAMETERS.resend_packets, size=PARAMETERS.resend_bytes)

    def append_and_acknowledge() -> None:
        buffer.append(RUN)
        buffer.acknowledge(PacketId(buffer.next - 1))

    benchmark(append_and_acknowledge)
    assert not buffer


def test_one_update_to_the_wire_and_acknowledged(benchmark: BenchmarkFixture) -> None:
    machine = attached()

    def deliver() -> list[bytes]:
        machine.submit(OUTGOING)
        messages = machine.flush(ROOM)
        machine.receive((Ack(machine.last_numbered),), 0.0)
        return messages

    assert len(benchmark(deliver)) == 1


def test_a_ping_and_its_answer(benchmark: BenchmarkFixture) -> None:
    machine = attached()
    interval = machine.parameters.ping_interval
    now = 0.0

    def ping() -> bool:
        nonlocal now
        now += interval
        machine.tick(now)
        messages = machine.flush(ROOM)
        received = acknowledged(PONG)
        assert messages
        assert received is not None
        return machine.receive_ack(received, now)

    assert benchmark(ping)


def test_ten_updates_to_the_wire_and_acknowledged(benchmark: BenchmarkFixture) -> None:
    machine = attached()

    def deliver() -> list[bytes]:
        for _ in range(TEN):
            machine.submit(OUTGOING)
        messages = machine.flush(ROOM)
        machine.receive((Ack(machine.last_numbered),), 0.0)
        return messages

    assert len(benchmark(deliver)) == 1


def test_ten_shared_updates_to_the_wire_and_acknowledged(benchmark: BenchmarkFixture) -> None:
    machine = attached()
    run = Run.of(*[OUTGOING] * TEN)

    def deliver() -> list[bytes]:
        machine.submit_run(run)
        messages = machine.flush(ROOM)
        machine.receive((Ack(machine.last_numbered),), 0.0)
        return messages

    assert len(benchmark(deliver)) == 1


def test_a_shared_update_sent_at_once_and_acknowledged(benchmark: BenchmarkFixture) -> None:
    """The way of an update that many sessions are sent alone: the hottest there is."""
    machine = attached()
    frame = SharedFrame(RUN)

    def deliver() -> bytes | None:
        message = machine.send_now(frame, ROOM)
        machine.receive_ack(machine.last_numbered, 0.0)
        return message

    assert benchmark(deliver)


def test_an_update_for_an_absent_client(benchmark: BenchmarkFixture) -> None:
    machine = attached()
    machine.detach()

    def deliver() -> None:
        machine.submit_run(RUN)
        machine._buffer.acknowledge(machine.last_numbered)  # noqa: SLF001 - else it would be full

    benchmark(deliver)
    assert machine.last_numbered


def test_cut_and_reattach_with_ten_updates(benchmark: BenchmarkFixture) -> None:
    machine = attached()

    def cut_and_reattach() -> list[bytes]:
        machine.receive((Ack(machine.last_numbered),), 0.0)
        held = machine.last_numbered
        machine.detach()
        for _ in range(TEN):
            machine.submit(OUTGOING)
        machine.resume()
        machine.reattach(received=held, now=0.0)
        return machine.flush(ROOM)

    assert len(benchmark(cut_and_reattach)) == 1
