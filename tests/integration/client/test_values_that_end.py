"""Values that end from the outside: for subscribers on all nodes, later ones, over failovers and losses of the grid."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import Session, Update, UpdateStream, connect
from gateway.core.destinations.limits import HistoryLimits, ValueLimits
from gateway.core.types import TopicPath
from gateway.ports import GridUnavailable, TopicValue
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.clock import eventually
from tests.support.nodes import TestNode, declare, running_node
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P6")

QUICK: dict[str, Any] = {
    "backoff_initial": 0.01,
    "backoff_maximum": 0.05,
    "lease": scaled(5.0),
    "lease_renew": scaled(0.2),
}
PATIENCE = 20.0
NOBODY = 1
"""A port that nobody listens at."""
OFFER = TopicPath("offers/17")


class Cluster:
    """Two nodes over one grid, and a proxy in front of the first."""

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

    async def read(self, topic: str = OFFER) -> TopicValue | None:
        """Read what the grid holds of a topic; None also while nobody can tell."""
        try:
            (value,) = await self.nodes[0].gateway.node._context.grid.topics.read([TopicPath(topic)])
        except GridUnavailable:
            return None
        return value

    async def has_ended(self) -> bool:
        value = await self.read()
        return value is not None and not value.value


@pytest.fixture
async def cluster(nothing_left_over: None) -> AsyncIterator[Cluster]:
    memory = MemoryGridServer(now=time.monotonic)
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(running_node(name, memory=memory, **QUICK)) for name in ("n1", "n2")]
        proxy = await stack.enter_async_context(CuttingProxy(nodes[0].gateway.port))
        yield Cluster(memory, nodes, proxy, stack)


async def take(stream: UpdateStream, count: int) -> list[Update]:
    async with time_limit(PATIENCE):
        return [await anext(stream) for _ in range(count)]


def told(updates: list[Update]) -> list[tuple[object, bool]]:
    return [(each.value, each.removed) for each in updates]


async def test_subscribers_of_all_nodes_get_a_removal_and_later_ones_nothing(cluster: Cluster) -> None:
    streams = [await (await cluster.client(node)).subscribe("offers/**") for node in (0, 1)]
    publisher = await cluster.client(1, "bob")
    receipt = await publisher.publish(OFFER, 12.5, ttl=0.2)

    for stream in streams:
        value, end = await take(stream, 2)
        assert told([value, end]) == [(12.5, False), (None, True)]
        assert (value.version, end.version) == (receipt.version, receipt.version + 1)
    late = await (await cluster.client(1)).subscribe("offers/**")
    await publisher.publish("offers/18", 1)
    assert [each.topic for each in await take(late, 1)] == ["offers/18"]


async def test_a_publish_in_time_keeps_the_topic_and_zero_keeps_it_for_ever(cluster: Cluster) -> None:
    await declare("offers/**", ValueLimits(ttl=0.3), *cluster.nodes)
    stream = await (await cluster.client(1)).subscribe("offers/**")
    publisher = await cluster.client()
    await publisher.publish(OFFER, 1)
    await publisher.publish(OFFER, 2, ttl=0)
    await publisher.publish("offers/18", 3)
    assert told(await take(stream, 4)) == [(1, False), (2, False), (3, False), (None, True)]
    assert not await cluster.has_ended()


@pytest.mark.promise("P16")
async def test_of_a_transaction_and_of_a_history(cluster: Cluster) -> None:
    await declare("offers/**", HistoryLimits(ttl=0.2), *cluster.nodes)
    session = await cluster.client()
    stream = await session.subscribe("offers/**", start="earliest")
    async with session.transaction() as transaction:
        await transaction.publish(OFFER, 1, ttl=0)
        await transaction.publish("offers/18", 2)
        await transaction.publish("other", 3, ttl=1)
    found = await take(stream, 3)
    assert sorted(told(found), key=str) == sorted([(1, False), (2, False), (None, True)], key=str)
    assert told(list(await session.history("offers/18"))) == [(2, False), (None, True)]


async def test_the_end_reaches_a_client_that_was_away_when_it_came(cluster: Cluster) -> None:
    """After a failover it hears of the removal, and does not keep the value for ever."""
    proxy = cluster.proxy
    session = await cluster.client()
    stream = await session.subscribe("offers/**")
    async with connect(cluster.nodes[1].url, "bob") as publisher:
        await publisher.publish(OFFER, 1, ttl=scaled(0.5))
    assert told(await take(stream, 1)) == [(1, False)]
    proxy.target = NOBODY
    proxy.cut()
    await eventually(cluster.has_ended)
    proxy.target = cluster.nodes[1].gateway.port
    assert told(await take(stream, 1)) == [(None, True)]
    assert (await anext(session.recoveries())).outcome == "failed_over"


@pytest.mark.thorough
@pytest.mark.promise("P10")
async def test_nodes_that_put_values_back_put_back_their_ends(cluster: Cluster) -> None:
    session = await cluster.client()
    stream = await session.subscribe("offers/**")
    await session.publish("offers/18", 0)
    await session.publish(OFFER, 1, ttl=scaled(3.0))
    assert told(await take(stream, 2)) == [(0, False), (1, False)]
    cluster.memory.come_back(emptied=True)

    await eventually(lambda: _is_there(cluster.read()))
    value = await cluster.read()
    assert value is not None
    assert value.ends > 0, "it was put back with its end"
    assert told(await take(stream, 1)) == [(None, True)]
    kept = await cluster.read("offers/18")
    assert kept is not None
    assert kept.value == b"0"


async def _is_there(reading: Awaitable[TopicValue | None]) -> bool:
    return await reading is not None
