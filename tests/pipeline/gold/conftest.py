"""A small lake: a synthetic journal as bronze, its sessions as silver, and gold made of both."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.columns import arrow_schema
from pipeline.generate import Scale, events_table, records, slices, write_bronze
from pipeline.generate.world import World
from pipeline.gold.job import Days, sources_of, write_gold
from pipeline.lake import Lake
from pipeline.schemas import REJECTED

from .silver import silver_of_events

SCALE = Scale(40_000, seed=5, hours=3, begins=1_767_222_000_000_000)
"""Two hours of it are of the next day: 2025-12-31 23:00 UTC is the first."""


@pytest.fixture(scope="session")
def world() -> World:
    """What happened to the nodes of the journal, as its generator planned."""
    return next(slices(SCALE)).world


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Bronze and silver."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    list(write_bronze(SCALE, lake.bronze, threads=2))
    lake.sessions.mkdir(parents=True)
    told = (event for each in slices(SCALE) for event in records(events_table(each, SCALE.seed)))
    pq.write_table(silver_of_events(told), lake.sessions / "sessions.parquet")
    write_rejected(lake.bronze / "_rejected" / "date=2026-01-01" / "1.parquet")
    return lake


def write_rejected(file: Path) -> None:
    """Write what `ingest` would if it met bad lines, and a loss that was accepted."""
    at = datetime(2026, 1, 1, 5, tzinfo=UTC)
    rows = [
        (3, "1-7", 2, "not JSON: column 1", b"{", at, 1),
        (9, "1-8", 0, "not JSON: column 40", b"[", at + timedelta(hours=1), 2),
        (3, "1-9", -1, "accepted as lost: the stream was emptied", None, at + timedelta(days=1), 3),
    ]
    file.parent.mkdir(parents=True)
    columns = zip(*rows, strict=True)
    pq.write_table(pa.table(dict(zip(REJECTED.names, columns, strict=True)), arrow_schema(REJECTED)), file)


@pytest.fixture(scope="session")
def gold(lake: Lake, spark: SparkSession) -> dict[str, int]:
    """Gold, written by Spark: rows by table."""
    return dict(write_gold(sources_of(spark, lake), lake.gold, Days()))
