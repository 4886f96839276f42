"""Rows of numbers as tables of bronze, with the texts they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from gateway.core.journal import FIELDS, VERSION, FieldKind, events
from pipeline.generate.journal import Slice
from pipeline.generate.rows import NONE, TYPES, WORDS, Rows, choose, length, type_number
from pipeline.generate.texts import incarnation, node_name, principal_letters, release_name, session_letters
from pipeline.generate.units import HOUR, Numbers

compute: Any = pa.compute
"""The stubs know fewer of its overloads than there are."""

Array: TypeAlias = Any
"""A column of Arrow of any type."""

_KINDS: Final[Mapping[FieldKind, Any]] = {
    FieldKind.TEXT: pa.string(),
    FieldKind.NUMBER: pa.int64(),
    FieldKind.FLAG: pa.bool_(),
    FieldKind.TEXTS: pa.list_(pa.field("element", pa.string(), nullable=False)),
    FieldKind.INSTANT: pa.timestamp("us", "UTC"),
}

SCHEMA: Final = pa.schema(
    [
        *(pa.field(each.name, _KINDS[each.kind]) for each in FIELDS.values()),
        pa.field("stream", pa.int32(), nullable=False),
        pa.field("entry", pa.string(), nullable=False),
        pa.field("line", pa.int32(), nullable=False),
    ]
)
"""An event and its place in the journal; what else bronze has stays empty."""

SELECTORS: Final = ("prices/ACME/*", "orders/**", "chat/lobby", "news/**", "prices/**")
"""What selections name."""

PROPERTIES: Final = ("theme", "locale", "desk")
"""What properties are called."""

_WORDS: Array = pa.array(WORDS)
_TYPES: Array = pa.array(TYPES)
_NAMES: Array = pa.array(
    [SELECTORS[:count] for count in range(1, len(SELECTORS) + 1)]
    + [PROPERTIES[:count] for count in range(1, len(PROPERTIES) + 1)],
    type=_KINDS[FieldKind.TEXTS],
)
"""Lists of names: of so many selectors, and then of so many properties."""

_WORD_FIELDS: Final = frozenset({"client", "rung", "reason", "cause", "root", "queue", "link", "remote", "direction"})


def events_table(slice_: Slice, seed: int) -> pa.Table:
    """Give events their texts.

    Args:
        slice_: with the events.
        seed: of the journal, from which the names of sessions and incarnations come.
    """
    rows = slice_.rows
    runs = slice_.world.runs
    count = length(rows)
    incarnations: Array = pa.array([incarnation(seed, number) for number in range(len(runs))])
    nodes: Array = pa.array([node_name(run.node) for run in runs])
    releases: Array = pa.array([release_name(run.release) for run in runs])
    own: Array = pa.array(rows["run"])
    columns: dict[str, Array] = {
        "version": pa.array(np.full(count, VERSION)),
        "id": compute.binary_join_element_wise(
            compute.take(incarnations, own), compute.cast(pa.array(rows["number"]), pa.string()), pa.scalar("-")
        ),
        "type": _TYPES.take(pa.array(rows["type"])),
        "node": nodes.take(own),
        "incarnation": incarnations.take(own),
        "release": releases.take(own),
        "session": _texts(rows["session"], session_letters(seed, _told(rows["session"]))),
        "names": _names(rows),
        "stream": pa.array(rows["stream"].astype(np.int32)),
        "entry": compute.binary_join_element_wise(
            compute.cast(pa.array(rows["generation_of_entry"]), pa.string()),
            compute.cast(pa.array(rows["entry"]), pa.string()),
            pa.scalar("-"),
        ),
        "line": pa.array(rows["line"].astype(np.int32)),
    }
    if "principal" in rows:
        columns["principal"] = _texts(rows["principal"], principal_letters(_told(rows["principal"])))
    if "peer" in rows:
        peers = _places(rows["peer"])
        columns["peer"], columns["peer_incarnation"] = nodes.take(peers), incarnations.take(peers)
    for field in SCHEMA:
        if field.name in columns:
            continue
        if field.name not in rows:
            columns[field.name] = pa.nulls(count, field.type)
        elif field.name in _WORD_FIELDS:
            columns[field.name] = _WORDS.take(_places(rows[field.name]))
        else:
            columns[field.name] = _places(rows[field.name]).cast(field.type)
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def by_hour(slice_: Slice) -> list[tuple[int, Slice]]:
    """Split a slice by the hours of its events.

    Returns:
        Each hour, as the instant it begins at, with its events in their order.
    """
    hours = slice_.rows["at"] // HOUR
    return [
        (int(hour) * HOUR, Slice(slice_.number, slice_.world, choose(slice_.rows, hours == hour)))
        for hour in np.unique(hours)
    ]


def _places(column: Numbers) -> Array:
    return pa.array(column, mask=column == NONE)


def _told(column: Numbers) -> Numbers:
    told: Numbers = column[column != NONE]
    return told


def _texts(column: Numbers, letters: NDArray[np.uint8]) -> Array:
    """Make texts of one length, for those rows that have one."""
    told = column != NONE
    ends = np.zeros(len(column) + 1, np.int32)
    np.cumsum(told * letters.shape[1], out=ends[1:])
    valid = pa.py_buffer(np.packbits(told, bitorder="little").tobytes())
    return pa.Array.from_buffers(
        pa.string(), len(column), [valid, pa.py_buffer(ends.tobytes()), pa.py_buffer(letters.tobytes())]
    )


def _names(rows: Rows) -> Array:
    if "names" not in rows:
        return pa.nulls(length(rows), _NAMES.type)
    properties = rows["type"] == type_number(events.SESSION_PROPERTIES_CHANGED)
    places = rows["names"] - 1 + np.where(properties, len(SELECTORS), 0)
    return _NAMES.take(pa.array(places, mask=rows["names"] == NONE))
