"""A planned stop seen from the wire (P12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient


@asynccontextmanager
async def draining(node: TestNode) -> AsyncIterator[None]:
    """Begin to drain; at the end of the block, which must see every client off, the drain has come to its end."""
    drain = asyncio.create_task(node.gateway.drain())
    try:
        await eventually(lambda: node.gateway.node.draining)
        yield
        async with asyncio.timeout(5):
            await drain
    finally:
        drain.cancel()


async def test_what_is_in_flight_is_acknowledged_before_the_go_away() -> None:
    async with running_node() as node, RawClient(node.url) as raw:
        await raw.hello()
        await raw.send({"type": "subscribe", "id": 1, "request": 1, "selector": "a/**"})
        await raw.expect("reply")
        async with RawClient(node.url) as publisher:
            await publisher.hello()
            await publisher.send({"type": "publish", "id": 1, "request": 1, "topic": "a/x", "value": 1})
            await publisher.expect("reply")
        update = await raw.expect("update")
        async with draining(node):
            # It answers, and yet is not told to go: it has not said that the update is there.
            for _ in range(3):
                await raw.send({"type": "ping"})
                await raw.expect("pong")
            assert "go-away" not in [packet["type"] for packet in raw.seen]
            await raw.send({"type": "ack", "received": update["id"]})
            await raw.expect("go-away", within=1.0)
            await raw.ws.close()


async def test_a_session_that_is_opened_while_the_node_drains_is_told_to_go_too() -> None:
    async with running_node() as node, RawClient(node.url) as early, RawClient(node.url) as late:
        await early.hello("early")
        async with draining(node):
            await early.expect("go-away")
            # Its upgrade came before the drain, its hello comes after.
            await late.hello("late")
            await late.expect("go-away", within=1.0)
            await early.ws.close()
            await late.ws.close()
