"""``pipeline compact``."""

from __future__ import annotations

import time
from typing import Final

import click

from pipeline.bronze.compaction import compact as put_together
from pipeline.cli.options import configured
from pipeline.cli.output import Teller, result
from pipeline.configuration import Configuration
from pipeline.upkeep.retention import Retained, retain

_DAY: Final = 86_400.0
"""Seconds."""


@click.command()
@configured("lake", "compact_grace", "compact_size", "keep_days")
def compact(*, configuration: Configuration) -> None:
    """Put the small files of each past hour of bronze together, and remove what is too old from all tables.

    Runs beside `pipeline ingest` and without Spark; once a day is enough. Whoever reads bronze sees an hour as it was
    or as it is; one who is just about to open a file that is no more is told so, and begins again.
    """
    keep = configuration.keep_days
    now = time.time_ns() // 1000
    gone = Retained()
    teller = Teller()
    with teller.working("looking for small files"):
        done = put_together(
            configuration.lake,
            grace=configuration.compact_grace,
            target=configuration.compact_size,
            keep=None if keep is None else keep * _DAY,
            tell=teller.note,
            now=now,
        )
        if keep is not None:
            gone = retain(configuration.lake, now - int(keep * _DAY * 1_000_000), teller.note)
    result(f"{done.hours} hours compacted: {done.before} files are {done.after} now; {done.removed} old hours removed")
    if keep is not None:
        result(f"{gone.sessions} old sessions removed, {gone.days} old days of gold tables removed")
