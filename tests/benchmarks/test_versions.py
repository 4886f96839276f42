"""This version against another: who is measured when, what the turns say, and that it is really the other one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Row
from benchmarks.checkout import THIS, Checkout, checkout_of
from benchmarks.document import AGAINST, BadResults, Document
from benchmarks.placement import Placement
from benchmarks.progress import Silent
from benchmarks.report import as_json, comparison, write_json
from benchmarks.runner import Outcome, Plan, Turn, measure_all
from benchmarks.systems.base import SystemFailed, SystemUnavailable
from benchmarks.versions import Finding, compared

OTHER = Checkout("older", Path("/nowhere"), Path("python"))

RATE = Figure("rate", "updates", "/s", Better.HIGHER)
CPU = Figure("cpu", "CPU per update", "µs", Better.LOWER)
BUSY = Figure("busy", "generator busy", "%")


class Race(Case):
    """A case that needs no time: this version needs 1 % less CPU, and is 5 % slower."""

    name: ClassVar[str] = "race"
    title: ClassVar[str] = "Race"
    about: ClassVar[str] = "They run."
    figures: ClassVar[Sequence[Figure]] = (RATE, CPU, BUSY)
    contestants: ClassVar[Sequence[str]] = (OURS, "stopwatch")

    def __init__(self) -> None:
        self.order: list[str] = []
        self.broken_at = 0

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        self.order.append(context.checkout.title if contestant == OURS else contestant)
        if len(self.order) == self.broken_at:
            raise SystemFailed("it fell")
        disturbed = 1 + len(self.order) // 3  # neighbours come, and stay
        cpu, rate = (9.9, 95.0) if context.checkout is THIS else (10.0, 100.0)
        values = {"cpu": cpu * disturbed, "rate": rate / disturbed, "busy": 3.0}
        return [Row("race", "flat", contestant, values)]


class Spectator(Silent):
    """Sees nothing."""

    def begin(self, steps: int) -> None:
        self.steps = steps

    def step(self, what: str) -> None: ...

    def done(self, case: Case, rows: Sequence[Row]) -> None: ...

    def broke(self, reason: str) -> None: ...


def raced(tmp_path: Path, case: Race, rounds: int) -> tuple[Plan, Outcome]:
    plan, outcome, spectator = Plan([case], [], rounds=rounds, against=OTHER), Outcome(), Spectator()
    measure_all(plan, outcome, Context(Placement(0, 1), {}, outcome.results, tmp_path, spectator), spectator)
    assert spectator.steps == len(case.order)
    return plan, outcome


def test_versions_are_measured_one_right_after_the_other_and_neither_always_first(tmp_path: Path) -> None:
    case = Race()
    _, outcome = raced(tmp_path, case, rounds=2)

    assert case.order == ["older", "this version", "stopwatch", "this version", "older", "stopwatch"]
    assert [row.contestant for row in outcome.results.rows] == [OURS, "stopwatch"] * 2
    assert [turn.before[0].values["rate"] for turn in outcome.turns] == [100.0, 50.0]


def test_a_turn_in_which_one_version_broke_is_none(tmp_path: Path) -> None:
    case = Race()
    case.broken_at = 2
    _, outcome = raced(tmp_path, case, rounds=2)

    assert len(outcome.turns) == 1
    assert outcome.broken == ["race, round 1, gateway: it fell"]


def test_what_the_other_version_did_wrong_fails_the_run() -> None:
    wrong = Row("race", "flat", OURS, {}, ["2 x lost"])
    assert Outcome(turns=[Turn("race", [wrong], [])]).failed


def test_figures_of_cpu_come_first_and_disturbances_that_both_met_do_not_count(tmp_path: Path) -> None:
    plan, outcome = raced(tmp_path, Race(), rounds=6)
    found = comparison(plan, outcome)

    assert [each.figure for each in found] == [CPU, RATE]
    assert found[0].finding is Finding.HOLDS
    assert found[1].finding is Finding.BROKEN
    assert found[1].ratio.turns == 6


@pytest.mark.parametrize(
    ("ratios", "finding"),
    [
        ([1.01] * 6, Finding.HOLDS),
        ([1.01] * 5 + [1.03], Finding.PROBABLE),
        ([1.01] + [1.03] * 5, Finding.DOUBTFUL),
        ([1.03] * 6, Finding.BROKEN),
        ([1.0] * 5, Finding.UNKNOWN),
    ],
)
def test_what_turns_say_of_a_cost(ratios: Sequence[float], finding: Finding) -> None:
    turns = [
        Turn("race", [Row("race", "flat", OURS, {"cpu": 10.0})], [Row("race", "flat", OURS, {"cpu": 10.0 * each})])
        for each in ratios
    ]
    assert [each.finding for each in compared(Race(), turns)] == [finding]


@pytest.mark.parametrize(("rate", "finding"), [(99.0, Finding.HOLDS), (97.0, Finding.BROKEN)])
def test_a_rate_is_worse_if_it_is_lower(rate: float, finding: Finding) -> None:
    turn = Turn("race", [Row("race", "flat", OURS, {"rate": 100.0})], [Row("race", "flat", OURS, {"rate": rate})])
    assert [each.finding for each in compared(Race(), [turn] * 6)] == [finding]


def test_a_comparison_is_not_published(tmp_path: Path) -> None:
    plan, outcome = raced(tmp_path, Race(), rounds=1)
    content = as_json(plan, outcome, plan.systems)
    assert content[AGAINST] == "older"
    assert len(content["turns"]) == 1
    write_json(tmp_path / "results.json", content)

    with pytest.raises(BadResults, match="compares two versions of the gateway"):
        Document.load(tmp_path / "results.json")


# Which version runs -------------------------------------------------------------------------------------------------


def version(folder: Path, *, said: str = "--node NAME  --grid URL") -> Path:
    """Make a folder with a package that answers as `gateway serve --help` does."""
    (folder / "gateway").mkdir(parents=True)
    (folder / "gateway" / "__init__.py").touch()
    (folder / "gateway" / "__main__.py").write_text(f"print({said!r})")
    return folder


def test_a_folder_runs_by_itself_whatever_is_installed(tmp_path: Path) -> None:
    found = checkout_of(str(version(tmp_path / "older")), tmp_path)

    assert found.folder == tmp_path / "older"
    assert found.python == Path(sys.executable)
    assert found.flags == frozenset({"node", "grid"})


def test_a_limit_that_is_off_is_not_told_to_a_version_without_it(tmp_path: Path) -> None:
    found = checkout_of(str(version(tmp_path / "older")), tmp_path)

    command = found.command({"node": "n1", "rate-bytes": "0"})
    assert command[1:] == ["-m", "gateway", "serve", "--node=n1"]


def test_a_version_without_a_setting_that_matters_is_not_measured_without_it(tmp_path: Path) -> None:
    found = checkout_of(str(version(tmp_path / "older")), tmp_path)

    with pytest.raises(SystemUnavailable, match="has no setting journal"):
        found.command({"node": "n1", "journal": "on"})


@pytest.mark.parametrize("text", ["no-such-commit", "."])
def test_what_is_no_version_is_told(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without the package must not have this version measured in its place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "prepare_process", lambda: None)
    outcome = CliRunner().invoke(command.main, ["--only", "fanout", "--against", text])

    assert outcome.exit_code == 2
    assert ("no commit: no-such-commit" if text != "." else "has no package gateway") in outcome.output


def test_what_has_no_other_version_is_told() -> None:
    outcome = CliRunner().invoke(command.main, ["--only", "hostile", "--against", "HEAD"])

    assert outcome.exit_code == 2
    assert "not with --against: hostile" in outcome.output
