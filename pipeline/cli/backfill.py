"""``pipeline backfill``."""

from __future__ import annotations

from datetime import date, datetime

import click

from pipeline.bronze.layout import bronze_of, no_events
from pipeline.cli.options import SPARK, configured, spark_of
from pipeline.cli.output import Teller, result
from pipeline.configuration import Configuration
from pipeline.errors import NotReady
from pipeline.lake import Lake
from pipeline.sessions.jobs import backfill_sessions
from pipeline.sessions.table import Days
from pipeline.sizing import sized

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@configured(*SPARK, "watermark_delay")
@click.option("--from", "first", type=_DAY, metavar="DAY", help="Only sessions that were opened on this day or later.")
@click.option("--to", "last", type=_DAY, metavar="DAY", help="Only sessions that were opened on this day or earlier.")
def backfill(*, configuration: Configuration, first: datetime | None, last: datetime | None) -> None:
    """Make the table of sessions anew from bronze: all of it, or the sessions that were opened on some days (UTC).

    The rows are those that `pipeline sessions` makes, and the two may take turns, but not run at the same time. What
    bronze cannot tell any more, because `pipeline compact` removed the events, stays as it is.
    """
    days = None
    if first is not None or last is not None:
        days = Days(first.date() if first else date.min, last.date() if last else date.max)
        if days.first > days.last:
            raise click.UsageError(f"--from {days.first} is after --to {days.last}")
    bronze = Lake(configuration.lake).bronze
    if not bronze_of(configuration.lake).hours():
        raise NotReady(no_events(configuration.lake))
    teller = Teller()
    with teller.working("starting Spark"), spark_of(configuration, "backfill", sized([bronze])) as spark:
        done = backfill_sessions(
            spark, configuration.lake, delay=configuration.watermark_delay, days=days, tell=teller.note
        )
    result(f"{done.rows:,} sessions in {done.files:,} files, {done.strays:,} left as they were")
