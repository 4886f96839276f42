"""Every schema of the pipeline's tables, in one place.

Bronze is made of the journal's own declaration of its fields, so that a field that is added there is a column here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gateway.core.journal import FIELDS, FieldKind

_TYPES: Final[Mapping[FieldKind, DataType]] = {
    FieldKind.TEXT: StringType(),
    FieldKind.NUMBER: LongType(),
    FieldKind.FLAG: BooleanType(),
    FieldKind.TEXTS: ArrayType(StringType(), containsNull=False),
    FieldKind.INSTANT: TimestampType(),
}

EVENTS: Final = StructType([StructField(each.name, _TYPES[each.kind]) for each in FIELDS.values()])
"""An event of the journal, one column for each field that the journal declares, in that order."""

PLACE: Final = StructType(
    [
        StructField("stream", IntegerType(), nullable=False),
        StructField("entry", StringType(), nullable=False),
        StructField("line", IntegerType(), nullable=False),
    ]
)
"""Where an event stood in the journal: which stream, the id of the entry in it, and which line of the entry, from 0.
Events of one session are in one stream; ordered by entry and line they are in the order in which they were written."""

BRONZE: Final = StructType(
    [*EVENTS.fields, *PLACE.fields, StructField("date", DateType()), StructField("hour", IntegerType())]
)
"""Raw events, by date and hour of the event's own time (UTC)."""
