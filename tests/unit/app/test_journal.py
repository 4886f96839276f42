"""The journal of one node on a grid that becomes unreachable, refuses and is slow, in virtual time."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest

from gateway.adapters.memory import MemoryEventLog, MemoryGrid, MemoryGridServer, MemoryMetrics
from gateway.app.journal import Announcer, Journal, JournalOptions, writer
from gateway.app.journal.buffer import BATCH_BYTES, BATCH_EVENTS, Buffer
from gateway.app.journal.node_events import (
    Expiry,
    GridLost,
    GridRegained,
    LeaseFoundLost,
    NodeExpired,
    NodeStarted,
    TakeoverFinished,
)
from gateway.app.journal.principals import hashed_with
from gateway.app.journal.session_events import ResumeRefused, SessionExpired, SessionOrphaned
from gateway.app.journal.traffic import ROOTS_TOLD, THE_REST, Traffic
from gateway.app.runtime.clock import Clock
from gateway.catalogue import journal_log_events, journal_metrics
from gateway.core.journal import JOURNAL_PARTITIONS, VERSION, Record, read_records
from gateway.core.types import (
    Epoch,
    EventId,
    GridGeneration,
    Incarnation,
    NodeId,
    NodeRef,
    RequestNumber,
    SessionId,
    TopicPath,
    Version,
)
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    Appended,
    ExpiredLease,
    GridRefused,
    GridUnavailable,
    JournalBatch,
    Ownership,
    PublishCommand,
    Published,
)
from tests.support.clock import eventually

ME = NodeRef(NodeId("n1"), Incarnation("run1"))
NOON = 1_800_000_000.0


class Bench:
    """A journal and what came of it."""

    def __init__(self, **options: Any) -> None:
        self.server = MemoryGridServer()
        self.grid = MemoryGrid(self.server, node=ME, timeout=0.05)
        self.metrics = MemoryMetrics()
        self.log = MemoryEventLog()
        self.journal = Journal(
            ME,
            JournalOptions(release="1.2.3", **options),
            grid=self.grid,
            clock=Clock(wall=lambda: NOON, random=lambda: 0.0),
            metrics=self.metrics,
            log=self.log,
        )
        self.announce = Announcer(metrics=self.metrics, log=MemoryEventLog(), journal=self.journal)

    def tell(self, *numbers: int) -> None:
        """Tell of sessions that ended, whose ids are the numbers."""
        for number in numbers:
            self.announce(SessionExpired(SessionId(f"s{number}"), Epoch(1)))

    def records(self) -> list[Record]:
        """Read what is in the grid, in the order of the numbers."""
        found = []
        for partition in range(JOURNAL_PARTITIONS):
            stream = self.server.journal(partition)
            for entry in () if stream is None else stream.entries:
                lines = [each for each in read_records(entry.events) if isinstance(each, dict)]
                assert len(lines) == entry.count, "every line is a record"
                found += lines
        return sorted(found, key=number_of)

    async def written(self, count: int) -> list[Record]:
        """Wait until so many records are in the grid."""
        await eventually(lambda: len(self.records()) >= count, message=f"{count} records")
        found = self.records()
        assert len(found) == count
        return found


def number_of(told: Record) -> int:
    return int(told["id"].rpartition("-")[2])


@asynccontextmanager
async def running(monkeypatch: pytest.MonkeyPatch, **options: Any) -> AsyncIterator[Bench]:
    """Run the writer of a journal that does not wait long for anything."""
    monkeypatch.setattr(writer, "GATHER", 0.001)
    monkeypatch.setattr(writer, "FIRST_RETRY", 0.001)
    bench = Bench(**options)
    await bench.grid.start()
    assert bench.journal.writer is not None
    task = asyncio.create_task(bench.journal.writer.run())
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.wait([task])
        await bench.grid.close()


# --- what is told -----------------------------------------------------------------------------------------------------


async def test_events_are_numbered_without_a_hole_and_sessions_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as bench:
        bench.announce(NodeStarted())
        bench.tell(1, 2, 3, 1)
        records = await bench.written(5)
        await eventually(lambda: bench.metrics.count(journal_metrics.JOURNAL_EVENTS) == 5)
    assert [each["id"] for each in records] == [f"run1-{number}" for number in range(1, 6)]
    assert records[0] == {
        "version": VERSION,
        "id": "run1-1",
        "type": "node_started",
        "at": 1_800_000_000_000_000,
        "node": "n1",
        "incarnation": "run1",
        "release": "1.2.3",
    }
    assert [each.get("session") for each in records] == [None, "s1", "s2", "s3", "s1"]


async def test_nothing_is_done_without_options() -> None:
    metrics, log = MemoryMetrics(), MemoryEventLog()
    grid = MemoryGrid(MemoryGridServer(), node=ME)
    journal = Journal(ME, None, grid=grid, clock=Clock(), metrics=metrics, log=log)
    announce = Announcer(metrics=metrics, log=log, journal=journal)
    announce(NodeStarted())
    announce(
        ResumeRefused(session=None, reason=ErrorCode.TOKEN_INVALID, address="192.0.2.1", away=5, at_admin_port=False),
    )
    announce(LeaseFoundLost(ME))
    await journal.close()
    assert (journal.writer, journal.traffic) == (None, None)
    assert metrics.gauge(journal_metrics.JOURNAL_WAITING) == 0


async def test_a_takeover_bounds_the_life_of_the_dead_node(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = NodeRef(NodeId("n2"), Incarnation("run2"))
    async with running(monkeypatch) as bench:
        bench.announce(NodeExpired(Expiry.of(dead, ExpiredLease(length=6.0, ago=1.5), now=NOON)))
        expiry = Expiry.of(dead, ExpiredLease(length=6.0, ago=2.0), now=NOON)
        bench.announce(SessionOrphaned(SessionId("s1"), Epoch(4), expiry))
        bench.announce(TakeoverFinished(dead, 1))
        expired, orphaned, taken = await bench.written(3)
    assert (expired["peer"], expired["since"], expired["until"]) == ("n2", (NOON - 7.5) * 1e6, (NOON - 1.5) * 1e6)
    assert (orphaned["session"], orphaned["epoch"]) == ("s1", 4)
    assert (orphaned["peer_incarnation"], orphaned["since"], orphaned["until"]) == (
        *("run2", (NOON - 8) * 1e6, (NOON - 2) * 1e6),
    )
    assert (taken["type"], taken["count"]) == ("node_taken_over", 1)


async def test_an_unreachable_grid_is_told_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as bench:
        bench.announce(GridLost())
        bench.announce(GridRegained(GridGeneration(2), lost_writes=True, away=1.5))
        lost, regained = await bench.written(2)
    assert lost["type"] == "grid_lost"
    assert (regained["generation"], regained["lost_writes"]) == (2, True)
    assert regained["away_ms"] == 1500


def test_hashed_principals_can_be_told_apart_and_not_guessed() -> None:
    named = hashed_with(b"k" * 32)
    assert named("alice") == named("alice") != named("bob")
    assert named("alice") == "hmac:" + hmac.new(b"k" * 32, b"alice", sha256).hexdigest()
    assert hashed_with(b"q" * 32)("alice") != named("alice")
    assert named("\ud800").startswith("hmac:"), "whatever a principal is made of"


# --- a grid that does not take it -------------------------------------------------------------------------------------


async def test_what_is_told_while_the_grid_is_unreachable_is_written_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(monkeypatch) as bench:
        bench.server.go_away()
        bench.tell(*range(100))
        await eventually(
            lambda: bench.journal.writer is not None and bench.journal.writer.trouble == "grid_unreachable"
        )
        assert bench.metrics.gauge(journal_metrics.JOURNAL_WAITING) == 100
        bench.server.come_back()
        records = await bench.written(100)
    assert [number_of(each) for each in records] == list(range(1, 101))
    assert bench.metrics.count(journal_metrics.JOURNAL_DROPPED, label="grid_unreachable") == 0


async def test_a_batch_whose_answer_was_lost_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as bench:
        for round_ in range(20):
            bench.server.lose_answers()
            bench.tell(round_)
            await bench.written(round_ + 1)
    assert [number_of(each) for each in bench.records()] == list(range(1, 21))


async def test_what_finds_no_room_is_counted_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch, buffer_events=10) as bench:
        bench.server.go_away()
        bench.tell(0)
        await eventually(
            lambda: bench.journal.writer is not None and bench.journal.writer.trouble == "grid_unreachable"
        )
        bench.tell(*range(1, 25))
        assert bench.log.of(journal_log_events.JOURNAL_FULL) == [{"reason": "grid_unreachable"}]
        assert bench.metrics.count(journal_metrics.JOURNAL_DROPPED, label="grid_unreachable") == 15
        bench.server.come_back()
        records = await bench.written(11)
        bench.tell(99)
        await bench.written(12)
    told = records[-1]
    assert (told["type"], told["count"], told["reason"]) == ("events_dropped", 15, "grid_unreachable")
    assert [number_of(each) for each in records] == [*range(1, 11), 26], "the numbers of what was dropped are missing"
    assert not bench.log.undeclared


async def test_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch, buffer_bytes=2_000) as bench:
        bench.server.go_away()
        bench.tell(*range(100))
        waiting = bench.metrics.gauge(journal_metrics.JOURNAL_WAITING)
        assert 5 < waiting < 20
        dropped = sum(bench.metrics.counts(journal_metrics.JOURNAL_DROPPED).values())
        assert waiting + dropped == 100
        bench.server.come_back()
        records = await bench.written(int(waiting) + 1)
        assert records[-1]["count"] == dropped


class Refusing:
    """A ``JournalStore`` that refuses one partition, as Redis does without memory."""

    def __init__(self, inner: Any, partition: int) -> None:
        self.inner = inner
        self.partition = partition
        self.refusing = True
        self.refused = 0

    async def append(self, batches: Sequence[JournalBatch]) -> list[Appended | Exception]:
        if not self.refusing:
            return list(await self.inner.append(batches))
        taken = [each for each in batches if each.partition != self.partition]
        self.refused += len(batches) - len(taken)
        results = dict(zip(taken, await self.inner.append(taken), strict=True))
        return [results.get(each, GridRefused("OOM")) for each in batches]


async def test_a_refused_partition_holds_up_no_other_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as bench:
        refusing = Refusing(bench.grid.journal, 3)
        monkeypatch.setattr(bench.grid, "_journal", refusing)
        bench.tell(*range(200))
        await eventually(lambda: refusing.refused >= 2 and len(bench.records()) > 150)
        assert bench.server.journal(3) is None
        bench.tell(*range(200, 300))
        await eventually(lambda: len(bench.records()) > 240)
        refusing.refusing = False
        records = await bench.written(300)
    assert [number_of(each) for each in records] == list(range(1, 301))


async def test_a_stop_writes_what_is_left() -> None:
    bench = Bench()
    await bench.grid.start()
    bench.tell(*range(3 * BATCH_EVENTS))
    await bench.journal.close()
    assert len(bench.records()) == 3 * BATCH_EVENTS
    assert not bench.log.events
    bench.tell(1)  # too late, and no harm
    assert len(bench.records()) == 3 * BATCH_EVENTS


async def test_a_stop_without_the_grid_says_what_is_missing() -> None:
    bench = Bench()
    await bench.grid.start()
    bench.server.go_away()
    bench.tell(1, 2, 3)
    await bench.journal.close()
    assert bench.log.of(journal_log_events.JOURNAL_INCOMPLETE) == [{"events": 3}]
    assert bench.metrics.count(journal_metrics.JOURNAL_DROPPED, label="stopped") == 3


async def test_a_stop_does_not_wait_long_for_a_grid_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FLUSH_TIMEOUT", 0.01)
    bench = Bench()
    await bench.grid.start()
    bench.server.stall()
    bench.tell(1)
    await bench.journal.close()
    assert bench.log.of(journal_log_events.JOURNAL_INCOMPLETE) == [{"events": 1}]


async def test_what_the_cap_cuts_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as bench:

        async def append(batches: Sequence[JournalBatch]) -> list[Appended | Exception]:
            return [Appended(cut_unread=3, cut_unclaimed=2) for _ in batches]

        monkeypatch.setattr(bench.grid.journal, "append", append)
        bench.tell(1)
        await eventually(lambda: bench.metrics.count(journal_metrics.JOURNAL_CUT, label="unread") == 3)
    assert bench.metrics.count(journal_metrics.JOURNAL_CUT, label="unclaimed") == 2


async def test_an_unavailable_partition_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot of a Redis Cluster that is being moved."""
    async with running(monkeypatch) as bench:
        real, calls = bench.grid.journal.append, 0

        async def append(batches: Sequence[JournalBatch]) -> list[Appended | Exception]:
            nonlocal calls
            calls += 1
            return list(await real(batches)) if calls > 3 else [GridUnavailable("moved") for _ in batches]

        monkeypatch.setattr(bench.grid.journal, "append", append)
        bench.tell(1, 2)
        await bench.written(2)


