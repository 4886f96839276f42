"""P3 where timing decides: the later attempt of a client wins, whatever the node of an earlier one has missed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.adapters.redis import RedisGrid
from gateway.catalogue.log_events import GRID_RESTORED, LEASE_LOST, SESSION_ENDED, SESSION_FENCED, TAKEOVER_FINISHED
from gateway.catalogue.metric import Metric
from gateway.catalogue.metrics import FENCED_WRITES
from gateway.core.types import NodeRef
from gateway.core.wire.codes import FENCED, SESSION_CLOSED, STALE_ATTEMPT, ErrorCode
from gateway.ports import GridState, GridUnavailable, LeaseTable, Ownership, SessionChanges
from tests.support.nodes import SHORT_LEASE, TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P3")


def sessions_at(node: TestNode) -> list[str]:
    return [session.id for session in node.gateway.node.sessions]


async def test_a_node_that_was_cut_off_takes_no_session_back() -> None:
    """While it was alone it served the client again and again; then the client went elsewhere."""
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory) as n1, running_node("n2", memory=memory) as n2:
        async with RawClient(n1.url) as raw:
            welcome = await raw.hello()
        session, token = welcome["session"], welcome["token"]
        grid = n1.gateway.node._context.grid
        assert isinstance(grid, MemoryGrid)
        grid.cut()
        for attempt in (1, 2, 3):
            async with RawClient(n1.url) as raw:
                again = await raw.resume(token, attempt=attempt)
                assert again["outcome"] == "reattached"
                token = again["token"]
        async with RawClient(n2.url) as elsewhere:
            assert (await elsewhere.resume(token, attempt=4))["outcome"] == "failed_over"
            assert sessions_at(n1) == sessions_at(n2) == [session]

            grid.mend()
            await eventually(lambda: not sessions_at(n1))
            assert n1.log.of(SESSION_FENCED) == [{"session": session}]
            await elsewhere.send({"id": 1, "request": 1, "type": "publish", "topic": "a/x", "value": 1})
            assert "error" not in await elsewhere.expect("reply")
            assert sessions_at(n2) == [session]


async def test_a_request_that_meets_the_end_of_its_session_does_not_hide_that_end(
    n1: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ending takes several steps: while they go on, the grid refuses all else. The client is told of the end still."""
    async with RawClient(n1.url) as raw:
        held = n1.gateway.node.sessions.get((await raw.hello())["session"])
        assert held is not None
        store = n1.gateway.node._context.grid.sessions
        end, change = store.end, store.change
        refused = asyncio.Event()

        async def end_slowly(ownership: Ownership, **how: Any) -> None:
            await end(ownership, **how)
            await raw.send({"id": 1, "request": 1, "type": "subscribe", "selector": "a/x"})
            await refused.wait()
            await asyncio.sleep(0)

        async def noting(ownership: Ownership, changes: SessionChanges) -> None:
            try:
                await change(ownership, changes)
            finally:
                refused.set()

        monkeypatch.setattr(store, "end", end_slowly)
        monkeypatch.setattr(store, "change", noting)
        await n1.gateway.node.sessions.end(held, ErrorCode.SESSION_CLOSED, SESSION_CLOSED)

        assert (await raw.expect("bye"))["reason"] == "closed"
        assert await raw.closed() == SESSION_CLOSED.code
        assert n1.log.of(SESSION_ENDED) == [{"session": held.id, "reason": "closed"}]
        assert n1.log.of(SESSION_FENCED) == []


async def test_each_way_back_gives_a_session_another_ownership(n1: TestNode) -> None:
    """With the grid and without it: so a refusal of what was written before never speaks of the client of now."""
    grid = n1.gateway.node._context.grid
    assert isinstance(grid, MemoryGrid)
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello()
    held = n1.gateway.node.sessions.get(welcome["session"])
    assert held is not None
    token, seen = welcome["token"], [held.ownership]
    for attempt, way in enumerate(("grid", "cut", "mended", "gap"), start=1):
        match way:
            case "cut":
                grid.cut()
            case "mended":
                grid.mend()
                await eventually(lambda: grid.state is GridState.UP)
            case "gap":
                held.machine.give_up()
        async with RawClient(n1.url) as back:
            token = (await back.resume(token, attempt=attempt))["token"]
            seen.append(held.ownership)
    assert [each.epoch for each in seen] == sorted({each.epoch for each in seen})


