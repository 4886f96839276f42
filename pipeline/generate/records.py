"""Tables of bronze as records, as nodes write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from gateway.core.journal import FIELDS, FieldKind, Record

_INSTANTS: Final = [each.name for each in FIELDS.values() if each.kind is FieldKind.INSTANT]


def records(table: pa.Table) -> Iterator[Record]:
    """Read the events of a table.

    Args:
        table: with the columns of bronze.

    Yields:
        For each row its record; what is not told is left out.
    """
    table = table.select(list(FIELDS))
    for name in _INSTANTS:
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.int64()))
    for row in table.to_pylist():
        yield {name: value for name, value in row.items() if value is not None}
