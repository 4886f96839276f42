"""The tables have the columns that the journal declares, and Spark can hold them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import Row, SparkSession

from gateway.core.journal import FIELDS
from pipeline.schemas import BRONZE, EVENTS, INTERVAL_COLUMNS, SILVER_COLUMNS


def test_every_field_of_the_journal_is_a_column() -> None:
    assert EVENTS.fieldNames() == list(FIELDS)
    assert BRONZE.fieldNames()[: len(FIELDS)] == list(FIELDS)


@pytest.mark.spark
def test_spark_holds_an_event(spark: SparkSession) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    given = {"version": 1, "id": "a-1", "type": "node_started", "at": at, "names": ["x"]}
    table = spark.createDataFrame([Row(**{name: given.get(name) for name in EVENTS.names})], EVENTS)
    (found,) = table.collect()
    assert found["names"] == ["x"]
    assert found["session"] is None
    (told,) = table.selectExpr("unix_micros(at) AS at").collect()
    assert told["at"] == int(at.timestamp()) * 1_000_000 + 678901


def test_every_column_of_silver_has_a_meaning_and_a_name_of_its_own() -> None:
    for columns in (INTERVAL_COLUMNS, SILVER_COLUMNS):
        assert len({each.name for each in columns}) == len(columns)
        assert all(each.meaning.endswith(".") for each in columns)
