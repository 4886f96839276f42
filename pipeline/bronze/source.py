"""How the pipeline's other jobs read bronze: as a table, or as a stream of what each commit brought in.

The stream is the Data Source ``gateway_bronze``: its offset is the number of a commit. It is not Spark's own stream of
files, which would read again what compaction has put together.

```python
events = read_bronze(spark, lake)       # DataFrame with the columns of BRONZE
events = follow_bronze(spark, lake)     # the same, streaming
files = follow_files(spark, lake)       # streaming, too: only which files there are, for tasks that read them
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from gateway.core.journal import FIELDS, JOURNAL_PARTITIONS, Field, FieldKind, is_of_kind
from pipeline.bronze.layout import Layout, bronze_of, no_events
from pipeline.bronze.log import Commit, CommitLog
from pipeline.columns import arrow_schema
from pipeline.errors import NotReady, PipelineError
from pipeline.schemas import BRONZE, bronze_schema
from pipeline.spark import address, parts_of

NAME: Final = "gateway_bronze"

FILES_NAME: Final = "gateway_bronze_files"

FILES: Final = StructType(
    [
        StructField("stream", IntegerType(), nullable=False),
        StructField("path", StringType()),
        StructField("batch", LongType()),
    ]
)
"""A row for each file of events that commits brought in: whose events it holds, where it is below the root of bronze,
and with which commit it came. A stream of the journal is in one partition, and has a row without a file if there is no
new one: what goes on with time goes on in all of them."""

COMMITS_AT_ONCE: Final = 64
"""Commits in one micro-batch at most, unless told otherwise."""

_ARROW: Final = arrow_schema(BRONZE)


def read_bronze(spark: SparkSession, lake: Path, fields: Mapping[str, Field] = FIELDS) -> DataFrame:
    """Read all events.

    Files of any version of the schema may lie beside each other: a column that a file does not have is null, or what
    a pipeline that did not know the field yet kept of it in ``other``.

    Args:
        spark: to read in.
        lake: the folder of all tables.
        fields: that events have, by name.

    Raises:
        NotReady: there is no bronze.
    """
    layout = bronze_of(lake)
    if not layout.hours():
        raise NotReady(no_events(lake))
    root = address(layout.root)
    events = spark.read.schema(bronze_schema(fields)).option("basePath", root).parquet(root)
    return events.withColumns({each.name: _recovered(each) for each in fields.values() if each.since > 1})


def _recovered(added: Field) -> Column:
    """A field that came with a later version: its column, or else what ``other`` has of it, if that is of its kind."""
    kept = F.get_json_object("other", f"$.{added.name}")
    values = {
        FieldKind.TEXT: kept,
        FieldKind.NUMBER: kept.try_cast("long"),
        FieldKind.FLAG: kept.try_cast("boolean"),
        FieldKind.INSTANT: F.timestamp_micros(kept.try_cast("long")),
        FieldKind.TEXTS: F.from_json(kept, "array<string>"),
    }
    return F.coalesce(F.col(added.name), values[added.kind])


def follow_bronze(spark: SparkSession, lake: Path, *, commits: int = COMMITS_AT_ONCE) -> DataFrame:
    """Read events as a stream: what is there, commit by commit, and then what comes.

    Events of one session come in the order of the journal within a commit's file, and commits in order. Events that did
    not come through the journal (``pipeline generate`` into Parquet) are in no commit and so not in the stream.

    Args:
        spark: to read in.
        lake: the folder of all tables.
        commits: commits in one micro-batch at most.
    """
    spark.dataSource.register(BronzeSource)
    return spark.readStream.format(NAME).options(root=str(bronze_of(lake).root), commits=str(commits)).load()


def follow_files(spark: SparkSession, lake: Path, *, commits: int = COMMITS_AT_ONCE) -> DataFrame:
    """Read which files there are as a stream, with the columns of FILES; ``read_columns`` reads one.

    Args:
        spark: to read in.
        lake: the folder of all tables.
        commits: commits in one micro-batch at most.
    """
    spark.dataSource.register(BronzeFilesSource)
    options = {"root": str(bronze_of(lake).root), "commits": str(commits), "parts": str(parts_of(spark))}
    return spark.readStream.format(FILES_NAME).options(**options).load()


def look_for_commits(lake: Path, *, waits: bool) -> None:
    """See whether there is, or can be, anything for a stream to read.

    Args:
        lake: the folder of all tables.
        waits: whether the stream waits for what comes.

    Raises:
        NotReady: there is nothing.
    """
    bronze = bronze_of(lake)
    if CommitLog(bronze).sequences():
        return
    if bronze.hours():
        raise NotReady(
            f"the events in {bronze.root} did not come through the journal, and are in no commit that a stream could "
            "read; `pipeline backfill` and `pipeline gold` read them"
        )
    if not waits:
        raise NotReady(no_events(lake))


class BronzeSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Events as they are in bronze."""
        return BRONZE

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """For streaming queries; batch queries read the files themselves."""
        return BronzeStream(Path(self.options["root"]), int(self.options["commits"]))


