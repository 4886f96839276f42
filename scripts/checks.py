"""Run the checks of the project part by part: all of them, whatever fails, and a table at the end.

```text
python -m scripts.checks test -- -k drain     # everything, as `make test` and continuous integration do
python -m scripts.checks thorough             # what repeats at length, before a release
python -m scripts.checks check                # what is quick, while working
python -m scripts.checks lint
```

Parts of one stage run at the same time, and each shows its output when it has ended; a part that is alone in its stage
shows it as it comes. Every part is a process group of its own, which ends when this program does.

A few tests that failed are run again when their stage is over, alone. Those that pass then, three times, are named
below the table as unsteady and fail nothing (ADR 0147).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

ROOT: Final = Path(__file__).resolve().parents[1]

GRACE: Final = 30.0
"""Seconds for a part that was interrupted to stop what it has started; node processes drain, browsers close."""

READ_BYTES: Final = 65_536
"""Read at once from the output of a part."""

LAST_OUTPUT: Final = 2.0
"""Seconds for the end of the output once its process has ended: something that it left behind may hold the pipe."""

LOOK: Final = 0.05
"""Seconds between looks whether a part has ended."""

TESTS_FAILED: Final = 1
"""Exit code of pytest when it has run all tests, and some failed."""

NO_TESTS: Final = 5
"""Exit code of pytest when it found none."""

SUMMARY: Final = re.compile(r"^.*\b\d+ (?:passed|failed|skipped|errors?|deselected)\b.* in [\d.]+s.*$", re.MULTILINE)
"""pytest's last line."""

LOOKED_AT_AGAIN: Final = 4
"""Failed tests of a part that are run again: more of them at once are no accident."""

LOOKS: Final = 3
"""Times in a row that a test which failed has to pass alone to count as unsteady."""

FAILURES: Final = ROOT / ".local" / "checks"
"""Where pytest notes for each part which tests failed."""

PROPERTY: Final = "tests/property"
"""Tests that draw examples, and compute."""

SLOWEST: Final = ("--durations=10", "--durations-min=1")
"""Each part names its ten slowest tests, without those that nobody would call slow."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the checks.

    Attributes:
        name: for the table.
        command: the program and its arguments.
        selected: whether options have chosen among its tests, so that finding none is no failure.
        cache: pytest's own folder for this part, where it notes which tests failed; None if they are not run again.
    """

    name: str
    command: tuple[str, ...]
    selected: bool = False
    cache: Path | None = None


