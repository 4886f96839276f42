"""The tables' schemas in Arrow's words, for what reads and writes them without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

_SIMPLE: Final[Mapping[type[DataType], pa.DataType]] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    DateType: pa.date32(),
    DoubleType: pa.float64(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", "UTC"),
}


def arrow_type(kind: DataType) -> pa.DataType:
    """Tell how Arrow, and so Parquet, holds what Spark calls *kind*.

    Raises:
        KeyError: no table of ours has such a column.
    """
    match kind:
        case ArrayType():
            return pa.list_(pa.field("element", arrow_type(kind.elementType), nullable=kind.containsNull))
        case StructType():
            return pa.struct(list(arrow_schema(kind)))
        case _:
            return _SIMPLE[type(kind)]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Write a schema of Spark as one of Arrow."""
    return pa.schema([pa.field(each.name, arrow_type(each.dataType), nullable=each.nullable) for each in schema])