async def test_a_publish_that_is_refused_counts_as_a_fenced_write(n1: TestNode, n2: TestNode) -> None:
    """The client went elsewhere and published there; its old connection has heard of nothing."""
    counted: list[Metric] = []
    store = n1.gateway.node._store
    forward = store._metrics.add

    def add(metric: Metric, amount: float = 1, *, label: str = "") -> None:
        counted.append(metric)
        forward(metric, amount, label=label)

    async def tell_nobody(to: NodeRef, *claims: Ownership) -> None:
        """The word of the claim is lost."""

    request = {"id": 1, "request": 1, "type": "publish", "topic": "a/x", "value": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(n2.gateway.node._context.grid.nodes, "tell_claimed", tell_nobody)
        async with RawClient(n1.url) as old, RawClient(n2.url) as new:
            welcome = await old.hello()
            await old.send(request)
            await old.expect("reply")
            await new.resume(welcome["token"], attempt=1)
            await new.send({**request, "request": 2})
            assert "error" not in await new.expect("reply")
            patch.setattr(store._metrics, "add", add)
            await old.send({**request, "id": 2, "request": 2})
            assert await old.closed() == FENCED.code
    assert counted.count(FENCED_WRITES) == 1
    assert n1.log.of(SESSION_FENCED) == [{"session": welcome["session"]}]


@pytest.mark.redis
async def test_a_late_resume_waits_until_the_node_knows_its_lease_and_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A suspended node wakes up with the gate of its lease shut: that is no reason to serve without the grid."""

    async def in_vain(to: NodeRef, ownership: Ownership) -> None:
        """Do not tell the former owner, which sleeps."""

    settings: dict[str, Any] = {"grid_prefix": unique_prefix(), "lease_renew": scaled(0.3)}
    async with RedisServer() as redis:
        settings["grid"] = redis.url
        async with running_node("n1", **settings) as n1, running_node("n2", **settings) as n2:
            monkeypatch.setattr(n2.gateway.node._context.grid.nodes, "tell_claimed", in_vain)
            async with RawClient(n1.url) as raw:
                welcome = await raw.hello()
                async with RawClient(n2.url) as elsewhere:
                    again = await elsewhere.resume(welcome["token"], attempt=3)
                    assert again["outcome"] == "failed_over"
                    shut_the_gate(n1)
                    for attempt in (1, 2):
                        async with RawClient(n1.url) as late:
                            refused = await late.resume(welcome["token"], attempt=attempt)
                            assert (refused["type"], refused.get("code")) == ("error", "stale_attempt")
                            assert await late.closed() == STALE_ATTEMPT.code
                    await elsewhere.send({"id": 1, "request": 1, "type": "publish", "topic": "a/x", "value": 1})
                    assert "error" not in await elsewhere.expect("reply")


def shut_the_gate(node: TestNode) -> None:
    """As it is when a node wakes up: the grid is there, and the lease may have expired."""
    grid = node.gateway.node._context.grid
    assert isinstance(grid, RedisGrid)
    grid._nodes._write_gate.lose()
    assert grid.state is GridState.UP


@pytest.mark.redis
async def test_a_lease_is_kept_while_sessions_are_verified() -> None:
    """Writing many sessions again takes longer than a lease: were it not renewed meanwhile, it would expire again."""
    sessions = 30
    settings: dict[str, Any] = {"grid_prefix": unique_prefix(), "restore_rate": 10} | SHORT_LEASE
    async with RedisServer() as redis, AsyncExitStack() as clients:
        node = await clients.enter_async_context(running_node("n1", grid=redis.url, **settings))
        for _ in range(sessions):
            raw = await clients.enter_async_context(RawClient(node.url))
            await raw.hello()
        nodes, me = node.gateway.node._context.grid.nodes, node.gateway.me
        await nodes.leave(me)
        await eventually(lambda: bool(node.log.of(GRID_RESTORED)), within=10)

        assert node.log.of(GRID_RESTORED) == [{"sessions": sessions, "fenced": 0, "values": 0}]
        assert me in (await nodes.renew(me, lease=SHORT_LEASE["lease"])).alive
        assert node.log.of(LEASE_LOST) == [{"node": str(me)}]


@pytest.mark.promise("P7")
@pytest.mark.redis
async def test_a_node_whose_lease_expired_while_the_grid_was_unreachable_verifies_its_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others have put them on the clock; left there, they would end while their clients are connected (P7)."""
    settings: dict[str, Any] = {"grid_prefix": unique_prefix()} | SHORT_LEASE
    async with RedisServer() as redis:
        settings["grid"] = redis.url
        async with running_node("n1", **settings) as n1, running_node("n2", **settings) as n2, RawClient(n1.url) as raw:
            session = (await raw.hello())["session"]
            grid = n1.gateway.node._context.grid
            assert isinstance(grid, RedisGrid)

            async def asleep(node: NodeRef, *, lease: float) -> LeaseTable:
                raise GridUnavailable("the node sleeps")

            async def connected() -> bool:
                record = await n2.gateway.node._context.grid.sessions.find(session)
                return record is not None and record.connected

            with monkeypatch.context() as sleep:
                sleep.setattr(grid.nodes, "renew", asleep)
                await eventually(lambda: bool(n2.log.of(TAKEOVER_FINISHED)))
                assert not await connected()
            grid._connection.suspect("its connection broke while it slept")
            async with time_limit(5):
                while not await connected():  # noqa: ASYNC110 - Redis tells nobody
                    await asyncio.sleep(0.01)
            assert n1.log.of(LEASE_LOST) == [{"node": str(n1.gateway.me)}]
