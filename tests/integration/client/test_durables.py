"""Durable subscriptions from the outside: readers end, die and move, and go on after what they acknowledged (P14)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.requests import shared_feeder
from gateway.catalogue import log_events
from gateway.client import (
    DurableInUse,
    DurableStream,
    MessageConsumer,
    NoSuchDurable,
    NoSuchQueue,
    RequestRefused,
    Session,
    connect,
)
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.destinations.reserved import shared_queue
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.ports import DurableName
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.seeds import seeds
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P14")

QUICK: dict[str, Any] = {
    "backoff_initial": 0.01,
    "backoff_maximum": 0.05,
    "lease": scaled(5.0),
    "lease_renew": scaled(0.2),
}
ORDERS = "orders/**"
PATIENCE = 20.0
COUNT = 300
NOBODY = 1
"""A port that nobody listens at."""


class Cluster:
    """Nodes over one grid, where orders have history, and a proxy in front of the first."""

    def __init__(
        self, memory: MemoryGridServer, nodes: list[TestNode], proxy: CuttingProxy, stack: AsyncExitStack
    ) -> None:
        self.memory = memory
        self.nodes = nodes
        self.proxy = proxy
        self._stack = stack

    async def client(self, node: int = 0, principal: str = "alice", **arguments: Any) -> Session:
        url = self.proxy.url if node == 0 else self.nodes[node].url
        return await self._stack.enter_async_context(connect(url, principal, **arguments))

    async def publish(self, first: int, last: int) -> None:
        async with connect(self.nodes[1].url, "bob") as session:
            for number in range(first, last + 1):
                await session.publish(f"orders/{number % 7}", number)


@pytest.fixture
async def cluster(nothing_left_over: None) -> AsyncIterator[Cluster]:
    memory = MemoryGridServer(now=time.monotonic)
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(running_node(name, memory=memory, **QUICK)) for name in ("n1", "n2", "n3")
        ]
        proxy = await stack.enter_async_context(CuttingProxy(nodes[0].gateway.port))
        await nodes[0].gateway.node.destinations.set(
            Destination(selector=parse_selector(ORDERS), limits=HistoryLimits(), origin=Origin.ADMINISTRATOR)
        )
        await eventually(lambda: all(each.gateway.node.destinations.table.has_history for each in nodes))
        yield Cluster(memory, nodes, proxy, stack)


async def take(stream: DurableStream, count: int) -> list[int]:
    async with time_limit(PATIENCE):
        return [(await anext(stream)).value for _ in range(count)]


async def test_the_next_session_goes_on_where_the_last_one_was_done(cluster: Cluster) -> None:
    await cluster.publish(1, 10)
    async with connect(cluster.proxy.url, "alice") as session:
        stream = await session.subscribe_durable("billing", ORDERS)
        assert stream.created
        assert await take(stream, 4) == [1, 2, 3, 4]
        # The fourth was taken and is not done: nobody has asked for the fifth.
    await cluster.publish(11, 12)
    async with (
        connect(cluster.nodes[1].url, "alice") as session,
        await session.subscribe_durable("billing", ORDERS) as stream,
    ):
        assert not stream.created
        assert await take(stream, 9) == list(range(4, 13))
        await stream.acknowledge()
    session = await cluster.client(2)
    stream = await session.subscribe_durable("billing", ORDERS)
    await cluster.publish(13, 13)
    assert await take(stream, 1) == [13]


async def test_with_client_only_what_was_said_to_be_done_is_done(cluster: Cluster) -> None:
    await cluster.publish(1, 6)
    async with connect(cluster.proxy.url, "alice") as session:
        stream = await session.subscribe_durable("billing", ORDERS, ack="client")
        assert await take(stream, 3) == [1, 2, 3]
        await stream.acknowledge()
        assert await take(stream, 2) == [4, 5]
    stream = await (await cluster.client(1)).subscribe_durable("billing", ORDERS, ack="client")
    assert await take(stream, 3) == [4, 5, 6]


async def test_one_session_uses_it(cluster: Cluster) -> None:
    await cluster.publish(1, 4)
    first, second = await cluster.client(1), await cluster.client(2)
    mine = await first.subscribe_durable("billing", ORDERS)
    assert await take(mine, 2) == [1, 2]
    with pytest.raises(DurableInUse):
        await second.subscribe_durable("billing", ORDERS)
    with pytest.raises(DurableInUse):
        await second.unsubscribe_durable("billing")
    # Another principal has names of its own.
    await (await cluster.client(2, "carol")).subscribe_durable("billing", ORDERS)
    await mine.acknowledge()
    taken = await second.subscribe_durable("billing", ORDERS, take=True)
    assert await take(taken, 1) == [3]
    with pytest.raises(DurableInUse):
        await _read_on(mine)
    await taken.close()
    again = await first.subscribe_durable("billing", ORDERS)
    assert (await take(again, 2))[-1] == 4


async def _read_on(stream: DurableStream) -> None:
    async with time_limit(PATIENCE):
        async for _ in stream:
            await stream.acknowledge()


async def test_it_is_taken_over_from_a_session_whose_client_is_gone(cluster: Cluster) -> None:
    await cluster.publish(1, 4)
    session = await cluster.client()
    stream = await session.subscribe_durable("billing", ORDERS, ack="client")
    assert await take(stream, 2) == [1, 2]
    await stream.acknowledge()
    port, cluster.proxy.target = cluster.proxy.target, NOBODY
    cluster.proxy.cut()
    await eventually(lambda: bool(cluster.nodes[0].log.of(log_events.SESSION_DISCONNECTED)))
    taken = await (await cluster.client(1)).subscribe_durable("billing", ORDERS)
    assert await take(taken, 2) == [3, 4]
    # The former client comes back after all.
    cluster.proxy.target = port
    assert await take(stream, 1) == [3]
    with pytest.raises(DurableInUse):
        await stream.acknowledge()


async def test_it_ends_when_it_is_unsubscribed(cluster: Cluster) -> None:
    await cluster.publish(1, 3)
    session = await cluster.client(1)
    with pytest.raises(NoSuchDurable):
        await session.unsubscribe_durable("billing")
    stream = await session.subscribe_durable("billing", ORDERS)
    assert await take(stream, 2) == [1, 2]
    await session.unsubscribe_durable("billing")
    with pytest.raises(NoSuchDurable):
        await _read_on(stream)
    stream = await session.subscribe_durable("billing", ORDERS, start="now")
    assert stream.created
    await cluster.publish(4, 4)
    assert await take(stream, 1) == [4]


async def test_what_begins_now_loses_nothing_that_comes_before_its_first_acknowledgement(cluster: Cluster) -> None:
    await cluster.publish(1, 2)
    async with connect(cluster.nodes[1].url, "alice") as session:
        await session.subscribe_durable("billing", ORDERS, start="now")
    await cluster.publish(3, 4)
    stream = await (await cluster.client(2)).subscribe_durable("billing", ORDERS, start="now")
    assert await take(stream, 2) == [3, 4]


async def test_it_begins_at_a_position_and_is_for_its_selector(cluster: Cluster) -> None:
    session = await cluster.client(1)
    receipts = [await session.publish("orders/1", number) for number in range(4)]
    stream = await session.subscribe_durable("billing", ORDERS, start=receipts[1].event_id)
    assert await take(stream, 2) == [2, 3]
    with pytest.raises(RequestRefused) as refused:
        await session.subscribe_durable("billing", "sales/**")
    assert refused.value.code is ErrorCode.DURABLE_DIFFERS
    for name in ("", "x" * 300, "a\nb"):
        with pytest.raises(RequestRefused):
            await session.subscribe_durable(name, ORDERS)
    with pytest.raises(ValueError, match="'auto' or 'client'"):
        await session.subscribe_durable("billing", ORDERS, ack="each")


@pytest.mark.promise("P7")
async def test_what_its_last_session_used_is_free_when_that_is_closed_and_forgotten_after_its_life(
    cluster: Cluster,
) -> None:
    async with connect(cluster.nodes[1].url, "alice") as session:
        await session.subscribe_durable("billing", ORDERS, expires=scaled(0.2))
    node = cluster.nodes[2].gateway.node

    durables = node._context.grid.durables
    name = DurableName("alice", "billing")
    found = await durables.find(name)
    assert found is not None
    assert found.session is None
    async with time_limit(PATIENCE):
        while await durables.find(name) is not None:
            for each in cluster.nodes:
                await each.gateway.node.sweepers.durables.sweep()
            await asyncio.sleep(0.01)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("seed", seeds(3))
async def test_readers_that_are_cut_moved_and_replaced_have_each_event_once(cluster: Cluster, seed: int) -> None:
    """Rungs 1 to 4 and new sessions at other nodes: with acknowledgement of each batch, nothing twice and no hole."""
    dice = Random(seed)
    publishing = asyncio.create_task(cluster.publish(1, COUNT))
    had: list[int] = []
    async with time_limit(3 * PATIENCE):
        while len(had) < COUNT:
            urls = [cluster.proxy.url, cluster.nodes[1].url, cluster.nodes[2].url]
            dice.shuffle(urls)
            async with (
                connect(urls, "alice") as session,
                await session.subscribe_durable("billing", ORDERS, ack="client") as stream,
            ):
                for _ in range(dice.randint(1, 4)):
                    had += await take(stream, min(dice.randint(1, 30), COUNT - len(had)))
                    if dice.random() < 0.5:
                        cluster.proxy.target = dice.choice(cluster.nodes).gateway.port
                        cluster.proxy.cut()
                    await stream.acknowledge()
    await publishing
    assert had == list(range(1, COUNT + 1))


# --- Shared ---------------------------------------------------------------------------------------------------------


async def settle(consumer: MessageConsumer, count: int) -> list[Any]:
    async with time_limit(PATIENCE):
        values = []
        for _ in range(count):
            message = await anext(consumer)
            values.append(message.value)
            await message.accept()
        return values


async def test_sessions_share_the_events_and_what_is_not_settled_comes_again(cluster: Cluster) -> None:
    await cluster.publish(1, 6)
    first, second = await cluster.client(1), await cluster.client(2)
    one = await first.subscribe_durable("billing", ORDERS, shared=True, ack="each", credit=2)
    assert await settle(one, 2) == [1, 2]
    message = await anext(one)
    assert (message.value, message.headers["topic"]) == (3, "orders/3")
    assert (await first.history("orders/3"))[0].event_id == message.headers["event"]
    other = await second.subscribe_durable("billing", ORDERS, shared=True, ack="each", credit=1)
    await cluster.publish(7, 8)
    await one.cancel()
    assert sorted(await settle(other, 6)) == [3, 4, 5, 6, 7, 8]
    await cluster.publish(9, 9)
    assert await settle(other, 1) == [9]
    with pytest.raises(DurableInUse):
        await second.unsubscribe_durable("billing")
    await other.cancel()
    await second.unsubscribe_durable("billing")
    again = await second.subscribe_durable("billing", ORDERS, shared=True, start="now")
    await cluster.publish(10, 10)
    assert (await anext(again)).value == 10


async def test_what_nobody_consumes_waits_in_the_history(cluster: Cluster) -> None:
    async with connect(cluster.nodes[1].url, "alice") as session:
        await session.subscribe_durable("billing", ORDERS, shared=True, ack="each")
    await cluster.publish(1, COUNT)
    consumer = await (await cluster.client(2)).subscribe_durable("billing", ORDERS, shared=True, ack="each", credit=8)
    assert await settle(consumer, COUNT) == list(range(1, COUNT + 1))


async def test_what_the_queue_lacks_after_the_grid_has_gone_back_comes_from_the_history(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not only when another event is published."""
    for name in ("AHEAD", "FEED_AT_ONCE"):
        monkeypatch.setattr(shared_feeder, name, 1)
    session = await cluster.client(1)
    one = await session.subscribe_durable("billing", ORDERS, shared=True, ack="each", credit=1)
    await cluster.publish(1, 6)
    message = await anext(one)  # the second is ready then, and the others wait in the history
    snapshot = cluster.memory.snapshot()
    await message.accept()
    assert await settle(one, 5) == [2, 3, 4, 5, 6]
    cluster.memory.go_away()
    cluster.memory.come_back(restarted=True, snapshot=snapshot)

    assert await settle(one, 6) == [1, 2, 3, 4, 5, 6]


