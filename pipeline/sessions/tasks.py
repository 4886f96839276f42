"""What a task of the stream does: it reads the new files of streams of the journal, folds, and writes what changed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.core.journal import FIELDS, FieldKind
from pipeline.bronze.files import sync
from pipeline.bronze.source import CommittedFile, read_columns
from pipeline.columns import arrow_schema
from pipeline.schemas import SILVER
from pipeline.sessions.facts import Fact
from pipeline.sessions.folding import fold
from pipeline.sessions.rules import FACT_TYPES, LAST_MOMENT
from pipeline.sessions.store import StateStore

Task: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark runs on each partition."""

ROWS_AT_A_TIME: Final = 2_000
"""Rows of silver that are written at once: some megabytes."""

_SILVER: Final = arrow_schema(SILVER)

_INSTANTS: Final = frozenset(name for name, each in FIELDS.items() if each.kind is FieldKind.INSTANT)

_COLUMNS: Final = ("session", "id", *(name for name in Fact._fields if name != "number"))

_session: Final[Any] = pc.field("session")

_IS_FACT: Final[pc.Expression] = _session.is_valid() & pc.field("type").isin(list(FACT_TYPES))

_IS_OF_NODE: Final[pc.Expression] = _session.is_null()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a task has to know.

    Attributes:
        root: of bronze.
        checkpoint: of the stream.
        staging: a folder for what it writes.
        before: the batch whose version of what is known is the last one.
        heard_until_ms: the watermark.
    """

    root: str
    checkpoint: str
    staging: str
    before: int
    heard_until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a task has done.

    Attributes:
        stream: of the journal.
        sessions: of how many something is known now.
        known: name of the file that says what; None if nothing has changed.
        rows: that have changed.
        changes: name of the file that holds them; None if there are none.
    """

    stream: int
    sessions: int
    known: str | None
    rows: int
    changes: str | None


def hearing_task(root: str) -> Task:
    """Make the function that tells the time of the newest event of a node, in microseconds since 1970.

    Args:
        root: of bronze.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        newest = 0
        for part in _parts(batches, root):
            for table in read_columns(part, ("at", "session"), _IS_OF_NODE) if part.path else ():
                at: Any = pc.max(table.column("at").cast(pa.int64())).as_py()
                newest = max(newest, at or 0)
        yield pa.RecordBatch.from_arrays([pa.array([newest], pa.int64())], names=["heard"])

    return task


def folding_task(plan: Plan) -> Task:
    """Make the function that folds; a row comes out for each stream of the journal, what ``Done`` tells."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        streams: defaultdict[int, list[CommittedFile]] = defaultdict(list)
        for each in _parts(batches, plan.root):
            streams[each.stream].append(each)
        told = [json.dumps(asdict(_fold(plan, stream, files))) for stream, files in streams.items()]
        yield pa.RecordBatch.from_arrays([pa.array(told, pa.string())], names=["told"])

    return task


def _parts(batches: Iterable[pa.RecordBatch], root: str) -> Iterator[CommittedFile]:
    for batch in batches:
        for row in batch.to_pylist():
            yield CommittedFile(root, row["path"] or "", row["batch"] or 0, row["stream"])


def _fold(plan: Plan, stream: int, parts: list[CommittedFile]) -> Done:
    staging = Path(plan.staging)
    known = StateStore(Path(plan.checkpoint)).read(plan.before, stream)
    folded = fold(known, _facts(parts), plan.heard_until_ms)
    changes = written = None
    if folded.rows:
        changes = f"{uuid4().hex}.parquet"
        with pq.ParquetWriter(staging / changes, _SILVER) as writer:
            for at in range(0, len(folded.rows), ROWS_AT_A_TIME):
                rows = folded.rows[at : at + ROWS_AT_A_TIME]
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=_SILVER))
        sync(staging / changes)
    if folded.known is not known:
        written = f"{uuid4().hex}.parquet"
        pq.write_table(folded.known, staging / written, compression="zstd")
        sync(staging / written)
    return Done(stream=stream, sessions=len(folded.known), known=written, rows=len(folded.rows), changes=changes)


def _facts(parts: Iterable[CommittedFile]) -> Mapping[str, list[Fact]]:
    """Read the facts of files, by session."""
    found: defaultdict[str, list[Fact]] = defaultdict(list)
    for part in parts:
        for table in read_columns(part, _COLUMNS, _IS_FACT) if part.path else ():
            columns = [table.column("session").to_pylist(), *(_values(table, name) for name in Fact._fields)]
            for session, *values in zip(*columns, strict=True):
                found[session].append(Fact._make(values))
    return found


def _values(table: pa.Table, name: str) -> list[Any]:
    """The values of an attribute of facts; what no table can hold is told as the nearest that one can."""
    if name == "number":
        return [int(str(each).rpartition("-")[2]) for each in table.column("id").to_pylist()]
    values = table.column(name)
    if name not in _INSTANTS:
        return values.to_pylist()
    micros: Any = values.cast(pa.int64()).to_pylist()
    return [None if each is None else min(max(each, 0), LAST_MOMENT) for each in micros]
