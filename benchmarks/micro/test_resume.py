"""What a node spends on a client that comes, and on one that comes back, on each rung of the ladder there is.

Two whole nodes share a grid in memory and connections have no sockets, so what is measured is the application: the
first packet, the token, the claim, the session's state, the welcome. The client's part is a JSON text that is read.
"""

# ruff: noqa: D102, D103, S101 - names tell what is measured; results are checked as in tests

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

import orjson
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from gateway.adapters.memory import LoopbackConnection, MemoryEventLog, MemoryGridServer
from gateway.bootstrap import Gateway
from gateway.settings import AnonymousUsers, HostPort, Secret, Settings

T = TypeVar("T")

CLIENTS: Final = 20
"""In a round, one after the other: a round is long beside what the loop does now and then."""
ROUNDS: Final = 40
SELECTOR: Final = "prices/**"
WHOLE: Final = {"received": 1, "oldest": 2}
"""A client that has received the reply to its one request: nothing is missing in either direction."""
NOTHING_KEPT: Final = {"received": 0, "oldest": 2**53 - 1}
"""A client that kept nothing (protocol 5.4.4), so that no buffer reaches."""


class Client:
    """A session and the connection that it has at the moment."""

    def __init__(self) -> None:
        self.connection = LoopbackConnection()
        self.attempt = 0
        self.token = ""

    async def arrive(self, node: Gateway, first: dict[str, Any]) -> dict[str, Any]:
        """Say something on a new connection and read the welcome."""
        self.connection = LoopbackConnection()
        self.connection.send(orjson.dumps(first))
        await node.node.serve(self.connection)
        message = orjson.loads(await self.connection.next_written() or b"")
        welcome: dict[str, Any] = message[0] if isinstance(message, list) else message
        self.token = welcome["token"]
        return welcome

    async def open(self, node: Gateway) -> None:
        assert (await self.arrive(node, {"type": "hello", "principal": "alice"}))["outcome"] == "created"

    async def subscribe(self) -> None:
        request = {"type": "subscribe", "id": 1, "request": 1, "selector": SELECTOR}
        self.connection.send(orjson.dumps(request))
        await self.connection.next_written()

    async def resume(self, node: Gateway, ids: dict[str, int]) -> dict[str, Any]:
        self.attempt += 1
        return await self.arrive(node, {"type": "resume", "token": self.token, "attempt": self.attempt, **ids})


class Cluster:
    """Two nodes and the clients of the first one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        memory = MemoryGridServer()
        self.first, self.second = (self._node(name, memory) for name in ("n1", "n2"))
        self.clients = [Client() for _ in range(CLIENTS)]
        self.run(self._begin())

    @staticmethod
    def _node(name: str, memory: MemoryGridServer) -> Gateway:
        settings = Settings(
            node=name,
            auth=AnonymousUsers(),
            token_keys=(Secret("a-key-for-benchmarks-that-is-long-enough"),),
            listen=HostPort("127.0.0.1", 0),
            admin=HostPort("127.0.0.1", 0),
        )
        return Gateway(settings, log=MemoryEventLog(), memory=memory)

    async def _begin(self) -> None:
        for gateway in (self.first, self.second):
            await gateway.start()
            while gateway.node.readiness.reasons():  # noqa: ASYNC110 - seldom more than once
                await asyncio.sleep(0)
        for client in self.clients:
            await client.open(self.first)
            await client.subscribe()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def open(self) -> None:
        for _ in range(CLIENTS):
            await Client().open(self.first)

    async def come_back(self, node: Gateway, ids: dict[str, int]) -> dict[str, Any]:
        """Every client comes back to *node*; the last welcome."""
        welcome: dict[str, Any] = {}
        for client in self.clients:
            welcome = await client.resume(node, ids)
        return welcome

    def close(self) -> None:
        self.run(self.first.close())
        self.run(self.second.close())
        self.loop.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    running = Cluster()
    yield running
    running.close()


def measure(benchmark: BenchmarkFixture, work: Callable[[], T]) -> T:
    result: T = benchmark.pedantic(work, rounds=ROUNDS, warmup_rounds=2)  # type: ignore[no-untyped-call]
    return result


def test_hello(benchmark: BenchmarkFixture, cluster: Cluster) -> None:
    measure(benchmark, lambda: cluster.run(cluster.open()))


def test_reattach(benchmark: BenchmarkFixture, cluster: Cluster) -> None:
    welcome = measure(benchmark, lambda: cluster.run(cluster.come_back(cluster.first, WHOLE)))
    assert welcome["outcome"] == "reattached"


def test_failover_for_a_gap(benchmark: BenchmarkFixture, cluster: Cluster) -> None:
    welcome = measure(benchmark, lambda: cluster.run(cluster.come_back(cluster.first, NOTHING_KEPT)))
    assert (welcome["outcome"], welcome["reason"]) == ("failed_over", "gap")


def test_failover_from_another_node(benchmark: BenchmarkFixture, cluster: Cluster) -> None:
    nodes = [cluster.first, cluster.second]

    def come_back() -> dict[str, Any]:
        nodes.reverse()
        return cluster.run(cluster.come_back(nodes[0], NOTHING_KEPT))

    welcome = measure(benchmark, come_back)
    assert (welcome["outcome"], welcome["reason"]) == ("failed_over", "other_node")
