"""A node that is started before its Redis: one start, one adoption for each Redis, and it hears everything (P10)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryEventLog
from gateway.bootstrap import Gateway
from gateway.catalogue import log_events as events
from gateway.settings import Settings
from tests.support.nodes import QUICK, TestNode, eventually
from tests.support.raw_client import RawClient
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.times import scaled

pytestmark = [pytest.mark.redis, pytest.mark.promise("P10")]

AWAY: Final = 1.5
"""Seconds for which Redis is unreachable at the start: the node tries again and again meanwhile."""

PATIENCE: Final = 20.0
"""Seconds in which a node must be back after Redis is."""

UPDATES: Final = 24


async def test_a_node_started_before_its_redis_adopts_once_and_stays_in_step() -> None:
    async with RedisServer(aof=True) as redis:
        settings: dict[str, Any] = {"grid": redis.url, "grid_prefix": unique_prefix(), "grid_timeout": scaled(0.5)}
        settings |= {"lease": scaled(2.0), "lease_renew": scaled(0.5)}
        redis.kill()
        log = MemoryEventLog()
        gateway = Gateway(Settings(node="n1", **(QUICK | settings)), log=log)
        await gateway.start()
        node = TestNode(gateway, log)
        grid: Any = gateway.node._context.grid
        try:
            # It is time itself that has to pass: the node must have tried a number of times.
            await asyncio.sleep(scaled(AWAY))
            await redis.restart()
            await eventually(lambda: not gateway.node.readiness.reasons(), within=PATIENCE)
            assert grid._connection.attachment == 1
            assert log.of(events.LEASE_LOST) == []

            async with RawClient(node.url) as raw:
                await raw.hello("alice")
                await raw.send({"id": 1, "request": 1, "type": "subscribe", "selector": "a/**"})
                await raw.expect("reply")
                redis.kill()
                await eventually(lambda: bool(gateway.node.readiness.reasons()), within=PATIENCE)
                await redis.restart()
                await eventually(lambda: not gateway.node.readiness.reasons(), within=PATIENCE)
                # Values are read again, once; what is published before they are may come in the place of all before.
                await raw.expect("notice", where=lambda notice: notice["code"] == "values_reread", within=PATIENCE)
                replicas = gateway.node.sessions.delivery.replicas
                await eventually(lambda: all(each.reader is None for each in replicas), within=PATIENCE)
                for number in range(UPDATES):
                    await publish(raw, number)
                while (UPDATES - 1) not in values_of(raw):
                    await raw.receive(within=PATIENCE)
            assert values_of(raw) == list(range(UPDATES))
            assert grid._connection.attachment == 2
            assert len(log.of(events.GRID_BACK)) == 2
        finally:
            await gateway.close()


async def publish(raw: RawClient, number: int) -> None:
    """Publish a value, and wait until it is acknowledged."""
    request = number + 2
    await raw.send({"id": request, "request": request, "type": "publish", "topic": "a/x", "value": number})
    reply = await raw.expect("reply", where=lambda reply: reply["request"] == request, within=PATIENCE)
    assert "error" not in reply


def values_of(raw: RawClient) -> list[int]:
    """List the values of the updates that came, in their order."""
    return [packet["value"] for packet in raw.seen if packet["type"] == "update"]
