"""Connections that have much to say take turns, a few messages each, and whoever says little is heard between (P20)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import groupby
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.app.connections.conversation import Conversation, Conversations
from gateway.app.requests.turns import LIGHT_BYTES, PACKET_BYTES, ROUND_TURNS, SHARE_BYTES, TURN_BYTES, Turns
from gateway.app.session.session import Session
from gateway.ports import Connection
from tests.support.clock import eventually

pytestmark = pytest.mark.promise("P20")

GREEDY = 60
"""Connections that send as fast as they can."""


class FakeConnection:
    """Hands over what it has read, one message after the other, until it is told to pause."""

    def __init__(self, inbox: deque[bytes]) -> None:
        self.inbox = inbox
        self.conversation: Conversation | None = None
        self._paused = False

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        while self.inbox and not self._paused:
            assert self.conversation is not None
            self.conversation.received(self.inbox.popleft())


class NotedTurns(Turns):
    """Notes what those who wait for a turn say it will cost."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[int] = []

    def wait(self, go_on: Callable[[], None], cost: int, principal: str) -> None:
        self.waited.append(cost)
        super().wait(go_on, cost, principal)


class Room:
    """Takes in what conversations hear, at the cost of a packet, and notes who said it."""

    def __init__(self) -> None:
        self.turns = NotedTurns()
        self.heard: list[str] = []

    def enter(self, name: str, *messages: bytes, principal: str = "mallory") -> FakeConnection:
        connection = FakeConnection(deque(messages))
        session = cast(
            "Session",
            SimpleNamespace(name=name, principal=name.split(maxsplit=1)[0], paused=False, connection=connection),
        )
        connection.conversation = Conversation(cast("Conversations", self), session, cast("Connection", connection))
        return connection

    def receive(self, session: Session, _connection: Connection, _meter: None, message: bytes) -> None:
        self.heard.append(cast("SimpleNamespace", session).name)
        self.turns.left -= PACKET_BYTES * (message.count(b"type") or 1)

    def meter(self, _session: Session, _connection: Connection) -> None:
        return None

    def begin(self, _session: Session, _connection: Connection) -> None:
        """There is room."""


async def test_who_says_little_is_heard_after_one_message_of_each_that_floods() -> None:
    room = Room()
    for number in range(GREEDY):
        room.enter(f"greedy {number}", *[b'{"type":"ping"}'] * 1_000).resume()
    # Each of them waits for its turn, and has more behind the message that waits.
    await asyncio.sleep(0)
    begun = len(room.heard)
    room.enter("modest", b'{"type":"ping"}').resume()
    await eventually(lambda: "modest" in room.heard)
    assert room.heard.index("modest") - begun <= GREEDY
    await eventually(lambda: len(room.heard) == GREEDY * 1_000 + 1)


async def test_who_says_little_is_not_kept_waiting_by_messages_of_many_packets_that_are_short() -> None:
    """They are as short as what passes in front, and take a quarter of a turn each."""
    room = Room()
    array = b"[%b]" % b",".join([b'{"type":"ping"}'] * 200)
    assert len(array) < LIGHT_BYTES
    for number in range(GREEDY):
        room.enter(f"greedy {number}", *[array] * 100).resume()
    await asyncio.sleep(0)
    begun = len(room.heard)
    room.enter("modest", b'{"type":"publish","value":{"a":[{},{}]}}').resume()
    await eventually(lambda: "modest" in room.heard)
    assert room.heard.index("modest") - begun <= 4, "those of one turn, which was under way"


async def test_who_has_much_to_say_takes_turns_with_other_principals_and_not_with_all_their_connections() -> None:
    room = Room()
    array = b"[%b]" % b",".join([b'{"type":"publish"}'] * 100)
    for number in range(GREEDY):
        room.enter(f"greedy {number}", *[array] * 100).resume()
    await asyncio.sleep(0)
    begun = len(room.heard)
    room.enter("honest", *[array] * 5, principal="alice").resume()
    await eventually(lambda: room.heard.count("honest") == 5)
    last = max(at for at, name in enumerate(room.heard) if name == "honest")
    assert last - begun <= 3 * 5, "one of others for each of its own, and some of turns that were under way"


def runs_of(heard: list[str]) -> list[tuple[str, int]]:
    """How many messages of each were heard one after the other."""
    return [(name, len(list(run))) for name, run in groupby(heard)]


async def test_who_flood_take_turns_of_a_dozen_messages() -> None:
    """Which are one step of the grid then: with a turn for each message, most publishes were a step of their own."""
    room = Room()
    for number in range(5):
        room.enter(f"greedy {number}", *[b"x"] * 2_000).resume()
    await eventually(lambda: len(room.heard) == 10_000)
    # The first one was heard at once until the work of a turn was used up, and so comes to its end before the others.
    runs = runs_of(room.heard)[1:]
    together = [runs[at : at + 5] for at in range(0, 500, 5)]
    assert all(len({name for name, _ in each}) == 5 for each in together)
    assert {length for each in together for _, length in each} == {SHARE_BYTES // PACKET_BYTES}


async def test_the_more_principals_wait_the_less_each_is_heard_at_once() -> None:
    room = Room()
    for number in range(GREEDY):
        room.enter(f"greedy{number}", *[b"x"] * 200).resume()
    await eventually(lambda: len(room.heard) == GREEDY * 200)
    most = ROUND_TURNS * TURN_BYTES // GREEDY // PACKET_BYTES + 1
    lengths = [length for _, length in runs_of(room.heard)[2 : -2 * GREEDY]]
    assert len(lengths) > GREEDY
    assert max(lengths) <= most, "an equal share of two turns, and one message beyond"


async def test_what_is_large_does_not_pass_in_front_behind_what_is_small() -> None:
    room = Room()
    array = b"[%b]" % b",".join([b'{"type":"publish"}'] * 100)
    for number in range(GREEDY):
        room.enter(f"greedy {number}", *[b"x", array] * 50).resume()
    await asyncio.sleep(0)
    begun = len(room.heard)
    room.enter("modest", b"x").resume()
    await eventually(lambda: "modest" in room.heard)
    assert room.heard.index("modest") - begun <= 2 * GREEDY
    await eventually(lambda: len(room.heard) == 100 * GREEDY + 1)
    waited = sum(cost > LIGHT_BYTES for cost in room.turns.waited)
    assert waited >= 50 * GREEDY - 3, "behind a small message, too; the first ones came before there was anything to do"
