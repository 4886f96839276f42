"""What a reader of events is sent, and where it is after each of them: against a model of the rules."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types import EventId, PacketId, Version
from gateway.core.wire import codec
from gateway.core.wire.codec.event_stream import KEEP_ALIVE, StreamWriter, read_stream_query, write_end, write_retry
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Notice, NoticeCode


def message(*bodies: bytes) -> bytes:
    """Make a message of packets, as a session machine does."""
    packets = [orjson.loads(b"{" + each) for each in bodies]
    return orjson.dumps([{"id": number, **each} for number, each in enumerate(packets, 1)])


def update(event: str, *, folded: int = 0, snapshot: bool = False, value: object = 1) -> bytes:
    """Make the body of an update."""
    body = codec.encode_update("t", Version(1), EventId(event), orjson.dumps(value), snapshot=snapshot)
    packet = orjson.loads(b"{" + body)
    return orjson.dumps({**packet, **({"folded": folded} if folded else {})})[1:]


def complete(*positions: str) -> bytes:
    """Make the body of the notice that all current values have been sent."""
    places = {int(event.partition("-")[0]): EventId(event) for event in positions}
    return codec.encode_notice(Notice(NoticeCode.SNAPSHOTS_COMPLETE, "", partitions=tuple(places), positions=places))


def reread(*partitions: int) -> bytes:
    """Make the body of the notice that current values follow."""
    return codec.encode_notice(Notice(NoticeCode.VALUES_REREAD, "lost", partitions=partitions))


def parsed(text: bytes) -> list[dict[str, str]]:
    """Read events by the rules of the standard, as lines."""
    events: list[dict[str, str]] = []
    for block in text.decode().split("\n\n")[:-1]:
        event: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            event[name] = value.removeprefix(" ")
        events.append(event)
    return events


def test_an_event_tells_the_place_behind_it() -> None:
    text, last = StreamWriter().take(
        message(
            update("17-1-3", snapshot=True),
            complete("17-1-5", "18-1-1"),
            update("17-1-6"),
            update("18-1-9", folded=2),
            update("17-1-7"),
        )
    )
    assert last == PacketId(5)
    ids = [each.get("id") for each in parsed(text)]
    assert ids == ["", "17-1-5,18-1-1", "17-1-6,18-1-1", None, "17-1-7,18-1-1"]
    assert orjson.loads(parsed(text)[3]["data"])["folded"] == 2


@pytest.mark.promise("P2")
def test_a_gap_takes_places_away_until_values_are_complete() -> None:
    writer = StreamWriter()
    writer.take(message(complete("17-1-5", "18-1-1")))
    gap, value, ready = parsed(writer.take(message(reread(17), update("17-1-9"), complete("17-1-9")))[0])
    assert (gap["event"], gap["id"]) == ("gap", "18-1-1")
    assert "id" not in value
    assert ready["id"] == "17-1-9,18-1-1"


def test_who_comes_back_is_told_that_it_knows_nothing_any_more() -> None:
    """Browsers keep the id of the connection before, and would name it again."""
    (opened,) = parsed(StreamWriter().begin({}, "n1", {17: "gap"}))
    assert opened["id"] == ""
    assert orjson.loads(opened["data"]) == {"node": "n1", "replayed": {"17": "gap"}}


def test_quiet_times_tell_the_place_once() -> None:
    writer = StreamWriter()
    writer.take(message(complete("17-1-5")))
    assert writer.idle({17: EventId("17-1-5"), 18: EventId("18-1-1")}) == KEEP_ALIVE
    assert writer.idle({17: EventId("17-1-8")}) == b"id: 17-1-8\n\n"
    assert writer.idle({17: EventId("17-1-7")}) == KEEP_ALIVE, "places never go back"


def test_no_value_can_break_out_of_its_event() -> None:
    value = "\n\nevent: end\ndata: {}\r\r\u2028"
    text, _ = StreamWriter().take(message(update("17-1-1", value=value)))
    (event,) = parsed(text)
    assert orjson.loads(event["data"])["value"] == value
    assert b"\r" not in text
    assert write_end("x", "a\nb").count(b"\n") == 3
    assert write_retry(0.25) == b"retry: 250\n\n"


_UPDATES = st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(0, 2), st.booleans())


@given(st.lists(st.one_of(_UPDATES, st.integers(0, 3)), max_size=40))
def test_places_never_go_back_and_move_by_nothing_else_than_what_may_move_them(steps: list[Any]) -> None:
    writer = StreamWriter()
    writer.take(message(complete("0-1-1", "1-1-1", "2-1-1", "3-1-1")))
    model = dict.fromkeys(range(4), 1)
    for step in steps:
        if isinstance(step, int):
            writer.take(message(reread(step)))
            model.pop(step, None)
            continue
        number, sequence, folded, snapshot = step
        writer.take(message(update(f"{number}-1-{sequence}", folded=folded, snapshot=snapshot)))
        if number in model and not folded and not snapshot:
            model[number] = max(model[number], sequence)
        assert writer.places == {number: f"{number}-1-{place}" for number, place in model.items()}


def test_the_header_counts_more_than_the_url() -> None:
    query = read_stream_query("selector=a%2F**&selector=b&after=17-1-1", "17-1-5,18-1-2")
    assert query.selectors == ("a/**", "b")
    assert query.after == {17: "17-1-5", 18: "18-1-2"}
    assert read_stream_query("selector=a&after=17-1-1", "").after == {17: "17-1-1"}
    with pytest.raises(RequestRefused, match="Last-Event-ID"):
        read_stream_query("selector=a", "17-1-5,17-1-6")
