"""What has ended is gone at once: nothing of it waits for the collector of cycles, which comes round very seldom.

``gateway.garbage`` has it come seldom because a node makes no cycles. Whatever lives for long and ends in one stays for
hours, with its buffers, and a client that makes the node leave cycles can fill its memory.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import aiohttp
import pytest

from gateway.adapters.redis import RedisGrid
from gateway.core.types import (
    Attempt,
    Epoch,
    Incarnation,
    NodeId,
    NodeRef,
    RequestNumber,
    SessionId,
    TokenGeneration,
    TopicPath,
)
from gateway.core.wire.codes import FENCED, ErrorCode
from gateway.ports import Ownership, PublishCommand, PublishResult
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import Packet, RawClient
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.thorough

ELSEWHERE = NodeRef(NodeId("n9"), Incarnation("1"))
"""A node that only the grid knows."""

Ending = Callable[[RawClient], Awaitable[None]]


def publish(number: int) -> Packet:
    return {"id": number, "type": "publish", "request": number, "topic": "a/b", "value": "x" * 1000}


PACKETS = (
    {"id": 1, "type": "subscribe", "request": 1, "selector": "a/**"},
    publish(2),
    {"id": 3, "type": "properties", "request": 3, "set": {"team": "fx"}},
)


async def says_goodbye(client: RawClient) -> None:
    await client.send(*PACKETS, {"type": "bye"})
    await client.closed()


async def is_cut(client: RawClient) -> None:
    await client.send(*PACKETS)
    await client.expect("update")
    await client.cut()


async def comes_back(client: RawClient) -> None:
    welcome = client.seen[0]
    await is_cut(client)
    async with RawClient(client._url) as again:
        await again.resume(welcome["token"], attempt=1)
        await says_goodbye(again)


async def asks_for_what_is_refused(client: RawClient) -> None:
    for number, selector in enumerate(("", "a//b", "**/x/**/y\0"), 1):
        await client.send({"id": number, "type": "subscribe", "request": number, "selector": selector})
        await client.expect("reply")
    for number, topic in enumerate(("", "a/*", "$gateway/x"), 4):
        await client.send({"id": number, "type": "publish", "request": number, "topic": topic, "value": 1})
        await client.expect("reply")
    await client.send({"type": "bye"})
    await client.closed()


def writes(data: bytes, kind: aiohttp.WSMsgType = aiohttp.WSMsgType.TEXT) -> Ending:
    async def write(client: RawClient) -> None:
        await client.ws._writer.send_frame(data, kind)
        await client.closed()

    return write


ENDINGS: dict[str, Ending] = {
    "goodbye": says_goodbye,
    "cut": is_cut,
    "resumed": comes_back,
    "refusals": asks_for_what_is_refused,
    "no JSON": writes(b"{"),
    "no JSON that is UTF-8": writes(b'"\\ud800"'),
    "no packet": writes(b'{"type": "nonsense"}'),
    "a bad field": writes(b'{"type": "publish", "id": 1, "request": "x"}'),
    "a number skipped": writes(b'{"id": 7, "type": "subscribe", "request": 1, "selector": "a/**"}'),
    "acknowledged what was never sent": writes(b'{"type": "ack", "received": 99}'),
    "the same in another form": writes(b'{"received": 99, "type": "ack"}'),
    "no text": writes(b"\xed\xa0\x80" * 1000),
    "binary": writes(b"x", aiohttp.WSMsgType.BINARY),
    "a close that is no text": writes(b"\x03\xe8\xff", aiohttp.WSMsgType.CLOSE),
    "a close that nobody may send": writes(b"\x03\xed", aiohttp.WSMsgType.CLOSE),
}


@pytest.mark.promise("P20")
@pytest.mark.parametrize("ending", ENDINGS)
async def test_what_has_ended_is_gone_without_the_collector(ending: str) -> None:
    async with running_node(window_default=0.05, reap_interval=0.05) as node:
        assert not await left_by(node, ENDINGS[ending])


async def test_what_was_claimed_elsewhere_is_gone_without_the_collector() -> None:
    async with running_node(window_default=0.05, reap_interval=0.05) as node:
        grid = node.gateway.node._context.grid

        async def is_fenced(client: RawClient) -> None:
            session = SessionId(client.seen[0]["session"])
            await client.send(publish(1))
            assert "error" not in await client.expect("reply")
            await grid.sessions.claim(session, by=ELSEWHERE, token_generation=TokenGeneration(1), attempt=Attempt(1))
            ownership, topic = Ownership(session, ELSEWHERE, Epoch(2)), TopicPath("a/b")
            await grid.topics.publish([PublishCommand(ownership, RequestNumber(9), RequestNumber(0), topic, b"1")])
            await client.send(publish(2))
            assert await client.closed() == FENCED.code
            await grid.sessions.end(ownership, reason=ErrorCode.SESSION_CLOSED)

        assert not await left_by(node, is_fenced)


@pytest.mark.redis
async def test_requests_that_redis_refuses_are_gone_without_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RedisServer() as redis, running_node(grid=redis.url, window_default=0.05, reap_interval=0.05) as node:
        topics = node.gateway.node._context.grid.topics
        execute, asked = topics.publish, list[int]()

        async def publish_counted(commands: Sequence[PublishCommand]) -> list[PublishResult]:
            asked.append(commands[0].request)
            return await execute(commands)

        monkeypatch.setattr(topics, "publish", publish_counted)

        async def is_refused(client: RawClient) -> None:
            for packet in PACKETS:
                await client.send(packet)
                assert "error" not in await client.expect("reply")
            await redis.call("CONFIG", "SET", "maxmemory", "1")
            for number, packet in enumerate(PACKETS, 4):
                await client.send({**packet, "id": number, "request": number, "selector": "b/**"})
                assert (await client.expect("reply"))["error"]["code"] == "grid_unavailable"
            asked.clear()
            await client.send(publish(7) | {"resubmitted": True})
            await eventually(lambda: len(asked) > 1)
            await redis.call("CONFIG", "SET", "maxmemory", "0")
            assert "error" not in await client.expect("reply")
            await client.send({"type": "bye"})
            await client.closed()

        assert not await left_by(node, is_refused)


@pytest.mark.redis
async def test_requests_that_redis_leaves_unanswered_are_gone_without_the_collector() -> None:
    async with RedisServer() as redis, running_node(grid=redis.url, window_default=0.05, reap_interval=0.05) as node:
        grid = node.gateway.node._context.grid
        assert isinstance(grid, RedisGrid)

        async def is_answered_late(client: RawClient) -> None:
            for packet in PACKETS:
                redis.suspend()
                await client.send(packet)
                # Accepted first, or it would be refused while the grid is unreachable.
                await eventually(lambda: waits(node) and bool(grid._connection.batcher.batchers[0]._awaited))
                grid._connection.suspect("a test says so")
                redis.resume()
                assert "error" not in await client.expect("reply")
            await client.send({"type": "bye"})
            await client.closed()

        assert not await left_by(node, is_answered_late)


def waits(node: TestNode) -> bool:
    """Tell whether a request is under way in the one session of a node."""
    (session,) = node.gateway.node.sessions
    return len(session.lane) > 0


async def left_by(node: TestNode, ending: Ending) -> Counter[str]:
    """Count what a session leaves for the collector, by type."""
    await one_session(node, ending)
    gc.collect()
    # What another test has left may be let go of at any moment; held here, none of it can be taken for something new.
    before = gc.get_objects()
    known = set(map(id, before))
    gc.disable()
    try:
        await one_session(node, ending)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(
            type(each).__qualname__
            for each in gc.garbage
            if type(each).__module__.startswith("gateway.") and id(each) not in known
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def one_session(node: TestNode, ending: Ending) -> None:
    # A grid that refused or left unanswered what the session before asked may count as unreachable for a moment.
    await eventually(lambda: not node.gateway.node.readiness.reasons())
    async with RawClient(node.url) as client:
        await client.hello()
        await ending(client)
    await eventually(lambda: not node.gateway.node.sessions and not node.gateway.node.connections)
