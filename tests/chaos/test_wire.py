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


def replaying(*packets: Packet) -> tuple[Wire, list[str]]:
    """A session that has a subscription with its values, and what came then."""
    found: list[str] = []
    wire = Wire(welcome("created"), "alice", {}, lambda promise, what: found.append(promise), replays=True)
    wire.request({"type": "subscribe", "selector": "c1/**"})
    wire.take_reply({"request": 1})
    assert wire.places is not None
    for packet in ({"code": "snapshots_complete", "positions": {"7": "7-1-4"}, "request": 1}, *packets):
        (wire.places.update if "event" in packet else wire.places.notice)(packet)
    return wire, found


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("packets", "positions"),
    [
        pytest.param([], {"7": "7-1-4"}, id="as told"),
        pytest.param([{"event": "7-1-5"}, {"event": "7-1-10"}], {"7": "7-1-10"}, id="updates follow"),
        pytest.param([{"event": "7-1-3"}], {"7": "7-1-4"}, id="one from before"),
        pytest.param([{"event": "7-2-1"}], {"7": "7-2-1"}, id="of a later generation"),
        pytest.param([{"event": "7-1-5", "folded": 2}], {"7": "7-1-4"}, id="a folded one"),
        pytest.param([{"event": "7-1-5", "snapshot": True}], {"7": "7-1-4"}, id="a current value"),
        pytest.param([{"event": "8-1-5"}], {"7": "7-1-4"}, id="of another partition"),
        pytest.param([{"code": "values_reread", "partitions": [7]}], None, id="nobody knows any more"),
        pytest.param([{"code": "values_reread", "partitions": [8]}], {"7": "7-1-4"}, id="of another one nobody does"),
        pytest.param([{"code": "values_reread"}], None, id="of none anybody does"),
    ],
)
def test_a_witness_tells_how_far_it_has_come(packets: list[Packet], positions: Packet | None) -> None:
    wire, _ = replaying(*packets)
    resume = wire.resume()
    assert resume.get("positions") == positions
    assert "replay" in resume["supports"]


def test_subscribes_are_named_until_their_values_have_come() -> None:
    wire, _ = replaying()
    assert wire.resume()["unfinished"] == {}
    wire.request({"type": "subscribe", "selector": "c2/**"})
    assert wire.resume()["unfinished"] == {"2": "c2/**"}
    wire.take_reply({"request": 2})
    assert wire.resume()["unfinished"] == {"2": "c2/**"}
    assert wire.places is not None
    wire.places.notice({"code": "snapshots_complete", "positions": {}, "request": 2})
    assert wire.resume()["unfinished"] == {}


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("told", "kept", "demanded"),
    [
        pytest.param({"replayed": True, "lost": 0}, True, (True, True), id="everything follows"),
        pytest.param({"replayed": {"7": "gap"}, "lost": 3}, False, (True, False), id="values of its partition"),
        pytest.param(
            {"replayed": {"9": "unnamed"}, "lost": 3}, True, (False, False), id="values of one it did not know"
        ),
        pytest.param({"lost": 3}, False, (True, False), id="values of all"),
    ],
)
def test_what_a_welcome_says_of_what_was_missed(told: Packet, kept: bool, demanded: tuple[bool, bool]) -> None:
    wire, found = replaying()
    wire.resume()
    came = welcome("failed_over", **told)
    assert wire.is_replayed(came) == demanded
    wire.resumed(came)
    assert ("positions" in wire.resume()) is kept
    assert not found


def test_a_replay_that_nobody_asked_for_or_that_loses_something_is_a_violation() -> None:
    wire, found = replaying({"code": "values_reread"})
    wire.resume()
    wire.is_replayed(welcome("failed_over", replayed=True, lost=0))
    assert found == ["P13"]
    wire, found = replaying()
    wire.resume()
    wire.is_replayed(welcome("failed_over", replayed=True, lost=2))
    assert found == ["P13"]
