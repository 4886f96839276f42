"""Compaction and retention: few large files instead of many small ones, and none that is too old.

An hour is compacted when it is over and nothing has come for it for a while. All its files are read and written as one
(or as few as the target size needs) into a folder of its own, which is then exchanged with that of the hour, in one
step of the file system. A reader that lists the folder sees the old files or the new ones, never both and never a part;
one that had listed the old ones and opens them afterwards does not find them, which every reader tells loudly: start it
again. A crash before the exchange leaves nothing but a folder to throw away, one after it nothing but the old files.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.bronze.files import empty, exchange, in_turn, only_one, sync
from pipeline.bronze.layout import DAY, HOUR, SECOND, Layout, bronze_of, hour_of, no_events
from pipeline.bronze.log import CommitLog
from pipeline.bronze.staging import PARQUET
from pipeline.errors import NotReady
from pipeline.progress import Tell

LOG_KEPT: Final = 90 * 86_400.0
"""Seconds for which commits stay in the log if events stay for ever: a stream that reads commits may rest so long."""

_READ_AT_ONCE: Final = 131_072
"""Rows."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done.

    Attributes:
        hours: that were compacted.
        before: files that they had.
        after: files that they have.
        removed: hours that were too old.
        commits: that are not in the log any more.
    """

    hours: int = 0
    before: int = 0
    after: int = 0
    removed: int = 0
    commits: int = 0


def compact(
    lake: Path, *, grace: float, target: int, keep: float | None, tell: Tell, now: int | None = None
) -> Compacted:
    """Compact bronze, and remove what is too old.

    Args:
        lake: the folder of all tables.
        grace: seconds after the end of an hour, and after its newest file, before it is compacted.
        target: bytes of a file, about.
        keep: seconds after which events are removed; None to keep all.
        tell: is told of every hour.
        now: microseconds since 1970; by default the clock's.

    Raises:
        NotReady: another compaction runs, or there is no bronze.
        PipelineError: the file system cannot do it.
    """
    now = time.time_ns() // 1000 if now is None else now
    layout = bronze_of(lake)
    if not layout.root.is_dir():
        raise NotReady(no_events(lake))
    log = CommitLog(layout)
    with only_one(layout.log / "compact.lock", "`pipeline compact`"):
        newest = log.newest()
        if newest.sequence:
            log.publish(newest)
        staging = layout.staging("compact")
        empty(staging)
        removed = 0 if keep is None else _retain(layout, log, now - int(keep * SECOND), staging, tell)
        hours = before = after = 0
        for folder in layout.hours():
            if not _is_settled(folder, now, int(grace * SECOND)):
                continue
            done = _compact(folder, staging / "hour", log, target)
            if done is not None:
                hours, before, after = hours + 1, before + done[0], after + done[1]
                tell(f"{folder.relative_to(layout.root)}: {done[0]} files are {done[1]} now")
        commits = log.expire(now - int((keep or LOG_KEPT) * SECOND))
    return Compacted(hours, before, after, removed, commits)


def _is_settled(folder: Path, now: int, grace: int) -> bool:
    hour = hour_of(folder)
    if hour is None or now < (hour + 1) * HOUR + grace:
        return False
    newest = max((each.stat().st_mtime_ns // 1000 for each in folder.glob("*.parquet")), default=now)
    return newest + grace <= now


def _compact(folder: Path, staging: Path, log: CommitLog, target: int) -> tuple[int, int] | None:
    """Compact one hour.

    Returns:
        Files before and after; None if there is nothing to gain, or the hour changed meanwhile.
    """
    names = _files(folder)
    small = [each for each in names if (folder / each).stat().st_size < target]
    if len(small) < 2:  # noqa: PLR2004 - one file cannot be put together
        return None
    empty(staging)
    written = _write(sorted(folder / each for each in names), staging, target)
    if len(written) >= len(names):
        shutil.rmtree(staging)
        return None
    for each in written:
        sync(each)
    sync(staging)
    with in_turn(log.lock):
        # What has come meanwhile is not in the new files; the next run takes it.
        if _files(folder) != names:
            shutil.rmtree(staging)
            return None
        exchange(folder, staging)
    sync(folder.parent)
    shutil.rmtree(staging)
    return len(names), len(written)


def _files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def _write(files: Iterable[Path], folder: Path, target: int) -> list[Path]:
    """Write the rows of some files, of any version of the schema, in their order into new ones."""
    sources = list(files)
    schema = pa.unify_schemas([pq.read_schema(each) for each in sources], promote_options="default")
    options: dict[str, Any] = {name: value for name, value in PARQUET.items() if name != "row_group_size"}
    written: list[Path] = []
    writer: pq.ParquetWriter | None = None
    try:
        for batch in _batches(sources, schema):
            if writer is None or written[-1].stat().st_size >= target:
                if writer is not None:
                    writer.close()
                written.append(folder / f"compacted-{os.urandom(4).hex()}-{len(written):04}.parquet")
                writer = pq.ParquetWriter(written[-1], schema, **options)
            writer.write_table(batch, row_group_size=PARQUET["row_group_size"])
    finally:
        if writer is not None:
            writer.close()
    return written


def _batches(sources: Iterable[Path], schema: pa.Schema) -> Iterable[pa.Table]:
    """The rows of files, some files' worth at a time, so that row groups are large and memory is bounded."""
    waiting: list[pa.Table] = []
    rows = 0
    for source in sources:
        with pq.ParquetFile(source) as file:
            for batch in file.iter_batches(batch_size=_READ_AT_ONCE):
                waiting.append(_widened(pa.Table.from_batches([batch]), schema))
                rows += len(batch)
                if rows >= _READ_AT_ONCE:
                    yield pa.concat_tables(waiting)
                    waiting, rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns: list[Any] = [
        table.column(each.name).cast(each.type) if each.name in table.column_names else pa.nulls(len(table), each.type)
        for each in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _retain(layout: Layout, log: CommitLog, before: int, staging: Path, tell: Tell) -> int:
    """Remove the hours that ended before an instant, each in one step; returns how many."""
    removed = 0
    layout.keep_from(before // HOUR)
    for folder in layout.hours():
        hour = hour_of(folder)
        if hour is not None and (hour + 1) * HOUR <= before:
            # No commit may be putting a file into it at this moment.
            with in_turn(log.lock):
                folder.rename(staging / f"old-{hour}")
            shutil.rmtree(staging / f"old-{hour}")
            tell(f"{folder.relative_to(layout.root)}: removed")
            removed += 1
    for day in layout.root.glob("date=*"):
        if not any(day.iterdir()):
            with in_turn(log.lock):
                if not any(day.iterdir()):
                    day.rmdir()
    for day in layout.rejected.glob("date=*"):
        if day.name < f"date={_day(before)}":
            shutil.rmtree(day)
    return removed


def _day(instant: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(instant // DAY * 86_400))
