"""One node over the in-memory grid: many values for a client that stops, is cut off, or asks for other things (P6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from gateway.app.session.session import Session
from gateway.catalogue.log_events import SLOW_CONSUMER_CLOSED
from gateway.core.topics.topics import topic_partition
from gateway.core.types import EventId, SessionId, TopicPath, Version
from gateway.ports import TopicValue
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import Packet, RawClient

pytestmark = pytest.mark.promise("P6")

TOPICS: Final = 1_500
KEPT: Final = 500
"""Packets that the node keeps for a client that acknowledges nothing; values take half of it."""
PATHS: Final = [TopicPath(f"a/{number}") for number in range(TOPICS)]


@pytest.fixture
async def node() -> AsyncIterator[TestNode]:
    async with running_node(limit_resend_packets=KEPT, limit_outbox_packets=100) as running:
        topics = running.gateway.node._context.grid.topics
        await topics.restore([TopicValue(path, Version(1), event(at), b"0") for at, path in enumerate(PATHS, 1)])
        yield running


def event(at: int) -> EventId:
    return EventId(f"{topic_partition(PATHS[0], 1)}-1-{at}")


def packet(kind: str, number: int, **fields: Any) -> Packet:
    return {"id": number, "request": number, "type": kind, **fields}


def last_id(client: RawClient) -> int:
    return max((each["id"] for each in client.seen if "id" in each), default=0)


def held(node: TestNode, welcome: Packet) -> Session:
    session = node.gateway.node.sessions.get(SessionId(welcome["session"]))
    assert session is not None
    return session


async def begun(node: TestNode, reader: RawClient) -> tuple[Session, Packet, list[Packet]]:
    """Have a client subscribe to all, acknowledge nothing, and read what it is sent."""
    welcome = await reader.hello("reader")
    session = held(node, welcome)
    await reader.send(packet("subscribe", 1, selector="a/*"))
    await reader.expect("reply")
    updates = [await reader.expect("update") for _ in range(KEPT // 2 - 1)]
    assert session.machine.unacknowledged == KEPT // 2
    return session, welcome, updates


async def rest(reader: RawClient, updates: list[Packet]) -> None:
    """Read, and acknowledge, until the value of every topic has come."""
    while len({each["topic"] for each in updates}) < TOPICS:
        await reader.send({"type": "ack", "received": last_id(reader)})
        left = TOPICS - len({each["topic"] for each in updates})
        updates.extend([await reader.expect("update") for _ in range(min(100, left))])


@pytest.mark.promise("P9")
async def test_a_client_that_acknowledges_nothing_is_sent_no_more_and_is_not_slow(node: TestNode) -> None:
    async with RawClient(node.url) as reader:
        session, _, updates = await begun(node, reader)
        assert session.machine.waiting == 0
        await rest(reader, updates)
        assert [each["topic"] for each in updates] == PATHS
        assert all(each["snapshot"] for each in updates)
    assert not node.log.of(SLOW_CONSUMER_CLOSED)


@pytest.mark.promise("P2")
async def test_a_client_that_is_cut_off_in_the_middle_reattaches_and_the_feed_goes_on(node: TestNode) -> None:
    async with RawClient(node.url) as source:
        await source.hello("source")
        async with RawClient(node.url) as reader:
            session, welcome, updates = await begun(node, reader)
            received = last_id(reader)
        await eventually(lambda: session.connection is None)
        for number, path in enumerate((PATHS[0], PATHS[-1]), 1):
            await source.send(packet("publish", number, topic=path, value=0))
            await source.expect("reply")
        async with RawClient(node.url) as back:
            again = await back.resume(welcome["token"], attempt=1, received=received, oldest=2)
            assert again["outcome"] == "reattached"
            await rest(back, updates)
        versions = {each["topic"]: each["version"] for each in updates}
    assert versions == dict.fromkeys(PATHS, 1) | {PATHS[0]: 2, PATHS[-1]: 2}


async def test_other_requests_are_answered_in_the_middle(node: TestNode) -> None:
    async with RawClient(node.url) as reader:
        session, _, _ = await begun(node, reader)
        await reader.send(packet("publish", 2, topic="b/x", value=1))
        assert (await reader.expect("reply"))["request"] == 2
        assert session in node.gateway.node.sessions.flusher.feeds
        updates = [each for each in reader.seen if each["type"] == "update"]
        await rest(reader, updates)
    assert sorted(each["topic"] for each in updates) == sorted(PATHS)


async def test_a_session_that_leaves_in_the_middle_leaves_nothing(node: TestNode) -> None:
    async with RawClient(node.url) as reader:
        session, _, _ = await begun(node, reader)
        feeds = node.gateway.node.sessions.flusher.feeds
        assert session in feeds
        await reader.send({"type": "bye"})
        assert await reader.closed() == 1000
    assert session not in feeds
