"""``pipeline sessions``."""

from __future__ import annotations

from typing import Final

import click

from pipeline.bronze.source import look_for_commits
from pipeline.cli.options import SPARK, configured, spark_of
from pipeline.cli.output import Teller, result
from pipeline.cli.signals import until_signalled
from pipeline.configuration import Configuration
from pipeline.sessions.jobs import SessionsOptions, stream_sessions

MERGE_PARTITIONS: Final = 16
"""Into how many parts a merge is shuffled: of how many rows is not known when the job begins, and Spark joins those
that are too small."""


@click.command()
@configured(*SPARK, "watermark_delay", "batch_commits", "follow_every", "merge_every")
@click.option("--follow", is_flag=True, help="Go on until SIGTERM or Ctrl-C, instead of ending when all is read.")
def sessions(*, configuration: Configuration, follow: bool) -> None:
    """Bring what is new in bronze into the table of sessions: one row each, with its timeline.

    Run it again after any failure; it goes on where it was. With `--follow` it can run beside `pipeline ingest
    --follow`.
    """
    options = SessionsOptions(
        lake=configuration.lake,
        delay=configuration.watermark_delay,
        commits=configuration.batch_commits,
        every=configuration.follow_every if follow else None,
        fresh=configuration.merge_every,
    )
    look_for_commits(options.lake, waits=follow)
    partitions = {"spark.sql.shuffle.partitions": str(MERGE_PARTITIONS)}
    teller = Teller()
    with (
        until_signalled() as stopping,
        teller.working("starting Spark"),
        spark_of(configuration, "sessions", partitions) as spark,
    ):
        done = stream_sessions(spark, options, teller.note, lambda: not stopping.is_set())
    result(
        f"{done.batches:,} batches, {done.rows:,} rows changed, {done.written:,} rows written, "
        f"{done.strays:,} sessions left to a backfill"
    )
