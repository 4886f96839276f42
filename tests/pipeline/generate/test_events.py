"""Synthetic events are such as a gateway tells, one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

import pyarrow as pa

from gateway.core.journal import (
    ENVELOPE,
    EVENT_TYPES,
    BadRecord,
    Record,
    journal_partition,
    read_event_id,
    read_records,
)
from gateway.core.journal import write_records as write
from gateway.core.types import SessionId
from gateway.core.wire.codes import CLOSE_CODES, ErrorCode, FailoverReason, Outcome
from pipeline.generate import records

from .conftest import SCALE

NOT_TOLD: Final = {"destinations_changed"}
"""What no generated cluster tells, because no table is made of it."""


def test_every_event_is_a_record_of_the_journal(journal: pa.Table) -> None:
    found = list(read_records(write(records(journal))))
    assert len(found) == SCALE.events
    assert [each for each in found if isinstance(each, BadRecord)] == []


def test_all_kinds_of_events_happen(events: list[Record]) -> None:
    assert {each["type"] for each in events} == EVENT_TYPES.keys() - NOT_TOLD


def test_events_carry_what_their_type_declares_and_nothing_else(events: list[Record]) -> None:
    envelope = {each.name for each in ENVELOPE}
    surplus = Counter(
        (each["type"], name)
        for each in events
        for name in each.keys() - envelope - set(EVENT_TYPES[each["type"]].fields)
    )
    assert not surplus
    for each in events:
        if not EVENT_TYPES[each["type"]].about_session:
            assert "session" not in each
        elif each["type"] != "session_refused":
            assert each["epoch"] >= 1
            assert each["session"]


def test_all_declared_fields_are_used(events: list[Record]) -> None:
    used: defaultdict[str, set[str]] = defaultdict(set)
    for each in events:
        used[each["type"]] |= each.keys()
    kinds = [kind for kind in EVENT_TYPES.values() if kind.name not in NOT_TOLD]
    unused = {(kind.name, name) for kind in kinds for name in kind.fields if name not in used[kind.name]}
    # A disconnection says what waited only when the client was too slow; publishes are told when it is back.
    assert unused == {("session_disconnected", "deduplicated")}


def test_words_are_those_of_the_registry(events: list[Record]) -> None:
    causes = {each["cause"] for each in events if "cause" in each}
    assert causes <= {each.name for each in CLOSE_CODES} | {"connection_lost"}
    by_name = {each.name: each.code for each in CLOSE_CODES}
    assert all(each.get("code") == by_name.get(each["cause"]) for each in events if "cause" in each)
    assert {each["rung"] for each in events if "rung" in each} == {Outcome.REATTACHED, Outcome.FAILED_OVER}
    for kind, words in (
        ("session_resumed", set(FailoverReason)),
        ("session_refused", set(ErrorCode)),
        ("session_closed", {*ErrorCode, "normal"}),
    ):
        assert {each["reason"] for each in events if each["type"] == kind and "reason" in each} <= words


def test_a_session_keeps_to_its_stream(journal: pa.Table) -> None:
    pairs = {(row["session"], row["stream"]) for row in journal.select(["session", "stream"]).to_pylist()}
    assert all(stream == journal_partition(SessionId(session)) for session, stream in pairs if session is not None)


def test_numbers_have_holes_only_where_events_were_dropped(events: list[Record]) -> None:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    dropped = Counter[str]()
    for each in events:
        numbers[each["incarnation"]].append(read_event_id(each["id"])[1])
        if each["type"] == "events_dropped":
            dropped[each["incarnation"]] += each["count"]
    assert dropped.total() > 0
    for incarnation, found in numbers.items():
        assert len(set(found)) == len(found)
        assert max(found) - len(found) == dropped[incarnation]


def test_times_and_numbers_of_an_incarnation_rise_together(events: list[Record]) -> None:
    last = defaultdict[str, int](int)
    for each in sorted(events, key=lambda each: read_event_id(each["id"])[1]):
        assert each["at"] >= last[each["incarnation"]]
        last[each["incarnation"]] = each["at"]
