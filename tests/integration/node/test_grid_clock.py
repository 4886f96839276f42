"""The clock of Redis is set while a client is away: its session waits for as long as was promised (P7)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gateway.catalogue import log_events as events
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.redis_clock import ClockedRedis
from tests.support.redis_server import unique_prefix
from tests.support.times import scaled

pytestmark = [pytest.mark.redis, pytest.mark.promise("P7")]

PATIENCE: Final = 20.0
"""Seconds in which every node must have found out, and reaped what it thinks is over."""


@pytest.mark.parametrize("step", [90, -90])
async def test_a_client_that_is_away_while_the_clock_is_set_finds_its_session(step: int) -> None:
    async with ClockedRedis() as redis:
        settings: dict[str, Any] = {"grid": redis.url, "grid_prefix": unique_prefix()}
        settings |= {"lease": scaled(3.0), "lease_renew": scaled(0.3), "reap_interval": 0.1}
        async with running_node("n1", **settings) as n1, running_node("n2", **settings) as n2:
            async with RawClient(n1.url) as raw:
                opened = await raw.hello("alice", window=60)
            grid = n2.gateway.node._context.grid

            await eventually(lambda: n1.gateway.node.sessions.connected() == 0)
            held = n1.gateway.node.sessions.get(opened["session"])
            assert held is not None
            await n1.gateway.node._store.disconnect(held)
            redis.set_clock(step)
            for node in (n1, n2):
                await renewed(node)
                await renewed(node)
            stored = await grid.sessions.find(held.id)
            assert stored is not None
            assert not stored.connected
            async with RawClient(n2.url) as back:
                assert (await back.resume(opened["token"], attempt=1))["outcome"] == "failed_over"
            told = [node.log.of(events.GRID_CLOCK_STEPPED) for node in (n1, n2)]
            assert sum(map(len, told)) == 1
            for node in (n1, n2):
                assert node.log.of(events.LEASE_LOST) == []
                assert node.log.of(events.LEASE_EXPIRED) == []


async def renewed(node: TestNode) -> None:
    """Wait for the next renewal of a node's lease."""
    before = node.gateway.node.cluster.table
    await eventually(lambda: node.gateway.node.cluster.table is not before, within=PATIENCE)
