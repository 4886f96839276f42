"""What is to be done for all sessions at the same moment is done for some in a turn of the loop (P20)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.app.cluster import grid_recovery, session_mover
from gateway.app.registry import sessions as registry
from gateway.app.registry.disconnected import SESSION_BYTES
from gateway.app.session.session import Session
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient

MANY = 12
AT_ONCE = 5


class Turns:
    """Counts the turns of the loop, and what is called in each."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn = 0
        self.calls: Counter[int] = Counter()
        self._next = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._turn += 1
        self._next = self._loop.call_soon(self._tick)

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            self.calls[self._turn] += 1
            return call(*arguments, **named)

        return wrapped

    def close(self) -> None:
        self._next.cancel()


@pytest.fixture
async def turns() -> AsyncIterator[Turns]:
    counting = Turns()
    yield counting
    counting.close()


@pytest.fixture
async def crowd() -> AsyncIterator[tuple[TestNode, list[Session], AsyncExitStack]]:
    """A node with many sessions, whose clients leave when the stack is closed."""
    async with running_node() as node, AsyncExitStack() as clients:
        held = []
        for _ in range(MANY):
            client = await clients.enter_async_context(RawClient(node.url))
            session = node.gateway.node.sessions.get((await client.hello())["session"])
            assert session is not None
            held.append(session)
        yield node, held, clients


Crowd = tuple[TestNode, list[Session], AsyncExitStack]


async def test_deadlines_that_have_all_come_are_seen_to_for_some_at_a_time(
    crowd: Crowd, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pause of the process, the pings of all sessions are due."""
    node, held, _ = crowd
    sessions = node.gateway.node.sessions
    monkeypatch.setattr(registry, "TICKED_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(sessions, "_tick", turns.counted(sessions._tick))
    for session in held:
        sessions._deadlines.schedule(session, 0.0)
    sessions._arm()
    await eventually(lambda: turns.calls.total() >= MANY)
    assert max(turns.calls.values()) == AT_ONCE
    assert all(session.connected for session in held)


async def test_that_all_clients_have_gone_is_told_to_the_grid_for_some_at_a_time(
    crowd: Crowd, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load balancer that restarts takes all connections with it."""
    node, held, clients = crowd
    sessions = node.gateway.node.sessions
    monkeypatch.setattr(registry, "GONE_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(sessions, "_save_disconnect", turns.counted(sessions._save_disconnect))
    await clients.aclose()
    await eventually(lambda: all(session.on_clock for session in held))
    assert turns.calls.total() == MANY
    assert max(turns.calls.values()) <= AT_ONCE


async def test_whether_sessions_have_to_be_written_again_is_asked_of_some_at_a_time(
    crowd: Crowd, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked of all with each renewal of the lease; and of those that were written, not again for each batch."""
    node, held, _ = crowd
    recovery = node.gateway.node._grid_recovery
    monkeypatch.setattr(grid_recovery, "LOOKED_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(grid_recovery, "RESTORE_BATCH", 2)
    monkeypatch.setattr(recovery._store, "must_restore", turns.counted(recovery._store.must_restore))
    await recovery.catch_up()
    assert turns.calls.total() >= MANY
    assert max(turns.calls.values()) == AT_ONCE
    turns.calls.clear()
    for session in held:
        session.unsaved = True
    await recovery.catch_up()
    await eventually(lambda: not any(session.unsaved for session in held))
    # Besides, it is asked of those that are about to be written, and by whoever writes them.
    assert max(turns.calls.values()) <= AT_ONCE + 2 * 2


async def test_who_has_not_left_when_a_drain_is_over_is_closed_some_at_a_time(
    crowd: Crowd, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, held, _ = crowd
    moves = node.gateway.node._moves
    monkeypatch.setattr(session_mover, "CLOSED_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(moves, "_hang_up", turns.counted(moves._hang_up))
    await moves.hang_up(held)
    assert turns.calls.total() == MANY
    assert max(turns.calls.values()) == AT_ONCE
    assert not any(session.connected for session in held)


async def test_of_many_principals_above_their_bounds_each_has_its_own_turn_and_its_own_sessions_looked_at(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many may be above them as there are sessions: to look through all of these for each would not end."""
    async with running_node(limit_principal_disconnected_bytes=3 * SESSION_BYTES) as node:
        absences = node.gateway.node.sessions.absences
        looked_at: list[list[str]] = []
        give_up = absences._give_up_buffers

        def noted(account: Any, away: Any, *rest: Any) -> Any:
            looked_at.append([session.principal for session, _ in away])
            return give_up(account, away, *rest)

        monkeypatch.setattr(absences, "_give_up_buffers", turns.counted(noted))
        async with AsyncExitStack() as clients:
            for number in range(4 * MANY):
                client = await clients.enter_async_context(RawClient(node.url))
                await client.hello(f"p{number % MANY}")
        await eventually(lambda: len({each[0] for each in looked_at}) == MANY)
        assert all(len(set(each)) == 1 for each in looked_at)
        assert max(turns.calls.values()) == 1