@pytest.mark.promise("P2")
@pytest.mark.promise("P10")
async def test_consumers_of_what_was_lost_with_the_grid_are_told(cluster: Cluster) -> None:
    session = await cluster.client(1)
    consumer = await session.subscribe_durable("billing", ORDERS, shared=True)
    cluster.memory.go_away()
    cluster.memory.come_back(emptied=True)
    async with time_limit(PATIENCE):
        with pytest.raises(NoSuchDurable):
            await anext(consumer)


async def test_one_that_is_half_removed_is_made_anew(cluster: Cluster) -> None:
    """Who opens it finishes the removal. It used to begin again where it had begun once."""
    name, session = DurableName("alice", "billing"), await cluster.client(1)
    grid = cluster.nodes[2].gateway.node._context.grid
    await cluster.publish(1, 3)
    one = await session.subscribe_durable("billing", ORDERS, shared=True, ack="each")
    assert await settle(one, 3) == [1, 2, 3]
    await one.cancel()
    assert await grid.durables.begin_removal(name, over=False)
    await grid.queues.remove(shared_queue(*name))
    again = await session.subscribe_durable("billing", ORDERS, shared=True, ack="each", start="now")
    await cluster.publish(4, 5)
    assert await settle(again, 2) == [4, 5]
    with pytest.raises(DurableInUse):
        await session.unsubscribe_durable("billing")
    await again.cancel()
    await session.unsubscribe_durable("billing")
    assert await grid.durables.find(name) is None


