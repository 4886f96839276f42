"""The table of sessions in the lake: one row each, whichever reader looks and whenever.

```text
<lake>/silver/sessions/date=YYYY-MM-DD/bucket-N.parquet   the rows, by the day (UTC) on which sessions were opened
<lake>/checkpoints/sessions/changes/                      rows that changed and are not in the table yet
<lake>/checkpoints/sessions/staging/                      files that are being written
```

A row that changes takes the place of its file's old version, and a file can only be written as a whole. So what batches
change is put aside first and merged into the table in one go: often enough to be fresh, and seldom enough that what is
rewritten stays in proportion to what has changed (ADR 0031). Every file is replaced in one step under its own name, and
every session has its file by day and hash: a reader sees the old row or the new one, never both and never none.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from pipeline.bronze.files import in_turn, sync, write_whole
from pipeline.errors import PipelineError
from pipeline.lake import Lake
from pipeline.schemas import SILVER
from pipeline.spark import address

BUCKETS: Final = 8
"""Files of a day. More of them make a change to an old session cheaper, and a quiet day's files smaller."""

UNKNOWN: Final = "__HIVE_DEFAULT_PARTITION__"
"""The day of sessions whose opening was not seen: so Spark, DuckDB and Hive write that there is none."""

_TURN: Final = r"/(\d{12})/[^/]*$"
"""Where in the path of a file of changes the number of the batch stands."""


def _filed(rows: DataFrame) -> DataFrame:
    """Add where each row belongs: its day, and its bucket by the hash that also chooses a session's journal stream."""
    return rows.withColumns({"date": sf.to_date("opened_at"), "bucket": sf.crc32("session") % BUCKETS})


def _keys(filed: DataFrame) -> list[tuple[date | None, int]]:
    return [(row["date"], row["bucket"]) for row in filed.select("date", "bucket").distinct().collect()]


def _count(files: Iterable[Path]) -> int:
    return sum(pq.read_metadata(each).num_rows for each in files)


