"""One node over the in-memory grid: what clients ask for and what they get."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.nodes import TestNode, running_node
from tests.support.raw_client import RawClient


@pytest.fixture
async def node() -> AsyncIterator[TestNode]:
    async with running_node() as running:
        yield running


@pytest.fixture
async def client(node: TestNode) -> AsyncIterator[RawClient]:
    async with RawClient(node.url) as raw:
        await raw.hello()
        yield raw


async def test_welcome_tells_what_a_client_needs_to_know(node: TestNode) -> None:
    async with RawClient(node.url) as raw:
        welcome = await raw.hello("bob", properties={"team": "fx"}, client="test/1", window=30)

    assert welcome["outcome"] == "created"
    assert welcome["principal"] == "bob"
    assert welcome["node"] == "n1"
    assert welcome["window"] == 30
    assert welcome["replicated"] is True
    assert welcome["properties"]["team"] == "fx"
    assert welcome["properties"]["$client"] == "test/1"
    assert welcome["properties"]["$principal"] == "bob"


async def test_subscribe_is_answered_and_followed_by_snapshots(node: TestNode, client: RawClient) -> None:
    await client.send({"id": 1, "type": "publish", "request": 1, "topic": "a/x", "value": {"n": 1}})
    await client.expect("reply")
    await client.send({"id": 2, "type": "subscribe", "request": 2, "selector": "a/*"})

    reply = await client.expect("reply")
    update = await client.expect("update")

    assert reply["request"] == 2
    assert "error" not in reply
    assert update["topic"] == "a/x"
    assert update["value"] == {"n": 1}
    assert update["snapshot"] is True
    assert update["version"] == 1


async def test_updates_reach_subscribers_in_order_and_only_them(node: TestNode, client: RawClient) -> None:
    await client.send({"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"})
    await client.expect("reply")
    async with RawClient(node.url) as publisher:
        await publisher.hello("bob")
        await publisher.send(
            *(
                {"id": n, "type": "publish", "request": n, "topic": "a/x" if n % 2 else "b/x", "value": n}
                for n in range(1, 11)
            )
        )
        versions = [(await client.expect("update"))["version"] for _ in range(5)]

    assert versions == [1, 2, 3, 4, 5]
    assert {packet["topic"] for packet in client.seen if packet["type"] == "update"} == {"a/x"}


async def test_unsubscribed_topics_stay_silent(client: RawClient) -> None:
    await client.send(
        {"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"},
        {"id": 2, "type": "unsubscribe", "request": 2, "selector": "a/quiet"},
        {"id": 3, "type": "publish", "request": 3, "topic": "a/quiet", "value": 1},
        {"id": 4, "type": "publish", "request": 4, "topic": "a/loud", "value": 2},
    )

    update = await client.expect("update")

    assert update["topic"] == "a/loud"


async def test_what_an_unsubscribe_keeps_misses_nothing(node: TestNode, client: RawClient) -> None:
    """Two parts of an application selected it: the wider selection ends, and the narrower has no gap for a moment."""
    await client.send(
        {"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"},
        {"id": 2, "type": "subscribe", "request": 2, "selector": "a/x"},
    )
    async with RawClient(node.url) as publisher:
        await publisher.hello("bob")

        async def publish(first: int) -> None:
            await publisher.send(
                *(
                    {"id": n, "type": "publish", "request": n, "topic": "a/x" if n % 2 else "a/y", "value": n}
                    for n in range(first, first + 40)
                )
            )

        await publish(1)
        await client.send({"id": 3, "type": "unsubscribe", "request": 3, "selector": "a/**", "keep": ["a/x"]})
        while (await client.expect("reply"))["request"] != 3:
            pass
        before = len(client.seen)
        await publish(41)
        versions: list[int] = []
        while (await client.expect("update"))["value"] != 79:
            pass
    updates = [packet for packet in client.seen if packet["type"] == "update"]
    versions = [update["version"] for update in updates if update["topic"] == "a/x"]
    assert versions == list(range(versions[0], 41))
    assert {packet["topic"] for packet in client.seen[before:] if packet["type"] == "update"} == {"a/x"}
    assert not any(update.get("snapshot") for update in updates[1:] if update["topic"] == "a/x")


@pytest.mark.parametrize(
    ("request_fields", "code"),
    [
        ({"type": "unsubscribe", "selector": "a", "keep": ["b*"]}, "bad_selector"),
        ({"type": "unsubscribe", "selector": "a", "keep": ["b"] * 65}, "bad_selector"),
        ({"type": "unsubscribe", "selector": "a", "keep": "b"}, "bad_request"),
        ({"type": "subscribe", "selector": "a/b*"}, "bad_selector"),
        ({"type": "subscribe", "selector": ""}, "bad_selector"),
        ({"type": "subscribe", "selector": 7}, "bad_request"),
        ({"type": "publish", "topic": "a//b", "value": 1}, "bad_topic"),
        ({"type": "publish", "topic": "a/*", "value": 1}, "bad_topic"),
        ({"type": "publish", "topic": "a"}, "bad_request"),
        ({"type": "publish", "topic": "a", "value": "x" * 40_000}, "value_too_large"),
        ({"type": "properties", "set": {"$node": "n9"}}, "bad_properties"),
        ({"type": "properties", "set": {"": "n9"}}, "bad_properties"),
        ({"type": "properties", "set": {"a": "b" * 2000}}, "bad_properties"),
        ({"type": "properties", "set": {"a": 5}}, "bad_request"),
    ],
)
async def test_a_bad_request_is_refused_and_harms_nothing_else(
    client: RawClient, request_fields: dict[str, object], code: str
) -> None:
    await client.send({"id": 1, "request": 1, **request_fields})
    await client.send({"id": 2, "type": "publish", "request": 2, "topic": "fine", "value": 1})

    replies: dict[int, dict[str, Any]] = {}
    while len(replies) < 2:
        reply = await client.expect("reply")
        replies[reply["request"]] = reply

    assert replies[1]["error"]["code"] == code
    assert replies[1]["error"]["message"]
    assert "error" not in replies[2]


async def test_too_many_selections_are_refused(node: TestNode) -> None:
    async with running_node("small", limit_selections=2) as small, RawClient(small.url) as raw:
        await raw.hello()
        await raw.send(*({"id": n, "type": "subscribe", "request": n, "selector": f"t/{n}"} for n in (1, 2, 3)))
        replies = [await raw.expect("reply") for _ in range(3)]

    assert [("error" in reply) for reply in replies] == [False, False, True]
    assert replies[2]["error"]["code"] == "too_many_selections"


async def test_properties_are_set_and_removed(node: TestNode, client: RawClient) -> None:
    await client.send({"id": 1, "type": "properties", "request": 1, "set": {"team": "fx", "desk": "1"}})
    await client.send({"id": 2, "type": "properties", "request": 2, "set": {"desk": None}})
    await client.expect("reply")
    await client.expect("reply")

    (session,) = node.gateway.node.sessions

    assert session.properties == {"team": "fx", "$client": "unknown"}


async def test_bye_ends_the_session_and_says_so(node: TestNode, client: RawClient) -> None:
    await client.send({"type": "bye"})

    bye = await client.expect("bye")

    assert bye["reason"] == "closed"
    assert await client.closed() == 1000
    assert len(node.gateway.node.sessions) == 0


@pytest.mark.parametrize(
    ("text", "close_code", "error_code"),
    [
        ("nonsense", 4200, "protocol_error"),
        ("[]", 4200, "protocol_error"),
        ('{"type":"dance"}', 4200, "unknown_packet_type"),
        ('{"type":"publish","id":1,"request":1,"topic":"a","value":1}', 4200, "protocol_error"),
        ('{"type":"resume","token":"x","attempt":1,"received":0,"oldest":1}', 4202, "token_invalid"),
        ('{"type":"hello","principal":""}', 4201, "unauthenticated"),
    ],
)
async def test_a_bad_first_packet_is_told_and_closed(
    node: TestNode, text: str, close_code: int, error_code: str
) -> None:
    async with RawClient(node.url) as raw:
        await raw.send_text(text)

        error = await raw.expect("error")

        assert error["code"] == error_code
        assert error["message"]
        assert await raw.closed() == close_code


@pytest.mark.promise("P7")
@pytest.mark.parametrize(
    ("text", "close_code"),
    [
        ("{", 4200),
        ('{"type":"hello","principal":"again"}', 4200),
        ('{"type":"ack","received":99}', 4200),
        ('{"id":5,"type":"publish","request":1,"topic":"a","value":1}', 4003),
    ],
)
async def test_a_violation_closes_the_connection_and_keeps_the_session(
    node: TestNode, client: RawClient, text: str, close_code: int
) -> None:
    await client.send_text(text)

    assert await client.closed() == close_code
    assert client.seen[-1]["type"] == "error"
    assert len(node.gateway.node.sessions) == 1


@pytest.mark.promise("P20")
async def test_a_silent_connection_is_closed() -> None:
    async with running_node(handshake_timeout=0.1) as node, RawClient(node.url) as raw:
        assert await raw.closed() == 4102


async def test_a_message_above_the_limit_is_refused_and_the_session_kept(node: TestNode, client: RawClient) -> None:
    await client.send_text("x" * 70_000)

    assert await client.closed() == 1009
    assert len(node.gateway.node.sessions) == 1