async def test_who_comes_or_may_hold_more_is_fed_though_nobody_settles(cluster: Cluster) -> None:
    """What was ready is given to them, and what follows has to be fetched from the history."""
    session, queue = await cluster.client(1), shared_queue("alice", "billing")
    queues = cluster.nodes[1].gateway.node._context.grid.queues
    one = await session.subscribe_durable("billing", ORDERS, shared=True, ack="each", credit=32)
    await cluster.publish(1, 4 * shared_feeder.AHEAD)
    async with time_limit(PATIENCE):
        while (state := await queues.look(queue)) is None or state.ready < shared_feeder.AHEAD:  # noqa: ASYNC110
            await asyncio.sleep(0)
        other = await (await cluster.client(1)).subscribe_durable(
            "billing", ORDERS, shared=True, ack="each", credit=2 * shared_feeder.AHEAD
        )
        had = [(await anext(other)).value for _ in range(2 * shared_feeder.AHEAD)]
        one._allow(2 * shared_feeder.AHEAD)
        had += [(await anext(one)).value for _ in range(2 * shared_feeder.AHEAD)]
    assert sorted(had) == list(range(1, 4 * shared_feeder.AHEAD + 1))


async def test_what_a_transaction_settles_makes_room_for_the_next_events(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AHEAD", "FEED_AT_ONCE"):
        monkeypatch.setattr(shared_feeder, name, 1)
    session = await cluster.client(1)
    consumer = await session.subscribe_durable("billing", ORDERS, shared=True, ack="each", credit=1)
    await cluster.publish(1, 6)
    async with time_limit(PATIENCE):
        for number in range(1, 7):
            message = await anext(consumer)
            assert message.value == number
            async with session.transaction() as transaction:
                await transaction.accept(message)


@pytest.mark.promise("P10")
async def test_a_subscription_that_was_lost_and_opened_again_is_fed_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that was done before this node came to ask what its consumers hold, so that none of them has left."""
    session = await cluster.client(1)
    consumer = await session.subscribe_durable("billing", ORDERS, shared=True, ack="each")
    node = cluster.nodes[1].gateway.node
    feeder, queues = node.connections.consumers._feeder, node._context.grid.queues
    (feed,) = feeder._feeds.values()

    async def lost(*_: object, **__: object) -> None:
        return None

    with monkeypatch.context() as patched:
        patched.setattr(queues, "feed", lost)
        feeder.look_again(feed.queue)
        await eventually(lambda: not feed.is_fed)
    await cluster.publish(1, 3)
    feeder.look_again(feed.queue)
    assert await settle(consumer, 3) == [1, 2, 3]


async def test_what_is_not_kept_any_more_is_told_by_the_first_message_that_follows(cluster: Cluster) -> None:
    await cluster.nodes[0].gateway.node.destinations.set(
        Destination(selector=parse_selector(ORDERS), limits=HistoryLimits(count=5), origin=Origin.ADMINISTRATOR)
    )
    session = await cluster.client(1)
    history = cluster.nodes[1].gateway.node.destinations.table.history
    await eventually(lambda: (limits := history(TopicPath("orders/1"))) is not None and limits.count == 5)
    first = await session.publish("orders/1", 0)
    for number in range(1, 400):
        await session.publish("orders/1", number)
    consumer = await session.subscribe_durable("billing", ORDERS, shared=True, start=first.event_id)
    async with time_limit(PATIENCE):
        messages = [await anext(consumer)]
        while messages[-1].value != 399:
            messages.append(await anext(consumer))
    assert len(messages) < 400
    assert [each.headers.get("gap") for each in messages] == ["true"] + [None] * (len(messages) - 1)


async def test_only_who_may_select_the_topics_and_whose_it_is_consumes(cluster: Cluster) -> None:
    session = await cluster.client(1)
    consumer = await session.subscribe_durable("billing", ORDERS, shared=True)
    stranger = await cluster.client(2, "carol")
    for path, code in ((consumer.queue, ErrorCode.FORBIDDEN), (consumer.queue + "x", ErrorCode.FORBIDDEN)):
        with pytest.raises(RequestRefused) as refused:
            await stranger.consume(path)
        assert refused.value.code is code
    with pytest.raises(NoSuchQueue):
        await session.send(consumer.queue, 1)
    with pytest.raises(NoSuchDurable):
        await session.consume(consumer.queue + "x")
    with pytest.raises(RequestRefused) as refused:
        await session.subscribe_durable("billing", ORDERS)
    assert refused.value.code is ErrorCode.DURABLE_DIFFERS
    with pytest.raises(RequestRefused) as refused:
        await session.subscribe_durable("all", "**", shared=True)
    assert refused.value.code is ErrorCode.BAD_SELECTOR


@pytest.mark.promise("P15")
@pytest.mark.parametrize("seed", seeds(3))
async def test_shared_readers_that_come_and_go_settle_each_event_once(cluster: Cluster, seed: int) -> None:
    dice = Random(seed)
    settled: list[int] = []

    async def read() -> None:
        while len(set(settled)) < COUNT:
            node = dice.choice(cluster.nodes)
            async with connect(node.url, "alice") as session:
                consumer = await session.subscribe_durable("billing", ORDERS, shared=True, ack="each", credit=5)
                for _ in range(dice.randint(1, 40)):
                    try:
                        async with time_limit(0.5):
                            message = await anext(consumer)
                    except TimeoutError:
                        break
                    await message.accept()
                    settled.append(message.value)

    async with time_limit(3 * PATIENCE):
        await asyncio.gather(cluster.publish(1, COUNT), read(), read(), read())
    assert sorted(settled) == list(range(1, COUNT + 1))
