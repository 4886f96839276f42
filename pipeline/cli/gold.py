"""``pipeline gold``."""

from __future__ import annotations

from datetime import date, datetime

import click

from pipeline.cli.options import SPARK, configured, spark_of
from pipeline.cli.output import Teller, result
from pipeline.configuration import Configuration
from pipeline.gold.job import Days, sources_of, write_gold
from pipeline.lake import Lake
from pipeline.sizing import sized

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.option(
    "--from", "first", metavar="DATE", type=_DAY, help="First day (UTC) to make. [default: that of the events]"
)
@click.option("--to", "last", metavar="DATE", type=_DAY, help="Last day (UTC) to make. [default: that of the events]")
@configured(*SPARK)
def gold(*, configuration: Configuration, first: datetime | None, last: datetime | None) -> None:
    """Make the gold tables of events and sessions: objectives, incidents, storms, traffic and more.

    Run it as often as you like: the rows of the days that it makes take the place of the old ones, and readers see
    either. Without days it makes all of which there are events; from a timer, `--from` yesterday is enough.
    """
    try:
        days = Days(_day(first), _day(last))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    lake = Lake(configuration.lake)
    lake.look()
    teller = Teller()
    with (
        teller.working("starting Spark"),
        spark_of(configuration, "gold", sized([lake.bronze, lake.sessions])) as spark,
    ):
        for name, rows in write_gold(sources_of(spark, lake), lake.gold, days, teller.note):
            result(f"{rows:>12,} rows of {name}")


def _day(given: datetime | None) -> date | None:
    return None if given is None else given.date()
