"""What the protocol's document says of small matters, looked at with a client that knows nothing but the wire."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.core.wire.codec import MAX_NUMBER
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import Packet, RawClient


@pytest.mark.parametrize("text", ["[]", "[[]]", '[{"type":"hello"},{"type":"ping"}]', '{"type":"ping"}'])
async def test_the_first_message_is_one_hello_or_resume(n1: TestNode, text: str) -> None:
    """1.6: any other first message, an empty array included, is a protocol error."""
    async with RawClient(n1.url) as raw:
        await raw.send_text(text)
        assert (await raw.expect("error"))["code"] == "protocol_error"
        assert await raw.closed() == 4200


async def test_an_array_of_one_is_the_packet_and_an_empty_one_is_nothing_later(n1: TestNode) -> None:
    """2.1."""
    async with RawClient(n1.url) as raw:
        await raw.send_text('[{"type":"hello","principal":"alice"}]')
        assert (await raw.receive())["outcome"] == "created"
        await raw.send_text("[]")
        await raw.send_text('[{"type":"ping"}]')
        assert (await raw.receive())["type"] == "pong"


@pytest.mark.parametrize(
    ("asked", "granted"), [(0, 0.0), (0.5, 0.5), (3600, 3600.0), (3601, 3600.0), (MAX_NUMBER, 3600.0), (None, 60.0)]
)
async def test_the_window_is_bounded_by_the_server(n1: TestNode, asked: float | None, granted: float) -> None:
    """4.1: at most the server's maximum, its default if the field is absent."""
    async with RawClient(n1.url) as raw:
        assert (await raw.hello(window=asked))["window"] == granted


@pytest.mark.parametrize("window", [-1, MAX_NUMBER + 1, "60", True])
async def test_what_is_no_window_is_refused(n1: TestNode, window: object) -> None:
    """4.1, 2.5."""
    async with RawClient(n1.url) as raw:
        await raw.send({"type": "hello", "principal": "alice", "window": window})
        assert "window" in (await raw.expect("error"))["message"]
        assert await raw.closed() == 4200


async def test_without_a_window_the_session_ends_with_its_connection(n1: TestNode) -> None:
    """4.1: with 0 the session ends with its connection."""
    async with RawClient(n1.url) as raw:
        await raw.hello(window=0)
        assert len(n1.gateway.node.sessions) == 1
    await eventually(lambda: not len(n1.gateway.node.sessions))


@pytest.mark.promise("P2")
async def test_a_gap_is_told_before_the_close_and_nothing_behind_it_is_done(n1: TestNode) -> None:
    """5.7.2."""
    async with RawClient(n1.url) as raw:
        await raw.hello()
        await raw.send(
            {"id": 2, "type": "publish", "request": 2, "topic": "a", "value": 2},
            {"id": 1, "type": "publish", "request": 1, "topic": "a", "value": 1},
        )
        assert await raw.closed() == 4003
        error = raw.seen[-1]
        assert error["code"] == "protocol_error"
        assert "packet 2 came after packet 0" in error["message"]
    assert [session.machine.received for session in n1.gateway.node.sessions] == [0]


async def absent(node: TestNode) -> str:
    """Leave a session that selects ``a/**`` and has received one packet; three updates become due; return its token."""
    async with RawClient(node.url) as raw:
        token: str = (await raw.hello())["token"]
        await raw.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"})
        await raw.expect("reply")
    (session,) = node.gateway.node.sessions
    await eventually(lambda: session.connection is None)
    async with RawClient(node.url) as other:
        await other.hello("bob")
        for number in (1, 2, 3):
            await other.send({"id": number, "type": "publish", "request": number, "topic": "a/x", "value": number})
            await other.expect("reply")
    await eventually(lambda: session.machine.last_numbered == 4)
    return token


async def test_resent_counts_what_was_numbered_while_the_client_was_away(n1: TestNode) -> None:
    """4.3: what was sent before, and what became due while it was away."""
    token = await absent(n1)
    async with RawClient(n1.url) as raw:
        welcome = await raw.resume(token, attempt=1, received=1, oldest=2)
        assert (welcome["outcome"], welcome["numbering"], welcome["resent"]) == ("reattached", "kept", 3)
        assert [(await raw.expect("update"))["id"] for _ in range(3)] == [2, 3, 4]


async def test_a_principal_without_a_secret_means_nothing_in_a_resume(n1: TestNode) -> None:
    """4.2."""
    token = await absent(n1)
    async with RawClient(n1.url) as raw:
        welcome = await raw.resume(token, attempt=1, received=1, oldest=2, principal="mallory")
        assert welcome["principal"] == "alice"


PROTOCOL = Path(__file__).parents[3] / "docs" / "reference" / "protocol.md"


def answer_in_the_document() -> list[Packet]:
    """Return what the exchange in section 12 shows as the answer to a publish to a topic that one selects."""
    messages = re.findall(r"^```json exchange server\n(.*?)^```$", PROTOCOL.read_text(), re.MULTILINE | re.DOTALL)
    decoded = [json.loads(message) for message in messages]
    answers: list[list[Packet]] = [each for each in decoded if isinstance(each, list) and is_answer(each)]
    return answers[-1]


def is_answer(packets: list[Packet]) -> bool:
    return sorted(packet["type"] for packet in packets) == ["reply", "update"] and len({*events(packets)}) == 1


def events(packets: list[Packet]) -> list[str | None]:
    return [packet.get("event") for packet in packets]