# --- the buffer -------------------------------------------------------------------------------------------------------


def test_batches_are_bounded_and_come_again_as_they_were() -> None:
    buffer = Buffer(most_events=10_000, most_bytes=10_000_000)
    for _ in range(BATCH_EVENTS + 1):
        buffer.put(2, b"x")
    for _ in range(3):
        buffer.put(5, b"y" * (BATCH_BYTES // 2))
    first, large = buffer.batches()
    assert (first.partition, first.number, first.count) == (2, 1, BATCH_EVENTS)
    assert (large.partition, large.number, large.count) == (5, 1, 2)
    buffer.put(2, b"later")
    assert buffer.batches() == [first, large]
    buffer.written(first)
    second, again = buffer.batches()
    assert (second.number, second.count, second.events) == (2, 2, b"x\nlater")
    assert again == large
    buffer.written(second)
    buffer.written(large)
    (last,) = buffer.batches()
    buffer.written(last)
    assert (buffer.events, buffer.bytes, buffer.batches()) == (0, 0, [])


def test_an_event_larger_than_a_batch_has_one_of_its_own() -> None:
    buffer = Buffer(most_events=10, most_bytes=10 * BATCH_BYTES)
    for text in (b"a", b"b" * (BATCH_BYTES + 1), b"c"):
        assert buffer.put(0, text)
    sizes = []
    while batches := buffer.batches():
        sizes.append(batches[0].count)
        buffer.written(batches[0])
    assert sizes == [1, 1, 1]


# --- traffic ----------------------------------------------------------------------------------------------------------


def published(topic: str, *, duplicate: bool = False) -> tuple[PublishCommand, Published]:
    ownership = Ownership(SessionId("s"), ME, Epoch(1))
    command = PublishCommand(ownership, RequestNumber(1), RequestNumber(0), TopicPath(topic), b"1")
    return command, Published(Version(1), EventId("1-1-1"), duplicate=duplicate)


def test_traffic_is_counted_by_root_and_the_system_is_left_out() -> None:
    traffic = Traffic()
    traffic.delivered(TopicPath("a/b"), 10, 100)
    traffic.delivered(TopicPath("a/c"), 1, 1)
    traffic.delivered(TopicPath("b"), 2, 3)
    traffic.delivered(TopicPath("$gateway/nodes/n1"), 1000, 1000)
    pairs = [published("a/b"), published("c/d"), published("c/d", duplicate=True)]
    traffic.accepted([command for command, _ in pairs], [result for _, result in pairs])
    everything, roots = traffic.take()
    assert {root: (each.deliveries, each.publishes, each.bytes) for root, each in roots.items()} == {
        "a": (101, 1, 1001),
        "b": (3, 0, 6),
        "c": (0, 1, 0),
    }
    assert (everything.deliveries, everything.publishes, everything.bytes) == (104, 2, 1007)
    everything, roots = traffic.take()
    assert (everything.deliveries, roots) == (0, {})


def test_the_busiest_roots_are_told_and_the_rest_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.journal.traffic.ROOTS_COUNTED", 100)
    monkeypatch.setattr("gateway.app.journal.traffic.TOPICS_KNOWN", 10)
    traffic = Traffic()
    for number in range(120):
        traffic.delivered(TopicPath(f"r{number:03}/x"), 1, 1000 - number)
        traffic.delivered(TopicPath(f"r{number:03}/x"), 1, 1000 - number)
    everything, roots = traffic.take()
    assert len(roots) == ROOTS_TOLD + 1
    assert list(roots)[:-1] == [f"r{number:03}" for number in range(ROOTS_TOLD)]
    assert everything.deliveries == sum(2 * (1000 - number) for number in range(120))
    assert roots[THE_REST].deliveries == sum(2 * (1000 - number) for number in range(ROOTS_TOLD, 120))
