"""What fan-out, steady and own topic ask the generator for, and what they make of its report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.cases import fanout, own_topic, steady
from benchmarks.cases.base import Case, Context, Results, Row
from benchmarks.cases.generated import flags_of
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
    assert values["total_cpu_per_delivery"] == pytest.approx(5.5)  # the generator's is no part of it
    assert values["cpu_per_delivery"] == pytest.approx(5)  # µs: 1 s for 200,000
    assert values["redis_cpu_per_delivery"] == pytest.approx(0.5)
    assert (values["p50"], values["p99"], values["p999"]) == (1, 3, 4)  # ms
    assert (values["server_busy"], values["generator_busy"]) == (50, 25)
    assert rows[0].flags == []
    # 100,000 deliveries a second are a tenth of what 10,000 subscribers were to get.
    assert rows[1].flags == ["overloaded: 100,000 of 1,000,000 deliveries/s"]


def test_a_system_that_would_take_minutes_is_spared_the_crowd(generator: Generator, tmp_path: Path) -> None:
    assert variants(fanout.FanOut().run("python_socketio", context(tmp_path))) == [fanout.SATURATED]


def test_half_of_saturation_is_measured_with_the_subscribers_that_it_is_applied_to(
    generator: Generator, tmp_path: Path
) -> None:
    where, case = context(tmp_path), steady.Steady()
    # Of other subscribers: no word of how much 1,000 get.
    where.results.rows.append(Row("fanout", fanout.SATURATED, "nchan", {"deliveries_per_second": 1.0}))
    rows = [*case.run("gateway", where), *case.run("gateway", where)]

    assert variants(rows) == [steady.PACED, steady.HALF_OF_OWN, steady.HALF_OF_NCHAN] * 2
    # Ours and nchan's once a run, three starts each; the report says 100,000 per second.
    assert [each.rate for each in generator.loads] == [None] * 6 + [50, 50, 50] * 2
    assert {each.subscribers for each in generator.loads} == {steady.SUBSCRIBERS}
    assert rows[1].details["saturation"] == 100_000


def test_a_system_that_loses_updates_at_saturation_has_none(generator: Generator, tmp_path: Path) -> None:
    generator.report = report(failures={"lost": 3}, failure_examples=["subscriber 1: expected update 4, got 7"])
    with pytest.raises(SystemFailed, match="3 x lost"):
        steady.Steady().run("gateway", context(tmp_path))


def test_own_topic_each(generator: Generator, tmp_path: Path) -> None:
    generator.report = report(delivered=39_000, published=40_000)
    rows = own_topic.OwnTopic().run("gateway", context(tmp_path))

    assert [(each.subscribers, each.topics, each.rate) for each in generator.loads] == [
        (2_000, 2_000, 20_000), (2_000, 2_000, 10_000),
    ]  # fmt: skip
    # What was published is on schedule; what was received is not.
    assert [list(each.flags) for each in rows] == [["overloaded: 19,500 of 20,000 deliveries/s"], []]


def test_a_system_that_falls_behind_within_its_window_is_overloaded() -> None:
    """A window of a second lets a publisher keep its schedule while deliveries fall behind."""
    load = Load(1_000, rate=100, window=200)
    late = report(published=200, delivered=180_000)

    assert list(flags_of(load, late)) == ["overloaded: 90,000 of 100,000 deliveries/s"]
    assert list(flags_of(load, report(published=199, delivered=198_500))) == []


def test_the_edges_of_a_short_window_are_no_overload() -> None:
    """49 of 50 updates in a second are 2 % less, and nobody is late."""
    assert list(flags_of(Load(10, rate=50), report(seconds=1.0, delivered=490))) == []


def test_what_was_received_wrong_is_in_the_row(generator: Generator, tmp_path: Path) -> None:
    generator.report = report(failures={"lost": 2, "swapped": 1}, failure_examples=["subscriber 1: …"])
    rows = own_topic.OwnTopic().run("gateway", context(tmp_path))

    assert list(rows[0].failures) == ["2 x lost, 1 x swapped", "subscriber 1: …"]


def test_a_generator_that_was_the_limit_is_flagged(generator: Generator, tmp_path: Path) -> None:
    """Also beside a full server, and with what shares the generator's core."""
    generator.report = report(cpu={"server": 2.0, "redis": 0.2, "generator": 1.6})
    rows = fanout.FanOut().run("gateway", context(tmp_path))

    assert list(rows[0].flags) == ["the generator was the limit: 80 % of its core, 90 % with what shares it"]


def test_quick_runs_are_shorter(generator: Generator, tmp_path: Path) -> None:
    own_topic.OwnTopic().run("gateway", context(tmp_path))
    own_topic.OwnTopic().run("gateway", context(tmp_path, quick=True))

    assert generator.loads[0].measure > generator.loads[-1].measure >= 1


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
