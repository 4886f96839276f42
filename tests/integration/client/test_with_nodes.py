"""The client against real nodes over one in-memory grid: what the two promise together (P1, P2, P5, P6, P7, P12)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from random import Random

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import Session, SessionClosed, Update, UpdateStream, connect
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.nodes import FREQUENT_RENEWALS, TestNode, eventually, running_node
from tests.support.times import scaled

QUICK = {"backoff_initial": 0.01, "backoff_maximum": 0.05, **FREQUENT_RENEWALS}


class Cluster:
    """Two nodes over one grid, and a proxy in front of the first."""

    def __init__(self, n1: TestNode, n2: TestNode, proxy: CuttingProxy, stack: AsyncExitStack) -> None:
        self.n1 = n1
        self.n2 = n2
        self.proxy = proxy
        self._stack = stack

    def lead_to(self, node: TestNode) -> None:
        self.proxy.target = node.gateway.port

    async def client(self, **arguments: object) -> Session:
        return await self._stack.enter_async_context(connect(self.proxy.url, "alice", **arguments))  # type: ignore[arg-type]


@pytest.fixture
async def cluster(nothing_left_over: None) -> AsyncIterator[Cluster]:
    memory = MemoryGridServer(now=time.monotonic, stream_length=100_000, topic_depth=1)
    async with AsyncExitStack() as stack:
        n1 = await stack.enter_async_context(running_node("n1", memory=memory, **QUICK))
        n2 = await stack.enter_async_context(running_node("n2", memory=memory, **QUICK))
        proxy = await stack.enter_async_context(CuttingProxy(n1.gateway.port))
        yield Cluster(n1, n2, proxy, stack)


async def collect(stream: UpdateStream, updates: list[Update]) -> None:
    async for update in stream:
        updates.append(update)  # noqa: PERF401 - others look at it meanwhile


def has(updates: list[Update], least: int) -> bool:
    return len(updates) >= least


async def test_a_session_tells_what_it_is_and_ends_when_told(cluster: Cluster) -> None:
    session = await cluster.client(properties={"team": "fx"}, window=7.0)
    await session.set_properties({"desk": "7"})

    assert session.window == 7.0
    assert session.properties["$session"] == session.id
    assert session.properties["$client"].startswith("python/")
    assert {name: session.properties[name] for name in ("team", "desk")} == {"team": "fx", "desk": "7"}
    await session.close()
    assert isinstance(session.closed_reason, SessionClosed)
    assert not list(cluster.n1.gateway.node.sessions)


@pytest.mark.promise("P2", "P5", "P6", "P7")
async def test_publishes_survive_thirty_cuts_in_order_and_exactly_once(cluster: Cluster) -> None:
    """Cuts hit at random moments, during handshakes and resumes too; every publish is in the topic's log once."""
    random = Random(4)
    watcher = await connect(cluster.n2.url, "watcher")
    seen: list[Update] = []
    watching = asyncio.create_task(collect(await watcher.subscribe("log"), seen))
    session = await cluster.client()
    total = 600
    published = 0

    async def publish() -> None:
        nonlocal published
        for value in range(1, total + 1):
            await session.publish("log", value)
            published = value

    async def until_published(least: int) -> None:
        await eventually(lambda: published >= least)

    publishing = asyncio.create_task(publish())
    for number in range(30):
        await until_published(number * total // 40)
        await asyncio.sleep(random.random() * 0.01)
        cluster.proxy.cut()
    await publishing
    await eventually(lambda: len(seen) >= total)
    await watcher.close()
    await watching

    assert [update.value for update in seen] == list(range(1, total + 1))
    outcomes = [recovery.outcome for recovery in session._supervisor.recoveries._kept]
    assert len(outcomes) >= 5
    assert set(outcomes) == {"reattached"}


@pytest.mark.promise("P1", "P2", "P5", "P6")
async def test_pipelined_publishes_survive_moves_between_nodes_exactly_once(cluster: Cluster) -> None:
    """Every cut leads to the other node, which has to take the session over with requests under way."""
    watcher = await connect(cluster.n2.url, "watcher")
    seen: list[Update] = []
    watching = asyncio.create_task(collect(await watcher.subscribe("log"), seen))
    session = await cluster.client()
    total = 600
    publishing = asyncio.gather(*(session.publish("log", value) for value in range(1, total + 1)))
    for move in range(10):
        await eventually(partial(has, seen, move * total // 12))
        cluster.lead_to(cluster.n1 if move % 2 else cluster.n2)
        cluster.proxy.cut()
    receipts = await publishing
    await eventually(lambda: len(seen) >= total)
    await watcher.close()
    await watching

    assert [update.value for update in seen] == list(range(1, total + 1))
    assert [receipt.version for receipt in receipts] == list(range(1, total + 1))
    assert "failed_over" in {recovery.outcome for recovery in session._supervisor.recoveries._kept}


@pytest.mark.promise("P1", "P2", "P6")
async def test_a_dead_node_takes_nothing_with_it(cluster: Cluster) -> None:
    session = await cluster.client(properties={"team": "fx"})
    publisher = await connect(cluster.n2.url, "publisher")
    stream = await session.subscribe("prices/**")
    await session.unsubscribe("prices/old/**")
    await session.set_properties({"desk": "7"})
    before = session.id
    await publisher.publish("prices/ACME", 1)
    assert (await anext(stream)).value == 1

    cluster.lead_to(cluster.n2)
    await cluster.n1.gateway.close()
    await publisher.publish("prices/ACME", 2)
    await publisher.publish("prices/old/X", 1)
    recovery = await anext(session.recoveries())
    assert (recovery.outcome, recovery.reason, recovery.node) == ("failed_over", "other_node", "n2")
    while (update := await anext(stream)).value != 2:
        pass
    await publisher.publish("prices/ACME", 3)
    live = await anext(stream)

    assert (live.value, live.snapshot) == (3, False)
    assert (session.id, session.principal, session.node) == (before, "alice", "n2")
    assert {name: session.properties[name] for name in ("team", "desk", "$node")} == {
        "team": "fx",
        "desk": "7",
        "$node": "n2",
    }
    assert update.version == 2
    assert not session._supervisor.notices, "nothing had to be restored"
    await publisher.close()


async def test_a_second_subscription_is_sent_what_the_first_has_seen(cluster: Cluster) -> None:
    session = await cluster.client()
    wide = await session.subscribe("a/**")
    await session.publish("a/1", "one")
    assert (await anext(wide)).value == "one"
    narrow = await session.subscribe("a/1")

    snapshot = await anext(narrow)
    assert (snapshot.value, snapshot.snapshot) == ("one", True)
    await session.publish("a/1", "two")
    assert [(await anext(stream)).value for stream in (wide, narrow)] == ["two", "two"]
    assert wide.waiting == 0, "what it had seen did not come again"


@pytest.mark.promise("P5", "P6", "P12")
async def test_a_drain_under_traffic_raises_nothing_and_loses_nothing(cluster: Cluster) -> None:
    watcher = await connect(cluster.n2.url, "watcher")
    seen: list[Update] = []
    watching = asyncio.create_task(collect(await watcher.subscribe("log/**"), seen))
    # Both URLs: the draining node answers upgrades with 503, and the client goes on to the next.
    sessions = [await connect([cluster.n1.url, cluster.n2.url], f"user-{number}") for number in range(5)]
    streams = [await session.subscribe("log/**") for session in sessions]
    stop = asyncio.Event()
    counts = [0] * len(sessions)

    async def publish(index: int) -> None:
        while not stop.is_set():
            await sessions[index].publish(f"log/{index}", counts[index] + 1)
            counts[index] += 1

    publishing = [asyncio.create_task(publish(index)) for index in range(len(sessions))]
    await eventually(lambda: min(counts) >= 5)
    await cluster.n1.gateway.drain()
    reached = max(counts) + 5
    await eventually(lambda: min(counts) >= reached)
    stop.set()
    await asyncio.gather(*publishing)
    await eventually(lambda: len(seen) >= sum(counts))

    for index, count in enumerate(counts):
        assert [update.value for update in seen if update.topic == f"log/{index}"] == list(range(1, count + 1))
    for session, stream in zip(sessions, streams, strict=True):
        assert session.node == "n2"
        recovery = await anext(session.recoveries())
        assert recovery.outcome == "failed_over"
        last: dict[str, object] = {}
        while last != {f"log/{index}": count for index, count in enumerate(counts)}:
            update = await asyncio.wait_for(anext(stream), scaled(5))
            last[update.topic] = update.value
        await session.close()
    await watcher.close()
    await watching
