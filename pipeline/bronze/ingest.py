"""The job that takes the journal into bronze: a streaming query of Spark, one commit for each micro-batch.

Which of the two remembers wrongly after a crash, Spark's checkpoint or bronze, is no question: bronze is right, because
its commits and its files are one. A checkpoint that says anything else is dropped, and the query goes on from bronze.
"""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.bronze.files import empty, only_one, sync
from pipeline.bronze.layout import SECOND, Layout, bronze_of, day_of
from pipeline.bronze.log import Batch, Commit, CommitLog, Counts, StagedFile, gather
from pipeline.bronze.staging import PARQUET, REJECTED_FILE, Plan, staging_task
from pipeline.errors import PipelineError
from pipeline.progress import Tell
from pipeline.source.datasource import NAME, EntryRange, JournalSource, commit, read_range, source_options
from pipeline.source.journal import Journal, JournalPlace
from pipeline.source.offsets import Position, Positions, positions_of, refuse_gaps, skip_gap, what_is_gone
from pipeline.source.records import NO_LINE
from pipeline.spark import address, parts_of
from pipeline.streaming import run_query, trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """What the job needs to know.

    Attributes:
        lake: the folder of all tables.
        place: where the journal is.
        batch_entries: entries of one stream in one micro-batch.
        trim_lag: entries to keep in each stream behind what is committed.
        past: seconds by which an event may say that it happened before it arrived.
        future: seconds by which it may say that it happened after.
        every: seconds between micro-batches while following; None to end when all is taken in.
        accept_loss: go on behind what is gone.
        take_over: go on though another bronze has been reading this journal.
    """

    lake: Path
    place: JournalPlace
    batch_entries: int
    trim_lag: int
    past: float
    future: float
    every: float | None = None
    accept_loss: bool = False
    take_over: bool = False


def ingest(
    spark: SparkSession, options: IngestOptions, tell: Tell, wanted: Callable[[], bool] = lambda: True
) -> Counts:
    """Take in what the journal holds and bronze does not.

    Args:
        spark: to run in.
        options: what to take in, and where.
        tell: is told of every commit.
        wanted: asked several times a second; when it says no, the job ends after the batch in hand.

    Returns:
        What was taken in.

    Raises:
        NotReady: something is gone, or somebody else reads the journal; nothing was changed.
        PipelineError: the grid cannot be reached; whatever was committed stays.
        pyspark.errors.PySparkException: Spark failed, or a disk; the same.
    """
    with opened(options.lake, tell) as (layout, log):
        begin = log.newest()
        with Journal(options.place) as journal:
            if not options.accept_loss:
                refuse_gaps(begin.positions, journal.states())
            journal.claim(reader_of(begin.lake), take_over=options.take_over)
            if options.accept_loss:
                _accept(journal, layout, log, tell)
        checkpoint = options.lake.absolute() / "checkpoints" / "bronze"

        def start() -> StreamingQuery:
            if _prepare_checkpoint(checkpoint, log.newest().positions):
                tell("the checkpoint of the last run says something else than bronze does; going on from bronze")
            ranges = _ranges(spark, options, log.newest()).writeStream.option("checkpointLocation", address(checkpoint))
            return ranges.foreachBatch(_taker(options, layout, log, tell)).trigger(**trigger(options.every)).start()

        run_query(start, tell, wanted, lambda: log.newest().sequence)
        end = log.newest()
        # Spark tells the source of a batch only when the next one begins.
        with Journal(options.place) as journal:
            commit(journal, end.positions, reader_of(end.lake), options.trim_lag)
    return Counts(**{name: value - getattr(begin.totals, name) for name, value in asdict(end.totals).items()})


def reader_of(lake: str) -> str:
    """The name under which a bronze commits to the journal."""
    return f"bronze-{lake}"


@contextmanager
def opened(lake: Path, tell: Tell) -> Iterator[tuple[Layout, CommitLog]]:
    """Open bronze for writing: nobody else does, and what a crash left is mended."""
    layout = bronze_of(lake)
    layout.log.mkdir(parents=True, exist_ok=True)
    with only_one(layout.log / "ingest.lock", "`pipeline ingest`"):
        log = CommitLog(layout)
        newest = log.newest()
        if newest.sequence:
            log.publish(newest)
            tell(f"bronze holds {newest.totals.events:,} events, by commit {newest.sequence}")
        empty(layout.staging("ingest"))
        if not newest.sequence:
            # The first commit holds nothing but the name under which this bronze reads the journal.
            log.append(Batch())
        yield layout, log


