"""What the node's half of a session costs: a request on its way, a reply, and a handoff."""

# ruff: noqa: D103, S101 - names tell what is measured; results are checked as in tests

from __future__ import annotations

from typing import Final

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.micro.test_session import OUTGOING, ROOM, attached
from gateway.core.session.export import export, restore
from gateway.core.session.server_session import ServerSession
from gateway.core.topics.selections import Selections
from gateway.core.types import GridGeneration, RequestNumber, SessionId
from gateway.core.wire import codec
from gateway.core.wire.packets import Publish, Reply

TEN: Final = 10
"""Publishes of one message."""
KEPT: Final = 50
"""Updates that a client has not acknowledged, each in a run of its own."""
PUBLISHES: Final = tuple(Publish(RequestNumber(number), "market/17", b"1" * 98) for number in range(1, TEN + 1))
REPLY: Final = codec.encode_reply(Reply(request=RequestNumber(1)))


def session(kept: int = 0) -> ServerSession:
    held = ServerSession(
        SessionId("01890a5d-ac96-774b-bcce-b302099a8057"),
        principal="alice",
        window=60.0,
        machine=attached(),
        declared=GridGeneration(1),
    )
    held.properties = {"$client": "python/1"}
    held.selections = Selections.from_wire(("+market/**", "+news/*", "-market/9"))
    for _ in range(kept):
        held.machine.submit(OUTGOING)
    held.machine.flush(ROOM)
    return held


def test_ten_publishes_wait_and_are_answered(benchmark: BenchmarkFixture) -> None:
    held = session()
    pending = held.pending

    def wait_and_finish() -> None:
        held.newest = RequestNumber(0)
        for work in PUBLISHES:
            if held.admit(work, grid_available=True):
                pending.put(work)
        pending.start()
        pending.finish()

    benchmark(wait_and_finish)
    assert not pending


def test_a_reply_is_written_and_acknowledged(benchmark: BenchmarkFixture) -> None:
    held = session()
    machine = held.machine

    def reply() -> None:
        held.reply_run([REPLY], RequestNumber(1), RequestNumber(1))
        machine.flush(ROOM)
        machine.receive_ack(machine.last_numbered, 0.0)

    benchmark(reply)
    assert held.settled() == 1


def test_export_of_an_idle_session(benchmark: BenchmarkFixture) -> None:
    assert benchmark(export, session(), 0.0)


def test_restore_of_an_idle_session(benchmark: BenchmarkFixture) -> None:
    assert benchmark(restore, export(session(), 0.0), 0.0).machine.unacknowledged == 0


def test_export_with_fifty_packets_that_are_kept(benchmark: BenchmarkFixture) -> None:
    assert benchmark(export, session(KEPT), 0.0)


def test_restore_with_fifty_packets_that_are_kept(benchmark: BenchmarkFixture) -> None:
    assert benchmark(restore, export(session(KEPT), 0.0), 0.0).machine.unacknowledged == KEPT