@dataclass(frozen=True, eq=False)
class CommittedFile(InputPartition):
    """A file that a commit brought in.

    Attributes:
        root: of bronze.
        path: of the file, below the root.
        batch: number of the commit.
        stream: whose events it holds.
    """

    root: str
    path: str
    batch: int
    stream: int


Offset: TypeAlias = dict[str, Any]
"""How far the stream is: ``commit``, the number of the last commit that was read, and ``lake``, the name of the bronze
that it was read from, which is empty before the first one. Spark keeps it as JSON."""


class BronzeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads commit by commit; see ``DataSourceStreamReader``.

    Args:
        root: of bronze.
        commits: commits in one micro-batch at most.
    """

    def __init__(self, root: Path, commits: int) -> None:
        self._root = root
        self._commits = commits
        self._target: int | None = None

    @property
    def _log(self) -> CommitLog:
        return CommitLog(Layout(self._root))

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Before the first commit of which all is there; what is older is for ``pipeline backfill``.

        Retention removes hours and commits apart: of any commit some hours may be gone, because an event can come late.
        There is nothing of them to wait for.
        """
        log = self._log
        known = log.sequences()
        gone = (each for each in reversed(known) if not self._is_whole(log.read(each)))
        return {"commit": next(gone, next(iter(known), 1) - 1), "lake": ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What Spark calls files are commits here."""
        return ReadMaxFiles(self._commits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember what there is now."""
        self._target = self._newest()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Choose up to which commit to read next.

        Raises:
            NotReady: the stream has read another bronze than this one.
        """
        newest = self._log.newest()
        lake = newest.lake
        end = self._newest() if self._target is None else self._target
        if start["commit"] > newest.sequence or start["lake"] not in {"", lake}:
            raise NotReady(
                f"{self._root} is not the bronze that this stream has read, up to commit {start['commit']}; somebody "
                "has replaced it. Remove the checkpoint of this job below `checkpoints`, and run it again"
            )
        if isinstance(limit, ReadMaxFiles):
            end = min(end, start["commit"] + limit.max_files)
        elif not isinstance(limit, ReadAllAvailable):
            raise PipelineError(f"the source {NAME} does not know the limit {type(limit).__name__}")
        return {"commit": end, "lake": lake} if end > start["commit"] else start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One for each file of events.

        Raises:
            NotReady: commits that were not read yet are not in the log any more.
        """
        known = self._log.sequences()
        if start["commit"] < end["commit"] and next(iter(known), end["commit"] + 1) > start["commit"] + 1:
            raise NotReady(
                f"the first commits of {self._root} are not in its log any more, and this stream has read only up to "
                f"{start['commit']}; compute its tables with `pipeline backfill`, then begin it anew"
            )
        return [
            CommittedFile(str(self._root), each.path, commit.sequence, each.stream)
            for commit in map(self._log.read, range(start["commit"] + 1, end["commit"] + 1))
            for each in _events_of(commit)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a file, or its rows in what compaction has made of it."""
        assert isinstance(partition, CommittedFile)  # noqa: S101 - one of ours
        yield from read_file(partition)

    def _is_whole(self, commit: Commit) -> bool:
        if commit.sequence > self._log.published():
            return True  # its files are on their way
        layout = Layout(self._root)
        folders = {(self._root / each.path).parent for each in _events_of(commit)}
        return all(each.is_dir() or not layout.is_kept(each) for each in folders)

    def _newest(self) -> int:
        # Of a commit that was just written the files may still be on their way to their places.
        return self._log.published()


class BronzeFilesSource(DataSource):
    """See ``follow_files``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FILES_NAME

    def schema(self) -> StructType:
        """Which files there are."""
        return FILES

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """For streaming queries."""
        options = self.options
        return BronzeFilesStream(Path(options["root"]), int(options["commits"]), int(options["parts"]))


@dataclass(frozen=True, eq=False)
class FilesOfStreams(InputPartition):
    """The files that some commits brought in of some streams of the journal.

    Attributes:
        files: path below the root, and number of the commit, by stream.
    """

    files: Mapping[int, Sequence[tuple[str, int]]]


class BronzeFilesStream(BronzeStream):
    """Tells commit by commit which files there are; see ``BronzeStream``.

    Args:
        root: of bronze.
        commits: commits in one micro-batch at most.
        parts: tasks of a micro-batch, which share the streams.
    """

    def __init__(self, root: Path, commits: int, parts: int) -> None:
        super().__init__(root, commits)
        self._parts = parts

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """As many as are wanted, which share the streams.

        Raises:
            NotReady: commits that were not read yet are not in the log any more.
        """
        files: dict[int, list[tuple[str, int]]] = {stream: [] for stream in range(JOURNAL_PARTITIONS)}
        for each in super().partitions(start, end):
            assert isinstance(each, CommittedFile)  # noqa: S101 - one of ours
            files[each.stream].append((each.path, each.batch))
        found = list(files.items())
        return [FilesOfStreams(dict(found[number :: self._parts])) for number in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Tell which files those are."""
        assert isinstance(partition, FilesOfStreams)  # noqa: S101 - one of ours
        rows: list[dict[str, Any]] = []
        for stream, files in partition.files.items():
            rows += [{"stream": stream, "path": path, "batch": batch} for path, batch in files] or [{"stream": stream}]
        yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(FILES))


def _events_of(commit: Commit) -> list[Any]:
    return [each for each in commit.files if not each.path.startswith("_")]


def read_file(part: CommittedFile) -> Iterator[pa.RecordBatch]:
    """Read what a commit brought into one file.

    Raises:
        NotReady: somebody has removed it.
    """
    for table in read_columns(part, _ARROW.names):
        yield from table.to_batches()


def read_columns(part: CommittedFile, names: Sequence[str], wanted: pc.Expression | None = None) -> Iterator[pa.Table]:
    """Read some columns of what a commit brought into one file, or of its rows in what compaction has made of it.

    Of a file that retention has removed there is nothing to read: an event can be too old when it comes.

    Args:
        part: which file.
        names: of the columns, as BRONZE has them.
        wanted: which rows.

    Raises:
        NotReady: somebody has removed it.
    """
    file = Path(part.root) / part.path
    try:
        yield shaped(_rows(file, names, wanted), file.parent, names)
    except FileNotFoundError:
        together = sorted(file.parent.glob("compacted-*.parquet"))
        if not together and Layout(Path(part.root)).is_kept(file.parent):
            raise NotReady(
                f"{file} is not there any more, though retention has not removed it; restore it from a copy, or remove "
                "the checkpoint of this job below `checkpoints` and run `pipeline backfill`"
            ) from None
        own = (pc.field("batch") == part.batch) & (pc.field("stream") == part.stream)
        for each in together:
            yield shaped(_rows(each, names, own if wanted is None else own & wanted), file.parent, names)


def _rows(file: Path, names: Sequence[str], wanted: pc.Expression | None) -> pa.Table:
    """Read columns of a file, those that it has; what ``other`` keeps may be one that it has not."""
    known = set(pq.read_schema(file).names)
    return pq.read_table(file, columns=list(known & {*names, "other"}), filters=wanted, partitioning=None)


def shaped(table: pa.Table, folder: Path, names: Sequence[str] = _ARROW.names) -> pa.Table:
    """Give a table columns of bronze: missing ones are null, date and hour are those of its folder.

    Args:
        table: as it stands in a file.
        folder: of the file.
        names: of the columns.
    """
    day = date.fromisoformat(folder.parent.name.removeprefix("date="))
    constants = {"date": day, "hour": int(folder.name.removeprefix("hour="))}
    columns: list[Any] = []
    schema = pa.schema([_ARROW.field(name) for name in names])
    for each in schema:
        if each.name in constants:
            columns.append(pa.repeat(pa.scalar(constants[each.name], each.type), len(table)))
        elif each.name in table.column_names:
            columns.append(table.column(each.name).cast(each.type))
        else:
            columns.append(pa.nulls(len(table), each.type))
    found = pa.Table.from_arrays(columns, schema=schema)
    others = table.column("other") if "other" in table.column_names else None
    return found if others is None or others.null_count == len(others) else _with_recovered(found, others)


def _with_recovered(table: pa.Table, kept_in: Any) -> pa.Table:
    """Fill fields that came with a later version from ``other``, as ``_recovered`` does for Spark."""
    others = [orjson.loads(each) if each else {} for each in kept_in.to_pylist()]
    for added in FIELDS.values():
        if added.since > 1 and added.name in table.column_names and any(added.name in each for each in others):
            kept = (each.get(added.name) for each in others)
            place, field = table.schema.get_field_index(added.name), table.schema.field(added.name)
            values = pa.array([each if is_of_kind(each, added) else None for each in kept], field.type)
            table = table.set_column(place, field, pc.coalesce(table.column(place), values))
    return table
