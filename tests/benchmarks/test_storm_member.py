"""A member of a storm accepts what the protocol allows and fails what it forbids: it is handed messages by hand."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from benchmarks.storm import values
from benchmarks.storm.crowd import interest_of
from benchmarks.storm.loop import Connection, Loop
from benchmarks.storm.member import Interest, Member
from benchmarks.storm.replay import ReplayedMember

TOPICS = ("a/1", "a/2")


class FakeConnection:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, payload: bytes) -> None:
        self.sent.append(orjson.loads(payload))

    def cut(self) -> None:
        """Nothing to cut."""


class FakeLoop:
    def __init__(self) -> None:
        self.connection = FakeConnection()

    def connect(self, *_: object) -> FakeConnection:
        self.connection = FakeConnection()
        return self.connection


class FakeBoard:
    def __init__(self) -> None:
        self.goals = dict.fromkeys(TOPICS, 1)
        self.failures: list[str] = []
        self.complete = 0
        self.pings = 0

    def welcomed(self, member: Member, outcome: str) -> None: ...

    def current(self, member: Member) -> None:
        self.complete += 1

    def failed(self, member: Member, what: str) -> None:
        self.failures.append(what)

    def pinged(self) -> None:
        self.pings += 1

    def owes(self, member: Member) -> None: ...


class Scene:
    def __init__(self) -> None:
        self.loop, self.board = FakeLoop(), FakeBoard()
        self.member = Member(cast("Loop", self.loop), self.board, "alice", Interest(("a/*",), TOPICS))

    def arrive(self, expected: str) -> None:
        self.member.expect(self.member.outdated if expected == "reattached" else TOPICS)
        self.member.arrive(("127.0.0.1", 1), expected=expected)
        self.member.opened(cast("Connection", self.loop.connection))

    def hand(self, *packets: dict[str, Any]) -> None:
        self.member.received(cast("Connection", self.loop.connection), orjson.dumps(packets))

    def opened(self) -> None:
        self.arrive("created")
        self.hand(welcome("created", "t1", selections=[]))
        self.hand({"id": 1, "type": "reply", "request": 1}, update(2, "a/1", 1), update(3, "a/2", 1))
        assert not self.board.failures


def welcome(outcome: str, token: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "welcome", "session": "s1", "principal": "alice", "node": "n1", "token": token, "outcome": outcome,
        "received": 1 if outcome == "reattached" else 0, "lost": 0, "selections": ["+a/*"], **fields,
    }  # fmt: skip


def update(number: int | None, topic: str, version: int, sequence: int = 1, **fields: Any) -> dict[str, Any]:
    head = {} if number is None else {"id": number}
    body = {"type": "update", "topic": topic, "version": version, "value": values.make(sequence, 5), "snapshot": True}
    return {**head, **body, **fields}


def test_it_subscribes_is_complete_and_acknowledges() -> None:
    scene = Scene()
    scene.opened()
    hello, subscribes, acknowledgement = scene.loop.connection.sent
    assert hello["type"] == "hello"
    assert [each["selector"] for each in subscribes] == ["a/*"]
    assert acknowledgement == {"type": "ack", "received": 3}
    assert scene.board.complete == 1


def test_numbers_may_be_left_out_after_the_first_of_a_message() -> None:
    scene = Scene()
    scene.opened()
    scene.hand(update(4, "a/1", 2), update(None, "a/2", 2))
    assert not scene.board.failures
    scene.hand(update(None, "a/1", 3))
    assert "packet None came after packet 5" in scene.board.failures[0]


def test_it_reattaches_with_what_it_has_and_is_complete_at_once() -> None:
    scene = Scene()
    scene.opened()
    scene.arrive("reattached")
    (resume,) = scene.loop.connection.sent
    assert (resume["token"], resume["attempt"], resume["received"], resume["oldest"]) == ("t1", 1, 3, 2)
    assert resume["supports"] == ["handed_over"]
    scene.hand(welcome("reattached", "t2"))
    assert scene.board.complete == 2
    assert not scene.board.failures


def test_after_a_failover_it_waits_for_every_value() -> None:
    scene = Scene()
    scene.opened()
    scene.board.goals["a/1"] = 2
    scene.arrive("failed_over")
    scene.hand(welcome("failed_over", "t2"))
    scene.hand(update(1, "a/1", 1))
    scene.hand(update(2, "a/2", 1))
    assert scene.board.complete == 1
    scene.hand(update(3, "a/1", 2, sequence=2))
    assert scene.board.complete == 2
    assert not scene.board.failures


class ReplayedScene(Scene):
    """A member that says where it is; it selects ``market/3``, ``desk/3/*`` and ``account/3``."""

    def __init__(self) -> None:
        super().__init__()
        self.member = ReplayedMember(cast("Loop", self.loop), self.board, "alice", interest_of(3))
        self.board.goals = dict.fromkeys(self.member.topics, 1)

    def arrive(self, expected: str) -> None:
        self.member.expect(self.member.awaited(expected))
        self.member.arrive(("127.0.0.1", 1), expected=expected)
        self.member.opened(cast("Connection", self.loop.connection))

    def killed(self) -> None:
        """Open it, change its shared topics, and let it come back to another node."""
        self.arrive("created")
        self.hand(welcome("created", "t1", selections=[]))
        replies = [{"id": number, "type": "reply", "request": number} for number in (1, 2, 3)]
        values_ = [update(4 + at, topic, 1, event="x") for at, topic in enumerate(self.member.topics)]
        done = {"id": 7, "type": "notice", "code": "snapshots_complete", "positions": {"1": "1-1-5", "2": "2-1-5"}}
        self.hand(*replies, *values_, done, update(8, "market/3", 2, 2, snapshot=False, event="1-1-6"))
        self.board.goals |= {"market/3": 4, "desk/3/limit": 2}
        self.arrive("failed_over")


SELECTED = ["+market/3", "+desk/3/*", "+account/3"]


def test_a_replayed_member_says_where_it_is_and_waits_for_what_it_missed_alone() -> None:
    scene = ReplayedScene()
    scene.board.goals["market/3"] = 2
    scene.killed()
    (resume,) = scene.loop.connection.sent
    assert (resume["supports"], resume["positions"]) == (["replay"], {"1": "1-1-6", "2": "2-1-5"})
    assert scene.member.missing == {"market/3", "desk/3/limit"}
    scene.hand(welcome("failed_over", "t2", replayed=True, selections=SELECTED))
    live: dict[str, Any] = {"snapshot": False}
    scene.hand(update(1, "market/3", 3, 3, event="1-1-7", **live), update(2, "market/3", 4, 4, event="1-1-8", **live))
    assert scene.board.complete == 1
    scene.hand(update(3, "desk/3/limit", 2, 2, event="2-1-6", **live))
    assert scene.board.complete == 2
    assert not scene.board.failures


@pytest.mark.parametrize(
    ("fields", "number", "complaint"),
    [
        ({"replayed": {"1": "gap"}, "lost": None}, 3, "was not replayed: {'1': 'gap'}"),
        ({"replayed": True, "lost": 2}, 3, "lost=2"),
        ({}, 3, "was not replayed: None"),
        ({"replayed": True}, 4, "market/3 went from number 2 to 4"),
    ],
)
def test_a_replayed_member_takes_no_hole(fields: dict[str, Any], number: int, complaint: str) -> None:
    scene = ReplayedScene()
    scene.board.goals["market/3"] = 2
    scene.killed()
    scene.hand(welcome("failed_over", "t2", **({"selections": SELECTED} | fields)))
    scene.hand(update(1, "market/3", number, number, snapshot=False, event="1-1-7"))
    assert complaint in scene.board.failures[0]


@pytest.mark.parametrize(
    ("packet", "complaint"),
    [
        (update(5, "a/1", 2), "packet 5 came after packet 3"),
        (update(4, "a/1", 1, snapshot=False), "went back from version 1 to 1"),
        (update(4, "a/1", 0), "went back from version 1 to 0"),
        (update(4, "a/1", 2, sequence=9), "1 is the last that was published"),
        (update(4, "a/9", 2), "None is the last that was published"),
        (update(4, "a/1", 2, value="1 5 nonsense"), "is not a value that was published"),
        ({"id": 4, "type": "reply", "request": 7}, "was answered"),
        ({"id": 4, "type": "reply", "request": 1, "error": {"code": "internal"}}, "was answered"),
        ({"type": "error", "code": "protocol_error", "message": "no"}, "was sent"),
        ({"type": "bye"}, "was sent"),
    ],
)
def test_what_is_wrong_is_noticed(packet: dict[str, Any], complaint: str) -> None:
    scene = Scene()
    scene.opened()
    scene.hand(packet)
    assert complaint in scene.board.failures[0]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"outcome": "failed_over", "reason": "gap"}, "was failed_over (gap), not reattached"),
        ({"session": "s2"}, "came back as session s2"),
        ({"principal": "bob"}, "of bob"),
        ({"token": "t1"}, "was not handed a new token"),
        ({"selections": []}, "came back with the selections []"),
        ({"received": 0}, "received=0"),
        ({"lost": 3}, "lost=3"),
    ],
)
def test_a_wrong_welcome_is_noticed(fields: dict[str, Any], complaint: str) -> None:
    scene = Scene()
    scene.opened()
    scene.arrive("reattached")
    scene.hand(welcome("reattached", "t2") | fields)
    assert complaint in scene.board.failures[0]


def test_pings_are_answered_and_their_token_kept() -> None:
    scene = Scene()
    scene.opened()
    scene.hand({"type": "ping", "token": "t1b"})
    assert scene.loop.connection.sent[-1] == {"type": "pong", "received": 3}
    assert scene.board.pings == 1
    scene.arrive("reattached")
    assert scene.loop.connection.sent[0]["token"] == "t1b"


def test_an_unexpected_close_is_a_failure_and_one_after_bye_is_none() -> None:
    scene = Scene()
    scene.opened()
    scene.member.bye()
    scene.member.lost(cast("Connection", scene.loop.connection), "closed with 1000")
    assert not scene.board.failures
    scene = Scene()
    scene.opened()
    scene.member.lost(cast("Connection", scene.loop.connection), "closed with 4005")
    assert scene.board.failures == ["lost its connection: closed with 4005"]
