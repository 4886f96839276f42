"""The jobs that make the table of sessions: a stream that goes on, and a backfill that begins anew."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.bronze.files import empty, only_one
from pipeline.bronze.layout import bronze_of
from pipeline.bronze.source import follow_files, look_for_commits, read_bronze
from pipeline.progress import Tell
from pipeline.sessions.frames import facts_of, heard_until_ms, silver_of
from pipeline.sessions.rules import MICROSECONDS
from pipeline.sessions.store import StateStore, Version
from pipeline.sessions.table import Days, Merged, SessionsTable
from pipeline.sessions.tasks import Done as TaskDone
from pipeline.sessions.tasks import Plan, folding_task, hearing_task
from pipeline.spark import address
from pipeline.streaming import run_query, trigger

_MERGE_AT_LEAST: Final = 100_000
"""Changed rows that are put aside before they are merged, unless the table has to be fresh."""

_JOB: Final = "`pipeline sessions` or `pipeline backfill`"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsOptions:
    """What the stream needs to know.

    Attributes:
        lake: the folder of all tables.
        delay: seconds by which the watermark stays behind.
        commits: of bronze in one micro-batch at most.
        every: seconds between micro-batches while following; None to end when all of bronze is read.
        fresh: seconds after which a change is in the table, while following.
    """

    lake: Path
    delay: float
    commits: int
    every: float | None = None
    fresh: float = 60.0


@dataclass(slots=True)
class Done:
    """What a run of the stream did.

    Attributes:
        batches: that changed something.
        rows: that changed, each as often as it did.
        written: rows in the files that were written for it.
        strays: sessions of which something was told after they were forgotten.
    """

    batches: int = 0
    rows: int = 0
    written: int = 0
    strays: int = 0


class Writer:
    """Takes what each micro-batch changes, and merges it into the table when it is time."""

    def __init__(self, spark: SparkSession, table: SessionsTable, options: SessionsOptions, tell: Tell) -> None:
        self._spark = spark
        self._table = table
        self._store = StateStore(table.checkpoint)
        self._root = str(bronze_of(options.lake).root)
        self._options = options
        self._tell = tell
        self._waiting = 0
        self._last_written = 0
        self._merged_at = time.monotonic()
        self.done = Done()
        self.taken = 0

    def take(self, batch: DataFrame, number: int) -> None:
        """Take a batch in; it may be the one of before a crash once more.

        Args:
            batch: which files there are to read, from ``follow_files``.
            number: of the batch.
        """
        before = self._store.version(number - 1)
        heard = self._heard(batch, before)
        empty(self._table.folding)
        plan = Plan(
            root=self._root,
            checkpoint=str(self._table.checkpoint),
            staging=str(self._table.folding),
            before=before.batch,
            heard_until_ms=max(0, heard // MICROSECONDS - round(self._options.delay * 1000)),
        )
        told = batch.mapInArrow(folding_task(plan), "told string").collect()
        done = [TaskDone(**json.loads(row["told"])) for row in told]
        self._table.put_files_aside(number, [self._table.folding / each.changes for each in done if each.changes])
        known = {each.stream: self._table.folding / each.known for each in done if each.known}
        self._store.commit(Version(batch=number, heard=heard, sessions=sum(each.sessions for each in done)), known)
        rows = sum(each.rows for each in done)
        self.taken += 1
        self._waiting += rows
        if rows:
            self.done.batches += 1
            self.done.rows += rows
            self._tell(f"batch {number}: {rows:,} sessions changed")
        if self._is_time():
            self.merge()

    def _heard(self, batch: DataFrame, before: Version) -> int:
        """Tell up to when nodes have told anything; no clock that is ahead carries it beyond now."""
        newest: int = max(row["heard"] for row in batch.mapInArrow(hearing_task(self._root), "heard long").collect())
        return max(before.heard, min(newest, time.time_ns() // 1000))

    def _is_time(self) -> bool:
        """Whether enough has changed: as much as the last merge wrote, so that all merges cost about what changes do.

        While somebody follows, also when the table would be out of date.
        """
        follows = self._options.every is not None
        stale = follows and self._waiting > 0 and time.monotonic() - self._merged_at >= self._options.fresh
        return stale or self._waiting >= max(_MERGE_AT_LEAST, self._last_written)

    def merge(self) -> None:
        """Bring what is put aside into the table."""
        merged = self._table.merge(self._spark)
        self._waiting, self._last_written, self._merged_at = 0, merged.written, time.monotonic()
        self.done.written += merged.written
        self.done.strays += merged.strays
        if merged.files:
            self._tell(f"merged {merged.rows:,} changed rows into {merged.files:,} files with {merged.written:,} rows")
        if merged.strays:
            self._tell(_stray(merged))


def _stray(merged: Merged) -> str:
    return (
        f"{merged.strays:,} sessions had events more than a day after their end, or out of order by more; their rows "
        "are as they were, and `pipeline backfill` brings those events in"
    )


def stream_sessions(
    spark: SparkSession, options: SessionsOptions, tell: Tell, wanted: Callable[[], bool] = lambda: True
) -> Done:
    """Bring what is new in bronze into the table of sessions.

    Args:
        spark: to run in.
        options: what to read, and how.
        tell: is told of every batch.
        wanted: asked several times a second; when it says no, the job ends after the batch in hand.

    Raises:
        NotReady: another job writes the table, or there is nothing to read in bronze, and nobody waits for it.
        PipelineError: bronze has forgotten commits that were not read yet, or is another one.
        pyspark.errors.PySparkException: Spark failed, or a disk; run it again.
    """
    look_for_commits(options.lake, waits=options.every is not None)
    table = SessionsTable(options.lake)
    with only_one(table.lock, _JOB):
        writer = Writer(spark, table, options, tell)
        if StateStore(table.checkpoint).is_missing():
            tell("what the stream of sessions knew is of an older release; it begins anew from bronze")
            shutil.rmtree(table.checkpoint)
        if not table.checkpoint.exists():
            # Whoever removed it wants to begin anew, with batches that count from 0 again.
            writer.merge()

        def start() -> StreamingQuery:
            files = follow_files(spark, options.lake, commits=options.commits).writeStream.queryName("sessions")
            placed = files.option("checkpointLocation", address(table.checkpoint))
            return placed.foreachBatch(writer.take).trigger(**trigger(options.every)).start()

        run_query(start, tell, wanted, lambda: writer.taken)
        writer.merge()
    return writer.done


def backfill_sessions(spark: SparkSession, lake: Path, *, delay: float, days: Days | None, tell: Tell) -> Merged:
    """Make the table of sessions anew from all of bronze, or the rows of the sessions that were opened on some days.

    Where bronze does not have all events any more, rows are only replaced by newer ones: nobody could tell the others
    again.

    Args:
        spark: to run in.
        lake: the folder of all tables.
        delay: seconds by which the watermark of the stream stays behind.
        days: which; None for all that bronze has.
        tell: is told how far it is.

    Raises:
        NotReady: another job writes the table, or there is no bronze.
    """
    table = SessionsTable(lake)
    with only_one(table.lock, _JOB):
        events = read_bronze(spark, lake)
        heard = heard_until_ms(events, round(delay * 1000))
        if days is None:
            days = Days(date.min, unknown=True)
        else:
            # What happened to a session happened after its opening; a clock that was behind is given a day.
            events = events.where(sf.col("date") >= sf.date_sub(sf.lit(days.first), 1))
        tell("folding all sessions")
        merged = table.replace(spark, silver_of(facts_of(events), heard), days, whole_from(lake))
        if merged.strays:
            tell(_stray(merged))
    return merged


def whole_from(lake: Path) -> date:
    """Tell the first day of which bronze must have all events: of an earlier one retention may have removed some."""
    oldest = bronze_of(lake).hours()[0]
    day = date.fromisoformat(oldest.parent.name.removeprefix("date="))
    return day if oldest.name == "hour=00" else day + timedelta(days=1)
