"""A planned stop seen from the wire (P12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.app.session.session import Session
from gateway.catalogue.log_events import DRAIN_FINISHED
from gateway.core.wire.codes import GOING_AWAY
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P12")


@asynccontextmanager
async def draining(node: TestNode) -> AsyncIterator[None]:
    """Begin to drain; at the end of the block, which must see every client off, the drain has come to its end."""
    drain = asyncio.create_task(node.gateway.drain())
    try:
        await eventually(lambda: node.gateway.node.lifecycle.draining)
        yield
        async with time_limit(5):
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


async def test_a_client_whose_upgrade_came_before_the_drain_and_its_hello_after_is_sent_elsewhere() -> None:
    async with running_node() as node, RawClient(node.url) as early, RawClient(node.url) as late:
        await early.hello("early")
        async with draining(node):
            await early.expect("go-away")
            await late.send({"type": "hello", "principal": "late"})
            assert (await late.receive())["code"] == "draining"
            assert await late.closed() == GOING_AWAY.code
            await early.ws.close()


async def test_a_session_that_is_being_opened_when_the_drain_begins_is_moved_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_node() as node, RawClient(node.url) as raw:
        store = node.gateway.node._store
        create = store.create
        asked, answer = asyncio.Event(), asyncio.Event()

        async def slow(session: Session) -> None:
            asked.set()
            await answer.wait()
            await create(session)

        monkeypatch.setattr(store, "create", slow)
        await raw.send({"type": "hello", "principal": "alice"})
        await asked.wait()
        async with draining(node):
            answer.set()
            await raw.expect("welcome")
            await raw.expect("go-away", within=1.0)
            await raw.ws.close()
        assert node.log.of(DRAIN_FINISHED) == [{"moved": 1, "left": 0}]
