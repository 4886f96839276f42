"""Transactions from the outside: the client at real nodes over one grid, through cuts, other nodes and deaths (P16)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from math import inf, nan
from random import Random
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer, transaction_table
from gateway.catalogue import log_events
from gateway.client import (
    Message,
    MessageConsumer,
    NoSuchQueue,
    NoSuchTransaction,
    NotHeld,
    QueueFull,
    RequestRefused,
    Session,
    ValueTooLarge,
    connect,
)
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import QueueLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import SESSION_PARTITIONS
from gateway.core.types import TopicPath
from gateway.ports import MOST_TRANSACTIONS, OpenTransaction
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P16")

QUICK: dict[str, Any] = {
    "backoff_initial": 0.01,
    "backoff_maximum": 0.05,
    "lease": scaled(5.0),
    "lease_renew": scaled(0.2),
}
INPUT, OUTPUT = "work/input", "results/output"
PATIENCE = 20.0


class Cluster:
    """Nodes over one grid, which know two queues, and a proxy in front of the first."""

    def __init__(self, nodes: list[TestNode], proxy: CuttingProxy, stack: AsyncExitStack) -> None:
        self.nodes = nodes
        self.proxy = proxy
        self._stack = stack

    async def client(self) -> Session:
        return await self._stack.enter_async_context(connect(self.proxy.url, "alice"))

    async def declare(self, queue: str, **limits: Any) -> None:
        selector = parse_selector(queue)
        described = Destination(selector=selector, limits=QueueLimits(**limits), origin=Origin.ADMINISTRATOR)
        await self.nodes[0].gateway.node.destinations.set(described)
        tables = [each.gateway.node.destinations.table for each in self.nodes]
        await eventually(lambda: all(table.queue(TopicPath(queue)) == described.limits for table in tables))

    async def counts(self, queue: str) -> tuple[int, int]:
        """Tell how many messages are ready, and how many are held."""
        state = await self.nodes[1].gateway.node._context.grid.queues.look(TopicPath(queue))
        return (0, 0) if state is None else (state.ready, state.held)

    async def until_empty(self, queue: str) -> None:
        async with time_limit(4 * PATIENCE):
            while await self.counts(queue) != (0, 0):  # noqa: ASYNC110 - asked of the grid
                await asyncio.sleep(0.02)

    async def open(self) -> list[OpenTransaction]:
        grid = self.nodes[1].gateway.node._context.grid
        return [each for number in range(SESSION_PARTITIONS) for each in await grid.transactions.open(number, limit=9)]

    async def disturb(self, random: Random) -> None:
        """Cut connections, and have those who come again served by other nodes, for ever."""
        while True:
            await asyncio.sleep(random.uniform(0.02, 0.2))
            self.proxy.target = random.choice(self.nodes).gateway.port
            self.proxy.cut()

    async def fail(self) -> None:
        """Stop the node that serves the clients."""
        await self.nodes[0].gateway.close()
        self.proxy.target = self.nodes[1].gateway.port
        self.proxy.cut()


@pytest.fixture
async def cluster(nothing_left_over: None) -> AsyncIterator[Cluster]:
    memory = MemoryGridServer(now=time.monotonic)
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(running_node(name, memory=memory, **QUICK)) for name in ("n1", "n2", "n3")
        ]
        proxy = await stack.enter_async_context(CuttingProxy(nodes[0].gateway.port))
        cluster = Cluster(nodes, proxy, stack)
        await cluster.declare(INPUT)
        await cluster.declare(OUTPUT)
        yield cluster


async def take(consumer: MessageConsumer, count: int) -> list[Message]:
    async with time_limit(PATIENCE):
        return [await anext(consumer) for _ in range(count)]


async def test_what_is_asked_for_is_done_at_the_end_of_the_block(cluster: Cluster) -> None:
    session = await cluster.client()
    stream = await session.subscribe("orders/**")
    consumer = await session.consume(INPUT, ack="each")
    await session.send(INPUT, "in")
    (message,) = await take(consumer, 1)
    async with session.transaction() as t:
        await t.publish("orders/7", {"state": "shipped"})
        await t.send(OUTPUT, "out", headers={"kind": "parcel"})
        await t.accept(message)
        assert await cluster.counts(OUTPUT) == (0, 0)
        assert await cluster.counts(INPUT) == (0, 1)
        (held,) = await cluster.open()
        assert held.operations == 3
    assert await cluster.counts(INPUT) == (0, 0)
    (sent,) = await take(await session.consume(OUTPUT), 1)
    assert (sent.value, dict(sent.headers)) == ("out", {"kind": "parcel"})
    async with time_limit(PATIENCE):
        assert (await anext(stream)).value == {"state": "shipped"}
    assert not await cluster.open()
    with pytest.raises(NotHeld):
        await message.accept()


async def test_an_exception_rolls_back(cluster: Cluster) -> None:
    session = await cluster.client()
    consumer = await session.consume(INPUT, ack="each")
    await session.send(INPUT, "in")
    (message,) = await take(consumer, 1)
    t = session.transaction()

    async def fail() -> None:
        async with t:
            await t.send(OUTPUT, "out")
            await t.accept(message)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await cluster.counts(OUTPUT) == (0, 0)
    assert not await cluster.open()
    with pytest.raises(NoSuchTransaction):
        await t.send(OUTPUT, "too late")
    await message.accept()
    assert await cluster.counts(INPUT) == (0, 0)


@pytest.mark.parametrize("way", ["cut", "failover"])
async def test_it_goes_on_wherever_its_session_does(cluster: Cluster, way: str) -> None:
    session = await cluster.client()
    consumer = await session.consume(INPUT, ack="each")
    await session.send(INPUT, "in")
    (message,) = await take(consumer, 1)
    async with session.transaction() as t:
        await t.send(OUTPUT, "out")
        await t.accept(message)
        if way == "cut":
            cluster.proxy.cut()
        else:
            await cluster.fail()
        await t.publish("orders/7", 1)
    assert await cluster.counts(OUTPUT) == (1, 0)
    assert await cluster.counts(INPUT) == (0, 0)
    await session.send(INPUT, "next")
    (following,) = await take(consumer, 1)
    assert following.value == "next", "what was settled does not come again"


async def test_a_commit_to_a_queue_that_has_ended_is_refused_as_such(cluster: Cluster) -> None:
    """A temporary queue ends with its session, which may be between the send and the commit."""
    asker, session = await cluster.client(), await cluster.client()
    answers = await asker.declare(temporary=True)
    t = session.transaction()
    async with time_limit(PATIENCE):
        await t.__aenter__()
        await t.send(answers, "late")
        await t.send(OUTPUT, 1)
        await asker.close()
        with pytest.raises(NoSuchQueue):
            await t.commit()
    assert await cluster.counts(OUTPUT) == (0, 0), "nothing of it was done"
    for node in cluster.nodes:
        assert node.log.of(log_events.REQUEST_FAILED) == []


async def test_what_is_refused_leaves_the_rest(cluster: Cluster) -> None:
    session = await cluster.client()
    async with session.transaction() as t:
        await t.send(OUTPUT, 1)
        with pytest.raises(NoSuchQueue):
            await t.send("no/such/queue", 1)
        with pytest.raises(ValueTooLarge):
            await t.publish("orders/7", "x" * 1_000_000)
        with pytest.raises(RequestRefused, match="system"):
            await t.publish("$system/x", 1)
        await t.send(OUTPUT, 2)
    assert await cluster.counts(OUTPUT) == (2, 0)


async def test_a_message_whose_settlement_was_refused_can_be_settled_otherwise(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await cluster.client()
    consumer = await session.consume(INPUT, ack="each")
    await session.send(INPUT, "in")
    (message,) = await take(consumer, 1)
    monkeypatch.setattr(transaction_table, "MOST_STAGED", 1)
    async with session.transaction() as t:
        await t.send(OUTPUT, 1)
        with pytest.raises(RequestRefused) as refused:
            await t.accept(message)
        assert refused.value.code == "transaction_too_large"
    assert await cluster.counts(OUTPUT) == (1, 0)
    await message.accept()
    assert await cluster.counts(INPUT) == (0, 0)


async def test_a_commit_without_room_does_nothing(cluster: Cluster) -> None:
    await cluster.declare(OUTPUT, count=1)
    session = await cluster.client()
    t = await session.transaction().__aenter__()
    await t.publish("orders/7", 1)
    await t.send(OUTPUT, 1)
    await t.send(OUTPUT, 2)
    with pytest.raises(QueueFull):
        await t.commit()
    assert await cluster.counts(OUTPUT) == (0, 0)
    assert not await cluster.open()


async def test_what_was_given_back_cannot_be_settled_by_it(cluster: Cluster) -> None:
    session = await cluster.client()
    consumer = await session.consume(INPUT, ack="each")
    await session.send(INPUT, "in")
    (message,) = await take(consumer, 1)
    t = await session.transaction().__aenter__()
    await t.send(OUTPUT, "out")
    await t.accept(message)
    await consumer.cancel()
    with pytest.raises(NotHeld):
        await t.commit()
    assert await cluster.counts(OUTPUT) == (0, 0)
    assert await cluster.counts(INPUT) == (1, 0)


async def test_a_session_has_so_many_open_at_most(cluster: Cluster) -> None:
    session = await cluster.client()
    async with AsyncExitStack() as stack:
        for _ in range(MOST_TRANSACTIONS):
            await stack.enter_async_context(session.transaction())
        with pytest.raises(RequestRefused) as refused:
            await stack.enter_async_context(session.transaction())
        assert refused.value.code == "too_many_transactions"


async def test_messages_that_are_accepted_by_themselves_have_no_place_in_it(cluster: Cluster) -> None:
    session = await cluster.client()
    consumer = await session.consume(INPUT)
    await session.send(INPUT, "in")
    (message,) = await take(consumer, 1)
    async with session.transaction() as t:
        with pytest.raises(ValueError, match="settles by itself"):
            await t.accept(message)


@pytest.mark.promise("P7")
async def test_nothing_is_left_of_a_session_that_ends_in_one(cluster: Cluster) -> None:
    session = await cluster.client()
    t = session.transaction()
    await t.__aenter__()
    await t.send(OUTPUT, 1)
    await session.close()
    await eventually_none(cluster)
    assert await cluster.counts(OUTPUT) == (0, 0)


async def eventually_none(cluster: Cluster) -> None:
    async with time_limit(PATIENCE):
        while await cluster.open():  # noqa: ASYNC110 - asked of the grid
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.thorough)])
async def test_each_input_becomes_one_output(cluster: Cluster, count: int) -> None:
    """Consume and publish, while connections are cut and sessions move: the output has each input exactly once."""
    sender = await cluster.client()
    workers = [await cluster.client() for _ in range(3)]
    consumers = [await each.consume(INPUT, ack="each", credit=10) for each in workers]

    async def work(consumer: MessageConsumer, session: Session) -> None:
        async for message in consumer:
            try:
                async with session.transaction() as t:
                    await t.accept(message)
                    await t.send(OUTPUT, message.value)
            except (NotHeld, NoSuchTransaction):
                continue

    tasks = [asyncio.create_task(work(*pair)) for pair in zip(consumers, workers, strict=True)]
    disturbing = asyncio.create_task(cluster.disturb(Random(11)))
    try:
        for number in range(count):
            await sender.send(INPUT, number)
        await cluster.until_empty(INPUT)
        disturbing.cancel()
        output = await sender.consume(OUTPUT, credit=500)
        found = Counter([each.value for each in await take(output, count)])
        await cluster.until_empty(OUTPUT)
    finally:
        for each in (disturbing, *tasks):
            each.cancel()
        await asyncio.gather(disturbing, *tasks, return_exceptions=True)
    assert found == Counter(range(count))


@pytest.mark.parametrize("seconds", [inf, -inf, nan, -1.0, 10**400, "1", True])
async def test_no_length_of_time_travels_that_json_has_no_number_for(cluster: Cluster, seconds: Any) -> None:
    """It would become null, which says "at once", or "as by default"."""
    session = await cluster.client()
    await session.send(INPUT, 1)
    consumer = await session.consume(INPUT, ack="each")
    message = await anext(consumer)
    async with session.transaction() as t:
        for call in (
            session.send(OUTPUT, 1, delay=seconds),
            session.send(OUTPUT, 1, expires=seconds),
            t.send(OUTPUT, 1, delay=seconds),
            t.send(OUTPUT, 1, expires=seconds),
            t.release(message, delay=seconds),
            message.release(delay=seconds),
            session.subscribe_durable("billing", "work/**", expires=seconds),
        ):
            with pytest.raises(ValueError, match="seconds"):
                await call
    await message.accept()
    assert await cluster.counts(OUTPUT) == (0, 0)
