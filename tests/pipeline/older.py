"""Tables as releases wrote them that knew version 1 of the journal."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

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
