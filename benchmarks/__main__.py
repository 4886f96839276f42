"""The command: ``python -m benchmarks``."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console

from benchmarks.catalogue import cases_by_name, systems_by_name
from benchmarks.placement import Placement
from benchmarks.processes import scratch_folder
from benchmarks.report import as_json, show, write_json
from benchmarks.runner import Plan, run
from benchmarks.systems.base import SystemUnavailable
from benchmarks.terminal import TerminalSpectator

DEFAULT_WIDTH = 160
"""Columns of the tables where there is no terminal to ask."""


def _names(known: Mapping[str, object], text: str | None) -> list[str]:
    """Split a list of names; all if there is none.

    Raises:
        click.BadParameter: one is not known.
    """
    chosen = [each.strip() for each in (text or "").split(",") if each.strip()] or list(known)
    if unknown := [each for each in chosen if each not in known]:
        raise click.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def _allow_many_connections() -> None:
    """Raise the limit of open files as far as this user may: 10,000 connections need as many at either end."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _stop(number: int, _frame: object) -> NoReturn:
    """Leave by an exception, so that everything that was started is stopped."""
    sys.exit(128 + number)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", metavar="NAMES", help="Cases to run, with commas between them.  [default: all]")
@click.option("--systems", metavar="NAMES", help="Systems to measure, likewise.  [default: all]")
@click.option("--runs", type=click.IntRange(min=1), help="How often each is measured.  [default: what the case says]")
@click.option("--quick", is_flag=True, help="Shorter windows: to try things, not to publish.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all raw values there."
)
@click.option("--list", "listing", is_flag=True, help="Say which cases and systems there are.")
def main(
    *, only: str | None, systems: str | None, runs: int | None, quick: bool, json_file: Path | None, listing: bool
) -> None:
    """Measure the gateway and its peers in turn, on the same work.

    Exits with 1 if anything was lost, swapped or wrong anywhere, or did not start; a missed target is shown, and is no
    failure.
    """
    all_cases, all_systems = cases_by_name(), systems_by_name()
    if listing:
        for name, case in all_cases.items():
            click.echo(f"{name:16} {case.title}")
        for name, system in all_systems.items():
            click.echo(f"{name:16} {system.title}")
        return
    chosen = _names(all_systems, systems)
    plan = Plan(
        cases=[all_cases[name]() for name in _names(all_cases, only)],
        systems=[all_systems[name]() for name in chosen],
        left_out=frozenset(all_systems) - frozenset(chosen),
        rounds=runs,
        quick=quick,
    )
    signal.signal(signal.SIGTERM, _stop)
    _allow_many_connections()
    console = Console()
    if not console.is_terminal:
        console = Console(width=DEFAULT_WIDTH)
    try:
        with scratch_folder("run") as folder, TerminalSpectator(console) as spectator:
            outcome = run(plan, Placement.of_this_machine(), folder, spectator)
    except (SystemUnavailable, RuntimeError) as reason:
        raise click.ClickException(str(reason)) from reason
    show(plan, outcome, console)
    if json_file is not None:
        write_json(json_file, as_json(plan, outcome, plan.systems))
    sys.exit(1 if outcome.failed else 0)


if __name__ == "__main__":
    main()
