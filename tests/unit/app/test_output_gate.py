"""What waits for the backup, and for which of its frames (M2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryMetrics
from gateway.app.cluster.mirror.gate import GatedConnection, OutputGate
from gateway.core.wire.codes import MirrorMode

PATIENCE: Final = 60.0
"""Seconds: longer than any test, so that nothing leaves because the backup took too long."""


class Bench:
    """A gate, a session that waits for the backup, and the log that tells of it."""

    def __init__(self, mode: MirrorMode = MirrorMode.SYNC, *, has_backup: bool = True) -> None:
        self.now = 0.0
        self.tap = SimpleNamespace(is_queued=False, must_rewrite=False, is_whole=True, written=0, whole_in=0)
        self.log = SimpleNamespace(number=1, sequence=7, acknowledged=7, has_news=False, tap=lambda _session: self.tap)
        self.written: list[bytes] = []
        context: Any = SimpleNamespace(
            clock=SimpleNamespace(monotonic=lambda: self.now),
            metrics=MemoryMetrics(),
            parameters=SimpleNamespace(mirror=SimpleNamespace(patience=PATIENCE)),
        )
        source: Any = SimpleNamespace(log=self.log if has_backup else None, lag=lambda _now: 0.0)
        self.gate = OutputGate(context, source, mode_of=lambda _: mode, is_needed=lambda: True, notify=lambda *_: None)
        self.mode = mode
        self.connection = self.connect()

    def connect(self) -> GatedConnection:
        """Give a session a connection."""
        below: Any = SimpleNamespace(write=self.written.append, backlog=lambda: 0, is_closing=False)
        connection = GatedConnection(below, self.gate)
        connection.session = session = SimpleNamespace(dropped=False)  # type: ignore[assignment]
        connection.mode, connection.waits = self.mode, True
        session.connection = connection
        return connection

    def write(self, message: bytes) -> None:
        """Write what was numbered in this turn."""
        self.connection.write(message)

    def frame(self) -> None:
        """Write what has happened to the backup."""
        self.log.sequence += 1
        self.log.has_news = False


@pytest.fixture
async def bench() -> Any:
    bench = Bench()
    yield bench
    bench.gate.close()


@pytest.mark.promise("P13")
async def test_a_message_waits_for_the_frame_that_tells_of_it(bench: Bench) -> None:
    bench.tap.is_queued = True
    bench.write(b"told")
    assert bench.written == []
    bench.tap.is_queued = False
    bench.frame()
    bench.gate.progressed()
    assert bench.written == [], "it is written, and not taken in"
    bench.log.acknowledged = 8
    bench.gate.progressed()
    assert bench.written == [b"told"]


@pytest.mark.promise("P13")
async def test_a_message_does_not_wait_for_a_frame_that_never_comes(bench: Bench) -> None:
    """What had happened came to nothing: without traffic, the client would be told that there is no backup."""
    bench.tap.is_queued = True
    bench.write(b"first")
    bench.tap.is_queued = False
    bench.log.acknowledged = 6
    bench.gate.nothing_written()
    assert bench.written == [], "the frames before have yet to be taken in"
    bench.log.acknowledged = 7
    bench.gate.progressed()
    assert bench.written == [b"first"]


async def test_a_session_that_is_yet_to_be_copied_goes_on_waiting(bench: Bench) -> None:
    bench.tap.is_queued = True
    bench.write(b"first")
    bench.gate.nothing_written()
    assert bench.written == []
    bench.tap.is_queued = False
    bench.frame()
    bench.log.acknowledged = 8
    bench.gate.progressed()
    assert bench.written == [b"first"]


@pytest.mark.promise("P20")
async def test_connections_that_clients_gave_up_are_not_kept_while_there_is_no_backup() -> None:
    """With ``strict`` they hear nothing, and try again: nothing of the attempts before may stay."""
    bench = Bench(MirrorMode.STRICT, has_backup=False)
    given_up = [bench.connect() for _ in range(5)]
    for each in (*given_up, bench.connection):
        each.write(b"welcome")
    for each in given_up:
        each._connection.is_closing = True  # type: ignore[misc]
    bench.now = 2 * PATIENCE
    bench.gate._look()
    assert list(bench.gate._waiting) == list(bench.gate._undecided) == [bench.connection]
    assert (bench.written, [each.backlog() for each in given_up]) == ([], [0] * 5)
    bench.gate.close()


async def test_connections_that_were_given_up_are_not_kept_when_the_backup_goes() -> None:
    bench = Bench(MirrorMode.STRICT)
    bench.tap.is_queued = True
    bench.write(b"welcome")
    bench.connection._connection.is_closing = True  # type: ignore[misc]
    bench.now = 2 * PATIENCE
    bench.gate._look()
    bench.gate._source.log = None  # type: ignore[misc]
    bench.gate.progressed()
    assert not bench.gate._waiting
    assert not bench.gate._undecided
    bench.gate.close()
