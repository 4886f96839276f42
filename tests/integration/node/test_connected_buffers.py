"""What connected sessions keep for slow clients is bounded for a principal and for all, and no session ends for it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.app.registry.connected_buffers import GROWTH, LONGEST_PAUSE, PAUSE, kept_bytes
from gateway.catalogue import log_events as events
from gateway.settings import Settings
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import Packet, RawClient

pytestmark = pytest.mark.promise("P20")

KIB = 1024
BOUND = 256 * KIB
VALUE = "x" * 16 * KIB
CLIENTS = 20


async def open_client(stack: AsyncExitStack, node: TestNode, principal: str, selector: str) -> tuple[RawClient, Packet]:
    """Open a session with a selection, whose client acknowledges nothing."""
    client = await stack.enter_async_context(RawClient(node.url))
    welcome = await client.hello(principal, window=60)
    await client.send({"id": 1, "type": "subscribe", "request": 1, "selector": selector})
    await client.expect("reply")
    return client, welcome


async def publish(client: RawClient, topics: list[str]) -> None:
    for number, topic in enumerate(topics, 1):
        await client.send({"id": number, "type": "publish", "request": number, "topic": topic, "value": VALUE})
        assert "error" not in await client.expect("reply")


def kept(node: TestNode, principal: str) -> int:
    """Count what is kept for connected clients, each run once."""
    sessions = [each for each in node.gateway.node.sessions if each.principal == principal and each.connection]
    runs = {id(run): run.size for each in sessions for run in each.machine.kept()}
    return sum(runs.values())


async def test_an_account_with_many_slow_sessions_that_have_values_of_their_own_is_bounded() -> None:
    async with running_node(limit_principal_buffer_bytes=BOUND) as node, AsyncExitStack() as stack:
        greedy = [await open_client(stack, node, "greedy", f"own/{number}/**") for number in range(CLIENTS)]
        _, welcome = await open_client(stack, node, "modest", "own/0/**")
        publisher = await stack.enter_async_context(RawClient(node.url))
        await publisher.hello("publisher")
        await publish(publisher, [f"own/{number}/{topic}" for topic in range(3) for number in range(CLIENTS)])

        await eventually(lambda: kept(node, "greedy") <= BOUND)
        await eventually(lambda: bool(node.log.of(events.LIMIT_EXCEEDED)))
        assert {"limit": "limit_principal_buffer_bytes", "who": "greedy"} in node.log.of(events.LIMIT_EXCEEDED)
        sessions = node.gateway.node.sessions
        closed = [(client, each) for client, each in greedy if sessions.get(each["session"]).connection is None]  # type: ignore[union-attr]
        assert 0 < len(closed) < CLIENTS, "no more than it takes"
        assert await closed[0][0].closed() == 4001
        assert sessions.get(welcome["session"]).connection is not None, "others keep theirs"  # type: ignore[union-attr]
        back = await stack.enter_async_context(RawClient(node.url))
        assert (await back.resume(closed[0][1]["token"], attempt=1))["outcome"] == "reattached", "and none has ended"


async def test_what_many_wait_for_counts_once() -> None:
    settings: dict[str, Any] = {"limit_principal_buffer_bytes": BOUND, "limit_buffer_bytes": BOUND}
    async with running_node(**settings) as node, AsyncExitStack() as stack:
        everybody = [await open_client(stack, node, "crowd", "all/**") for _ in range(CLIENTS)]
        publisher = await stack.enter_async_context(RawClient(node.url))
        await publisher.hello("publisher")
        await publish(publisher, [f"all/{topic}" for topic in range(4)])
        sessions = [node.gateway.node.sessions.get(welcome["session"]) for _, welcome in everybody]
        await eventually(lambda: sum(kept_bytes(each) for each in sessions if each) > CLIENTS * len(VALUE) * 4)
        for _ in range(3):
            await node.gateway.node.sessions.connected_buffers.look()
        assert all(each is not None and each.connection is not None for each in sessions)


async def test_all_together_are_bounded_and_those_that_keep_most_are_closed() -> None:
    async with running_node(limit_buffer_bytes=BOUND) as node, AsyncExitStack() as stack:
        for number in range(CLIENTS):
            await open_client(stack, node, f"p{number}", f"own/{number}/**")
        _, modest = await open_client(stack, node, "modest", "own/0/0")
        publisher = await stack.enter_async_context(RawClient(node.url))
        await publisher.hello("publisher")
        await publish(publisher, [f"own/{number}/{topic}" for topic in range(3) for number in range(CLIENTS)])
        everybody = [f"p{number}" for number in range(CLIENTS)]
        await eventually(lambda: sum(kept(node, each) for each in everybody) <= BOUND)
        held = node.gateway.node.sessions.get(modest["session"])
        assert held is not None
        assert held.connection is not None


async def test_nobody_looks_often_where_no_bound_can_be_exceeded_soon() -> None:
    async with running_node() as node, AsyncExitStack() as stack:
        buffers = node.gateway.node.sessions.connected_buffers
        for number in range(3):
            await open_client(stack, node, "p", f"own/{number}/**")
        await buffers.look()
        assert PAUSE < buffers.pause() <= LONGEST_PAUSE
    near = round(GROWTH * PAUSE)
    bounds: list[dict[str, Any]] = [{"limit_buffer_bytes": near}, {"limit_principal_buffer_bytes": near}]
    for bound in bounds:
        async with running_node(**bound) as node:
            await node.gateway.node.sessions.connected_buffers.look()
            assert node.gateway.node.sessions.connected_buffers.pause() == PAUSE
    async with running_node(limit_buffer_bytes=0, limit_principal_buffer_bytes=0) as node:
        await node.gateway.node.sessions.connected_buffers.look()
        assert node.gateway.node.sessions.connected_buffers.pause() == LONGEST_PAUSE


async def test_sessions_of_a_principal_are_a_share_of_a_node_by_default() -> None:
    defaults = Settings()
    assert 0 < defaults.limit_principal_sessions <= defaults.limit_connections // 2
    assert 0 < defaults.limit_principal_buffer_bytes <= defaults.limit_buffer_bytes // 2
