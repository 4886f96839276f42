"""Destinations: how they are described, which counts, and how they stand in the grid."""

from __future__ import annotations

import orjson
import pytest

from gateway.core.destinations.destination import (
    ENCODING_VERSION,
    MAX_ENCODED_BYTES,
    Destination,
    Origin,
    UnreadableDestination,
    decode_destination,
    encode_destination,
    name_of,
    parse_name,
    rank,
    read_destination,
)
from gateway.core.destinations.limits import HistoryLimits, InvalidDestination, Kind, QueueLimits, ValueLimits
from gateway.core.topics.selectors import parse_selector

FILE = Origin.FILE


def read(**given: object) -> Destination:
    return read_destination(given, origin=FILE, made=7.5)


def test_a_destination_is_read_as_it_is_described() -> None:
    log = read(selector="log/**", kind="history", count=10)
    assert (log.kind, log.limits, log.selector.text) == (Kind.HISTORY, HistoryLimits(count=10), "log/**")
    queue = read(path="jobs/q", kind="queue")
    assert (queue.kind, queue.limits, queue.selector.text) == (Kind.QUEUE, QueueLimits(), "jobs/q")
    plain = read(selector="log/debug/**", kind="value")
    assert (plain.kind, plain.limits) == (Kind.VALUE, ValueLimits())
    for each in (log, queue, plain):
        assert read_destination(each.fields, origin=FILE, made=7.5) == each


def test_equal_sets_of_topics_are_one_destination() -> None:
    assert read(selector="a/**/*", kind="value").name == read(selector="a/*/**", kind="history").name


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"selector": "a"}, 'kind is missing; give "value" or "history" or "queue"'),
        ({"selector": "a", "kind": "topic"}, "kind is none that is known"),
        ({"selector": "a", "kind": ["queue"]}, "kind is none that is known"),
        ({"kind": "history"}, 'selector is missing; give a selector such as "log/[*][*]"'),
        ({"kind": "queue"}, 'path is missing; give a path such as "jobs/render"'),
        ({"kind": "queue", "selector": "a"}, "selector does not belong to a queue"),
        ({"kind": "history", "path": "a"}, "path does not belong to a history"),
        ({"kind": "history", "selector": 5}, "selector is not a text"),
        ({"kind": "history", "selector": "a//b"}, "selector is none: .*segment 2"),
        ({"kind": "history", "selector": "ab*"}, "selector is none: .*whole segment"),
        ({"kind": "queue", "path": "jobs/*"}, "path has a wildcard, but a queue is one path"),
        ({"kind": "queue", "path": "$tmp/1"}, "path begins with '[$]', as only the system's do"),
        ({"kind": "history", "selector": "$gateway/**"}, "selector begins with '[$]'"),
        ({"kind": "history", "selector": "a", "depth": 1}, "'depth' is no limit of a history"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidDestination, match=complaint):
        read_destination(given, origin=FILE)


def test_names_tell_who_says_it_of_which_selector() -> None:
    selector = parse_selector("a b/**")
    for origin in Origin:
        assert parse_name(name_of(origin, selector)) == (origin, selector)
    for text in ("", "file", "file ", "nobody a/**", "a/**", "file a//b"):
        with pytest.raises(UnreadableDestination):
            parse_name(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("log/audit/**", "log/**"),
        ("log/*/*", "log/**"),
        ("log/audit", "log/audit/**"),
        ("log/*", "*/audit"),
        ("*/*/bid", "prices/**"),
        ("a/b", "a/*"),
        ("*", "**"),
        ("**/a/**", "**/b/**"),
    ],
)
def test_the_more_specific_comes_first(one: str, other: str) -> None:
    assert rank(parse_selector(one)) < rank(parse_selector(other))


# --- In the grid --------------------------------------------------------------------------------------------------

QUEUE = read(path="jobs/q", kind="queue", count=5, expires=3.5)


def changed(made: str = "7.5", **fields: object) -> bytes:
    """Encode ``QUEUE`` with other fields, or without some."""
    found = {**orjson.loads(encode_destination(QUEUE).partition(b" ")[2]), **fields}
    return f"{made} ".encode() + orjson.dumps({name: value for name, value in found.items() if value != "left out"})


def test_what_is_encoded_is_decoded() -> None:
    for each in (QUEUE, read(selector="log/**", kind="history"), read(selector="**", kind="value")):
        assert decode_destination(each.name, encode_destination(each)) == each


def test_the_encoding_stays_as_it_is() -> None:
    log = read(selector="log/**", kind="history", count=10)
    assert (log.name, encode_destination(log)) == (
        "file log/**",
        b'7.5 {"v":1,"kind":"history","count":10,"age":86400,"bytes":1048576}',
    )


def test_limits_that_a_later_release_adds_are_ignored() -> None:
    assert decode_destination(QUEUE.name, changed(groups=True)) == QUEUE


def test_limits_that_an_earlier_release_did_not_know_are_as_by_default() -> None:
    assert decode_destination(QUEUE.name, changed(dead_age="left out")) == QUEUE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"7.5",
        b"7.5 ",
        b"7.5 {",
        b"7.5 []",
        b"7.5 null",
        b"7.5 \xff",
        b"7.5 {}",
        changed(made="soon"),
        changed(made="nan"),
        changed(made="inf"),
        changed(v=ENCODING_VERSION + 1),
        changed(v="left out"),
        changed(kind="stack"),
        changed(kind={}),
        changed(count=-1),
        changed(count="many"),
        b"7.5 " + b" " * MAX_ENCODED_BYTES,
    ],
)
def test_anything_else_is_unreadable_and_says_so(data: bytes) -> None:
    with pytest.raises(UnreadableDestination):
        decode_destination(QUEUE.name, data)


@pytest.mark.parametrize("name", ["", "file", "nobody jobs/q", "file jobs//q", "file jobs/*", "file $jobs/q"])
def test_a_name_that_no_queue_can_have_is_unreadable(name: str) -> None:
    with pytest.raises(UnreadableDestination):
        decode_destination(name, encode_destination(QUEUE))
