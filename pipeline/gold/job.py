"""The job: reads bronze and silver, and writes the gold tables of some days.

A table is a folder with one folder for each day, and each of these holds one file. A new file takes the place of the
old one by being renamed onto it, so that every reader sees the old rows of a day or the new ones, and never both or
none; and to run the job again changes nothing but the files' dates.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from gateway.core.journal import events
from pipeline.bronze.files import in_turn
from pipeline.bronze.layout import bronze_of
from pipeline.errors import PipelineError
from pipeline.gold.incidents import found_incidents, incident_sessions, incidents
from pipeline.gold.loads import capacity, traffic
from pipeline.gold.losses import days_of_runs, losses
from pipeline.gold.objectives import objectives, refused_sessions
from pipeline.gold.queues import COUNTS, queues
from pipeline.gold.rejections import rejections
from pipeline.gold.slow_consumers import slow_consumers
from pipeline.gold.storms import storms
from pipeline.gold.words import ENDED
from pipeline.gold.zones import masters, zone_links
from pipeline.lake import Lake
from pipeline.progress import Tell
from pipeline.sentences import sentence_of
from pipeline.spark import address

FILE: Final = "part.parquet"
"""Name of the one file of a day."""

STAGING: Final = ".staging"
"""Below the folder of gold; what is written there is not part of a table yet. Whatever a crash left there is removed by
the next run."""

LOCK: Final = ".lock"
"""Below the folder of gold; held by the job that writes: `pipeline gold` from a timer may meet `pipeline publish`."""

CONTEXT: Final = timedelta(days=1)
"""How much before and after the days asked for is read: incidents reach over midnight, and a day is compared with the
one before."""

SELDOM: Final = tuple(
    each.name
    for each in (
        events.SESSION_REFUSED,
        events.SESSION_SLOW_CLOSED,
        events.SESSION_ORPHANED,
        events.NODE_EXPIRED,
        events.NODE_TAKEN_OVER,
        events.NODE_SUSPECTED,
        events.NODE_TAKEOVER_CONTINUED,
        events.NODE_CLEANED_UP,
        events.GRID_LOST,
        events.GRID_REGAINED,
        events.TRAFFIC_MEASURED,
        events.QUEUE_MEASURED,
        events.ZONE_LINK_CONNECTED,
        events.ZONE_LINK_LOST,
        events.ZONE_GAP_FOUND,
        events.ZONE_LINK_MEASURED,
        events.MASTER_ELECTED,
        events.MASTER_MISSED,
    )
)
"""Events that gold tables are made of, beside sessions and the days of runs: a few hundredths of all, so that one pass
over bronze takes them out and the tables share them."""


SELDOM_COLUMNS: Final = (
    "type", "id", "at", "node", "release", "incarnation", "session", "reason", "peer", "peer_incarnation", "since",
    "until", "root", "deliveries", "publishes", "packets", "bytes", "connections", "sessions", "cpu_ms", "away_ms",
    "lost_writes", "queue", *COUNTS, "settle_max_ms", "term", "remote", "direction", "events", "taken", "repeated",
    "refused", "behind",
)  # fmt: skip
"""What the tables need of them: half of what bronze holds is not even read."""


@dataclass(frozen=True, slots=True)
class Days:
    """Days (UTC) to make tables of, both included; None is as far as there are events.

    Raises:
        ValueError: the last day is before the first.
    """

    first: date | None = None
    last: date | None = None

    def __post_init__(self) -> None:
        if self.first and self.last and self.last < self.first:
            raise ValueError(f"the last day, {self.last}, is before the first, {self.first}")

    def hold(self, column: str, context: timedelta = timedelta()) -> Column:
        """Tell whether a day is one of them."""
        held = f.lit(True)
        if self.first:
            held &= f.col(column) >= f.lit(self.first - context)
        if self.last:
            held &= f.col(column) <= f.lit(self.last + context)
        return held

    def __contains__(self, day: date) -> bool:
        return not ((self.first and day < self.first) or (self.last and day > self.last))


class Sources(NamedTuple):
    """What gold is made of.

    Attributes:
        bronze: events.
        silver: sessions.
        rejected: what could not be an event.
        whole_from: the first day of which retention has removed nothing.
    """

    bronze: DataFrame
    silver: DataFrame
    rejected: DataFrame
    whole_from: date = date.min


def sources_of(spark: SparkSession, lake: Lake) -> Sources:
    """Open what gold is made of.

    Raises:
        NotReady: there are no events, or nobody has made sessions of them.
    """
    whole_from = bronze_of(lake.folder).whole_from()
    return Sources(lake.read_bronze(spark), lake.read_sessions(spark), lake.read_rejected(spark), whole_from)


def make_tables(sources: Sources, keep: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> dict[str, DataFrame]:
    """Make all gold tables.

    Args:
        sources: what they are made of.
        keep: is given each frame that several tables are made of, and may keep its rows.
    """
    bronze, silver, rejected, _ = sources
    seldom = keep(bronze.where(f.col("type").isin(*SELDOM)).select(*SELDOM_COLUMNS))
    days = keep(days_of_runs(bronze))
    found = keep(found_incidents(days, seldom))
    touched = keep(incident_sessions(found, silver, seldom))
    return {
        "objectives": objectives(seldom, silver, found, touched),
        "incidents": incidents(found, touched),
        "incident_sessions": touched,
        "storms": storms(seldom, silver, found),
        "refused_sessions": refused_sessions(seldom, silver),
        "slow_consumers": slow_consumers(seldom, silver),
        "traffic": traffic(seldom),
        "queues": queues(seldom),
        "zone_links": zone_links(seldom),
        "masters": masters(seldom),
        "capacity": capacity(seldom),
        "losses": losses(days),
        "rejections": rejections(rejected),
    }


def write_gold(sources: Sources, folder: Path, days: Days, tell: Tell = lambda _: None) -> Iterator[tuple[str, int]]:
    """Write the rows of some days of all gold tables.

    Days of which retention has removed events stay as they are: nobody could tell them again.

    Args:
        sources: what they are made of.
        folder: of gold.
        days: which. If one end is open, it is that of the events: what is older stays as it is, even if bronze no
            longer goes back so far.
        tell: is told of days that stay as they are though they were asked for.

    Yields:
        The name of each table that has been written, and how many rows of these days it has.

    Raises:
        PipelineError: some tables could not be made, and are as they were; the others are new.
    """
    held = _closed(sources, days)
    if held is None:
        return
    if held[0] < sources.whole_from:
        tell(f"days before {sources.whole_from} stay as they are: retention has removed events of them")
        if held[1] < sources.whole_from:
            return
        held = sources.whole_from, held[1]
    first, last = held
    days = Days(first, last)
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return kept[-1]

    bronze, silver, rejected, _ = sources
    try:
        read = Sources(bronze.where(days.hold("date", CONTEXT)), silver.where(lived(first, last)), rejected)
        tables = make_tables(read, keep)
        failed: dict[str, str] = {}
        with staging(folder) as place:
            for name, frame in tables.items():
                try:
                    _stage(frame.where(days.hold("date")), place / name)
                    rows = publish(place / name, folder / name, days)
                except (PySparkException, Py4JJavaError) as error:
                    # One number that no table can hold must not cost the answers of the others.
                    failed[name] = sentence_of(error)
                else:
                    yield name, rows
        if failed:
            told = "; ".join(f"{name} ({why})" for name, why in failed.items())
            raise PipelineError(f"these gold tables could not be made, and stay as they were: {told}")
    finally:
        for frame in kept:
            frame.unpersist()


def _stage(rows: DataFrame, place: Path) -> None:
    """Write one file for each day, with its rows in a fixed order."""
    order = [each for each in rows.columns if each != "date"]
    in_order = rows.repartition("date").sortWithinPartitions("date", *order)
    in_order.write.partitionBy("date").parquet(address(place))


def _closed(sources: Sources, days: Days) -> tuple[date, date] | None:
    """Put the ends of what there is where those of *days* are open; None if there is nothing on these days."""
    found = sources.bronze.select("date").union(sources.rejected.select(f.to_date("seen_at")))
    row = found.where(days.hold("date")).agg(f.min("date").alias("first"), f.max("date").alias("last")).first()
    if row is None or row["first"] is None:
        return None
    return days.first or row["first"], days.last or row["last"]


def lived(first: date, last: date) -> Column:
    """Tell whether a session lived on some days, or so near to them that what happened then may concern it.

    Of a session that is just connected nothing is told, for weeks; and it is the one that a death touches.

    Args:
        first: of the days.
        last: of them.
    """
    soon = f.date_sub(f.to_date("first_event_at"), CONTEXT.days)
    late = f.date_add(f.to_date("last_event_at"), CONTEXT.days)
    return (soon <= f.lit(last)) & ((late >= f.lit(first)) | (f.col("state") != ENDED))


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Give a place to write to; who comes while another job writes gold waits for its end.

    Args:
        folder: of gold.
    """
    place = folder / STAGING
    folder.mkdir(parents=True, exist_ok=True)
    with in_turn(folder / LOCK):
        shutil.rmtree(place, ignore_errors=True)
        try:
            yield place / uuid4().hex
        finally:
            shutil.rmtree(place, ignore_errors=True)


def publish(staged: Path, table: Path, days: Days) -> int:
    """Put what was staged into the place of the old rows, day by day."""
    rows, written = 0, set()
    for part in sorted(staged.glob("date=*/*.parquet")):
        place = table / part.parent.name
        place.mkdir(parents=True, exist_ok=True)
        rows += pq.read_metadata(part).num_rows
        part.replace(place / FILE)
        written.add(place.name)
    for place in table.glob("date=*"):
        if place.name not in written and date.fromisoformat(place.name.removeprefix("date=")) in days:
            (place / FILE).unlink(missing_ok=True)
    return rows
