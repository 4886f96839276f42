"""What a run says in the end: medians, spreads, ratios, verdicts, exit code."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console

from benchmarks.cases.base import Better, Case, Context, Figure, Reference, Results, Row, Target
from benchmarks.placement import Placement
from benchmarks.progress import Silent
from benchmarks.report import as_json, cell, show, write_json
from benchmarks.runner import Outcome, Plan, Spectator, measure_all
from benchmarks.systems.base import SystemFailed
from benchmarks.verdict import Verdict, judge

SPEED = Figure("speed", "speed", "/s", Better.HIGHER, digits=0)


def rows(contestant: str, *values: float) -> list[Row]:
    return [Row("race", "flat", contestant, {"speed": value}) for value in values]


def target(factor: float, *, at_least: bool, against: str | None = "peer") -> Target:
    reference = None if against is None else Reference("race", "flat", against, "speed")
    return Target("faster", Reference("race", "flat", "gateway", "speed"), reference, factor, at_least)


@pytest.fixture
def results() -> Results:
    found = Results()
    found.rows += rows("gateway", 96, 104, 100) + rows("peer", 49, 50, 51)
    return found


@pytest.mark.parametrize(
    ("demand", "reached", "met"),
    [
        (target(2, at_least=True), 2, True),
        (target(2.1, at_least=True), 2, False),
        (target(2, at_least=False), 2, True),
        (target(1.9, at_least=False), 2, False),
        (target(100, at_least=True, against=None), 100, True),
        (target(99, at_least=False, against=None), 100, False),
        (target(1, at_least=True, against="nobody"), None, None),
    ],
)
def test_a_target_compares_medians(results: Results, demand: Target, reached: float | None, met: bool | None) -> None:
    verdict = judge(demand, results)

    assert (verdict.reached, verdict.met) == (reached, met)


def test_a_cell_has_the_median_and_the_spread() -> None:
    assert cell([1600, 1400, 1500], SPEED) == "1,500\n(1,400 … 1,600)"
    # Half of the way between them is two thirds of the median.
    assert cell([3000, 1000, 1500], SPEED) == "1,000 … 3,000"
    assert cell([1000], SPEED) == "1,000"


def judged(*peer: float, flags: Sequence[Sequence[str]] = ((), (), ()), at_least: bool = True) -> Verdict:
    """Compare 100 with a peer's rounds; twice as much, or at most twice as much, is demanded."""
    found = Results()
    found.rows += rows("gateway", 98, 100, 102)
    found.rows += [replace(each, flags=remarks) for each, remarks in zip(rows("peer", *peer), flags, strict=True)]
    return judge(target(2, at_least=at_least), found)


def test_where_rounds_lie_far_apart_the_worse_end_decides() -> None:
    far = judged(20, 30, 60)

    assert [far.reached, far.least, far.most] == pytest.approx([100 / 30, 98 / 60, 5.1])
    assert far.met is False
    assert judged(20, 30, 40, at_least=False).met is False
    assert judged(20, 30, 45).met is True


def test_no_ratio_with_a_peer_that_could_not_keep_up() -> None:
    late = ["overloaded: 90 of 100 deliveries/s"]

    verdict = judged(40, 40, 40, flags=(late, (), late))
    assert (verdict.reached, verdict.met, verdict.reason) == (None, None, "peer could not keep up")
    # One round that a disturbed machine has spoilt does not take the comparison away.
    assert judged(40, 40, 40, flags=(late, (), ())).met is True


def test_we_miss_a_target_if_we_could_not_keep_up() -> None:
    found = Results()
    found.rows += [replace(each, flags=["overloaded: 1 of 2 deliveries/s"]) for each in rows("gateway", 100)]
    found.rows += rows("peer", 10)

    assert judge(target(2, at_least=True), found).met is False


class Race(Case):
    """A case whose results are known."""

    name: ClassVar[str] = "race"
    title: ClassVar[str] = "Race"
    about: ClassVar[str] = "They run."
    figures: ClassVar[Sequence[Figure]] = (SPEED,)
    contestants: ClassVar[Sequence[str]] = ("gateway", "peer", "reference")
    targets: ClassVar[Sequence[Target]] = (target(2, at_least=True), target(3, at_least=True))
    rounds: ClassVar[int] = 2

    def __init__(self, failures: Mapping[str, str] | None = None, broken: str = "") -> None:
        self.order: list[str] = []
        self._failures = failures or {}
        self._broken = broken

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        self.order.append(contestant)
        if contestant == self._broken:
            raise SystemFailed("it fell")
        value = {"gateway": 100.0, "peer": 50.0, "reference": 1.0}[contestant]
        failure = self._failures.get(contestant)
        return [Row("race", "flat", contestant, {"speed": value}, failures=[failure] if failure else [])]


class Audience(Silent, Spectator):
    """Sees nothing."""

    def begin(self, steps: int) -> None:
        self.steps = steps

    def step(self, what: str) -> None:
        pass

    def done(self, case: Case, rows: Sequence[Row]) -> None:
        pass

    def broke(self, reason: str) -> None:
        pass


def run_race(race: Race, folder: Path, *, left_out: frozenset[str] = frozenset()) -> tuple[Plan, Outcome]:
    plan = Plan([race], [], left_out=left_out)
    outcome = Outcome()
    context = Context(Placement(0, 0), {}, outcome.results, folder, Silent())
    measure_all(plan, outcome, context, Audience())
    return plan, outcome


def shown(plan: Plan, outcome: Outcome) -> str:
    console = Console(file=io.StringIO(), width=200)
    show(plan, outcome, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_contestants_take_turns(tmp_path: Path) -> None:
    race = Race()
    run_race(race, tmp_path)

    assert race.order == ["gateway", "peer", "reference"] * 2


def test_a_system_that_was_not_chosen_is_left_out(tmp_path: Path) -> None:
    race = Race()
    run_race(race, tmp_path, left_out=frozenset({"peer"}))

    assert race.order == ["gateway", "reference"] * 2


def test_a_missed_target_is_shown_and_is_no_failure(tmp_path: Path) -> None:
    plan, outcome = run_race(Race(), tmp_path)
    text = shown(plan, outcome)

    assert not outcome.failed
    assert "met" in text
    assert "missed" in text
    assert "2.00 x" in text


def test_a_wrong_delivery_fails_the_run(tmp_path: Path) -> None:
    plan, outcome = run_race(Race(failures={"peer": "1 x lost"}), tmp_path)

    assert outcome.failed
    assert "FAILED race, flat, peer: 1 x lost" in shown(plan, outcome)


def test_a_broken_system_fails_the_run_and_the_others_go_on(tmp_path: Path) -> None:
    race = Race(broken="peer")
    plan, outcome = run_race(race, tmp_path)

    assert outcome.failed
    assert race.order == ["gateway", "peer", "reference"] * 2
    assert "BROKEN race, round 2, peer: it fell" in shown(plan, outcome)
    assert "not measured" in shown(plan, outcome)


def test_the_json_has_every_raw_value(tmp_path: Path) -> None:
    plan, outcome = run_race(Race(), tmp_path)
    file = tmp_path / "deep" / "results.json"
    write_json(file, as_json(plan, outcome, []))
    content: Any = json.loads(file.read_text())

    assert [each["values"]["speed"] for each in content["rows"]] == [100, 50, 1] * 2
    assert [each["met"] for each in content["targets"]] == [True, False]
    assert content["failed"] is False
    assert {"date", "commit", "machine", "systems", "figures"} <= set(content)
