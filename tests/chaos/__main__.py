"""``make chaos``: break a cluster at random, and judge by an account of its own what it lost."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
import traceback
from pathlib import Path
from typing import Final

import click
import pytest

from gateway.local.ports import PortsTaken
from gateway.local.processes import ProcessFailed
from tests.chaos.deadlines import Stuck
from tests.chaos.faults import CATALOGUE
from tests.chaos.faults.fault import possible, summary_table
from tests.chaos.mirrors import MIRRORS
from tests.chaos.pages import require_browser, strike_pages
from tests.chaos.plan import Plan, PlanUnreadable, draw
from tests.chaos.report import report
from tests.chaos.run import strike
from tests.chaos.zones import GRID, strike_zones
from tests.support.browser import BrowserMissing

GRIDS: Final = ("single", "sentinel", "cluster")
DEFAULT_MINUTES: Final = 1.5
HELD, VIOLATED, UNUSABLE = 0, 1, 2
UNMADE: Final = (
    ProcessFailed,
    PortsTaken,
    Stuck,
    OSError,
    pytest.fail.Exception,
    pytest.skip.Exception,
    BaseExceptionGroup,
)
"""What a run may meet that can neither hold nor violate anything."""


@click.command()
@click.option("--seed", type=int, help="Decides the plan and what clients do; drawn if not given.")
@click.option("--minutes", default=DEFAULT_MINUTES, show_default=True, help="How long faults are struck.")
@click.option("--faults", help="Only these, with commas between them; see --list.")
@click.option("--without", help="All but these, with commas between them.")
@click.option(
    "--grid",
    type=click.Choice((*GRIDS, GRID)),
    default="single",
    show_default=True,
    help="What nodes have for a grid; zones: three linked clusters, each with one Redis.",
)
@click.option(
    "--mirror",
    type=click.Choice(MIRRORS),
    help="Whether nodes have backups, which keep copies of their sessions; decided by the seed if not given.",
)
@click.option(
    "--plan",
    "file",
    type=click.Path(path_type=Path, exists=True),
    help="Strike this plan, perhaps shortened by hand, in the place of a drawn one.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path(".local/chaos"),
    show_default=True,
    help="Gets a folder for the run, with logs and plan.",
)
@click.option(
    "--browser", is_flag=True, help="Break pages in Chromium as well, for as many minutes again (tests.browser)."
)
@click.option("--dry", is_flag=True, help="Write and show the plan, and strike nothing.")
@click.option("--list", "listed", is_flag=True, help="Tell what faults there are.")
def main(
    *,
    seed: int | None,
    minutes: float,
    faults: str | None,
    without: str | None,
    grid: str,
    mirror: str | None,
    file: Path | None,
    folder: Path,
    browser: bool,
    dry: bool,
    listed: bool,
) -> None:
    """Break nodes, links, HAProxy and Redis at random under load, and look for broken promises.

    Exits with 0 if everything held, 1 if a promise was broken, 2 if the run could not be made.
    """
    if listed:
        for name, grids, summary in summary_table():
            click.echo(f"{name:28} {grids:18} {summary}")
        return
    if browser and not dry:
        _require_browser()
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    plan = _drawn(seed, grid, minutes, _names(faults, without), mirror) if file is None else _read(file)
    if not plan.steps and not dry:
        raise click.UsageError("the plan has no fault: give more minutes, or other faults")
    run = folder / f"{plan.grid}-{plan.seed}"
    run.mkdir(parents=True, exist_ok=True)
    plan.write(run / "plan.json")
    click.echo(
        f"seed {plan.seed}, {plan.grid}, mirror {plan.mirror}, {len(plan.steps)} faults in {plan.seconds:g} s; "
        f"{run / 'plan.json'}"
    )
    if dry:
        for step in plan.steps:
            click.echo(f"{step.at:6.1f} s  {step}  for {step.lasts:g} s")
        return
    options = [f"--faults {faults}"] * bool(faults) + [f"--without {without}"] * bool(without)
    options = (options if file is None else [f"--plan {file}"]) + ["--browser"] * browser
    try:
        violations = _strike(plan, run, options, browser=browser)
    except UNMADE as failed:
        click.echo(f"the run could not be made: {failed}", err=True)
        traceback.print_exception(failed)
        sys.exit(UNUSABLE)
    sys.exit(VIOLATED if violations else HELD)


def _strike(plan: Plan, run: Path, options: list[str], *, browser: bool) -> int:
    """Strike a plan, and pages after it if wanted; returns how many violations were found."""
    # What another run has left, its data above all, is not to be judged again.
    for part in ("stack", "pages"):
        shutil.rmtree(run / part, ignore_errors=True)
    if plan.grid == GRID:
        (run / "stack").mkdir()
        outcome = asyncio.run(strike_zones(plan, run / "stack", click.echo))
    else:
        outcome = asyncio.run(strike(plan, run / "stack", click.echo))
    click.echo(report(outcome, options))
    if not browser:
        return len(outcome.violations)
    (run / "pages").mkdir()
    seen = asyncio.run(strike_pages(run / "pages", seed=plan.seed, seconds=plan.seconds, tell=click.echo))
    click.echo(f"pages: {seen.explain() if seen.violations else f'no violation; {seen.figures}'}")
    return len(outcome.violations) + len(seen.violations)


def _read(file: Path) -> Plan:
    try:
        return Plan.read(file, CATALOGUE)
    except PlanUnreadable as unreadable:
        raise click.UsageError(str(unreadable)) from None


def _drawn(seed: int, grid: str, minutes: float, names: list[str], mirror: str | None) -> Plan:
    chosen, missing = possible((CATALOGUE[name] for name in names), grid)
    for name, why in missing.items():
        click.echo(f"{name} is left out: {why}")
    return draw(seed=seed, grid=grid, seconds=minutes * 60, faults=chosen, mirror=mirror)


def _require_browser() -> None:
    try:
        require_browser()
    except BrowserMissing as missing:
        raise click.UsageError(str(missing)) from None


def _names(faults: str | None, without: str | None) -> list[str]:
    wanted = faults.split(",") if faults else list(CATALOGUE)
    unwanted = without.split(",") if without else []
    for name in (*wanted, *unwanted):
        if name not in CATALOGUE:
            raise click.UsageError(f"there is no fault {name!r}; see --list")
    return [name for name in wanted if name not in unwanted]


if __name__ == "__main__":
    main()
