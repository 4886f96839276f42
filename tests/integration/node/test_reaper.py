"""Sessions whose windows end together end step by step: others get their turns at the grid in between (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.cluster import membership
from gateway.app.runtime.partition_turns import each_in_turn
from gateway.core.topics.topics import session_partition
from gateway.core.types import Epoch, NodeRef, SessionId, TopicPath
from gateway.core.wire.codec.will_packets import write_wills
from gateway.core.wire.will_packets import WILLS_PROPERTY, EndKind, Will
from gateway.ports import Ended, GridRefused, GridUnavailable, LastWills, ReceiptsLeft, SessionRecord
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


@pytest.mark.promise("P7", "P20")
async def test_what_one_partition_refuses_keeps_no_other_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session waits in the first one for its will to be published; all others end, and queues go on."""
    monkeypatch.setattr(membership, "UNDECLARED_LOOK", 0.0)
    async with running_node(reap_interval=3600) as node:
        inside = node.gateway.node
        grid = inside._context.grid
        in_first = [each for each in map(SessionId, map(str, range(1000))) if session_partition(each) == 0][:2]
        in_second = next(each for each in map(SessionId, map(str, range(1000))) if session_partition(each) == 1)
        refused, *others = (*in_first, in_second)
        for each in (refused, *others):
            await grid.sessions.create(expired_record(each, inside.me, has_wills=each == refused))

        async def unavailable(_: Sequence[LastWills]) -> Mapping[SessionId, Sequence[ReceiptsLeft]]:
            raise GridUnavailable("the will cannot be published now")

        asked: list[int] = []

        async def fire(partition: int) -> int:
            asked.append(partition)
            if partition == 0:
                raise GridRefused("a slot stays half moved")
            if partition == 1:
                raise ValueError("foreign data")
            return 0

        inside._store.execute_wills = unavailable
        monkeypatch.setattr(grid.queues, "fire", fire)
        monkeypatch.setattr(inside._membership, "_parameters", replace(inside._context.parameters, reap=0.0))
        async with time_limit(20):
            with pytest.raises(ValueError, match="foreign data"):
                await inside._membership.reap()

        for each in others:
            assert await grid.sessions.find(each) is None
        assert asked == list(range(64))


@pytest.mark.promise("P10")
async def test_a_grid_that_is_away_is_asked_once_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryGridServer()
    asked: list[int] = []

    async def step(partition: int) -> None:
        asked.append(partition)
        await grid.queues.fire(partition)

    async with running_node(memory=memory, reap_interval=3600) as node:
        grid = node.gateway.node._context.grid
        memory.go_away()
        with pytest.raises(GridUnavailable):
            await each_in_turn(grid, range(6), step)
        assert asked == [0]


def expired_record(session: SessionId, owner: NodeRef, *, has_wills: bool) -> SessionRecord:
    will = write_wills((Will(TopicPath("status/alice"), b"1", when=(EndKind.EXPIRED,)),)).decode()
    return SessionRecord(
        id=session,
        principal="alice",
        properties={WILLS_PROPERTY: will} if has_wills else {},
        selections=(),
        window=0.0,
        epoch=Epoch(1),
        owner=owner,
        connected=False,
    )


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


@pytest.mark.promise("P15", "P20")
async def test_what_is_due_in_queues_is_gone_on_with_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: of thousands of messages that had expired, some hundred became dead letters at each look of the reaper."""
    monkeypatch.setattr(membership, "FIRE_TURNS", 4)
    due, asked = {3: 2, 5: 1_000}, []

    async def fire(partition: int) -> int:
        asked.append(partition)
        due[partition] = max(0, due.get(partition, 0) - 1)
        return int(due[partition] > 0)

    async with running_node(reap_interval=3600) as node:
        monkeypatch.setattr(node.gateway.node._context.grid.queues, "fire", fire)
        await node.gateway.node._membership._fire_queues(range(6))
    assert asked == [*range(6), 3, 5, 5, 5], "and sessions have their turn when there is no end of it"