def _day_of(file: Path) -> date | None:
    day = file.parent.name.removeprefix("date=")
    return None if day == UNKNOWN else date.fromisoformat(day)


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did.

    Attributes:
        rows: that had changed.
        written: rows in the files that were rewritten.
        files: how many those are.
        strays: sessions of which something was told after they were forgotten; their rows are as they were.
    """

    rows: int = 0
    written: int = 0
    files: int = 0
    strays: int = 0


@dataclass(frozen=True, slots=True)
class Days:
    """Some days (UTC) in a row.

    Attributes:
        first: of them.
        last: of them.
        unknown: whether those count as well of which nobody knows on which day they were.
    """

    first: date
    last: date = date.max
    unknown: bool = False

    def have(self, day: date | None) -> bool:
        """Whether a day is one of them."""
        return self.unknown if day is None else self.first <= day <= self.last


class SessionsTable:
    """The table, and what is on its way into it.

    Args:
        lake: the folder of all tables.
    """

    def __init__(self, lake: Path) -> None:
        self.root = Lake(lake.absolute()).sessions
        self.work = Lake(lake.absolute()).sessions_work

    @property
    def checkpoint(self) -> Path:
        """Where the stream keeps how far it is, and what it knows."""
        return self.work / "stream"

    @property
    def lock(self) -> Path:
        """Held by whoever writes."""
        return self.work / "lock"

    @property
    def turn(self) -> Path:
        """A lock, held by whoever reads files of the table to put others in their places; others wait."""
        return self.work / "turn"

    @property
    def changes(self) -> Path:
        """Where rows wait that changed and are not in the table yet."""
        return self.work / "changes"

    @property
    def folding(self) -> Path:
        """Where tasks of the stream write what they have folded, before it is put aside."""
        return self.work / "folding"

    @property
    def retention(self) -> Path:
        """Where retention writes what it keeps of a file."""
        return self.work / "retention"

    @property
    def staging(self) -> Path:
        """Where files are written before they are moved to their places; it is there while a merge lasts."""
        return self.work / "staging"

    def put_aside(self, batch: int, rows: DataFrame) -> int:
        """Keep the rows that a batch of the stream has changed; the same batch again takes the place of the first.

        Args:
            batch: its number.
            rows: of SILVER, at most one of a session. They are computed once: a stateful stream may not be asked twice.

        Returns:
            How many there are.
        """
        folder = self.changes / f"{batch:012}"
        rows.write.mode("overwrite").parquet(address(folder))
        count = _count(folder.glob("*.parquet"))
        if not count:
            shutil.rmtree(folder)
        return count

    def put_files_aside(self, batch: int, files: Iterable[Path]) -> None:
        """Keep the rows that a batch of the stream has changed, as ``put_aside`` does, from files that hold them.

        Args:
            batch: its number.
            files: of rows of SILVER, on disk and on the same file system; they are moved.
        """
        folder = self.changes / f"{batch:012}"
        shutil.rmtree(folder, ignore_errors=True)
        waiting = sorted(files)
        if not waiting:
            return
        folder.mkdir(parents=True)
        for each in waiting:
            each.replace(folder / each.name)
        sync(folder)
        write_whole(folder / "_SUCCESS", b"")

    def pending(self) -> list[Path]:
        """Find the batches that are put aside, whole, in order."""
        return sorted(each.parent for each in self.changes.glob("*/_SUCCESS"))

    def merge(self, spark: SparkSession) -> Merged:
        """Bring what is put aside into the table. After a crash it can be done again."""
        pending = self.pending()
        if not pending:
            return Merged()
        changes = spark.read.schema(SILVER).parquet(*map(address, pending))
        turn = sf.regexp_extract("_metadata.file_path", _TURN, 1).cast("long")
        newest = changes.groupBy("session").agg(sf.max_by(sf.struct(*SILVER.names), turn).alias("row")).select("row.*")
        changed = _filed(newest).persist(StorageLevel.DISK_ONLY)
        try:
            merged = self._merge(spark, changed)
        finally:
            changed.unpersist()
        for each in pending:
            shutil.rmtree(each)
        return merged

    def _merge(self, spark: SparkSession, changed: DataFrame) -> Merged:
        rows = changed.count()
        changed, strays = self._without_strays(spark, changed, self._files())
        keys = _keys(changed)
        # A session whose opening was seen late moves away from among those whose day is unknown.
        touched = {self._file(*each) for each in keys} | {self._file(None, bucket) for _, bucket in keys}
        return self._put(spark, changed, keep=touched, drop=set(), told=Merged(rows, strays=strays))

    def replace(self, spark: SparkSession, rows: DataFrame, days: Days, whole_from: date) -> Merged:
        """Put rows in the place of those that the table has.

        Args:
            spark: to work with.
            rows: of SILVER, all that can be told.
            days: on which the sessions were opened whose rows are put in; others are left out.
            whole_from: from this day on these are all the rows that there are, and others of those days go. Rows of
                earlier days, and those of unknown ones, stay unless there is a new one of the same session.
        """
        self.merge(spark)
        filed = _filed(rows)
        files = self._files()
        drop = {each for each in files if (day := _day_of(each)) and day >= whole_from and days.have(day)}
        if not days.unknown:
            filed = filed.where(sf.col("date").between(sf.lit(days.first), sf.lit(days.last)))
        filed = filed.persist(StorageLevel.DISK_ONLY)
        try:
            filed, strays = self._without_strays(spark, filed, sorted(set(files) - drop))
            keys = _keys(filed)
            keep = {self._file(*each) for each in keys} | {self._file(None, bucket) for _, bucket in keys}
            return self._put(spark, filed, keep=keep - drop, drop=drop, told=Merged(filed.count(), strays=strays))
        finally:
            filed.unpersist()

    def _put(self, spark: SparkSession, filed: DataFrame, *, keep: set[Path], drop: set[Path], told: Merged) -> Merged:
        """Write rows into their files.

        Args:
            spark: to work with.
            filed: the rows, with day and bucket.
            keep: files whose other rows stay.
            drop: files whose rows go.
            told: what is known of the merge already.
        """
        with in_turn(self.turn):
            result = filed
            if standing := sorted(address(each) for each in keep if each.exists()):
                known = _filed(spark.read.schema(SILVER).parquet(*standing))
                result = filed.unionByName(known.join(filed, "session", "left_anti"))
            written = self._write(result)
            count = _count(written)
            self._publish(written, keep | drop)
        return replace(told, written=count, files=len(written))

    def _files(self) -> list[Path]:
        return sorted(self.root.glob("date=*/bucket-*.parquet"))

    def _file(self, day: date | None, bucket: int) -> Path:
        return self.root / f"date={UNKNOWN if day is None else day.isoformat()}" / f"bucket-{bucket}.parquet"

    def _without_strays(self, spark: SparkSession, changed: DataFrame, files: Sequence[Path]) -> tuple[DataFrame, int]:
        """Leave out sessions without an opening that the table has with one: the stream had forgotten them."""
        whole = [address(each) for each in files if UNKNOWN not in each.parent.name]
        beginnings_missing = changed.where(sf.col("date").isNull()).select("session")
        if not whole or beginnings_missing.isEmpty():
            return changed, 0
        known = spark.read.schema(SILVER).parquet(*whole).select("session")
        strays = beginnings_missing.join(known, "session", "left_semi").persist()
        count = strays.count()
        return (changed.join(strays, "session", "left_anti") if count else changed), count

    def _write(self, filed: DataFrame) -> dict[Path, Path]:
        """Write the files of some rows to the staging folder; returns where each belongs, by where it is."""
        shutil.rmtree(self.staging, ignore_errors=True)
        ordered = filed.repartition("date", "bucket").sortWithinPartitions("date", "bucket", "session")
        ordered.write.partitionBy("date", "bucket").parquet(address(self.staging))
        written: dict[Path, Path] = {}
        for each in sorted(self.staging.glob("date=*/bucket=*/*.parquet")):
            day, bucket = each.parent.parent.name, each.parent.name.removeprefix("bucket=")
            place = self.root / day / f"bucket-{bucket}.parquet"
            if place in written.values():
                raise PipelineError(f"Spark wrote {place} in several pieces; that is a bug of the pipeline")
            written[each] = place
        return written

    def _publish(self, written: dict[Path, Path], replaced: Iterable[Path]) -> None:
        """Move files to their places, and remove those that have no rows any more."""
        # Those of an unknown day come last: whoever moves away from there is seen twice for a moment, and not missed.
        order = sorted(written.items(), key=lambda each: (UNKNOWN in each[1].parent.name, each[1]))
        folders = set()
        for waiting, place in order:
            sync(waiting)
            place.parent.mkdir(parents=True, exist_ok=True)
            waiting.replace(place)
            folders.add(place.parent)
        for each in set(replaced) - set(written.values()):
            each.unlink(missing_ok=True)
        for folder in folders:
            sync(folder)
        shutil.rmtree(self.staging, ignore_errors=True)
