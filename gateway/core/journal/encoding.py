"""Events as JSON, as they stand in the grid: the version of the schema, the streams, several records a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias
from zlib import crc32

import orjson

from gateway.core.journal.events import JournalEvent, Stamp
from gateway.core.journal.fields import ENVELOPE, FIELDS, Field, FieldKind
from gateway.core.types import Incarnation, NodeId, SessionId
from gateway.core.wire.errors import GatewayError

VERSION: Final = 4
"""Written into every record. It grows when fields are added; a field is never given another meaning or kind, and none
is removed, so that whoever reads a newer journal than he knows misses what was added and nothing else."""


Record: TypeAlias = dict[str, Any]
"""An event as it is written: the fields that it has, by name."""

REQUIRED: Final = ("version", "id", "type", "at", "node", "incarnation", "release")
"""Without these a line is no record."""

_INT64: Final = range(-(1 << 63), 1 << 63)
"""What a whole number may be, so that every reader can hold it."""

_MOST_DIGITS: Final = 18
"""Of the number in an id: as many as fit into 64 bits whatever they are. No node lives to tell so many events."""


class BadRecord(GatewayError):
    """A line of the journal is not a record; the message says why. It never repeats more than a little of the line."""


def event_id(incarnation: Incarnation, number: int) -> str:
    """Name an event.

    Args:
        incarnation: of the node that tells it.
        number: of the event among all those of the incarnation, from 1.
    """
    return f"{incarnation}-{number}"


def read_event_id(text: str) -> tuple[Incarnation, int]:
    """Read what ``event_id`` wrote.

    Raises:
        BadRecord: it is none.
    """
    incarnation, _, number = text.rpartition("-")
    if not incarnation or len(number) > _MOST_DIGITS or not (number.isascii() and number.isdecimal()):
        raise BadRecord(f"{text[:60]!r} is no id of an event, which is an incarnation, a dash and a number")
    return Incarnation(incarnation), int(number)


def record(event: JournalEvent, stamp: Stamp, number: int) -> Record:
    """Give an event its envelope.

    Args:
        event: what happened.
        stamp: who tells.
        number: of the event among all those of the incarnation, from 1.

    Returns:
        Its fields; those with nothing to tell are left out.
    """
    node = stamp.node
    result: Record = {
        "version": VERSION,
        "id": f"{node.incarnation}-{number}",
        "type": event.type.name,
        "at": event.at,
        "node": node.node,
        "incarnation": node.incarnation,
        "release": stamp.release,
    }
    if event.session is not None:
        result["session"] = event.session
    if event.epoch is not None:
        result["epoch"] = event.epoch
    for name, value in event.told.items():
        if value is not None:
            result[name] = value
    return result


def write_records(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Write records, one a line, as an entry of the journal holds them."""
    return b"\n".join(map(orjson.dumps, records))


def read_records(text: bytes) -> Iterator[Record | BadRecord]:
    """Read an entry of the journal line by line; what is wrong with one line does no harm to the others.

    Args:
        text: what ``write_records`` wrote, or anything else.

    Yields:
        A record, of this or a newer version, with all fields of the right kind and the unknown ones left in; or what is
        wrong with the line.
    """
    for line in text.split(b"\n"):
        try:
            yield _read(line)
        except BadRecord as bad:
            yield bad


def _read(line: bytes) -> Record:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadRecord(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadRecord(f"not a JSON object but a {type(found).__name__}")
    for name in REQUIRED:
        if found.get(name) is None:
            raise BadRecord(f"there is no {name!r}")
    for name, value in found.items():
        declared = FIELDS.get(name)
        if declared is not None and value is not None and not is_of_kind(value, declared):
            raise BadRecord(f"{name!r} is no {declared.kind.value}")
    incarnation, _number = read_event_id(found["id"])
    if incarnation != found["incarnation"]:
        raise BadRecord("'id' is not of the 'incarnation'")
    return found


def is_of_kind(value: object, declared: Field) -> bool:
    """Tell whether a value, as JSON has it, is one that a field can have."""
    match declared.kind:
        case FieldKind.TEXT:
            return isinstance(value, str)
        case FieldKind.FLAG:
            return isinstance(value, bool)
        case FieldKind.TEXTS:
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
        case FieldKind.NUMBER | FieldKind.INSTANT:
            return isinstance(value, int) and not isinstance(value, bool) and value in _INT64


if foreign := set(REQUIRED) - {each.name for each in ENVELOPE}:
    raise AssertionError(f"required, but not part of the envelope: {sorted(foreign)}")


JOURNAL_PARTITIONS: Final = 16
"""Streams of the journal: one event of a storm costs the grid little, so that they are for the readers, which read
them side by side: on a laptop with all of its cores, and on a cluster with sixteen. Part of every offset that a reader
remembers, so it can never change in a live grid."""


def journal_partition(subject: SessionId | NodeId) -> int:
    """Tell which stream carries what happens to a session, or to a node: all of it, in order.

    Returns:
        A number from 0 to ``JOURNAL_PARTITIONS - 1``.
    """
    return crc32(subject.encode()) % JOURNAL_PARTITIONS
