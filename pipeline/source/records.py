"""From entries of the journal to columns: pure, and tried without Redis and without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from gateway.core.journal import FIELDS, BadRecord, FieldKind, Record, read_event_id, read_records
from pipeline.columns import arrow_schema
from pipeline.schemas import EVENTS, OTHER, PLACE
from pipeline.source.offsets import EntryId

JOURNAL: Final = StructType(
    [
        *EVENTS.fields,
        OTHER,
        *PLACE.fields,
        StructField("journal", StringType()),
        StructField("number", LongType()),
        StructField("rejection", StringType()),
        StructField("text", BinaryType()),
    ]
)
"""What is read of the journal: a line of it. ``journal`` is the incarnation of the stream, ``number`` that of
the event among those of its node's incarnation. A line that is no event has its ``text`` and the reason in
``rejection``, and of the other columns only its place."""

ARROW: Final = arrow_schema(JOURNAL)

NO_LINE: Final = -1
"""The ``line`` of what is wrong with an entry as a whole."""

LAST_INSTANT: Final = 253_402_300_800_000_000
"""Microseconds from 1970 to the end of the year 9999. No table can hold a later time."""

LONGEST_TEXT: Final = 65_536
"""Bytes of a rejected line that are kept: whole, unless it is of a kind that never was an event."""

MOST: Final = 1 << 40
"""What no number that nodes tell comes near to: a terabyte a minute, 34 years in milliseconds. Millions of such numbers
can still be added up in 64 bits, so that one event whose number cannot be never stops the tables of all others."""

MOST_OF: Final[Mapping[str, int]] = {"cpu_ms": 1 << 25, "deliveries": 1 << 28, "publishes": 1 << 28}
"""Tighter ones, of what a node measures in about a minute: nine hours of CPU, and 268 million updates, 20 times what
a core delivers; and none is below 0. CPU time in microseconds times deliveries, of which costs are made, is below
2^63."""

LONGEST_ID: Final = 200
"""Characters; those of the gateway have some forty."""

_INSTANTS: Final = tuple(name for name, each in FIELDS.items() if each.kind is FieldKind.INSTANT)
_NUMBERS: Final = frozenset(name for name, each in FIELDS.items() if each.kind is FieldKind.NUMBER)

_EVENTS: Final = b"events"
_COUNT: Final = b"count"


def rows_of(entry: EntryId, fields: Mapping[bytes, bytes]) -> list[dict[str, Any]]:
    """Make a row of every line of an entry.

    Args:
        entry: its id.
        fields: what it holds.

    Returns:
        Rows with the columns that have a value, among them ``entry`` and ``line``.
    """
    name = str(entry)
    text = fields.get(_EVENTS)
    if text is None:
        held = b" ".join(fields)[:LONGEST_TEXT]
        return [_rejected(name, NO_LINE, "the entry has no field 'events'", held)]
    rows = []
    for line, content in enumerate(text.split(b"\n")):
        (found,) = read_records(content)
        wrong = str(found) if isinstance(found, BadRecord) else _impossible(found)
        if wrong is not None or isinstance(found, BadRecord):
            rows.append(_rejected(name, line, wrong or "", content[:LONGEST_TEXT]))
        else:
            rows.append(_row(name, line, found))
    told = fields.get(_COUNT)
    if told != str(len(rows)).encode():
        what = "does not tell how many lines it had" if told is None else f"has {len(rows)} lines of {told[:20]!r}"
        rows.append(_rejected(name, NO_LINE, f"the entry {what}", b""))
    return rows


def _row(entry: str, line: int, record: Record) -> dict[str, Any]:
    other = record.keys() - FIELDS.keys()
    if other:
        record["other"] = orjson.dumps({name: record.pop(name) for name in sorted(other)}).decode()
    record["entry"] = entry
    record["line"] = line
    record["number"] = read_event_id(record["id"])[1]
    return record


def _rejected(entry: str, line: int, reason: str, text: bytes) -> dict[str, Any]:
    return {"entry": entry, "line": line, "rejection": reason, "text": text}


def _impossible(record: Record) -> str | None:
    for name in _INSTANTS:
        instant = record.get(name)
        if instant is not None and not 0 <= instant < LAST_INSTANT:
            return f"{name!r} is no time from 1970 to 9999"
    for name, value in record.items():
        if type(value) is not int or name not in _NUMBERS:
            continue
        most = MOST_OF.get(name)
        if not (-MOST < value < MOST if most is None else 0 <= value < most):
            return f"{name!r} is a number that cannot be"
    if record.get("session") == "":
        return "'session' is empty"
    if record["id"].isascii() and len(record["id"]) <= LONGEST_ID:
        return None
    return f"'id' is longer than {LONGEST_ID} characters, or not of ASCII"


def table_of(rows: Sequence[Mapping[str, Any]], stream: int, journal: str) -> pa.RecordBatch:
    """Put rows into columns.

    Args:
        rows: as ``rows_of`` makes them.
        stream: from which they are.
        journal: its incarnation.
    """
    told: set[str] = set().union(*rows)
    constants = {"stream": stream, "journal": journal}
    return pa.RecordBatch.from_arrays([_column(rows, each, told, constants) for each in ARROW], schema=ARROW)


def _column(
    rows: Sequence[Mapping[str, Any]], column: Any, told: Iterable[str], constants: Mapping[str, object]
) -> Any:
    """Make one column; of types that Arrow's stubs cannot tell."""
    name = column.name
    if name in constants:
        return pa.repeat(pa.scalar(constants[name], column.type), len(rows))
    if name not in told:
        return pa.nulls(len(rows), column.type)
    values = [row.get(name) for row in rows]
    if pa.types.is_timestamp(column.type):
        return pa.array(values, pa.int64()).cast(column.type)
    return pa.array(values, column.type)
