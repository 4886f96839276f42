"""How many publishes the publisher of the benchmarks puts into a message."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from benchmarks.storm.loop import Connection, Loop
from benchmarks.storm.publisher import Publisher


class Wire:
    """Stands in for a connection and keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, payload: bytes) -> None:
        content = json.loads(payload)
        if isinstance(content, dict) and content["type"] in {"hello", "ack"}:
            return
        self.sent.append(content)


class Dialler:
    """Stands in for the loop: connects at once."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def connect(self, *_: object) -> Connection:
        return cast("Connection", self._wire)

    def run(self, *_: object, **__: object) -> None: ...

    def fail(self, reason: str) -> None:
        raise AssertionError(reason)


def answers(first: int, count: int) -> bytes:
    """The replies to so many requests."""
    return json.dumps(
        [
            {"id": number, "type": "reply", "request": number, "version": number, "event": f"e{number}"}
            for number in range(first, first + count)
        ]
    ).encode()


@pytest.mark.parametrize(
    ("array", "messages"),
    [(1, [1] * 16), (10, [10]), (None, [16])],
    ids=["one by one", "ten", "as many as the window allows"],
)
def test_messages_hold_what_was_asked_for(array: int | None, messages: list[int]) -> None:
    wire = Wire()
    publisher = Publisher(cast("Loop", Dialler(wire)), "p", window=16, array=array)
    publisher.connect(("127.0.0.1", 1))
    publisher.publish(("topic", number) for number in range(25))

    assert [len(each) if isinstance(each, list) else 1 for each in wire.sent] == messages
    # One value alone is a packet, as clients send it, and no array of one.
    assert all(isinstance(each, list) is (array != 1) for each in wire.sent)


def test_ten_wait_until_ten_fit_and_the_rest_is_sent_as_it_is() -> None:
    wire = Wire()
    publisher = Publisher(cast("Loop", Dialler(wire)), "p", window=16, array=10)
    publisher.connect(("127.0.0.1", 1))
    publisher.publish(("topic", number) for number in range(25))
    publisher.received(cast("Connection", wire), answers(1, 3))
    assert [len(each) for each in wire.sent] == [10]
    publisher.received(cast("Connection", wire), answers(4, 7))
    publisher.received(cast("Connection", wire), answers(11, 10))

    assert [len(each) for each in wire.sent] == [10, 10, 5]
