"""The command: ``python -m benchmarks``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from benchmarks.cases.base import OURS, Case
from benchmarks.catalogue import cases_by_default, cases_by_name, systems_by_name
from benchmarks.checkout import Checkout, checkout_of
from benchmarks.commandline import chosen_names, prepare_process
from benchmarks.generator.driver import GeneratorFailed
from benchmarks.placement import Placement
from benchmarks.processes import scratch_folder
from benchmarks.report import as_json, show, write_json
from benchmarks.runner import Plan, run
from benchmarks.systems.base import SystemUnavailable
from benchmarks.terminal import TerminalSpectator

DEFAULT_WIDTH = 160
"""Columns of the tables where there is no terminal to ask."""

NOT_MEASURED = 2
"""Exit code if nothing could be measured at all; wrong options have the same."""


class _NothingMeasured(click.ClickException):
    """Shown to whoever typed the command."""

    exit_code = NOT_MEASURED


def _may_write(file: Path) -> None:
    """Find out before the run, not after it, whether its results can be written.

    Raises:
        click.BadParameter: they cannot.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()
        if not file.stat().st_size:
            file.unlink()  # a run that is broken off leaves no empty results
    except OSError as reason:
        raise click.BadParameter(f"cannot write {file}: {reason.strerror}") from reason


@contextmanager
def _other_version(against: str | None) -> Iterator[Checkout | None]:
    """Make the version ready that ours is compared with.

    Raises:
        click.BadParameter: it does not run.
    """
    if against is None:
        yield None
        return
    with scratch_folder("against") as folder:
        try:
            version = checkout_of(against, folder)
        except SystemUnavailable as reason:
            raise click.BadParameter(str(reason)) from reason
        yield version


def _described(case: type[Case]) -> str:
    """Say what a case is, for the list."""
    if not case.apart:
        return f"{case.title}, {case.rounds} x {', '.join(case.contestants)}"
    rows = ", ".join(case.contestants)
    return f"{case.title}; only when it is named, for {case.apart}; --rows are {rows}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", metavar="NAMES", help="Cases to run, with commas between them.  [default: all but those apart]")
@click.option("--rows", metavar="NAMES", help="Rows of the chosen cases, likewise, such as attacks of hostile.")
@click.option("--systems", metavar="NAMES", help="Systems to measure, likewise.  [default: all]")
@click.option("--runs", type=click.IntRange(min=1), help="How often each is measured.  [default: what the case says]")
@click.option(
    "--against",
    metavar="COMMIT|FOLDER",
    help="Measure that version of the gateway, too, in turns with this one, and tell by how much each figure differs; "
    "of systems the gateway alone, unless --systems names others. From 6 rounds on (--runs) intervals are told.",
)
@click.option("--quick", is_flag=True, help="Shorter windows: to try things, not to publish.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all raw values there."
)
@click.option("--list", "listing", is_flag=True, help="Say which cases and systems there are.")
def main(
    *,
    only: str | None,
    rows: str | None,
    systems: str | None,
    runs: int | None,
    against: str | None,
    quick: bool,
    json_file: Path | None,
    listing: bool,
) -> None:
    """Measure the gateway and its peers in turn, on the same work.

    Exits with 1 if anything was lost, swapped or wrong anywhere, or did not start; a missed target is shown, and is no
    failure. Exits with 2 if nothing could be measured.
    """
    all_cases, all_systems = cases_by_name(), systems_by_name()
    if listing:
        click.echo("Cases, for --only (make bench ONLY=…):")
        for name, case in all_cases.items():
            click.echo(f"  {name:16} {_described(case)}")
        click.echo("Systems, for --systems:")
        for name, system in all_systems.items():
            click.echo(f"  {name:16} {system.title}")
        return
    chosen = chosen_names(all_systems, systems, default=[OURS] if against else None)
    cases = [all_cases[name]() for name in chosen_names(all_cases, only, default=cases_by_default())]
    if against is not None and (strange := [case.name for case in cases if OURS not in case.contestants]):
        raise click.BadParameter(f"not with --against: {', '.join(strange)}")
    if json_file is not None:
        _may_write(json_file)
    prepare_process()
    console = Console()
    if not console.is_terminal:
        console = Console(width=DEFAULT_WIDTH)
    with _other_version(against) as version:
        plan = Plan(
            cases=cases,
            systems=[all_systems[name]() for name in chosen],
            left_out=frozenset(all_systems) - frozenset(chosen),
            rounds=runs,
            quick=quick,
            rows=chosen_names({each: None for case in cases for each in case.contestants}, rows) if rows else (),
            against=version,
        )
        try:
            with scratch_folder("run") as folder, TerminalSpectator(console) as spectator:
                outcome = run(plan, Placement.of_this_machine(), folder, spectator)
        except (SystemUnavailable, GeneratorFailed, RuntimeError) as reason:
            raise _NothingMeasured(str(reason)) from reason
    show(plan, outcome, console)
    if not outcome.results.rows and not outcome.broken:
        reasons = "; ".join(outcome.unavailable.values()) or "none of the systems takes part in these cases"
        raise _NothingMeasured(f"nothing was measured: {reasons}")
    if json_file is not None:
        write_json(json_file, as_json(plan, outcome, plan.systems))
    sys.exit(1 if outcome.failed else 0)


if __name__ == "__main__":
    main()
