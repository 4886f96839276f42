"""The journal's schema: what is written can be read, and what cannot be read is told line by line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.journal import (
    ENVELOPE,
    EVENT_TYPES,
    FIELDS,
    JOURNAL_PARTITIONS,
    VERSION,
    BadRecord,
    Field,
    FieldKind,
    JournalEvent,
    Stamp,
    event_id,
    journal_partition,
    read_event_id,
    read_records,
    record,
    write_records,
)
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, SessionId

STAMP = Stamp(NodeRef(NodeId("n1"), Incarnation("ab12")), "1.2.3")
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def of_kind(field: Field) -> st.SearchStrategy[object]:
    by_kind: dict[FieldKind, st.SearchStrategy[object]] = {
        FieldKind.TEXT: st.text(),
        FieldKind.NUMBER: INT64,
        FieldKind.INSTANT: INT64,
        FieldKind.FLAG: st.booleans(),
        FieldKind.TEXTS: st.lists(st.text(), max_size=3),
    }
    return by_kind[field.kind]


@st.composite
def events(draw: st.DrawFn) -> JournalEvent:
    kind = draw(st.sampled_from(list(EVENT_TYPES.values())))
    told = {name: draw(st.none() | of_kind(FIELDS[name])) for name in kind.fields}
    session = SessionId(draw(st.text(min_size=1))) if kind.about_session else None
    return JournalEvent(kind, draw(INT64), session, Epoch(7) if session else None, told)


@given(st.lists(events(), min_size=1, max_size=5))
def test_what_is_written_can_be_read(several: list[JournalEvent]) -> None:
    written = [record(each, STAMP, number) for number, each in enumerate(several, 1)]
    text = write_records(written)
    assert list(read_records(text)) == written
    assert text.count(b"\n") == len(written) - 1


def test_fields_with_nothing_to_tell_are_left_out() -> None:
    event = JournalEvent(
        EVENT_TYPES["session_resumed"], 5, SessionId("s"), Epoch(2), {"rung": "reattached", "lost": None}
    )
    assert record(event, STAMP, 9) == {
        "version": VERSION,
        "id": "ab12-9",
        "type": "session_resumed",
        "at": 5,
        "node": "n1",
        "incarnation": "ab12",
        "release": "1.2.3",
        "session": "s",
        "epoch": 2,
        "rung": "reattached",
    }


GOOD = record(JournalEvent(EVENT_TYPES["node_started"], 1), STAMP, 1)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "not a JSON object but a list"),
        (b"{}", "there is no 'version'"),
        (json.dumps(GOOD | {"at": "soon"}).encode(), "'at' is no instant"),
        (json.dumps(GOOD | {"at": True}).encode(), "'at' is no instant"),
        (json.dumps(GOOD | {"at": 1 << 63}).encode(), "'at' is no instant"),
        (json.dumps(GOOD | {"names": "a"}).encode(), "'names' is no list of texts"),
        (json.dumps(GOOD | {"lost_writes": 1}).encode(), "'lost_writes' is no true or false"),
        (json.dumps(GOOD | {"id": "ab12"}).encode(), "no id of an event"),
        (json.dumps(GOOD | {"id": "ab12-x"}).encode(), "no id of an event"),
        (json.dumps(GOOD | {"id": "cd34-1"}).encode(), "'id' is not of the 'incarnation'"),
    ],
)
def test_a_bad_line_is_told_and_does_no_harm_to_the_others(line: bytes, says: str) -> None:
    first, bad, last = read_records(b"\n".join((write_records([GOOD]), line, write_records([GOOD]))))
    assert first == last == GOOD
    assert isinstance(bad, BadRecord)
    assert says in str(bad)


@given(st.binary())
def test_anything_at_all_can_be_looked_at(text: bytes) -> None:
    assert len(list(read_records(text))) == text.count(b"\n") + 1


def test_a_newer_version_is_read_with_what_it_adds() -> None:
    newer = GOOD | {"version": VERSION + 1, "shoe_size": 44}
    assert list(read_records(write_records([newer]))) == [newer]


def test_ids_can_be_read() -> None:
    assert read_event_id(event_id(Incarnation("a-b"), 12)) == ("a-b", 12)


def test_everything_of_a_session_is_in_one_partition() -> None:
    partitions = {journal_partition(SessionId(f"s{number}")) for number in range(1000)}
    assert partitions == set(range(JOURNAL_PARTITIONS))


def test_events_carry_only_fields_that_are_declared_and_every_field_is_carried() -> None:
    carried = {name for each in EVENT_TYPES.values() for name in each.fields}
    assert carried | {each.name for each in ENVELOPE} == FIELDS.keys()
