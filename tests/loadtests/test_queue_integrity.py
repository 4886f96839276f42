"""What load tests find in messages of queues and in events of histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import orjson
import pytest

from gateway.core.client.types import Update as Event
from gateway.core.types import DeliveryTag, MessageId
from gateway.core.wire.queue_packets import Message
from loadtests.payload import Sample, encode
from loadtests.queue_integrity import HistoryWatch, QueueWatch
from loadtests.tally import Tally

DUE: Final = 1000.0


def message(number: int, *, redelivered: bool = False) -> Message:
    value = orjson.loads(encode(Sample("s", number, DUE)))
    return Message(
        queue="q",
        message=MessageId(number),
        delivery=DeliveryTag(number),
        sent=5,
        redelivered=redelivered,
        value=value,
    )


def event(number: int, **changes: object) -> Event:
    value = orjson.loads(encode(Sample("s", number, DUE)))
    return replace(Event("load/a", value, number, f"5-1-{number}", snapshot=False), **changes)  # type: ignore[arg-type]


@pytest.fixture
def found() -> list[str]:
    return []


def test_messages_are_given_and_accepted_once(found: list[str]) -> None:
    tally = Tally()
    watch = QueueWatch(tally, found.append)
    assert watch.received(message(1), DUE + 0.25) == pytest.approx(0.25)
    assert watch.received(message(1, redelivered=True), DUE + 1) is None
    watch.accepted(1)
    assert found == []
    assert (tally.messages, tally.redelivered, tally.accepted) == (2, 1, 1)


def test_each_broken_promise_of_a_queue_is_found(found: list[str]) -> None:
    watch = QueueWatch(Tally(), found.append)
    watch.received(message(1), DUE)
    watch.received(message(1), DUE)
    assert "was not marked" in found.pop()
    watch.accepted(1)
    watch.accepted(1)
    assert "accepted twice" in found.pop()
    watch.received(message(1, redelivered=True), DUE)
    assert "after it was accepted" in found.pop()
    damaged = message(2)
    watch.received(replace(damaged, value={**damaged.value, "filler": "x" * 30}), DUE)  # type: ignore[dict-item]
    assert "damaged" in found.pop()
    assert found == []


def test_what_the_grid_lost_may_come_again(found: list[str]) -> None:
    watch = QueueWatch(Tally(), found.append)
    watch.received(message(1), DUE)
    watch.accepted(1)
    watch.forget()
    watch.received(message(1), DUE)
    assert found == []


def test_events_are_read_once_and_in_order(found: list[str]) -> None:
    tally = Tally()
    watch = HistoryWatch(tally, found.append)
    for number in (4, 5, 6):
        watch.read(event(number))
    assert found == []
    assert tally.events == 3


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param(event(6), "missed 1 events", id="a hole"),
        pytest.param(event(4), "came again", id="twice"),
        pytest.param(event(5, gap=True), "a gap is told", id="a gap for no reason"),
        pytest.param(event(5, snapshot=True), "is no event", id="a snapshot"),
    ],
)
def test_each_broken_promise_of_a_history_is_found(found: list[str], second: Event, expected: str) -> None:
    watch = HistoryWatch(Tally(), found.append)
    watch.read(event(4))
    watch.read(second)
    assert [expected in each for each in found] == [True]


def test_holes_are_excused_once_the_grid_has_lost_writes(found: list[str]) -> None:
    watch = HistoryWatch(Tally(), found.append)
    watch.read(event(4))
    watch.forget()
    watch.read(event(8))
    assert found == []
