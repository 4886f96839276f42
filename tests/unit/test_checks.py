"""The program behind ``make test``: every part runs, nothing stays, and the exit code tells."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import checks
from scripts.checks import Part, at_length, everything, quick, run_stages
from tests.support.clock import eventually
from tests.support.times import PATIENCE, scaled


def python(name: str, program: str, *arguments: str, selected: bool = False) -> Part:
    return Part(name, (sys.executable, "-c", textwrap.dedent(program), *arguments), selected=selected)


def says(name: str, text: str, code: int = 0) -> Part:
    return python(name, "import sys; print(sys.argv[1]); sys.exit(int(sys.argv[2]))", text, str(code))


SLEEPER = """
    import os, pathlib, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(sys.argv[1] + ".new").write_text(f"{os.getpid()} {child.pid}")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(600)
"""
"""A part that tells its process and one that it has started, and goes on for ever."""

STUBBORN = f"""
    import signal
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    {SLEEPER.strip()}
"""


def test_a_failing_part_stops_no_other_and_the_exit_code_tells(capfd: pytest.CaptureFixture[str]) -> None:
    code = run_stages([[says("one", "first", 3), says("two", "second")], [says("three", "third")]])
    shown = capfd.readouterr().out

    assert code == 1
    assert [line.split() for line in shown.splitlines() if "passed" in line or "failed" in line][1:] == [
        ["one", *shown_seconds(shown, "one"), "failed,", "exit", "code", "3"],
        ["two", *shown_seconds(shown, "two"), "passed"],
        ["three", *shown_seconds(shown, "three"), "passed"],
    ]
    assert all(text in shown for text in ("first", "second", "third"))


def shown_seconds(shown: str, name: str) -> list[str]:
    """The only figure that nobody knows before."""
    (row,) = [line.split() for line in shown.splitlines() if line.startswith(f"{name} ")]
    assert float(row[1]) >= 0
    return [row[1]]


def test_when_all_pass_the_exit_code_is_0() -> None:
    assert run_stages([[says("one", "first")], [says("two", "second")]]) == 0


def test_the_table_counts_tests_and_repeats_what_pytest_said_last(capfd: pytest.CaptureFixture[str]) -> None:
    last = "2 failed, 7 passed, 1 skipped, 3 errors in 12.50s"
    code = run_stages([[says("tests", f"7 passed in 0.1s of something else\n{last}", 1)]])
    shown = capfd.readouterr().out
    (row,) = [line.split() for line in shown.splitlines() if line.startswith("tests ")]

    assert code == 1
    assert row[2:5] == ["7", "5", "1"]
    assert shown.splitlines()[-1] == f"tests: {last}"


FALTERING = """
    from pathlib import Path

    def test_that_fails():
        runs = Path(__file__).with_name("runs")
        runs.write_text(f"{runs.read_text() if runs.exists() else ''}.")
        assert runs.read_text().count(".") not in FAILING

    def test_that_passes():
        Path(__file__).with_name("passed").open("a").write(".")
"""


@pytest.mark.parametrize(
    ("failing", "runs"),
    [([1], 4), ([1, 4], 4), pytest.param([1, 2], 2, marks=pytest.mark.thorough)],
)
def test_what_fails_and_passes_alone_is_named_and_fails_nothing(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    failing: list[int],
    runs: int,
) -> None:
    tests = tmp_path / "test_faltering.py"
    tests.write_text(f"FAILING = {failing}\n{textwrap.dedent(FALTERING)}")
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    monkeypatch.setattr(checks, "FAILURES", tmp_path / "failures")
    code = run_stages([[checks.pytest("the tests", (), "test_faltering.py")]])
    shown = capfd.readouterr().out

    result = "passed, 1 unsteady" if failing == [1] else "failed, exit code 1"
    assert next(line for line in shown.splitlines() if line.startswith("the tests ")).endswith(result)
    assert code == (0 if failing == [1] else 1)
    assert len((tmp_path / "runs").read_text()) == runs
    assert (tmp_path / "passed").read_text() == ".", "only what failed is run again"
    assert ("unsteady, to be mended: test_faltering.py::test_that_fails" in shown) == (code == 0)


@pytest.mark.parametrize(
    "program", ["def test_a(): assert 0\ndef test_b(): assert 0\n", "import nothing_of_that_name\n"]
)
def test_many_failures_and_other_mistakes_are_not_looked_at_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    (tmp_path / "test_wrong.py").write_text(program)
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    monkeypatch.setattr(checks, "FAILURES", tmp_path / "failures")
    monkeypatch.setattr(checks, "LOOKED_AT_AGAIN", 1)

    assert run_stages([[checks.pytest("the tests", (), "test_wrong.py")]]) == 1
    assert "again" not in capfd.readouterr().out


@pytest.mark.parametrize(("selected", "code"), [(True, 0), (False, 1)])
def test_finding_no_test_is_a_failure_unless_the_user_selected(selected: bool, code: int) -> None:
    part = python("tests", "raise SystemExit(5)", selected=selected)

    assert run_stages([[part]]) == code


async def test_what_a_part_leaves_behind_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the pipe open, which would else never end."""
    monkeypatch.setattr(checks, "LAST_OUTPUT", 0.1)
    told = tmp_path / "pids"

    assert run_stages([[python("one", SLEEPER.removesuffix("    time.sleep(600)\n"), str(told))]]) == 0
    await eventually(lambda: not any(lives(pid) for pid in pids_in(told)))


