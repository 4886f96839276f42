"""Whole nodes inside the test process, over an in-memory grid or a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from gateway.adapters.memory import MemoryEventLog, MemoryGridServer
from gateway.bootstrap import Gateway
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import Limits, QueueLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.wire.codec import SUBPROTOCOL
from gateway.settings import AnonymousUsers, HostPort, Secret, Settings
from tests.support.times import PATIENCE, scaled, time_limit

KEY = Secret("a-key-for-tests-that-is-long-enough")

QUICK: dict[str, Any] = {
    "auth": AnonymousUsers(),
    "token_keys": (KEY,),
    "listen": HostPort("127.0.0.1", 0),
    "admin": HostPort("127.0.0.1", 0),
    "rate_packets": 0.0,
    "rate_bytes": 0.0,
    "drain_jitter": 0.05,
    "grid_timeout": scaled(2.0),
}
"""Settings of test nodes: free ports, a fixed key, no rate limit, and the usual time for an answer of Redis."""

SHORT_LEASE: dict[str, Any] = {"lease": scaled(1.0), "lease_renew": scaled(0.2)}
"""Settings of nodes that a test lets expire: short, and yet long enough that nobody else does."""

FREQUENT_RENEWALS: dict[str, Any] = {"lease": scaled(30.0), "lease_renew": SHORT_LEASE["lease_renew"]}
"""Settings of nodes that hear of each other soon, and whose leases never end in a test, however busy the machine is."""


class TestNode:
    """A running node and what it told."""

    __test__ = False

    def __init__(self, gateway: Gateway, log: MemoryEventLog) -> None:
        self.gateway = gateway
        self.log = log

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}/v1/connect"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.gateway.admin_port}"


@asynccontextmanager
async def running_node(
    name: str = "n1", *, memory: MemoryGridServer | None = None, **settings: Any
) -> AsyncIterator[TestNode]:
    """Run a node until the end of the block, then stop it hard."""
    log = MemoryEventLog()
    if memory is None and "grid" not in settings:
        memory = MemoryGridServer()
    gateway = Gateway(Settings(node=name, **(QUICK | settings)), log=log, memory=memory)
    await gateway.start()
    try:
        await eventually(lambda: not gateway.node.readiness.reasons())
        yield TestNode(gateway, log)
    finally:
        await gateway.close()


UPGRADE: dict[str, str] = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": SUBPROTOCOL,
}
"""Headers of a request that opens a WebSocket."""


async def rejected(node: TestNode, address: str = "192.0.2.1", query: str = "") -> tuple[int, str, str]:
    """Ask for a WebSocket, be refused, and return the status, when to come again, and the sentence."""
    headers = UPGRADE | {"X-Forwarded-For": address}
    async with aiohttp.ClientSession() as http, http.get(node.url + query, headers=headers) as answer:
        return answer.status, answer.headers.get("Retry-After", ""), await answer.text()


async def declare(selector: str, limits: Limits, *nodes: TestNode) -> None:
    """Say at the first node what the paths of a selector are, and wait until all of them know it."""
    described = Destination(selector=parse_selector(selector), limits=limits, origin=Origin.ADMINISTRATOR)
    name = (await nodes[0].gateway.node.destinations.set(described)).name
    tables = [each.gateway.node.destinations.table for each in nodes]
    await eventually(lambda: all(table.named(name) is not None for table in tables))


async def declare_queues(node: TestNode, *queues: str) -> None:
    """Declare queues without limits of their own, and wait until the node knows them."""
    for queue in queues:
        await declare(queue, QueueLimits(), node)


async def eventually(condition: Callable[[], bool], *, within: float = PATIENCE) -> None:
    """Wait until *condition* holds.

    Args:
        condition: looked at again and again.
        within: seconds on a quiet machine.

    Raises:
        TimeoutError: it did not in time.
    """
    async with time_limit(within):
        while not condition():  # noqa: ASYNC110 - a condition may be anything
            await asyncio.sleep(0.005)
