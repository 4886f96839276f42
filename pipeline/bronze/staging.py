"""What a task does with the lines of its stream: leave out what bronze has, sort by hour, write files that wait.

Runs in Spark's Python workers and anywhere else: batches of Arrow go in, files and a summary come out.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.bronze.files import sync
from pipeline.bronze.layout import HOUR, Layout, day_of, hour_folder
from pipeline.bronze.log import Batch, Counts, StagedFile
from pipeline.columns import arrow_schema
from pipeline.errors import PipelineError
from pipeline.schemas import BRONZE, REJECTED
from pipeline.source.offsets import EntryId, Position, read_entry_id
from pipeline.source.records import ARROW

BUFFERED_ROWS: Final = 131_072
"""Rows that a task collects before it writes them: a row group worth having, some tens of megabytes."""

EVENTS_FILE: Final = arrow_schema(BRONZE).remove(BRONZE.names.index("hour")).remove(BRONZE.names.index("date"))
"""Columns of a file of events; date and hour are in the names of its folders."""

REJECTED_FILE: Final = arrow_schema(REJECTED)

_SWAPS: Final = 10
"""How often an hour may be swapped while it is looked at, before that is no compaction any more."""

PARQUET: Final[Mapping[str, Any]] = {"compression": "zstd", "row_group_size": BUFFERED_ROWS}
"""How every file is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a task has to know.

    Attributes:
        root: of bronze.
        batch: number of the commit to come.
        now: when the batch arrived, in microseconds since 1970.
        past: how much earlier an event may say that it happened, in microseconds.
        future: how much later.
        positions: how far bronze has each stream, as text.
        numbers: highest event numbers in bronze, by stream and node incarnation.
    """

    root: str
    batch: int
    now: int
    past: int
    future: int
    positions: Mapping[int, Position]
    numbers: Mapping[int, Mapping[str, int]]

    @property
    def layout(self) -> Layout:
        """The folders."""
        return Layout(Path(self.root))


@dataclass(slots=True)
class _Hour:
    """A file of one hour, as long as it is being written."""

    writer: pq.ParquetWriter
    staged: str
    rows: int = 0


@dataclass(slots=True)
class _Stream:
    """What a task knows of a stream while it reads it."""

    begin: EntryId
    position: Position
    highest: dict[str, int]
    seen: dict[str, list[Any]] = field(default_factory=dict)
    files: dict[str, _Hour] = field(default_factory=dict)
    waiting: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    waiting_rows: int = 0
    touched: dict[str, int] = field(default_factory=dict)


class Stager:
    """Prepares files; see the module.

    Args:
        plan: what to do.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._folder = plan.layout.staging("ingest")
        self._streams: dict[int, _Stream] = {}
        self._counts = Counts()

    def take(self, batch: pa.RecordBatch) -> None:
        """Take some lines, in the order of their stream.

        Raises:
            PipelineError: they are of another incarnation of the stream than bronze has.
            OSError: they cannot be written.
        """
        batch = _cast(batch)
        streams = batch.column("stream").to_numpy()
        for stream in np.unique(streams):
            lines = (
                batch if len(streams) == 0 or (streams == stream).all() else batch.filter(pa.array(streams == stream))
            )
            self._take(int(stream), lines)

    def finish(self) -> Batch:
        """Close the files, have them on disk, and tell of them.

        Raises:
            OSError: they cannot be written.
        """
        files = []
        for number, stream in self._streams.items():
            self._write(number, stream)
            for path, each in stream.files.items():
                each.writer.close()
                staged = self._folder / each.staged
                sync(staged)
                files.append(StagedFile(each.staged, path, number, each.rows, staged.stat().st_size))
        if files:
            sync(self._folder)
        return Batch(
            files=files,
            positions={number: stream.position for number, stream in self._streams.items()},
            numbers={number: stream.touched for number, stream in self._streams.items()},
            counts=self._counts,
        )

    def abandon(self) -> None:
        """Close what is open; the files are nobody's and are removed when bronze is opened the next time."""
        for stream in self._streams.values():
            for each in stream.files.values():
                each.writer.close()

    def _take(self, number: int, lines: pa.RecordBatch) -> None:
        journal = str(lines.column("journal")[0])
        stream = self._streams.get(number)
        if stream is None:
            before = self._plan.positions.get(number, Position())
            if before.incarnation not in {"", journal}:
                raise PipelineError(
                    f"stream {number} of the journal was emptied; run `pipeline ingest` again, which tells"
                )
            position = Position(journal, before.entry)
            highest = dict(self._plan.numbers.get(number, {}))
            stream = self._streams[number] = _Stream(before.entry, position, highest)
        # Spark cuts batches where it likes, also within an entry: what counts is where the whole batch begins.
        lines = _behind(lines, stream.begin)
        if len(lines) == 0:
            return
        stream.position = Position(journal, read_entry_id(str(lines.column("entry")[-1])))
        good = pc.is_null(lines.column("rejection"))
        bad = lines.filter(pc.invert(good))
        if len(bad):
            self._reject(stream, bad)
            lines = lines.filter(good)
        lines = self._without_duplicates(number, stream, lines)
        self._file(stream, lines)
        if stream.waiting_rows >= BUFFERED_ROWS:
            self._write(number, stream)

    def _without_duplicates(self, number: int, stream: _Stream, lines: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out events that bronze has, or that came before in this batch.

        A node numbers its events and writes them in that order, so that a number above the highest one is new. Only
        what is not is looked up, one by one, in bronze itself: it is rare, and so no list of all ids has to be kept.
        """
        keep = np.ones(len(lines), dtype=bool)
        incarnations: Any = lines.column("incarnation").dictionary_encode()
        numbers: Any = lines.column("number").to_numpy()
        codes = incarnations.indices.to_numpy()
        for code, incarnation in enumerate(incarnations.dictionary.to_pylist()):
            rows = np.flatnonzero(codes == code)
            told = numbers[rows]
            highest = stream.highest.get(incarnation, 0)
            seen = stream.seen.setdefault(incarnation, [])
            if told[0] <= highest or not (np.diff(told) > 0).all():
                known = self._known(number, _taken(lines, rows), incarnation).union(*(each.tolist() for each in seen))
                for row, each in zip(rows.tolist(), told.tolist(), strict=True):
                    keep[row] = each not in known
                    known.add(each)
            seen.append(told)
            stream.highest[incarnation] = stream.touched[incarnation] = max(highest, int(told.max()))
        left_out = int(len(lines) - keep.sum())
        if left_out == 0:
            return lines
        self._counts += Counts(duplicates=left_out)
        return lines.filter(pa.array(keep))

    def _known(self, number: int, lines: pa.RecordBatch, incarnation: str) -> set[int]:
        """Numbers of these events that bronze has."""
        hours, misfiled = self._hours(lines.column("at"))
        layout = self._plan.layout
        folders = (
            layout.hours() if misfiled.any() else [layout.root / hour_folder(int(each)) for each in np.unique(hours)]
        )
        wanted = set(lines.column("number").to_pylist())
        filters = (pc.field("incarnation") == incarnation) & (pc.field("stream") == number)
        return {int(each.rpartition("-")[2]) for folder in folders for each in _ids_in(folder, filters)} & wanted

    def _hours(self, at: Any) -> tuple[Any, Any]:
        """Under which hour events are filed, and which of them not under their own."""
        plan = self._plan
        instants = at.cast(pa.int64()).to_numpy(zero_copy_only=False)
        misfiled = (instants < plan.now - plan.past) | (instants > plan.now + plan.future)
        return np.where(misfiled, plan.now, instants) // HOUR, misfiled

    def _file(self, stream: _Stream, lines: pa.RecordBatch) -> None:
        if len(lines) == 0:
            return
        hours, misfiled = self._hours(lines.column("at"))
        self._counts += Counts(events=len(lines), misdated=int(misfiled.sum()))
        batch = pa.repeat(pa.scalar(self._plan.batch, pa.int64()), len(lines))
        columns = {**{name: lines.column(name) for name in lines.schema.names}, "batch": batch}
        events = pa.RecordBatch.from_arrays([columns[name] for name in EVENTS_FILE.names], schema=EVENTS_FILE)
        for hour in np.unique(hours):
            part = events if (hours == hour).all() else events.filter(pa.array(hours == hour))
            stream.waiting.setdefault(hour_folder(int(hour)), []).append(part)
            stream.waiting_rows += len(part)

    def _reject(self, stream: _Stream, bad: pa.RecordBatch) -> None:
        self._counts += Counts(rejected=len(bad))
        now: Any = pa.scalar(self._plan.now, pa.int64()).cast(pa.timestamp("us", "UTC"))
        extra: dict[str, Any] = {"reason": bad.column("rejection"), "seen_at": pa.repeat(now, len(bad))}
        batch = {"batch": pa.repeat(pa.scalar(self._plan.batch, pa.int64()), len(bad))}
        columns = {name: bad.column(name) for name in ("stream", "entry", "line", "text")} | extra | batch
        table = pa.RecordBatch.from_arrays([columns[name] for name in REJECTED_FILE.names], schema=REJECTED_FILE)
        stream.waiting.setdefault(f"_rejected/date={day_of(self._plan.now)}", []).append(table)
        stream.waiting_rows += len(bad)

    def _write(self, number: int, stream: _Stream) -> None:
        for folder, batches in stream.waiting.items():
            path = f"{folder}/events-{self._plan.batch:09}-{number:02}.parquet"
            file = stream.files.get(path)
            if file is None:
                staged = f"{secrets.token_hex(12)}.parquet"
                options = {name: value for name, value in PARQUET.items() if name != "row_group_size"}
                writer = pq.ParquetWriter(self._folder / staged, batches[0].schema, **options)
                file = stream.files[path] = _Hour(writer, staged)
            table = pa.Table.from_batches(batches)
            file.writer.write_table(table, row_group_size=BUFFERED_ROWS)
            file.rows += len(table)
        stream.waiting.clear()
        stream.waiting_rows = 0


def _ids_in(folder: Path, filters: Any) -> list[str]:
    """Ids of some events of an hour, which may be compacted at this moment."""
    for _ in range(_SWAPS):
        with contextlib.suppress(FileNotFoundError):
            tables = [
                pq.read_table(each, columns=["id"], filters=filters, partitioning=None)
                for each in sorted(folder.glob("*.parquet"))
            ]
            return [str(id_) for table in tables for id_ in table.column("id").to_pylist()]
    raise PipelineError(
        f"the files in {folder} change all the time; is something else than this pipeline at work there?"
    )


def _cast(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Undo what Spark makes of types on the way: another zone of the same instants, other widths of texts."""
    if batch.schema.equals(ARROW):
        return batch
    arrays: list[Any] = [batch.column(each.name).cast(each.type) for each in ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def _taken(lines: pa.RecordBatch, rows: Any) -> pa.RecordBatch:
    return lines.take(pa.array(rows, pa.int64()))


def _behind(lines: pa.RecordBatch, position: EntryId) -> pa.RecordBatch:
    """Leave out lines that bronze has: a crash makes Spark hand in a batch twice."""
    entries = lines.column("entry")
    if read_entry_id(str(entries[0])) > position:
        return lines
    distinct: Any = entries.dictionary_encode()
    fresh: Any = np.array([read_entry_id(each) > position for each in distinct.dictionary.to_pylist()], dtype=bool)
    return lines.filter(pa.array(fresh[distinct.indices.to_numpy()]))


def stage(batches: Iterable[pa.RecordBatch], plan: Plan) -> Batch:
    """Prepare the files of some lines.

    Raises:
        PipelineError: they are of another incarnation of a stream than bronze has.
        OSError: they cannot be written.
    """
    stager = Stager(plan)
    try:
        for batch in batches:
            if len(batch):
                stager.take(batch)
        return stager.finish()
    except BaseException:
        stager.abandon()
        raise


def staging_task(
    plan: Plan, read: Callable[[Mapping[str, Any]], Iterable[pa.RecordBatch]], write: Callable[[Batch], str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that Spark runs on each partition: one row comes out, what ``stage`` tells.

    Args:
        plan: what to do.
        read: reads the lines of a range, given its row.
        write: writes what is told.
    """

    def task(ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lines = (lines for batch in ranges for row in batch.to_pylist() for lines in read(row))
        told = write(stage(lines, plan))
        yield pa.RecordBatch.from_arrays([pa.array([told])], names=["told"])

    return task