async def test_ones_own_update_and_the_reply_come_as_in_the_document(n1: TestNode) -> None:
    """6.4: a client may rely on neither order, so the exchange in 12 shows the one that nodes have."""
    shown = answer_in_the_document()
    async with RawClient(n1.url) as raw:
        await raw.hello()
        await raw.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"})
        await raw.expect("reply")
        for number in range(2, 22):
            await raw.send({"id": number, "type": "publish", "request": number, "topic": "a/x", "value": number})
            both = [await raw.receive(), await raw.receive()]
            assert [packet["type"] for packet in both] == [packet["type"] for packet in shown]
            assert is_answer(both)
            fields = [set(packet) - {"id", "received"} for packet in both]
            assert fields == [set(packet) - {"id", "received"} for packet in shown]


@pytest.mark.promise("P4")
async def test_the_reply_to_a_subscribe_comes_before_its_snapshot(n1: TestNode) -> None:
    """6.3."""
    async with RawClient(n1.url) as raw:
        await raw.hello()
        await raw.send({"id": 1, "type": "publish", "request": 1, "topic": "a/x", "value": 1})
        await raw.expect("reply")
        await raw.send({"id": 2, "type": "subscribe", "request": 2, "selector": "a/**"})
        assert [(await raw.receive())["type"] for _ in range(2)] == ["reply", "update"]


async def test_a_change_of_nothing_and_a_removal_of_nothing_are_done(n1: TestNode) -> None:
    """5.2.6."""
    async with RawClient(n1.url) as raw:
        await raw.hello()
        for number, changes in enumerate(({}, {"gone": None}), 1):
            await raw.send({"id": number, "type": "properties", "request": number, "set": changes})
            assert "error" not in await raw.expect("reply")


# --- Clients of the first release, and of later ones ---------------------------------------------------------------

FIRST_WELCOME = {
    *("type", "session", "principal", "node", "token", "outcome", "received", "resent", "lost", "conflated"),
    *("window", "ping_interval", "ping_timeout", "replicated", "limits", "backoff", "properties", "selections"),
    *("reason", "withdrawn"),
}
"""Fields of a welcome that the clients of the first release know."""

FIRST_HELLO = '{"type":"hello","principal":"alice","properties":{"team":"fx"},"client":"python/0.1.0","window":30.0}'
FIRST_RESUME = '{"type":"resume","token":"%s","attempt":%d,"received":%d,"oldest":%d,"away":12}'
FIRST_SUBSCRIBE = '{"id":1,"type":"subscribe","request":1,"selector":"a/**"}'
FIRST_REQUESTS = (
    '[{"id":2,"received":1,"type":"publish","request":2,"topic":"a/x","value":{"n":1}},'
    '{"type":"properties","request":3,"set":{"team":null}},{"type":"unsubscribe","request":4,"selector":"b"}]'
)


async def test_a_client_of_the_first_release_is_served_as_ever(n1: TestNode, n2: TestNode) -> None:
    """What its wire said, byte for byte; what is new to it are fields of the welcome, which it ignores (2.3)."""
    async with RawClient(n1.url) as raw:
        await raw.send_text(FIRST_HELLO)
        welcome = await raw.receive()
        assert welcome["outcome"] == "created"
        assert set(welcome) - FIRST_WELCOME == {"numbering", "supports"}
        await raw.send_text('{"type":"ack","received":0}')
        await raw.send_text(FIRST_SUBSCRIBE)
        replies = [await raw.expect("reply")]
        await raw.send_text(FIRST_REQUESTS)
        replies += [await raw.expect("reply") for _ in range(3)]
        assert not any("error" in reply for reply in replies)
        assert {name for packet in raw.seen[1:] for name in packet} <= {
            *("id", "received", "type", "request", "version", "event", "topic", "value", "snapshot")
        }
        received = raw.seen[-1]["id"]
    async with RawClient(n1.url) as raw:
        await raw.send_text(FIRST_RESUME % (welcome["token"], 1, received, 5))
        again = await raw.expect("welcome")
        assert again["outcome"] == "reattached"
        assert again["received"] == 4
    async with RawClient(n2.url) as raw:
        await raw.send_text(FIRST_RESUME % (again["token"], 2, received, 5))
        moved = await raw.expect("welcome")
        assert moved["outcome"] == "failed_over"
        assert set(moved) - FIRST_WELCOME == {"numbering", "supports"}
        assert moved["selections"] == ["+a/**"]


@pytest.mark.parametrize(
    ("supports", "understood"),
    [
        (None, set()),
        (["handed_over", "mirrored"], {"handed_over", "mirrored"}),
        ([], set()),
        ("handed_over", set()),
        (["handed_over", 7], set()),
        ({"handed_over": True}, set()),
        (["handed_over", "x" * 65, "é" * 33, "é" * 32], {"handed_over", "é" * 32}),
        ([f"word-{number}" for number in range(40)], {f"word-{number}" for number in range(32)}),
    ],
)
async def test_what_a_client_understands_is_noted_and_never_an_error(
    n1: TestNode, supports: Any, understood: set[str]
) -> None:
    """4.1.1."""
    async with RawClient(n1.url) as raw:
        token = (await raw.hello(supports=supports))["token"]
        (session,) = n1.gateway.node.sessions
        assert session.supports == understood
    async with RawClient(n1.url) as raw:
        welcome: Packet = await raw.resume(token, attempt=1)
        assert welcome["numbering"] == "kept"
        assert session.supports == set(), "it counts for one connection"
    async with RawClient(n1.url) as raw:
        await raw.resume(welcome["token"], attempt=2, supports=supports)
        assert session.supports == understood
