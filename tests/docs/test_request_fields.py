"""The tables of fields of requests in the protocol's document are what the codec reads, and what it refuses."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from gateway.core.wire.codec import decode_from_client
from gateway.core.wire.codec.fields import Object
from gateway.core.wire.codec.readers import BODIES_FROM_CLIENT
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Malformed, SessionPacket
from tests.docs.test_protocol_examples import table

EVERY_REQUEST: Final = "| Field of a request |"

TABLES: Final = {
    "subscribe": "| Field of a subscribe or unsubscribe |",
    "unsubscribe": "| Field of a subscribe or unsubscribe |",
    "publish": "| Field of a publish |",
    "properties": "| Field of a change of properties |",
}
"""The head of the table with a request's own fields."""

ONLY: Final = {"keep": "unsubscribe"}
"""Fields that one of two types has that share a table; it says so in words."""

GOOD: Final[dict[str, Any]] = {
    "id": 1,
    "received": 0,
    "request": 1,
    "resubmitted": True,
    "selector": "a",
    "keep": ["a"],
    "topic": "a",
    "value": None,
    "ttl": 30.0,
    "set": {"team": "fx", "desk": None},
}

OTHER: Final[dict[str, list[Any]]] = {
    "integer": ["1", 1.5, True, [1]],
    "integer from 1": ["1", 0, True],
    "boolean": [1, "true"],
    "string": [1, None, ["a"]],
    "array of strings": ["a", [1], {"a": "a"}],
    "object of strings and nulls": [["a"], {"a": 1}, {"a": ["a"]}, "a"],
    "any JSON value": [],
    "seconds": ["1", -1, True, 1e9],
}
"""By the words of a table for a type: values that are of none like it."""


class Watched(dict[str, Any]):
    """A packet that notes which of its fields somebody asks for."""

    def __init__(self, content: Object) -> None:
        super().__init__(content)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)


def own_fields(kind: str) -> dict[str, str]:
    """Return the types of a request's own fields by their names, as the document tells them."""
    rows = {row[0].strip("`"): row[1] for row in table(TABLES[kind])}
    return {name: told for name, told in rows.items() if ONLY.get(name, kind) == kind}


def all_fields(kind: str) -> dict[str, str]:
    return {row[0].strip("`"): row[1] for row in table(EVERY_REQUEST)} | own_fields(kind)


def packet(kind: str, **changes: Any) -> dict[str, Any]:
    """Make a request with all its fields; those that are changed to ``...`` are left out."""
    content = {"type": kind} | {name: GOOD[name] for name in all_fields(kind)} | changes
    return {name: value for name, value in content.items() if value is not ...}


def is_taken(content: dict[str, Any]) -> bool:
    """Tell whether the codec takes a request for a good one."""
    try:
        (read,) = decode_from_client(json.dumps(content))
    except RemoteProtocolError:
        return False
    return isinstance(read, SessionPacket) and not isinstance(read.body, Malformed)


@pytest.mark.parametrize("kind", TABLES)
def test_the_codec_reads_the_fields_of_the_table_and_no_others(kind: str) -> None:
    watched = Watched(packet(kind))
    BODIES_FROM_CLIENT[kind](watched)

    assert watched.read == {"request", "resubmitted"} | set(own_fields(kind))


def cases() -> list[tuple[str, str, str]]:
    return [(kind, name, told) for kind in TABLES for name, told in all_fields(kind).items()]


@pytest.mark.parametrize(("kind", "name", "told"), cases())
def test_a_field_may_be_absent_if_the_table_says_so(kind: str, name: str, told: str) -> None:
    is_optional = told.endswith(", optional")

    assert is_taken(packet(kind))
    assert is_taken(packet(kind, **{name: ...})) == is_optional, "of an id: it follows no other"
    if told != "any JSON value":
        assert is_taken(packet(kind, **{name: None})) == is_optional


@pytest.mark.parametrize(("kind", "name", "told"), cases())
def test_a_field_is_of_the_type_that_the_table_says(kind: str, name: str, told: str) -> None:
    for value in OTHER[told.removesuffix(", optional")]:
        is_absent = value is None and told.endswith(", optional")
        assert is_absent or not is_taken(packet(kind, **{name: value})), value
