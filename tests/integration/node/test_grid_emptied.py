"""FLUSHALL under whole nodes with open connections: no living session is lost, each loss is made good once (P10).

On one Redis, on a master with Sentinels, and on all masters of a cluster or one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import pytest

from gateway.catalogue import log_events as events
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from gateway.ports import GridState
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisSentinels
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.seeds import seeded
from tests.support.times import scaled, time_limit

pytestmark = [pytest.mark.redis, pytest.mark.promise("P10")]

on_every_grid = pytest.mark.parametrize(
    "kind", ["single", pytest.param("sentinel", marks=pytest.mark.thorough), "cluster"]
)

PATIENCE: Final = 30.0
"""Seconds in which everything must be in the grid again after the last loss."""

SESSIONS: Final = 36
"""Sessions with a client; as many again are opened, closed and moved while the grid is emptied."""

FLUSHES: Final = 12
"""Times the grid is emptied."""


class Redis:
    """Two nodes on the masters of one grid."""

    def __init__(self, masters: Sequence[RedisServer], nodes: tuple[TestNode, TestNode]) -> None:
        self.masters, self.nodes = masters, nodes

    async def flush(self, master: RedisServer | None = None) -> None:
        """Empty one master, or all of them at the same time."""
        await asyncio.gather(*(each.call("FLUSHALL") for each in ([master] if master else self.masters)))

    async def settled(self) -> None:
        """Wait until both nodes have adopted the same grid, and it holds all that they serve."""

        def is_settled() -> bool:
            grids = [node.gateway.node._context.grid for node in self.nodes]
            return (
                len({grid.generation for grid in grids}) == 1
                and all(grid.state is GridState.UP for grid in grids)
                and not any(
                    node.gateway.node._store.must_restore(session)
                    for node in self.nodes
                    for session in node.gateway.node.sessions
                )
            )

        await eventually(is_settled, within=PATIENCE)


@contextmanager
def servers(kind: str) -> Iterator[tuple[str, Sequence[RedisServer]]]:
    """Start a grid; gives its URL and its masters."""
    if kind == "single":
        with RedisServer() as server:
            yield server.url, [server]
    elif kind == "sentinel":
        with RedisSentinels() as sentinels:
            yield sentinels.url, [sentinels.master()]
    else:
        with RedisCluster() as cluster:
            yield cluster.url, cluster.masters()


@asynccontextmanager
async def running(kind: str) -> AsyncIterator[Redis]:
    with servers(kind) as (url, masters):
        settings: dict[str, Any] = {"grid": url, "grid_prefix": unique_prefix(), "window_default": 60}
        settings |= {"lease": scaled(3.0), "lease_renew": scaled(0.3), "reap_interval": scaled(0.3)}
        async with running_node("n1", **settings) as n1, running_node("n2", **settings) as n2:
            yield Redis(masters, (n1, n2))


class Client:
    """A client that asks for one thing after the other, and asks again for what was refused as retryable."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.raw = RawClient("")
        self.sent = 0
        self.asked = 0
        self.welcome: dict[str, Any] = {}

    async def open(self, node: TestNode) -> None:
        while True:
            await self.raw.cut()
            self.raw = RawClient(node.url)
            await self.raw.connect()
            await self.raw.send({"type": "hello", "principal": self.name})
            self.welcome = await self.raw.receive(within=PATIENCE)
            if self.welcome["type"] == "welcome":
                self.sent = 0
                return
            assert self.welcome["code"] == "grid_unavailable", self.welcome

    async def ask(self, kind: str, **fields: Any) -> None:
        while True:
            self.sent += 1
            number = self.sent
            await self.raw.send({"id": number, "request": number, "type": kind, **fields})
            reply = await self._answer_to(number)
            if "error" not in reply:
                self.asked += 1
                return
            assert reply["error"]["code"] == "grid_unavailable", reply
            await self.raw.send({"type": "ack", "received": reply["id"]})
            await asyncio.sleep(reply["error"]["retry_after"])

    async def _answer_to(self, number: int) -> dict[str, Any]:
        return await self.raw.expect("reply", within=PATIENCE, where=lambda reply: reply["request"] == number)

    async def bye(self) -> None:
        await self.raw.send({"type": "bye"})
        assert await self.raw.closed(within=PATIENCE) == 1000
        await self.raw.cut()


