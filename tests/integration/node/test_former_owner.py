"""A node whose sessions are claimed elsewhere lets go of them: it is told, and if that is lost it asks (P3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.registry import stale_sessions
from gateway.catalogue.log_events import SESSION_FENCED
from gateway.core.types import NodeRef, SessionId
from gateway.core.wire.codes import FENCED, ErrorCode
from gateway.ports import GridUnavailable, Ownership
from tests.support.faults import eventually as in_time
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.promise("P3")


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[TestNode, TestNode]]:
    """Run two nodes that have just started: neither renews its lease, by which it would see the other, in this test."""
    settings: dict[str, Any] = {"memory": MemoryGridServer(), "lease": 300, "lease_renew": 100}
    async with running_node("n1", **settings) as n1, running_node("n2", **settings) as n2:
        yield n1, n2


@pytest.fixture
def asks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale_sessions, "FIRST_LOOK", 0.2)
    monkeypatch.setattr(stale_sessions, "PACE", 0.05)


def sessions_at(node: TestNode) -> list[str]:
    return [session.id for session in node.gateway.node.sessions]


async def tell_nobody(to: NodeRef, *ownerships: Ownership) -> None:
    """Be a message that is lost."""


async def test_a_node_that_has_just_started_tells_the_former_owner() -> None:
    async with two_nodes() as (n1, n2), RawClient(n1.url) as here, RawClient(n2.url) as there:
        welcome = await here.hello()
        assert (await there.resume(welcome["token"], attempt=1))["outcome"] == "failed_over"
        assert await here.closed() == FENCED.code
        assert not sessions_at(n1)


async def test_a_former_owner_is_told_also_by_a_node_that_held_an_old_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_nodes() as (n1, n2), RawClient(n1.url) as here, RawClient(n2.url) as there:
        monkeypatch.setattr(n2.gateway.node._context.grid.nodes, "tell_claimed", tell_nobody)
        welcome = await here.hello()
        again = await there.resume(welcome["token"], attempt=1)
        assert sessions_at(n1) == sessions_at(n2) == [welcome["session"]]
        async with RawClient(n1.url) as back:
            assert (await back.resume(again["token"], attempt=2))["outcome"] == "failed_over"
            assert await there.closed() == FENCED.code
        assert not sessions_at(n2)


async def test_a_former_owner_is_told_when_the_grid_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_nodes() as (n1, n2), RawClient(n1.url) as here, RawClient(n2.url) as there:
        nodes = n2.gateway.node._context.grid.nodes
        tell, told = nodes.tell_claimed, list[NodeRef]()

        async def tell_in_the_end(to: NodeRef, *ownerships: Ownership) -> None:
            told.append(to)
            if len(told) < 3:
                raise GridUnavailable("away for a moment")
            await tell(to, *ownerships)

        monkeypatch.setattr(nodes, "tell_claimed", tell_in_the_end)
        welcome = await here.hello()
        await there.resume(welcome["token"], attempt=1)
        assert await here.closed() == FENCED.code
        assert told == [n1.gateway.me] * 3


@asynccontextmanager
async def disconnected(n1: TestNode) -> AsyncIterator[dict[str, Any]]:
    """Open a session at *n1*, cut its connection, and yield its welcome when its window runs in the grid, too."""
    store = n1.gateway.node._context.grid.sessions
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello("alice", window=300)

    async def window_runs() -> bool:
        record = await store.find(SessionId(welcome["session"]))
        return record is not None and not record.connected

    await in_time(window_runs, "the window runs in the grid")
    yield welcome


@pytest.mark.usefixtures("asks_soon")
async def test_a_node_that_was_not_told_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_nodes() as (n1, n2), disconnected(n1) as welcome, RawClient(n2.url) as there:
        monkeypatch.setattr(n2.gateway.node._context.grid.nodes, "tell_claimed", tell_nobody)
        await there.resume(welcome["token"], attempt=1)
        await eventually(lambda: not sessions_at(n1))
        assert n1.log.of(SESSION_FENCED) == [{"session": welcome["session"]}]
        assert sessions_at(n2) == [welcome["session"]]


@pytest.mark.usefixtures("asks_soon")
async def test_a_node_lets_go_of_what_has_ended_elsewhere() -> None:
    async with two_nodes() as (n1, n2), disconnected(n1) as welcome:
        grid = n2.gateway.node._context.grid
        record = await grid.sessions.find(SessionId(welcome["session"]))
        assert record is not None
        await grid.sessions.end(Ownership(record.id, record.owner, record.epoch), reason=ErrorCode.SESSION_CLOSED)
        await eventually(lambda: not sessions_at(n1))
        assert not n1.log.of(SESSION_FENCED)


@pytest.mark.usefixtures("asks_soon")
async def test_a_session_that_nobody_claimed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_nodes() as (n1, _), disconnected(n1) as welcome:
        store = n1.gateway.node._context.grid.sessions
        confirm, answers = store.confirm, list[bool]()

        async def confirm_seen(proofs: Any) -> list[bool]:
            found = await confirm(proofs)
            answers.extend(found)
            return found

        monkeypatch.setattr(store, "confirm", confirm_seen)
        await eventually(lambda: bool(answers))
        assert all(answers)
        async with RawClient(n1.url) as back:
            assert (await back.resume(welcome["token"], attempt=1))["outcome"] == "reattached"
            assert not n1.gateway.node.sessions.stale_sessions._since
            assert not len(n1.gateway.node.sessions.stale_sessions._looks)
