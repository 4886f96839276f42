"""Sessions whose windows end together end step by step: others get their turns at the grid in between (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.app.cluster import membership
from gateway.core.types import Epoch, SessionId
from gateway.ports import Ended
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient
from tests.support.times import time_limit

SESSIONS = 40
BATCH = 3


class Counted:
    """Counts how many calls of a function are under way at most, and how many there were.

    Args:
        function: what is called.
    """

    def __init__(self, function: Callable[..., Awaitable[Any]]) -> None:
        self._function = function
        self._under_way = 0
        self.most = self.calls = 0
        self.limits: set[int | None] = set()

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        self.limits.add(named.get("limit"))
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        try:
            await asyncio.sleep(0)  # whoever else is called in this turn is under way as well
            return await self._function(*arguments, **named)
        finally:
            self._under_way -= 1


@pytest.mark.promise("P20")
async def test_sessions_that_end_together_end_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "EXPIRE_BATCH", BATCH)
    monkeypatch.setattr(membership, "UNDECLARED_LOOK", 0.0)  # there may be queues, and they are looked at
    async with running_node(window_default=0.05, reap_interval=0.05) as node:
        grid = node.gateway.node._context.grid
        expire, fire = Counted(grid.sessions.expire), Counted(grid.queues.fire)
        monkeypatch.setattr(grid.sessions, "expire", expire)
        monkeypatch.setattr(grid.queues, "fire", fire)
        for _ in range(SESSIONS):
            async with RawClient(node.url) as client:
                await client.hello()
        async with time_limit(20):
            while node.gateway.node.sessions or not fire.calls:  # noqa: ASYNC110 - it is a node that ends them
                await asyncio.sleep(0.01)
        assert expire.calls
        assert (expire.most, fire.most) == (1, 1)
        assert expire.limits == {BATCH}


async def test_a_partition_with_more_than_a_step_is_gone_on_with_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the pause is between two looks of the reaper."""
    monkeypatch.setattr(membership, "EXPIRE_BATCH", 2)
    due, asked = {3: 5}, []

    async def expire(partition: int, *, limit: int, **_: object) -> list[Ended]:
        count = min(limit, due.get(partition, 0))
        due[partition] = due.get(partition, 0) - count
        asked.append(partition)
        return [Ended(SessionId(f"s{partition}"), node.gateway.me, Epoch(1))] * count

    async with running_node(reap_interval=3600) as node:
        monkeypatch.setattr(node.gateway.node._context.grid.sessions, "expire", expire)
        await node.gateway.node._membership._end_sessions(range(6))
    assert asked == [0, 1, 2, 3, 4, 5, 3, 3]
    assert due[3] == 0