@on_every_grid
async def test_an_emptied_grid_costs_no_living_session(kind: str) -> None:
    chance = seeded("emptied")
    async with running(kind) as redis:
        clients = [Client(f"client-{number}") for number in range(SESSIONS)]
        await asyncio.gather(*(each.open(redis.nodes[place % 2]) for place, each in enumerate(clients)))
        over = asyncio.Event()

        async def write(client: Client) -> None:
            while not over.is_set():
                await client.ask("properties", set={"n": str(client.asked)})
                await client.ask("publish", topic=f"a/{client.name}", value=client.asked)

        async def come_and_go(number: int) -> None:
            while not over.is_set():
                client = Client(f"passer-{number}")
                await client.open(redis.nodes[chance.randrange(2)])
                await client.ask("subscribe", selector="b/*")
                await client.bye()

        async def flush() -> None:
            for _ in range(FLUSHES):
                # At every moment: soon after another loss, in the middle of what it takes to make it good, and later.
                await asyncio.sleep(chance.choice([0.01, 0.05, 0.2, 0.8]))
                # Of a cluster, now all of it and now a part: the nodes' leases, or only some sessions and topics.
                await redis.flush(chance.choice([None, *redis.masters]))
            await redis.settled()
            over.set()

        async with time_limit(4 * PATIENCE):
            await asyncio.gather(
                *(write(each) for each in clients), *(come_and_go(number) for number in range(6)), flush()
            )
        assert not any(node.log.of(events.SESSION_FENCED) for node in redis.nodes)
        await redis.settled()
        grid = redis.nodes[0].gateway.node._context.grid
        for client in clients:
            stored = await grid.sessions.find(client.welcome["session"])
            assert stored is not None
            assert stored.connected
            assert stored.properties["n"] == str(client.asked - 2)
            await client.bye()


@on_every_grid
async def test_each_loss_is_made_good_once(kind: str) -> None:
    """The restore pass runs once for each loss, and no node takes the loss of its lease with it for an expiry.

    Of a cluster one master is emptied: several are not at the same moment, and may be several losses.
    """
    async with running(kind) as redis:
        clients = [Client(f"client-{number}") for number in range(SESSIONS)]
        await asyncio.gather(*(each.open(redis.nodes[place % 2]) for place, each in enumerate(clients)))
        await redis.flush(redis.masters[0])
        for node in redis.nodes:
            await eventually(lambda node=node: len(node.log.of(events.GRID_RESTORED)) == 1, within=PATIENCE)  # type: ignore[misc]
        await redis.settled()
        # Two renewals later nobody has found anything else to write.
        tables = [node.gateway.node.cluster.table for node in redis.nodes]
        for _ in range(2):
            for place, node in enumerate(redis.nodes):
                await eventually(
                    lambda node=node, place=place: node.gateway.node.cluster.table is not tables[place],  # type: ignore[misc]
                    within=PATIENCE,
                )
                tables[place] = node.gateway.node.cluster.table
        for node in redis.nodes:
            assert [each["sessions"] for each in node.log.of(events.GRID_RESTORED)] == [SESSIONS // 2]
            assert node.log.of(events.LEASE_LOST) == []
        for client in clients:
            await client.bye()


@on_every_grid
async def test_one_notice_tells_of_all_values_that_are_read_again(kind: str) -> None:
    """5.8: one notice for each event, which names the partitions that the session selects from."""
    topics = [f"{root}/x" for root in "abcdefgh"]
    concerned = sorted({topic_partition(TopicPath(topic), 1) for topic in topics})
    async with running(kind) as redis:
        client, other = Client("client"), Client("other")
        for each in (client, other):
            await each.open(redis.nodes[0])
        for topic in topics:
            await client.ask("subscribe", selector=topic)
        await other.ask("subscribe", selector="a/*")
        await redis.flush(redis.masters[0])
        await client.ask("publish", topic="a/x", value="after")
        for each in (client, other):
            while not any(packet.get("value") == "after" for packet in each.raw.seen):
                await each.raw.receive(within=PATIENCE)
            heard = [packet for packet in each.raw.seen if packet["type"] in {"notice", "update"}]
            (reread,) = [packet for packet in heard if packet.get("code") == "values_reread"]
            expected = concerned if each is client else [topic_partition(TopicPath("a/x"), 1)]
            assert reread["partitions"] == expected
            assert heard.index(reread) < min(place for place, packet in enumerate(heard) if packet["type"] == "update")
            await each.bye()
