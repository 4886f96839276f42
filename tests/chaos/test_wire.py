"""The witness notices what is wrong on the wire, and does itself what protocol.md asks for."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.chaos.load.habits import BACKLOG, FILLING, LEAVER, MUTE, OVERFULL, SOON, Habits
from tests.chaos.load.wire import Packet, Wire


def welcome(outcome: str, **others: Any) -> Packet:
    told = {"session": "s", "token": "t", "node": "n1", "window": 30.0, "ping_timeout": 5.0}
    return {**told, "limits": {"resend_packets": 9}, "outcome": outcome, "received": 0, **others}


def wired() -> tuple[Wire, list[str]]:
    found: list[str] = []
    wire = Wire(welcome("created"), "alice", {"of": "alice"}, lambda promise, what: found.append(promise))
    return wire, found


def test_numbers_follow_also_where_they_are_left_out() -> None:
    wire, found = wired()
    for packet in ({"id": 1}, {}, {"id": 3}):
        wire.take_number(packet)
    assert (wire.received, found) == (3, [])
    wire.take_number({"id": 5})
    assert found == ["P2"]


def test_only_what_was_sent_is_acknowledged() -> None:
    wire, found = wired()
    assert wire.request({"type": "publish"})["id"] == 1
    wire.take_acknowledgement(1)
    assert (wire.unacknowledged(), found) == ([], [])
    wire.take_acknowledgement(2)
    assert found == ["P2"]


def test_each_request_has_one_reply() -> None:
    wire, found = wired()
    wire.request({"type": "properties", "set": {"a": "1"}})
    assert [dict(each.properties) for each in wire.may_be()] == [{"of": "alice"}, {"of": "alice", "a": "1"}]
    wire.take_reply({"request": 1})
    assert wire.properties == {"of": "alice", "a": "1"}
    assert (wire.take_reply({"request": 1}), found) == (None, ["P5"])


def test_a_topic_counts_as_selected_from_the_request_on() -> None:
    wire, _ = wired()
    assert not wire.is_asked_for("c1/a")
    wire.request({"type": "subscribe", "selector": "c1/**"})
    assert wire.is_asked_for("c1/a")
    assert not wire.is_asked_for("c10/a")


@pytest.mark.parametrize("kept", ["reattached", "handed_over"])
def test_who_keeps_its_numbers_sends_what_the_node_misses_and_who_fails_over_what_has_no_answer(kept: str) -> None:
    wire, found = wired()
    for number in (1, 2, 3):
        wire.request({"type": "publish", "value": number})
    assert (wire.resume()["attempt"], wire.resume()["oldest"]) == (1, 1)
    assert not wire.resumed(welcome(kept, received=2)), "the first resume was left without an answer"
    assert [packet["id"] for packet in wire.unacknowledged()] == [3]
    wire.take_reply({"request": 2})
    wire.resume()
    assert wire.resumed(welcome("failed_over"))
    again = [(packet["id"], packet["request"], packet["resubmitted"]) for packet in wire.unacknowledged()]
    assert again == [(1, 1, True), (2, 3, True)]
    assert found == []


@pytest.mark.parametrize(("outcome", "received"), [("reattached", 4), ("handed_over", 4), ("failed_over", 1)])
def test_a_welcome_that_does_not_fit_is_found(outcome: str, received: int) -> None:
    wire, found = wired()
    wire.resume()
    wire.resumed(welcome(outcome, received=received))
    assert found == ["P2"]


def test_a_backlog_is_left_until_the_node_is_full_and_for_longer() -> None:
    habits = Habits(frozenset({BACKLOG}), Random(1))
    habits.connected(0.0)
    assert habits.due(SOON / 2, may_leave=True) == ""
    assert habits.due(SOON, may_leave=True) == BACKLOG
    assert habits.is_mute(SOON + FILLING - 1)
    habits.is_full(5.0)
    habits.is_full(5.5)
    assert habits.is_mute(5.0 + OVERFULL[0] - 0.1)
    assert not habits.is_mute(5.0 + OVERFULL[1])


def test_who_leaves_waits_for_what_is_under_way() -> None:
    habits = Habits(frozenset({LEAVER, MUTE}), Random(1))
    habits.opened(0.0)
    habits.connected(0.0)
    assert habits.due(100.0, may_leave=False) == MUTE
    assert habits.due(200.0, may_leave=True) == LEAVER
