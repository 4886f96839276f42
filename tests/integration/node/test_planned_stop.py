"""A grid that is replaced, emptied or away in the last moment before a planned stop costs no session (P7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.adapters.redis import grid_connection
from gateway.app.cluster import departure
from gateway.catalogue import log_events as events
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import Packet, RawClient
from tests.support.redis_sentinel import MASTER, RedisSentinels
from tests.support.redis_server import HOST, RedisServer, unique_prefix

pytestmark = pytest.mark.promise("P7")

Lose = Callable[[], Awaitable[None]]


async def absent(node: TestNode) -> Packet:
    """Open a session with a property, lose its connection, and return its welcome."""
    async with RawClient(node.url) as client:
        welcome = await client.hello()
        await client.send({"type": "properties", "id": 1, "request": 1, "set": {"desk": "7"}})
        await client.expect("reply")
    sessions = node.gateway.node.sessions
    await eventually(lambda: len(sessions) == 1 and all(each.on_clock for each in sessions))
    return welcome


async def stop(node: TestNode, lose: Lose, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop as planned; the grid is lost when the clients have been moved, and before the node leaves."""
    drain = node.gateway.node._planned_stop._drain
    run = drain.run

    async def run_and_lose() -> bool:
        known = await run()
        await lose()
        return known

    monkeypatch.setattr(drain, "run", run_and_lose)
    await node.gateway.drain()
    await node.gateway.close()


async def goes_on(node: TestNode, welcome: Packet) -> None:
    """The client resumes on another node, and its session is whole."""
    async with RawClient(node.url) as back:
        again = await back.resume(welcome["token"], attempt=1, received=1, oldest=2)
        assert (again["type"], again["session"]) == ("welcome", welcome["session"]), again
        (session,) = node.gateway.node.clients()
        assert session.properties["desk"] == "7"


def ended(node: TestNode) -> dict[str, Any]:
    """Tell what the log says of how it ended, without how long that took."""
    (said,) = node.log.of(events.STOP_CONFIRMED)
    return {name: value for name, value in said.items() if name != "seconds"}


@asynccontextmanager
async def one_of_two(**settings: Any) -> AsyncIterator[tuple[TestNode, TestNode, Packet]]:
    """Two nodes, the first of which holds a session whose client is away."""
    async with running_node("n1", **settings) as n1, running_node("n2", **settings) as n2:
        yield n1, n2, await absent(n1)


async def test_a_grid_that_is_as_it_was_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing() -> None:
        pass

    async with one_of_two(memory=MemoryGridServer()) as (n1, n2, welcome):
        await stop(n1, nothing, monkeypatch)
        assert ended(n1) == {"sessions": 1, "written_again": False}
        assert not n1.log.of(events.GRID_RESTORED)
        await goes_on(n2, welcome)


async def test_a_grid_that_comes_back_older_during_a_planned_stop_costs_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = MemoryGridServer()
    older = memory.snapshot()

    async def lose() -> None:
        memory.go_away()
        asyncio.get_running_loop().call_later(0.3, lambda: memory.come_back(snapshot=older))

    async with one_of_two(memory=memory) as (n1, n2, welcome):
        await stop(n1, lose, monkeypatch)
        assert ended(n1) == {"sessions": 1, "written_again": True}
        await goes_on(n2, welcome)


async def test_a_grid_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node leaves as if it had died, so that others take over what the grid holds of it."""
    monkeypatch.setattr(departure, "LEAST_TIME", 0.5)
    memory = MemoryGridServer()

    async def lose() -> None:
        memory.go_away()

    async with one_of_two(memory=memory, drain_timeout=0.5, drain_jitter=0.0) as (n1, n2, welcome):
        await stop(n1, lose, monkeypatch)
        (said,) = n1.log.of(events.STOP_UNCONFIRMED)
        assert said["sessions"] == 1
        assert "grid" in str(said["error"])
        assert not n1.log.of(events.STOP_CONFIRMED)
        memory.come_back()
        await eventually(lambda: not n2.gateway.node.readiness.reasons())
        await goes_on(n2, welcome)


async def test_whoever_stops_waiting_for_the_grid_does_not_have_the_node_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a second signal: its lease stays in the grid, so that the others notice and take over."""
    asked = asyncio.Event()

    async def silent() -> None:
        asked.set()
        await asyncio.Event().wait()

    async with one_of_two(memory=MemoryGridServer()) as (n1, n2, welcome):
        monkeypatch.setattr(n1.gateway.node._context.grid, "verify", silent)
        stopping = asyncio.create_task(n1.gateway.drain())
        await asked.wait()
        stopping.cancel()
        await asyncio.wait([stopping])
        await n1.gateway.close()
        leases = await n2.gateway.node._context.grid.nodes.renew(n2.gateway.node.me, lease=30.0, watch=0.0)
        assert n1.gateway.node.me in leases.alive
        await goes_on(n2, welcome)


async def test_a_node_without_sessions_does_not_wait_for_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryGridServer()

    async def lose() -> None:
        memory.go_away()

    async with running_node(memory=memory) as node:
        await stop(node, lose, monkeypatch)
        assert not node.log.of(events.STOP_CONFIRMED)
        assert not node.log.of(events.STOP_UNCONFIRMED)


@pytest.mark.redis
async def test_a_redis_emptied_just_before_a_planned_stop_costs_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RedisServer() as redis:

        async def lose() -> None:
            await redis.call("FLUSHALL")

        async with one_of_two(grid=redis.url, grid_prefix=unique_prefix()) as (n1, n2, welcome):
            await stop(n1, lose, monkeypatch)
            assert ended(n1) == {"sessions": 1, "written_again": True}
            await goes_on(n2, welcome)


@pytest.mark.redis
async def test_a_master_replaced_by_an_older_replica_just_before_a_planned_stop_costs_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old master answers as before, and nobody has told the node that it is not the master any more."""
    monkeypatch.setattr(grid_connection, "LOOK_INTERVAL", 3600.0)
    with RedisSentinels(sentinels=1) as servers:
        settings: dict[str, Any] = {"grid": servers.url, "grid_prefix": unique_prefix()}
        async with running_node("n1", **settings) as n1:
            _, replica = servers.redis
            await replica.call("REPLICAOF", "NO", "ONE")
            welcome = await absent(n1)

            async def lose() -> None:
                sentinel = servers.sentinels[0]
                await sentinel.call("SENTINEL", "REMOVE", MASTER)
                await sentinel.call("SENTINEL", "MONITOR", MASTER, HOST, replica.port, 1)

            await stop(n1, lose, monkeypatch)
            assert ended(n1) == {"sessions": 1, "written_again": True}
            async with running_node("n2", **settings) as n2:
                await goes_on(n2, welcome)
