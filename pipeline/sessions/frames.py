"""From frames of bronze to frames of silver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from gateway.core.journal import FIELDS, FieldKind
from pipeline.schemas import SILVER
from pipeline.sessions.facts import Fact
from pipeline.sessions.rules import FACT_TYPES, LAST_MOMENT
from pipeline.sessions.state import SessionState
from pipeline.sessions.tell import tell

ROWS_AT_A_TIME: Final = 2_000
"""Rows of silver that a task hands to Spark at once: some megabytes."""


def _fact_columns() -> list[Column]:
    columns = []
    for name in Fact._fields:
        if name == "number":
            column = sf.substring_index("id", "-", -1).cast("long")
        elif FIELDS[name].kind is FieldKind.INSTANT:
            column = sf.least(sf.greatest(sf.unix_micros(name), sf.lit(0)), sf.lit(LAST_MOMENT))
        else:
            column = sf.col(name)
        columns.append(column.alias(name))
    return columns


def facts_of(bronze: DataFrame) -> DataFrame:
    """Choose what silver is made of: the columns are ``session`` and those of ``Fact``, instants in microseconds."""
    told = bronze.where(sf.col("session").isNotNull() & sf.col("type").isin(*FACT_TYPES))
    return told.select("session", *_fact_columns())


def heard_until_ms(bronze: DataFrame, delay_ms: int) -> int:
    """Tell how far a stream's watermark would be that has read all of *bronze*, in milliseconds since 1970.

    Args:
        bronze: events, not as a stream.
        delay_ms: by how much the watermark stays behind, in milliseconds.
    """
    told = bronze.where(sf.col("session").isNull()).select(
        sf.unix_millis(sf.least(sf.max("at"), sf.current_timestamp()))
    )
    (row,) = told.collect()
    return max(0, row[0] - delay_ms) if row[0] is not None else 0


def silver_of(facts: DataFrame, heard_until_ms: int) -> DataFrame:
    """Tell the life of every session.

    Args:
        facts: from ``facts_of``, not as a stream.
        heard_until_ms: up to when all nodes have been heard, in milliseconds since 1970.

    Returns:
        Rows of SILVER.
    """

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return fold_sorted(batches, heard_until_ms)

    # Sorted instead of grouped: a task holds one session at a time, and Spark spills what it cannot hold.
    return facts.repartition("session").sortWithinPartitions("session").mapInArrow(fold, SILVER)


def fold_sorted(batches: Iterable[pa.RecordBatch], heard_until_ms: int) -> Iterator[pa.RecordBatch]:
    """Tell the lives of sessions whose facts stand together.

    Args:
        batches: ``session`` and the columns of ``Fact``.
        heard_until_ms: see ``tell``.
    """
    schema = to_arrow_schema(SILVER, timezone="UTC")
    told = chain.from_iterable(zip(*(each.to_pylist() for each in batch.columns), strict=True) for batch in batches)
    rows = []
    for session, facts in groupby(told, key=lambda values: values[0]):
        found = tell(session, SessionState(Fact._make(values[1:]) for values in facts), heard_until_ms)
        if found is not None:
            rows.append(found.row)
        if len(rows) >= ROWS_AT_A_TIME:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)
