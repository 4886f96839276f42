"""What it costs to announce that a session lost its connection and came back, and to count updates for the journal."""

# ruff: noqa: D103, S101 - names tell what is measured; results are checked as in tests

from __future__ import annotations

import secrets
from types import SimpleNamespace
from typing import Any, Final

from pytest_benchmark.fixture import BenchmarkFixture

from gateway.adapters.memory import MemoryEventLog, MemoryGrid, MemoryGridServer, MemoryMetrics
from gateway.app.journal import Announcer, Journal, JournalOptions
from gateway.app.journal.session_events import SessionDisconnected, SessionResumed
from gateway.app.journal.traffic import Traffic
from gateway.app.runtime.clock import Clock
from gateway.catalogue.log_event import LogEvent
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, SessionId, TopicPath
from gateway.core.wire.codes import FailoverReason, Outcome

ME: Final = NodeRef(NodeId("n1"), Incarnation("3f9ab2c41d5e"))
OTHER: Final = NodeRef(NodeId("n2"), Incarnation("77b0c8e2a91f"))
SESSIONS: Final = 1_000
"""That come back together; what is told of them is taken out at once, as the writer does."""
TOPICS: Final = [TopicPath(f"market/{number}") for number in range(500)]


class _Unheard:
    """A log of which nothing is kept."""

    def emit(self, event: LogEvent, /, **fields: object) -> None:
        """See ``EventLog.emit``."""


def test_a_thousand_sessions_lose_their_connection_and_come_back(benchmark: BenchmarkFixture) -> None:
    grid = MemoryGrid(MemoryGridServer(), node=ME)
    journal = Journal(
        ME, JournalOptions(release="1.2.3"), grid=grid, clock=Clock(), metrics=MemoryMetrics(), log=MemoryEventLog()
    )
    announce = Announcer(metrics=MemoryMetrics(), log=_Unheard(), journal=journal)
    sessions: list[Any] = [
        SimpleNamespace(
            id=SessionId(secrets.token_urlsafe(16)),
            epoch=Epoch(3),
            roles=frozenset(),
            principal=f"user-{number}",
            outcome=Outcome.FAILED_OVER,
            deduplicated=0,
            machine=SimpleNamespace(waiting=0),
        )
        for number in range(SESSIONS)
    ]

    def lose_and_resume() -> int:
        for session in sessions:
            announce(SessionDisconnected(session, None))
        for session in sessions:
            announce(
                SessionResumed(session=session, reason=FailoverReason.OTHER_NODE.value, away=1_200, previous=OTHER),
            )
        told = 0
        while batches := journal._buffer.batches():  # noqa: SLF001 - what the writer does, without a grid
            for batch in batches:
                journal._buffer.written(batch)  # noqa: SLF001
                told += batch.count
        return told

    told = benchmark(lose_and_resume)
    assert told == 2 * SESSIONS


def test_five_hundred_updates_are_counted(benchmark: BenchmarkFixture) -> None:
    traffic = Traffic()

    def count() -> None:
        for topic in TOPICS:
            traffic.delivered(topic, 100, 1)

    benchmark(count)
    everything, _ = traffic.take()
    assert everything.deliveries % len(TOPICS) == 0
