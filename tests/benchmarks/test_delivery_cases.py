"""What fan-out, steady and own topic ask the generator for, and what they make of its report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.cases import fanout, own_topic, steady
from benchmarks.cases.base import Case, Context, Results, Row
from benchmarks.catalogue import cases_by_name, systems_by_name
from benchmarks.generator.driver import Load, Report
from benchmarks.placement import Placement
from benchmarks.progress import Silent
from benchmarks.systems.base import (
    Endpoint,
    Running,
    StartOptions,
    SystemFailed,
    SystemUnderTest,
    WireProtocol,
)


def report(**changes: object) -> Report:
    """Make the report of a generator that saw 2 s, 100,000 deliveries a second and 1 s of server CPU."""
    latency = {"count": 200_000, "mean": 2e6, "p50": 1e6, "p90": 2e6, "p99": 3e6, "p999": 4e6, "largest": 5e6}
    raw: dict[str, Any] = {
        "seconds": 2.0, "delivered": 200_000, "published": 200, "reads": 50_000, "largest_lag": 0,
        "cpu": {"server": 1.0, "redis": 0.1, "generator": 0.5},
        "delivery_ns": latency, "answer_ns": latency, "failures": {}, "failure_examples": [],
    }  # fmt: skip
    return Report.of(raw | changes)


class Stub(SystemUnderTest):
    """A system that does not exist."""

    name: ClassVar[str] = "stub"
    title: ClassVar[str] = "Stub"

    def prepare(self, folder: Path) -> None: ...

    def versions(self) -> Mapping[str, str]:
        return {}

    def settings(self) -> Mapping[str, str]:
        return {}

    @contextlib.contextmanager
    def running(self, placement: Placement, options: StartOptions) -> Iterator[Running]:
        yield Running(Endpoint(WireProtocol.PLAIN, "127.0.0.1", 1, "/", "/"), dict, lambda: None)


class Generator:
    """Stands in for the generator and remembers what it was asked for."""

    def __init__(self) -> None:
        self.loads: list[Load] = []
        self.report = report()

    def measure(self, running: Running, load: Load, context: Context) -> Report:
        self.loads.append(load)
        return self.report


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> Generator:
    stand_in = Generator()
    for module in (fanout, steady, own_topic):
        monkeypatch.setattr(module, "measure", stand_in.measure)
    return stand_in


def context(folder: Path, *, quick: bool = False) -> Context:
    systems = {name: Stub() for name in ("gateway", "nchan", "python_socketio")}
    return Context(Placement(0, 1), systems, Results(), folder, Silent(), quick)


def variants(rows: object) -> list[str]:
    assert isinstance(rows, list)
    return [each.variant for each in rows if isinstance(each, Row)]


def test_fan_out(generator: Generator, tmp_path: Path) -> None:
    rows = fanout.FanOut().run("gateway", context(tmp_path))

    assert variants(rows) == [fanout.SATURATED, fanout.CROWD]
    first, second = generator.loads
    assert (first.subscribers, first.rate, first.size, first.topics) == (500, None, 100, 1)
    assert (second.subscribers, second.rate, second.size, second.topics) == (10_000, 100, 100, 1)
    values = rows[0].values
    assert values["deliveries_per_second"] == 100_000
    assert values["cpu_per_delivery"] == pytest.approx(5)  # µs: 1 s for 200,000
    assert values["redis_cpu_per_delivery"] == pytest.approx(0.5)
    assert (values["p50"], values["p99"], values["p999"]) == (1, 3, 4)  # ms
    assert (values["server_busy"], values["generator_busy"]) == (50, 25)
    assert rows[0].flags == []
    # 200 updates in 2 s are the 100 per second that were asked for.
    assert rows[1].flags == []


def test_a_system_that_would_take_minutes_is_spared_the_crowd(generator: Generator, tmp_path: Path) -> None:
    assert variants(fanout.FanOut().run("python_socketio", context(tmp_path))) == [fanout.SATURATED]


def test_half_of_saturation_is_taken_from_the_fan_out_of_the_same_run(generator: Generator, tmp_path: Path) -> None:
    where = context(tmp_path)
    for name, rate in (("gateway", 800_000.0), ("nchan", 300_000.0)):
        where.results.rows.append(Row("fanout", fanout.SATURATED, name, {"deliveries_per_second": rate}))
    rows = steady.Steady().run("gateway", where)

    assert variants(rows) == [steady.PACED, steady.HALF_OF_OWN, steady.HALF_OF_NCHAN]
    assert [(each.subscribers, each.rate) for each in generator.loads] == [(1_000, 50), (1_000, 400), (1_000, 150)]


def test_half_of_saturation_is_measured_if_there_was_no_fan_out(generator: Generator, tmp_path: Path) -> None:
    where, case = context(tmp_path), steady.Steady()
    case.run("gateway", where)
    case.run("gateway", where)

    # Ours and nchan's once, with 500 subscribers and without a schedule; the report says 100,000 per second.
    assert [each.rate for each in generator.loads] == [None, None] + [50, 50, 50] * 2
    assert [each.subscribers for each in generator.loads[:2]] == [500, 500]


def test_a_system_that_loses_updates_at_saturation_has_none(generator: Generator, tmp_path: Path) -> None:
    generator.report = report(failures={"lost": 3}, failure_examples=["subscriber 1: expected update 4, got 7"])
    with pytest.raises(SystemFailed, match="3 x lost"):
        steady.Steady().run("gateway", context(tmp_path))


def test_own_topic_each(generator: Generator, tmp_path: Path) -> None:
    rows = own_topic.OwnTopic().run("gateway", context(tmp_path))

    (load,) = generator.loads
    assert (load.subscribers, load.topics, load.rate) == (2_000, 2_000, 20_000)
    assert rows[0].flags == ["overloaded: 100 of 20,000 updates/s"]


def test_what_was_received_wrong_is_in_the_row(generator: Generator, tmp_path: Path) -> None:
    generator.report = report(failures={"lost": 2, "swapped": 1}, failure_examples=["subscriber 1: …"])
    rows = own_topic.OwnTopic().run("gateway", context(tmp_path))

    assert list(rows[0].failures) == ["2 x lost, 1 x swapped", "subscriber 1: …"]


def test_a_generator_that_was_the_limit_is_flagged(generator: Generator, tmp_path: Path) -> None:
    generator.report = report(cpu={"server": 1.0, "generator": 1.98})
    rows = fanout.FanOut().run("gateway", context(tmp_path))

    assert "the generator was the limit" in rows[0].flags


def test_quick_runs_are_shorter(generator: Generator, tmp_path: Path) -> None:
    own_topic.OwnTopic().run("gateway", context(tmp_path))
    own_topic.OwnTopic().run("gateway", context(tmp_path, quick=True))

    assert generator.loads[0].measure > generator.loads[1].measure >= 1


@pytest.mark.parametrize("case", list(cases_by_name().values()), ids=lambda case: case.name)
def test_a_target_is_about_figures_that_its_case_has(case: type[Case]) -> None:
    """A slip in a name would make a target 'not measured' for ever."""
    names = {each.name for each in case.figures}
    for target in case.targets:
        for each in (target.subject, target.reference):
            if each is not None and each.case == case.name:
                assert each.figure in names
                assert each.contestant in case.contestants


def test_names_are_unique() -> None:
    assert not set(systems_by_name()) & set(cases_by_name())