class Run:
    """One run of a part, from its start on.

    Args:
        part: what to run.
        live: show its output as it comes.

    Attributes:
        part: what runs.
        stopped: whether it was interrupted.
        unsteady: tests of it that failed, and passed alone.
    """

    def __init__(self, part: Part, *, live: bool) -> None:
        self.part = part
        self.stopped = False
        self.unsteady: tuple[str, ...] = ()
        self._live = live
        self._begun = time.monotonic()
        self._ended: float | None = None
        self._chunks: list[bytes] = []
        setpriv = shutil.which("setpriv")
        # Even when this program itself is killed with SIGKILL, the part must not stay.
        watch = [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]
        self._output, writing = os.pipe()
        self._process = subprocess.Popen(  # noqa: S603 - our own commands
            [*watch, *part.command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
        os.close(writing)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def seconds(self) -> float:
        """How long it took; until now, if it has not ended."""
        return (time.monotonic() if self._ended is None else self._ended) - self._begun

    @property
    def output(self) -> str:
        """All that it has printed."""
        return b"".join(self._chunks).decode(errors="replace")

    @property
    def summary(self) -> str:
        """Pytest's last line; empty if there is none."""
        lines = SUMMARY.findall(self.output)
        return lines[-1].strip("= ") if lines else ""

    @property
    def result(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode
        if self.stopped:
            return "stopped"
        if code == 0:
            return "passed"
        if code == NO_TESTS and self.part.selected:
            return "no tests"
        if self.unsteady:
            return f"passed, {len(self.unsteady)} unsteady"
        return f"failed, exit code {code}"

    @property
    def failed(self) -> bool:
        """Whether the checks as a whole fail because of it."""
        return self.result not in {"passed", "no tests"} and not self.unsteady

    @property
    def failed_tests(self) -> tuple[str, ...]:
        """The tests that failed, if that is all that was wrong and pytest has noted them."""
        noted = None if self.part.cache is None else self.part.cache / "v" / "cache" / "lastfailed"
        if self.stopped or self._process.returncode != TESTS_FAILED or noted is None or not noted.exists():
            return ()
        return tuple(json.loads(noted.read_text()))

    def ended(self) -> bool:
        """Tell whether it has, and if so, show what has not been shown."""
        if self._ended is not None:
            return True
        if self._process.poll() is None:
            return False
        self._ended = time.monotonic()
        self._reader.join(LAST_OUTPUT)
        # What the leader of the group has left behind would disturb the parts that follow.
        self._signal(signal.SIGKILL)
        if not self._live:
            click.echo(f"── {self.part.name}, {self.seconds:.0f} s ──")
            click.echo(self.output, nl=not self.output.endswith("\n"))
        return True

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C does."""
        if self._ended is None:
            self.stopped = True
            self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End the whole group."""
        if self._ended is None:
            self.stopped = True
            self._signal(signal.SIGKILL)
            self._process.wait()
            self.ended()

    def count(self, *words: str) -> str:
        """Tell how many tests ended in one of some ways; empty for what is no test."""
        if not self.summary:
            return ""
        return str(sum(int(found) for word in words for found in re.findall(rf"(\d+) {word}\b", self.summary)))

    def _read(self) -> None:
        while chunk := os.read(self._output, READ_BYTES):
            self._chunks.append(chunk)
            if self._live:
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
        os.close(self._output)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def run_stages(stages: Sequence[Sequence[Part]]) -> int:
    """Run parts, those of one stage at the same time, and show a table of them.

    Args:
        stages: one after the other.

    Returns:
        The exit code: 0, 1 if a part failed, or 130 after Ctrl-C or SIGTERM.
    """
    runs: list[Run] = []
    looks: list[Run] = []
    interrupted = False
    with _terminable():
        try:
            for stage in stages:
                if len(stage) == 1:
                    click.echo(f"── {stage[0].name} ──")
                started = []
                for part in stage:
                    started.append(Run(part, live=len(stage) == 1))
                    runs.append(started[-1])
                _wait(started)
                for each in started:
                    _look_again(each, looks)
        except KeyboardInterrupt:
            interrupted = True
            _stop([*runs, *looks])
        finally:
            for each in [*runs, *looks]:
                each.kill()
    click.echo(table(runs, [part.name for stage in stages for part in stage]))
    if interrupted:
        return 128 + signal.SIGINT
    return 1 if any(each.failed for each in runs) else 0


def table(runs: Sequence[Run], names: Sequence[str]) -> str:
    """Tell how the parts went.

    Args:
        runs: of the parts that were started.
        names: of all parts.
    """
    width = max(len(name) for name in names)
    lines = [f"{'part':<{width}}  seconds  passed  failed  skipped  result"]
    for each in runs:
        passed, failed, skipped = (each.count("passed"), each.count("failed", "errors?"), each.count("skipped"))
        figures = f"{each.seconds:>7.1f}  {passed:>6}  {failed:>6}  {skipped:>7}"
        lines.append(f"{each.part.name:<{width}}  {figures}  {each.result}")
    lines += [f"{name:<{width}}  {'not run':>42}" for name in names[len(runs) :]]
    lines += [f"{each.part.name}: {each.summary}" for each in runs if each.summary]
    lines += [f"unsteady, to be mended: {name}" for each in runs for name in each.unsteady]
    return "\n".join(["", *lines])


def _wait(runs: Sequence[Run]) -> None:
    while [each for each in runs if not each.ended()]:
        time.sleep(LOOK)


def _look_again(run: Run, looks: list[Run]) -> None:
    """Run the few tests of a part that failed again, with nothing beside them, until one fails or all are unsteady."""
    names = run.failed_tests
    if not 0 < len(names) <= LOOKED_AT_AGAIN:
        return
    for number in range(1, LOOKS + 1):
        click.echo(f"── {run.part.name}: what failed again, alone, {number} of {LOOKS} ──")
        look = Run(Part(run.part.name, (sys.executable, "-m", "pytest", "-q", *names)), live=True)
        looks.append(look)
        _wait([look])
        if look.failed:
            return
    run.unsteady = names


def _stop(runs: Sequence[Run]) -> None:
    """Interrupt what still runs and wait for it; who does not want to wait presses Ctrl-C again."""
    for each in runs:
        each.interrupt()
    end = time.monotonic() + GRACE
    with suppress(KeyboardInterrupt):
        while [each for each in runs if not each.ended()] and time.monotonic() < end:
            time.sleep(LOOK)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, and Ctrl-C also where a shell has started this in the background."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


# --- The parts --------------------------------------------------------------------------------------------------------


def tool(name: str, *arguments: str) -> tuple[str, ...]:
    """Name a program of the virtual environment that this program runs in."""
    return (str(Path(sys.executable).with_name(name)), *arguments)


def pytest(name: str, options: Sequence[str], *arguments: str) -> Part:
    """Make a part of tests.

    Args:
        name: of the part.
        options: of the user, for all parts.
        arguments: which tests, and how.
    """
    cache = FAILURES / name.replace(",", "").replace(" ", "-")
    noting = ("-o", f"cache_dir={cache}", "--cache-clear")
    command = (sys.executable, "-m", "pytest", "-q", *SLOWEST, *noting, *arguments, *options)
    return Part(name, command, selected=bool(options), cache=cache)


def marked(mark: str) -> list[str]:
    """Find the files with tests of a mark: who runs only those need not read, and rewrite, all the others first."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(each.relative_to(ROOT)) for each in files if f"mark.{mark}" in each.read_text()]


def lint() -> list[Part]:
    """Style, types and import contracts."""
    return [
        Part("style", tool("ruff", "check")),
        Part("format", tool("ruff", "format", "--check")),
        Part("imports", tool("lint-imports", "--no-logo")),
        Part("types", tool("mypy")),
    ]


def _suites(jobs: int, clusters: int, options: Sequence[str], which: str, *without: str) -> tuple[Part, Part, Part]:
    """The tests by how much of the machine they need: with Spark, side by side (without some), with clusters."""
    side_by_side = ("-n", str(jobs), "--dist", "loadscope", "--no-loadscope-reorder", *without)
    some_at_a_time = ("-n", str(clusters), "--dist", "load")
    return (
        pytest("pipeline, with one Spark", options, "-m", f"spark and {which}", *marked("spark")),
        pytest("tests side by side", options, *side_by_side, "-m", f"not cluster and not spark and {which}"),
        pytest("clusters", options, *some_at_a_time, "-m", f"cluster and {which}", *marked("cluster")),
    )


def everything(jobs: int, clusters: int, options: Sequence[str]) -> list[list[Part]]:
    """What every change has to pass: what takes one core at the same time, then the tests by what they need."""
    which = "not thorough"
    pipeline, side_by_side, in_clusters = _suites(jobs, clusters, options, which, f"--ignore={PROPERTY}")
    # They wait for nothing and nobody, so they can have what others leave of the cores while Spark works.
    properties = pytest("property", options, "-m", which, PROPERTY)
    # Each of the processes of the suites would write anew how the tests' assertions are compiled, if nobody had.
    collection = pytest("collection", options, "-q", "--collect-only")
    return [[*lint(), collection, properties, pipeline], [side_by_side], [in_clusters]]


def at_length(jobs: int, clusters: int, options: Sequence[str]) -> list[list[Part]]:
    """What repeats at length, or on other servers, what a change has passed: for the night and before a release."""
    return [[part] for part in _suites(jobs, clusters, options, "thorough")]


def quick(jobs: int, options: Sequence[str]) -> list[list[Part]]:
    """What is worth its time after each change: no other program is started."""
    suites = ("tests/unit", "tests/property", "tests/contract")
    only = ("-m", "not redis and not haproxy and not cluster and not spark and not thorough")
    tests = pytest("unit, property, contract", options, "-n", str(jobs), "--dist", "loadscope", *only, *suites)
    return [[*lint(), tests]]


@click.command()
@click.argument("which", type=click.Choice(["test", "thorough", "check", "lint"]))
@click.argument("options", nargs=-1)
@click.option("--jobs", default=6, help="Processes for tests that run side by side.")
@click.option("--clusters", default=4, help="Clusters that are tested at a time.")
def main(which: str, options: tuple[str, ...], jobs: int, clusters: int) -> None:
    """Run the checks; OPTIONS after -- are pytest's."""
    stages = {
        "test": lambda: everything(jobs, clusters, options),
        "thorough": lambda: at_length(jobs, clusters, options),
        "check": lambda: quick(jobs, options),
        "lint": lambda: [lint()],
    }[which]()
    sys.exit(run_stages(stages))


if __name__ == "__main__":
    main()