def _accept(journal: Journal, layout: Layout, log: CommitLog, tell: Tell) -> None:
    """Write down what is gone, and go on behind it."""
    newest = log.newest()
    found: dict[int, tuple[str, Position]] = {}
    for stream, state in journal.states().items():
        gone = what_is_gone(newest.positions[stream], state)
        if gone is not None:
            found[stream] = (gone, skip_gap(newest.positions[stream], state))
    if not found:
        return
    now = time.time_ns() // 1000
    rows: dict[str, list[Any]] = {name: [] for name in REJECTED_FILE.names}
    for stream, (gone, _) in found.items():
        reason = f"accepted as lost: the stream {gone}"
        row = (stream, str(newest.positions[stream].entry), NO_LINE, reason, None, now, newest.sequence + 1)
        for name, value in zip(REJECTED_FILE.names, row, strict=True):
            rows[name].append(value)
        tell(f"stream {stream}: {reason}")
    staged = layout.staging("ingest") / "losses.parquet"
    pq.write_table(pa.table(rows, REJECTED_FILE), staged, **PARQUET)
    sync(staged)
    path = f"_rejected/date={day_of(now)}/losses-{newest.sequence + 1:09}.parquet"
    log.append(
        Batch(
            files=[StagedFile(staged.name, path, NO_LINE, len(found), staged.stat().st_size)],
            positions={stream: position for stream, (_, position) in found.items()},
            counts=Counts(losses=len(found)),
        ),
        losses=[f"stream {stream} {gone}" for stream, (gone, _) in sorted(found.items())],
    )


def _prepare_checkpoint(checkpoint: Path, positions: Positions) -> bool:
    """Drop Spark's checkpoint unless it says what bronze does; returns whether there was one to drop."""
    if not checkpoint.exists():
        return False
    if _offset_in(checkpoint) == positions:
        return False
    shutil.rmtree(checkpoint)
    return True


def _offset_in(checkpoint: Path) -> Mapping[int, Position] | None:
    """Up to where a checkpoint says that everything is done; None if it does not say so, or a batch was in hand."""
    try:
        planned = max(int(each.name) for each in (checkpoint / "offsets").iterdir() if each.name.isdecimal())
        done = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdecimal())
        lines = (checkpoint / "offsets" / str(planned)).read_text("utf-8").splitlines()
        return positions_of(json.loads(lines[-1])) if planned == done else None
    except (OSError, ValueError, IndexError, PipelineError):
        return None


def _ranges(spark: SparkSession, options: IngestOptions, begin: Commit) -> DataFrame:
    """The ranges of the journal as a stream, from where bronze ends."""
    spark.dataSource.register(JournalSource)
    source = source_options(
        options.place,
        batch_entries=options.batch_entries,
        trim_lag=options.trim_lag,
        reader=reader_of(begin.lake),
        start=begin.positions,
        parts=parts_of(spark),
    )
    return spark.readStream.format(NAME).options(**source).load()


def _lines_in(place: JournalPlace, row: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    return read_range(place, EntryRange.of(row))


def _taker(options: IngestOptions, layout: Layout, log: CommitLog, tell: Tell) -> Callable[[DataFrame, int], None]:
    """Make the function that takes in a micro-batch."""

    def take_in(batch: DataFrame, _number: int) -> None:
        # Somebody may have taken the journal over since the last batch, or the grid have forgotten whose it is.
        with Journal(options.place) as journal:
            journal.claim(reader_of(log.newest().lake))
        plan = plan_next(layout, log, past=options.past, future=options.future)
        task = staging_task(plan, functools.partial(_lines_in, options.place), write_batch)
        told = batch.mapInArrow(task, "told string").collect()
        gathered = gather(read_batch(row["told"]) for row in told)
        if gathered.positions:
            tell(describe(log.append(gathered)))

    return take_in


def plan_next(layout: Layout, log: CommitLog, *, past: float, future: float) -> Plan:
    """Say what the tasks of the next batch have to know.

    Args:
        layout: of bronze.
        log: its commits.
        past: see ``IngestOptions``.
        future: see ``IngestOptions``.
    """
    before = log.newest()
    return Plan(
        root=str(layout.root),
        batch=before.sequence + 1,
        now=time.time_ns() // 1000,
        past=int(past * SECOND),
        future=int(future * SECOND),
        positions=before.positions,
        numbers=before.numbers,
    )


def describe(done: Commit) -> str:
    """Tell of a commit in a line."""
    new, total = done.counts, done.totals
    parts = [f"commit {done.sequence}: {new.events:,} events"]
    parts += [f"{new.rejected:,} lines rejected"] if new.rejected else []
    parts += [f"{new.duplicates:,} left out that came twice"] if new.duplicates else []
    parts += [f"{new.misdated:,} with an impossible time"] if new.misdated else []
    return f"{', '.join(parts)}; {total.events:,} in all"


def write_batch(batch: Batch) -> str:
    """Write what a task tells, for its way to the driver."""
    told = asdict(batch) | {"positions": {stream: str(each) for stream, each in batch.positions.items()}}
    return json.dumps(told)


def read_batch(text: str) -> Batch:
    """Read what ``write_batch`` wrote."""
    told = json.loads(text)
    positions = positions_of(told["positions"])
    return Batch(
        files=[StagedFile(**each) for each in told["files"]],
        positions={int(stream): positions[int(stream)] for stream in told["positions"]},
        numbers={int(stream): numbers for stream, numbers in told["numbers"].items()},
        counts=Counts(**told["counts"]),
    )
