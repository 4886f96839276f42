"""``python -m tests.browser``: pages with the JavaScript client in Chromium under faults, for as long as you like."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
from pathlib import Path
from typing import Final

import click

from tests.browser.faults import FAULTS
from tests.browser.run import run
from tests.support.browser import BrowserMissing, chromium_program

HELD, VIOLATED = 0, 1
DEFAULT_MINUTES: Final = 2.0


@click.command()
@click.option("--seed", type=int, help="Decides order, victims and moments of the faults; drawn if not given.")
@click.option(
    "--minutes", default=DEFAULT_MINUTES, show_default=True, help="How long; every fault comes at least once."
)
@click.option("--faults", default=",".join(FAULTS), help="Only these, with commas between them; see --list.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path(".local/browser"),
    show_default=True,
    help="Gets a folder for the run, with logs, and with pictures and records if a promise was broken.",
)
@click.option("--list", "listed", is_flag=True, help="Tell what faults there are.")
def main(seed: int | None, minutes: float, faults: str, folder: Path, listed: bool) -> None:
    """Break pages, their network and the gateway at random, and judge what the pages saw.

    Exits with 0 if everything held, 1 if a promise was broken.
    """
    if listed:
        for name, fault in FAULTS.items():
            click.echo(f"{name:18} {(fault.__doc__ or '').partition(chr(10))[0]}")
        return
    names = faults.split(",")
    if unknown := set(names) - FAULTS.keys():
        raise click.UsageError(f"there is no fault {', '.join(sorted(unknown))}; see --list")
    try:
        chromium_program()
    except BrowserMissing as missing:
        raise click.ClickException(str(missing)) from None
    chosen = secrets.randbelow(1 << 32) if seed is None else seed
    click.echo(f"seed {chosen}")
    place = folder / f"run-{chosen}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    outcome = asyncio.run(
        run(place, seed=chosen, seconds=60 * minutes, faults=names, report=lambda line: click.echo(f"  {line}"))
    )
    click.echo(outcome.explain() if outcome.violations else f"no violation; {outcome.figures}")
    sys.exit(VIOLATED if outcome.violations else HELD)


if __name__ == "__main__":
    main()