@pytest.mark.parametrize(("program", "number"), [(SLEEPER, signal.SIGINT), (SLEEPER, signal.SIGTERM), (STUBBORN, 2)])
async def test_ctrl_c_ends_all_that_runs_and_shows_the_table(tmp_path: Path, program: str, number: int) -> None:
    told = tmp_path / "pids"
    with started(told, program, grace=scaled(0.2)) as running:
        await eventually(told.exists)
        running.send_signal(number)
        shown, _ = running.communicate(timeout=scaled(PATIENCE))

    assert running.returncode == 130
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith("endless ")] == ["stopped"]
    assert [line.split()[-2:] for line in shown.splitlines() if line.startswith("later ")] == [["not", "run"]]
    await eventually(lambda: not any(lives(pid) for pid in pids_in(told)))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells a process that its parent was killed")
async def test_a_killed_run_leaves_no_part(tmp_path: Path) -> None:
    told = tmp_path / "pids"
    with started(told, SLEEPER, grace=1) as running:
        await eventually(told.exists)
        running.kill()
    part, child = pids_in(told)
    try:
        await eventually(lambda: not lives(part))
    finally:
        os.kill(child, signal.SIGKILL)


def started(told: Path, program: str, *, grace: float) -> subprocess.Popen[str]:
    """Run an endless part, and one that would come later, in a process of its own."""
    runner = f"""
        import sys
        from scripts import checks
        checks.GRACE = {grace}
        endless = checks.Part("endless", (sys.executable, "-c", {textwrap.dedent(program)!r}, {str(told)!r}))
        later = checks.Part("later", (sys.executable, "-c", ""))
        sys.exit(checks.run_stages([[endless], [later]]))
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(runner)], cwd=checks.ROOT, stdout=subprocess.PIPE, text=True
    )


def pids_in(told: Path) -> list[int]:
    return [int(each) for each in told.read_text().split()]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- Which parts there are --------------------------------------------------------------------------------------------


def options_of(part: Part) -> tuple[str, ...]:
    return part.command[part.command.index("-m") + 2 :]


def marks_of(stages: list[list[Part]]) -> list[str]:
    """What each part chooses its tests by; one that chooses none, because it only collects, is left out."""
    options = [options_of(part) for stage in stages for part in stage if "pytest" in part.command]
    return sorted(each[each.index("-m") + 1] for each in options if "-m" in each)


def test_every_test_is_in_one_part_of_make_test_or_of_make_test_thorough() -> None:
    kinds = ["cluster", "not cluster and not spark", "spark"]

    assert marks_of(everything(6, 4, ())) == sorted(["not thorough", *(f"{each} and not thorough" for each in kinds)])
    assert marks_of(at_length(6, 4, ())) == [f"{each} and thorough" for each in kinds]


def test_property_tests_are_in_a_part_of_their_own_and_in_no_other() -> None:
    parts = {part.name: part.command for stage in everything(6, 4, ()) for part in stage}

    assert parts["property"][-1] == "tests/property"
    assert "--ignore=tests/property" in parts["tests side by side"]
    of_other_parts = [*checks.marked("cluster"), *checks.marked("spark")]
    assert not [file for file in of_other_parts if file.startswith("tests/property/")]
    assert "--ignore=tests/property" not in [
        each for stage in at_length(6, 4, ()) for part in stage for each in part.command
    ]


STAGES = [
    lambda options: everything(6, 4, options),
    lambda options: at_length(6, 4, options),
    lambda options: quick(2, options),
]


@pytest.mark.parametrize("stages", STAGES)
def test_options_go_to_every_part_of_tests(stages: Callable[[tuple[str, ...]], list[list[Part]]]) -> None:
    parts = [part for stage in stages(("-k", "drain")) for part in stage if "pytest" in part.command]

    assert parts
    assert all(part.command[-2:] == ("-k", "drain") and part.selected for part in parts)


@pytest.mark.parametrize("mark", ["cluster", "spark"])
def test_files_of_a_mark_are_found(mark: str) -> None:
    files = checks.marked(mark)

    assert files
    assert all(f"mark.{mark}" in (checks.ROOT / each).read_text() for each in files)


LEFT_OUT = ["redis", "haproxy", "cluster", "spark", "thorough"]
"""Marks of tests that start other programs or take long, as pyproject.toml declares them."""


@pytest.mark.thorough
@pytest.mark.parametrize("mark", LEFT_OUT)
def test_the_quick_check_leaves_out_what_starts_other_programs_or_takes_long(tmp_path: Path, mark: str) -> None:
    """By what pytest makes of the command: of two tests it chooses the one without the mark."""
    (tests,) = [part for stage in quick(2, ()) for part in stage if "pytest" in part.command]
    chosen = tests.command[tests.command.index("-m", 3) + 1]
    declared = "\n".join(f"    {each}: left out" for each in LEFT_OUT)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{declared}\n")
    (tmp_path / "test_two.py").write_text(
        f"import pytest\n\ndef test_alone(): pass\n\n@pytest.mark.{mark}\ndef test_with_others(): pass\n"
    )
    command = (sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", chosen)
    collected = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "test_alone" in collected
    assert "test_with_others" not in collected
    assert f'"{mark}: ' in (checks.ROOT / "pyproject.toml").read_text()
