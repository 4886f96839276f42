"""``pipeline report``."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import click

from pipeline.cli.options import configured
from pipeline.cli.output import Teller, result
from pipeline.configuration import Configuration
from pipeline.lake import Lake
from pipeline.report import Objective, read_findings, write_report
from pipeline.report.objective import DEFAULT_AWAY_SECONDS, DEFAULT_SHARE

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.option(
    "--output",
    "output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="Where to write the page.",
)
@click.option("--from", "first", metavar="DATE", type=_DAY, help="First day (UTC) to tell of. [default: that of gold]")
@click.option("--to", "last", metavar="DATE", type=_DAY, help="Last day (UTC) to tell of. [default: that of gold]")
@click.option(
    "--objective-share",
    metavar="SHARE",
    type=click.FloatRange(0, 1),
    default=DEFAULT_SHARE,
    show_default=True,
    help="Which share of all comebacks shall be good ones.",
)
@click.option(
    "--objective-away",
    metavar="SECONDS",
    type=click.FloatRange(0, min_open=True),
    default=DEFAULT_AWAY_SECONDS,
    show_default=True,
    help="After how many seconds a comeback from an incident is not a good one any more.",
)
@configured("lake")
def report(
    *,
    configuration: Configuration,
    output: Path,
    first: datetime | None,
    last: datetime | None,
    objective_share: float,
    objective_away: float,
) -> None:
    r"""Write a page about some days: the objective, comebacks, incidents with the timelines of sessions, and more.

    The page is one file that needs nothing but a browser: send it to whoever asks. It is made of the gold tables, so
    run `pipeline gold` before. It needs no Spark.

    \b
    Example:
      pipeline report --from 2026-01-01 --to 2026-01-31 --output january.html
    """
    if first and last and last < first:
        raise click.UsageError(f"the last day, {last:%Y-%m-%d}, is before the first, {first:%Y-%m-%d}")
    lake = Lake(configuration.lake)
    teller = Teller()
    with teller.working("reading gold and silver"):
        findings = read_findings(lake.gold, lake.sessions, first=_day(first), last=_day(last))
    with teller.working("drawing"):
        write_report(
            findings,
            Objective(objective_share, objective_away),
            output,
            made_at=datetime.now(UTC),
            lake=str(configuration.lake),
        )
    result(str(output))


def _day(given: datetime | None) -> date | None:
    return None if given is None else given.date()
