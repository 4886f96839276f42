"""``pipeline ingest``."""

from __future__ import annotations

import click

from pipeline.bronze.ingest import IngestOptions
from pipeline.bronze.ingest import ingest as take_in
from pipeline.cli.options import SPARK, configured, needed, spark_of
from pipeline.cli.output import Teller, result
from pipeline.cli.signals import until_signalled
from pipeline.configuration import Configuration
from pipeline.source.journal import JournalPlace
from pipeline.spark import LIGHT


@click.command()
@configured(
    *SPARK,
    "grid",
    "grid_prefix",
    "grid_timeout",
    "batch_entries",
    "trim_lag",
    "clock_past",
    "clock_future",
    "follow_every",
)
@click.option("--follow", is_flag=True, help="Go on until SIGTERM or Ctrl-C, instead of ending when all is taken in.")
@click.option("--accept-loss", is_flag=True, help="Write down in bronze what of the journal is gone, and go on behind.")
@click.option("--take-over", is_flag=True, help="Go on though another lake has been reading this journal.")
def ingest(*, configuration: Configuration, follow: bool, accept_loss: bool, take_over: bool) -> None:
    """Take the journal into bronze: each event once, whatever crashes on the way.

    Run it again after any failure; it goes on where bronze ends. Entries are trimmed from the journal when they are in
    bronze. If the journal has lost entries that bronze has not, it refuses to begin, with exit code 2.
    """
    options = IngestOptions(
        lake=configuration.lake,
        place=JournalPlace(needed(configuration, "grid"), configuration.grid_prefix, configuration.grid_timeout),
        batch_entries=configuration.batch_entries,
        trim_lag=configuration.trim_lag,
        past=configuration.clock_past,
        future=configuration.clock_future,
        every=configuration.follow_every if follow else None,
        accept_loss=accept_loss,
        take_over=take_over,
    )
    teller = Teller()
    with (
        until_signalled() as stopping,
        teller.working("starting Spark"),
        spark_of(configuration, "ingest", LIGHT) as spark,
    ):
        done = take_in(spark, options, teller.note, lambda: not stopping.is_set())
    result(
        f"{done.events:,} events taken in, {done.rejected:,} lines rejected, {done.duplicates:,} left out that came "
        f"twice, {done.misdated:,} with an impossible time, {done.losses:,} losses accepted"
    )
