"""The backup is written to before clients are, in the same turn of the loop (rung 3, seed 002, protocol 10.8.2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import islice
from typing import Any

import pytest

from gateway.client import connect
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.wire.codes import MirrorMode
from tests.support.linked_nodes import LinkedNodes
from tests.support.mirrored_nodes import caught_up
from tests.support.nodes import TestNode
from tests.support.raw_client import RawClient
from tests.support.raw_sessions import last_id, publisher, resumed, subscribed
from tests.support.times import time_limit
from tests.support.write_order import WriteOrder

pytestmark = pytest.mark.promise("P12")

MANY = 300
"""Values, or events of a history: several portions of them."""


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> WriteOrder:
    return WriteOrder(monkeypatch, "n1")


@pytest.fixture(params=[MirrorMode.ASYNC, MirrorMode.SYNC])
async def pair(order: WriteOrder, linked: LinkedNodes, request: pytest.FixtureRequest) -> AsyncIterator[list[TestNode]]:
    """n1, and n2 that keeps copies of its sessions."""
    async with linked.run("n1", "n2", backup="n2", mirror=request.param, rate_packets=0) as nodes:
        order.node = nodes[0]
        yield nodes


def judge(order: WriteOrder, **compared: int) -> None:
    """What left was of these kinds, so often at least, and nothing left that the backup had not been told."""
    assert {kind: order.compared[kind] for kind, count in compared.items() if order.compared[kind] < count} == {}
    assert order.late == []


async def test_what_one_alone_is_sent(order: WriteOrder, pair: list[TestNode]) -> None:
    n1, n2 = pair
    async with RawClient(n2.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        await subscribed(raw, "a/**")
        await caught_up(n1)
        for number in range(20):
            await ask.publish("a/x", number)
            await raw.expect("update")
    judge(order, Update=20)


async def test_what_many_are_sent_together(order: WriteOrder, pair: list[TestNode]) -> None:
    n1, n2 = pair
    async with RawClient(n2.url) as bob, AsyncExitStack() as stack:
        ask = await publisher(bob)
        crowd = [await stack.enter_async_context(RawClient(n1.url)) for _ in range(100)]
        for raw in crowd:
            await subscribed(raw, "a/**")
        await caught_up(n1, len(crowd))
        for number in range(5):
            await ask.publish("a/x", number)
            for raw in crowd:
                await raw.expect("update")
    judge(order, Update=200)


async def test_replies_and_acknowledgements(order: WriteOrder, pair: list[TestNode]) -> None:
    """Requests of all kinds, one by one and many in a message, and the packets that acknowledge them."""
    n1, _ = pair
    async with RawClient(n1.url) as raw:
        await subscribed(raw, "a/**")
        await caught_up(n1)
        numbers = iter(range(2, 1_000))
        for count in (1, 1, 20, 200):
            requests: list[dict[str, Any]] = [
                {"id": number, "type": "publish", "request": number, "topic": "a/x", "value": number}
                for number in islice(numbers, count)
            ]
            await raw.send(*requests)
            for _ in requests:
                await raw.expect("reply")
        await raw.send({"id": next(numbers), "type": "properties", "request": 900, "set": {"seat": "4"}})
        await raw.expect("reply")
    judge(order, Reply=200, Update=100)


async def test_snapshots_in_portions(order: WriteOrder, pair: list[TestNode]) -> None:
    n1, n2 = pair
    async with RawClient(n2.url) as bob, RawClient(n1.url) as raw:
        ask = await publisher(bob)
        for number in range(MANY):
            await ask.publish(f"many/{number}", "x" * 500)
        await subscribed(raw, "a/**")
        await caught_up(n1)
        await raw.send({"id": 2, "type": "subscribe", "request": 2, "selector": "many/**"})
        for _ in range(MANY):
            await raw.expect("update")
        await raw.expect("notice")
    judge(order, Update=MANY, Notice=1)


async def test_pages_of_a_history(order: WriteOrder, pair: list[TestNode]) -> None:
    n1, n2 = pair
    limits = HistoryLimits(count=100_000, age=3600.0, bytes=8 * 1024**2)
    for node in pair:
        node.gateway.node.destinations.table.put(
            Destination(selector=parse_selector("log/**"), limits=limits, origin=Origin.FILE)
        )
    urls = [node.url.replace("http", "ws", 1) for node in (n2, n1)]
    async with connect(urls[0], "bob") as bob, connect(urls[1], "alice") as alice:
        for number in range(MANY):
            await bob.publish("log/a", [number, "x" * 2_000])
        await caught_up(n1)
        stream = await alice.subscribe("log/**", start="earliest")
        async with time_limit(30):
            for number in range(MANY):
                assert (await anext(stream)).value == [number, "x" * 2_000]
    judge(order, Reply=4)


async def test_what_is_sent_to_one_who_comes_back(order: WriteOrder, pair: list[TestNode]) -> None:
    """The numbers of what came while the client was away are in the copy, and so is what comes with the welcome."""
    n1, n2 = pair
    async with RawClient(n2.url) as bob:
        ask = await publisher(bob)
        async with RawClient(n1.url) as raw:
            welcome = await subscribed(raw, "a/**")
            received = last_id(raw)
        await ask.publish("a/x", 1, 2, 3)
        async with RawClient(n1.url) as again:
            back = await resumed(again, welcome["token"], received=received, oldest=2)
            assert back["outcome"] == "reattached"
            await ask.publish("a/x", 4)
            for _ in range(4):
                await again.expect("update")
    judge(order, Update=4)
