"""The stream and the backfill make the same table, however bronze came about."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from gateway.core.journal import Record, journal_partition
from gateway.core.types import NodeId, SessionId
from pipeline.bronze.layout import bronze_of
from pipeline.lake import Lake
from pipeline.sessions.jobs import SessionsOptions, backfill_sessions, stream_sessions
from pipeline.sessions.table import SessionsTable
from tests.pipeline.lake import batch_of, entry, take_in
from tests.pipeline.sessions.lives import records
from tests.pipeline.sessions.oracle import rows_of_table, silver_by_sql, view_events

DELAY = 10.0
FUTURE = 3650 * 86_400.0


def quiet(_: str) -> None:
    """Tell nobody."""


def streams_of(told: Sequence[Record], generation: int) -> list[list[pa.RecordBatch]]:
    """Events as they come out of the journal, by stream."""
    by_stream: dict[int, list[Record]] = {}
    for each in told:
        subject = SessionId(each["session"]) if "session" in each else NodeId(each["node"])
        by_stream.setdefault(journal_partition(subject), []).append(each)
    return [[batch_of({f"{generation}-1": entry(lines)}, stream=stream)] for stream, lines in by_stream.items()]


def fill(lake: Path, told: Sequence[Record], commits: int, *, generation: int = 1) -> None:
    """Take events into bronze, in several commits; the grid has a newer generation at each."""
    size = -(-len(told) // commits)
    for number in range(commits):
        part = told[number * size : (number + 1) * size]
        take_in(lake, *streams_of(part, generation + number), past=FUTURE, future=FUTURE)


def rows_in(lake: Path) -> list[dict[str, Any]]:
    """The rows of the table, as any reader of Parquet sees them."""
    with duckdb.connect() as connection:
        return rows_of_table(connection, SessionsTable(lake).root)


def rows_of_sql(lake: Path) -> list[dict[str, Any]]:
    """The rows that SQL tells of the events in bronze."""
    with duckdb.connect() as connection:
        view_events(connection, bronze_of(lake).root)
        return silver_by_sql(connection, delay_ms=round(DELAY * 1000))


def table(spark: SparkSession, lake: Path) -> DataFrame:
    return Lake(lake).read_sessions(spark)


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_stream_whose_checkpoint_is_gone_or_damaged_makes_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    told = records(Random(6), 30, seconds=300)
    half = len(told) // 2
    options = SessionsOptions(lake=tmp_path, delay=DELAY, commits=10)
    checkpoint = SessionsTable(tmp_path).checkpoint
    fill(tmp_path, told[:half], 1)
    stream_sessions(spark, options, quiet)
    shutil.rmtree(checkpoint)
    fill(tmp_path, told[half:], 1, generation=2)
    stream_sessions(spark, options, quiet)
    assert rows_in(tmp_path) == rows_of_sql(tmp_path)

    # Damaged, it is refused, and not read as something else; who removes it begins anew.
    (newest,) = sorted((checkpoint / "offsets").glob("[0-9]*"))[-1:]
    newest.write_bytes(newest.read_bytes()[:-20])
    (checkpoint / "offsets" / f".{newest.name}.crc").unlink(missing_ok=True)
    fill(tmp_path, records(Random(7), 3, seconds=30), 1, generation=3)
    with pytest.raises(PySparkException):
        stream_sessions(spark, options, quiet)
    shutil.rmtree(checkpoint)
    stream_sessions(spark, options, quiet)
    assert rows_in(tmp_path) == rows_of_sql(tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_stream_in_pieces_makes_the_table_of_a_backfill(spark: SparkSession, tmp_path: Path) -> None:
    told = records(Random(5), 200, seconds=600)
    half = len(told) // 2
    streamed, refilled = tmp_path / "streamed", tmp_path / "refilled"
    options = SessionsOptions(lake=streamed, delay=DELAY, commits=1)
    fill(streamed, told[:half], 2)
    first = stream_sessions(spark, options, quiet)
    assert first.batches >= 2
    fill(streamed, told[half:], 1, generation=3)
    assert stream_sessions(spark, options, quiet).rows > 0
    fill(refilled, told, 1)
    backfill_sessions(spark, refilled, delay=DELAY, days=None, tell=quiet)
    by_stream, by_backfill, by_sql = rows_in(streamed), rows_in(refilled), rows_of_sql(streamed)
    assert len({each["session"] for each in by_stream}) == len(by_stream) > 150
    assert by_stream == by_backfill
    assert by_stream == by_sql
    assertDataFrameEqual(table(spark, streamed), table(spark, refilled))
