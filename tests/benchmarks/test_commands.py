"""What somebody sees who types something wrong, or lacks something: a sentence and an exit code, no stack trace."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import flamegraph
from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Row
from benchmarks.catalogue import cases_by_name, systems_by_name
from benchmarks.commandline import chosen_names
from benchmarks.placement import Placement
from benchmarks.systems.base import SystemUnavailable
from benchmarks.terminal import TerminalSpectator


@pytest.fixture(autouse=True)
def _this_process_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits and signal handlers are set for a whole process."""
    monkeypatch.setattr(command, "prepare_process", lambda: None)
    monkeypatch.setattr(flamegraph, "prepare_process", lambda: None)
    monkeypatch.setattr(Placement, "of_this_machine", classmethod(lambda cls: cls(0, 0)))


def typed(*arguments: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(command.main, list(arguments))
    assert "Traceback" not in outcome.output
    return outcome.exit_code, outcome.output


def test_the_list_names_everything_that_can_be_chosen() -> None:
    code, said = typed("--list")

    assert code == 0
    for name in (*cases_by_name(), *systems_by_name()):
        assert f"\n  {name} " in said


def test_the_list_says_what_runs_only_when_it_is_named() -> None:
    _, said = typed("--list")

    assert (
        "\n  hostile          Hostile clients; only when it is named, for it takes 40 minutes; --rows are pongs, "
        in said
    )


@pytest.mark.parametrize("option", ["--only", "--systems", "--rows"])
def test_an_unknown_name_is_told_with_those_that_there_are(option: str) -> None:
    code, said = typed(option, "fanot")

    assert code == 2
    assert "unknown: fanot; there are" in said


def test_a_case_that_runs_apart_is_none_of_those_that_run_by_default() -> None:
    known = {"a": 1, "b": 2}

    assert chosen_names(known, None, default=("a",)) == ["a"]
    assert chosen_names(known, "b", default=("a",)) == ["b"]


@pytest.mark.parametrize(
    ("text", "names"), [(None, ["a", "b"]), (" , ", ["a", "b"]), ("b", ["b"]), ("b, a,b", ["b", "a"])]
)
def test_names_are_separated_by_commas(text: str | None, names: list[str]) -> None:
    assert chosen_names({"a": 1, "b": 2}, text) == names


def test_a_file_that_cannot_be_written_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, said = typed("--json", str(tmp_path / "file" / "results.json"))

    assert code == 2
    assert "cannot write" in said


def test_without_a_compiler_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.generator.driver.shutil.which", lambda name: None)
    code, said = typed("--only", "fanout")

    assert code == 2
    assert "a C compiler is needed: apt-get install gcc libc6-dev" in said


def test_a_run_of_systems_that_are_not_there_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(self: object, folder: Path) -> None:
        raise SystemUnavailable("nginx is not installed")

    monkeypatch.setattr("benchmarks.runner.build", lambda folder: folder)
    monkeypatch.setattr("benchmarks.systems.nchan.Nchan.prepare", absent)
    code, said = typed("--only", "fanout", "--systems", "nchan")

    assert code == 2
    assert "nothing was measured: nginx is not installed" in said


def test_flame_graphs_without_a_profiler_say_how_to_get_it(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(flamegraph.main, [str(tmp_path), "--py-spy", "no-such-profiler"])

    assert outcome.exit_code == 1
    assert "pip install py-spy" in outcome.output


class Race(Case):
    """A case that needs no time."""

    name: ClassVar[str] = "race"
    title: ClassVar[str] = "Race"
    about: ClassVar[str] = "They run."
    figures: ClassVar[Sequence[Figure]] = (Figure("speed", "speed", "/s", Better.HIGHER, 0),)
    contestants: ClassVar[Sequence[str]] = (OURS,)

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        return [Row("race", "flat", contestant, {"speed": 1_000.0})]


def test_progress_tells_how_much_is_left_where_no_bar_can_be_shown(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    case = Race()
    with TerminalSpectator(console) as spectator:
        spectator.begin(2)
        spectator.step("race 1/2 gateway")
        spectator.done(case, case.run(OURS, Context(Placement(0, 0), {}, None, tmp_path, spectator)))  # type: ignore[arg-type]
        spectator.step("race 2/2 gateway")
        spectator.broke("it fell")
    text: str = console.file.getvalue()  # type: ignore[attr-defined]

    assert "2 measurements, about 0:40 min. Ctrl-C stops everything." in text
    assert "[1/2, 0:00 min left] race 1/2 gateway · flat: speed 1,000 /s" in text
    assert "[2/2, 0:00 min left] race 2/2 gateway: BROKEN it fell" in text
