"""Tables as releases wrote them that knew earlier versions of the journal."""

from __future__ import annotations

from typing import Final

import orjson
import pyarrow as pa

from gateway.core.journal import FIELDS

ADDED: Final = frozenset({"handed_over", "mirrored", "replayed", "not_replayed", "refused_sessions", "missed"})
"""Columns of gold that have come with version 2."""

ADDED_TO_INTERVALS: Final = frozenset({"replayed", "put_off", "held_up_ms"})
"""Fields of the intervals of silver that have."""


def as_older(table: pa.Table) -> pa.Table:
    """Leave out of a table of gold or silver what has come with version 2."""
    table = table.drop_columns(sorted(ADDED & set(table.column_names)))
    if "intervals" not in table.column_names:
        return table
    place = table.schema.get_field_index("intervals")
    column = table.schema.field(place)
    interval = pa.struct([each for each in column.type.value_type if each.name not in ADDED_TO_INTERVALS])
    kept = column.with_type(pa.list_(column.type.value_field.with_type(interval)))
    return table.set_column(place, kept, pa.array(table.column(place).to_pylist(), kept.type))


def as_bronze_of(version: int, table: pa.Table) -> pa.Table:
    """Make a file of bronze what a pipeline had written that knew the journal up to some version.

    It has no columns for what came later. What nodes told of that is in ``other``.
    """
    later = [name for name, field in FIELDS.items() if field.since > version]
    rows = table.to_pylist()
    kept = [{name: row[name] for name in later if row[name] is not None} for row in rows]
    others = pa.array([orjson.dumps(each).decode() if each else None for each in kept], pa.string())
    return table.drop_columns(later).set_column(table.schema.get_field_index("other") - len(later), "other", others)
