"""Fills a bronze without Spark, as the ingest job's tasks and its driver do, and reads it as anybody may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from gateway.core.journal import Record, write_records
from pipeline.bronze.ingest import opened, plan_next
from pipeline.bronze.layout import bronze_of
from pipeline.bronze.log import Commit, gather
from pipeline.bronze.staging import stage
from pipeline.source.offsets import EntryId
from pipeline.source.records import rows_of, table_of

DAY = 86_400.0


def quiet(_: str) -> None:
    """Tell nobody."""


def entry(records: Iterable[Mapping[str, Any]]) -> dict[bytes, bytes]:
    """An entry as a node writes it."""
    lines = list(records)
    return {b"events": write_records(lines), b"count": str(len(lines)).encode()}


def batch_of(entries: Mapping[str, Mapping[bytes, bytes]], *, stream: int = 3, journal: str = "J") -> pa.RecordBatch:
    """What the Data Source makes of entries, by their ids."""
    rows = [row for name, fields in entries.items() for row in rows_of(EntryId(*map(int, name.split("-"))), fields)]
    return table_of(rows, stream, journal)


def take_in(lake: Path, *streams: Sequence[pa.RecordBatch], past: float = 31 * DAY, future: float = DAY) -> Commit:
    """Take in a batch, each stream by a task of its own; what a crash left is mended before."""
    with opened(lake, quiet) as (layout, log):
        plan = plan_next(layout, log, past=past, future=future)
        return log.append(gather([stage(each, plan) for each in streams]))


def events_in(lake: Path) -> Counter[str]:
    """Ids in bronze by how often they are there, as any reader of Parquet sees them."""
    root = bronze_of(lake).root
    if not any(root.glob("date=*/hour=*/*.parquet")):
        return Counter()
    table = ds.dataset(root, format="parquet", partitioning="hive").to_table(columns=["id"])
    by_arrow = Counter(str(each) for each in table["id"].to_pylist())
    query = f"SELECT id FROM read_parquet('{root}/date=*/hour=*/*.parquet', hive_partitioning = true)"
    with duckdb.connect() as connection:
        assert by_arrow == Counter(row[0] for row in connection.execute(query).fetchall())
    return by_arrow


def rejected_in(lake: Path) -> list[dict[str, Any]]:
    """What is in ``_rejected``."""
    root = bronze_of(lake).rejected
    if not root.exists():
        return []
    return ds.dataset(root, format="parquet", ignore_prefixes=["."]).to_table().to_pylist()


def once(records: Iterable[Record]) -> Counter[str]:
    """Each of these events, once."""
    return Counter(each["id"] for each in records)
