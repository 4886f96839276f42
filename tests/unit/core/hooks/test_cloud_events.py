"""Events as CloudEvents: attributes, data, stable ids."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.hooks.cloud_events import body_of, encode, from_gap, from_record, message_id, timestamp
from gateway.core.hooks.cursor import Gap, GapReason
from gateway.core.hooks.hook import HookName

RECORD = {
    "version": 3,
    "id": "abc-7",
    "type": "session_opened",
    "at": 1_700_000_000_123_456,
    "node": "n1",
    "incarnation": "abc",
    "release": "0.1.0",
    "session": "s1",
    "epoch": 1,
    "principal": "ann",
    "client": None,
}
CRM = HookName("crm")


def test_a_record_becomes_an_event() -> None:
    assert from_record(RECORD) == {
        "specversion": "1.0",
        "id": "abc-7",
        "source": "/nodes/n1",
        "type": "session_opened",
        "subject": "s1",
        "time": "2023-11-14T22:13:20.123456Z",
        "datacontenttype": "application/json",
        "data": {"incarnation": "abc", "release": "0.1.0", "epoch": 1, "principal": "ann"},
    }


def test_what_is_about_no_session_has_no_subject() -> None:
    assert "subject" not in from_record({**RECORD, "session": None})


def test_a_gap_has_the_same_id_whenever_it_is_told() -> None:
    gap = Gap(3, "stream", GapReason.RETENTION, "1-7", 12)
    first, second = from_gap(gap, CRM, 1000.0), from_gap(gap, CRM, 2000.0)
    assert first["id"] == second["id"]
    assert first["id"] != from_gap(gap, HookName("audit"), 1000.0)["id"]
    assert (first["type"], first["source"]) == ("gap", "/hooks/crm")
    assert first["data"] == {"reason": "retention", "stream": 3, "after": "1-7", "count": 12}
    assert "count" not in from_gap(Gap(3, "stream", GapReason.JOURNAL_LOST, "1-7", None), CRM, 0.0)["data"]


def test_a_body_is_an_array_and_its_id_says_what_is_in_it() -> None:
    events = [encode(from_record({**RECORD, "id": f"abc-{number}"})) for number in range(3)]
    assert [each["id"] for each in orjson.loads(body_of(events))] == ["abc-0", "abc-1", "abc-2"]
    assert message_id(CRM, ["a", "b"]) == message_id(CRM, ["a", "b"]) != message_id(CRM, ["ab"])


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001 - bounds are without a zone
def test_times_are_written_as_everybody_writes_them(moment: datetime) -> None:
    seconds = int(moment.replace(microsecond=0).timestamp())
    text = timestamp(seconds * 1_000_000 + moment.microsecond)
    assert datetime.fromisoformat(text) == moment
    assert text.endswith("Z")


@given(st.integers())
def test_no_number_is_too_large_for_a_time(number: int) -> None:
    assert datetime.fromisoformat(timestamp(number)) is not None
