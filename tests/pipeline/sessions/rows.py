"""Rows of silver as Spark takes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.types import ArrayType, DataType, StructType, TimestampType

from pipeline.schemas import SILVER
from pipeline.sessions import SessionRow

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def row_of(told: SessionRow) -> Row:
    """Make a row of Spark's, whose instants are ``datetime``."""
    return Row(**_instants(told, SILVER))


def _instants(told: Mapping[str, Any], schema: StructType) -> dict[str, Any]:
    return {each.name: _instant(told[each.name], each.dataType) for each in schema}


def _instant(value: Any, kind: DataType) -> Any:
    if value is None:
        return None
    match kind:
        case TimestampType():
            return _EPOCH + timedelta(microseconds=value)
        case StructType():
            return Row(**_instants(value, kind))
        case ArrayType():
            return [_instant(each, kind.elementType) for each in value]
        case _:
            return value
