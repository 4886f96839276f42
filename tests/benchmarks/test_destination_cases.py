"""Queues, histories and takeovers are measured, and peers are given the same work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import publish_cost, takeover
from benchmarks.cases import history, queue
from benchmarks.cases import takeover as takeover_case
from benchmarks.cases.base import OURS, Case, Context, Results, Row
from benchmarks.catalogue import systems_by_name
from benchmarks.destinations import grid_queue
from benchmarks.destinations.rates import Rate
from benchmarks.placement import Placement
from benchmarks.progress import Silent
from benchmarks.runner import INSTALLED, Plan
from benchmarks.systems import centrifugo, nats
from benchmarks.systems.centrifugo import Centrifugo, CentrifugoRedis
from benchmarks.systems.jetstream import JetStream, JetStreamFile
from tests.support.times import scaled

FEW = 200
"""Messages, and events."""

BUILT = INSTALLED / Centrifugo.name / centrifugo.PROGRAM


def measured(case: Case, contestant: str, folder: Path) -> dict[str, Row]:
    """Measure one contestant; returns its rows by variant."""
    systems = {contestant: systems_by_name()[contestant]()} if contestant in systems_by_name() else {}
    for system in systems.values():
        system.prepare(INSTALLED / contestant)
    rows = case.run(contestant, Context(Placement.of_this_machine(), systems, Results(), folder, Silent()))
    assert all(each.contestant == contestant and not each.failures for each in rows)
    assert all(each.values.keys() <= {figure.name for figure in case.figures} for each in rows)
    return {each.variant: each for each in rows}


@pytest.fixture
def _little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MESSAGES", FEW)
    monkeypatch.setattr(history, "EVENTS", FEW)
    monkeypatch.setattr(history, "TURNS", 1)
    monkeypatch.setattr(publish_cost, "PUBLISHES", FEW)
    monkeypatch.setattr(grid_queue, "MESSAGES", FEW)
    monkeypatch.setattr(grid_queue, "ROUNDS", 1)


def test_a_rate_is_told_by_what_it_took() -> None:
    rate = Rate(count=1000, seconds=0.5, server=0.01, redis=0.002)

    assert (rate.per_second, rate.per_core) == (2000, 100_000)
    assert rate.server_microseconds == pytest.approx(10)
    assert rate.redis_microseconds == pytest.approx(2)


@pytest.mark.parametrize("case", [queue.QueueCase(), history.HistoryCase()], ids=lambda each: each.name)
def test_the_case_goes_on_without_a_peer_that_is_not_there(case: Case) -> None:
    plan = Plan([case], [])

    peers = dict.fromkeys(set(case.contestants) - {OURS}, "not installed")
    assert OURS in plan.contestants_of(case, peers)
    assert not peers.keys() & set(plan.contestants_of(case, peers))


@pytest.mark.thorough
@pytest.mark.redis
@pytest.mark.usefixtures("_little_work")
def test_the_gateway_is_measured(tmp_path: Path) -> None:
    assert set(measured(queue.QueueCase(), OURS, tmp_path)) == {queue.EACH, queue.IN_PASSING, queue.GRID_ALONE}
    publishes = {history.publishing(each) for each in publish_cost.AT_ONCE}
    assert set(measured(history.HistoryCase(), OURS, tmp_path)) == {*publishes, history.READ}


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which(nats.PROGRAM) is None, reason="nats-server is not installed")
@pytest.mark.usefixtures("_little_work")
@pytest.mark.parametrize("contestant", [JetStream.name, JetStreamFile.name])
def test_jetstream_is_given_the_same_work(contestant: str, tmp_path: Path) -> None:
    assert set(measured(queue.QueueCase(), contestant, tmp_path)) == {queue.EACH}
    assert set(measured(history.HistoryCase(), contestant, tmp_path)) == {history.READ}


@pytest.mark.thorough
@pytest.mark.skipif(
    not BUILT.exists(),
    reason="Centrifugo is not built; scripts/bench-packages does it",
)
@pytest.mark.usefixtures("_little_work")
@pytest.mark.parametrize("contestant", [Centrifugo.name, CentrifugoRedis.name])
def test_centrifugo_recovers_the_same_events(contestant: str, tmp_path: Path) -> None:
    rows = measured(history.HistoryCase(), contestant, tmp_path)

    assert set(rows) == {history.READ}
    assert (history.STORE_CPU.name in rows[history.READ].values) == (contestant == CentrifugoRedis.name)


@pytest.mark.thorough
@pytest.mark.redis
def test_all_that_a_failed_node_leaves_behind_is_taken_over_and_given_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(takeover_case, "SESSIONS", 20)
    monkeypatch.setattr(takeover_case, "MESSAGES", 60)
    monkeypatch.setattr(takeover, "QUIET", 0.5)
    monkeypatch.setattr(takeover, "WINDOW", 1.0)
    monkeypatch.setattr(takeover, "PATIENCE", scaled(60.0))
    (row,) = measured(takeover_case.TakeoverCase(), OURS, tmp_path).values()

    assert row.values[takeover_case.LONGEST.name] > 0
    assert row.values[takeover_case.TAKEN_OVER.name] > 0
