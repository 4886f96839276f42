"""Ends of sessions that are ahead of the grid: their clients came back while it was away (P3, P7)."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.catalogue.log_events import SESSION_DISCONNECTED, SESSION_END_PENDING, SESSION_ENDED, SESSION_NOT_ENDED
from gateway.core.policy.revocations import Revocation, RevocationKind
from gateway.core.types import Attempt, SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.ports import GridState
from gateway.ports.administration import CloseResult, NotThere
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P3", "P7")

PATIENCE: Final = 20.0
"""Seconds in which a node must be back after its grid is."""

QUICK: Final[dict[str, Any]] = {"lease": scaled(2.0), "lease_renew": scaled(0.3), "reap_interval": 0.3}


class Cluster(ABC):
    """Two nodes, and a grid that can be taken away from both."""

    n1: TestNode
    n2: TestNode

    @abstractmethod
    async def go_away(self) -> None: ...

    @abstractmethod
    async def come_back(self) -> None: ...

    async def see(self, state: GridState) -> None:
        for node in (self.n1, self.n2):
            await eventually(lambda node=node: node.gateway.node._context.grid.state is state, within=PATIENCE)  # type: ignore[misc]

    async def held(self, session: SessionId) -> bool:
        return await self.n2.gateway.node._context.grid.sessions.find(session) is not None


class OnMemory(Cluster):
    def __init__(self, server: MemoryGridServer) -> None:
        self._server = server

    async def go_away(self) -> None:
        self._server.go_away()

    async def come_back(self) -> None:
        self._server.come_back()


class OnRedis(Cluster):
    def __init__(self, server: RedisServer) -> None:
        self._server = server

    async def go_away(self) -> None:
        self._server.kill()

    async def come_back(self) -> None:
        await self._server.restart()


@asynccontextmanager
async def two_nodes(cluster: Cluster, **settings: Any) -> AsyncIterator[Cluster]:
    async with running_node("n1", **QUICK, **settings) as n1, running_node("n2", **QUICK, **settings) as n2:
        cluster.n1, cluster.n2 = n1, n2
        yield cluster


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    if request.param == "memory":
        server = MemoryGridServer()
        async with two_nodes(OnMemory(server), memory=server) as running:
            yield running
    else:
        async with (
            RedisServer(aof=True) as redis,
            two_nodes(OnRedis(redis), grid=redis.url, grid_prefix=unique_prefix(), grid_timeout=scaled(0.5)) as running,
        ):
            yield running


async def bye(cluster: Cluster, raw: RawClient, _session: SessionId) -> int:
    await raw.send({"type": "bye"})
    code = await raw.closed()
    assert code is not None
    return code


async def closed_by_an_administrator(cluster: Cluster, raw: RawClient, session: SessionId) -> int:
    unreachable = cluster.n1.gateway.node._context.grid.state is GridState.UNREACHABLE
    result = await cluster.n1.gateway.node.administration.sessions.close(session)
    assert result is (CloseResult.PENDING if unreachable else CloseResult.ENDED)
    code = await raw.closed()
    assert code is not None
    return code


async def revoked(cluster: Cluster, raw: RawClient, session: SessionId) -> int:
    made = Revocation(kind=RevocationKind.SESSION, value=session, reason="", made=time.time(), until=None)
    cluster.n1.gateway.node.enforcement.enforce([made])
    code = await raw.closed()
    assert code is not None
    return code


async def window_over(cluster: Cluster, raw: RawClient, session: SessionId) -> int:
    await raw.cut()
    await eventually(lambda: cluster.n1.gateway.node.sessions.get(session) is None)
    return 0


WAYS: Final[dict[str, tuple[Callable[[Cluster, RawClient, SessionId], Awaitable[int]], int, ErrorCode]]] = {
    "bye": (bye, 1000, ErrorCode.SESSION_CLOSED),
    "administrator": (closed_by_an_administrator, 4205, ErrorCode.SESSION_CLOSED),
    "revocation": (revoked, 4206, ErrorCode.REVOKED),
    "window": (window_over, 0, ErrorCode.SESSION_EXPIRED),
}
"""How a session may end, the code that its client is told, and why it is refused from then on."""


@pytest.mark.parametrize("way", WAYS)
async def test_a_session_that_is_ahead_of_the_grid_ends_for_good(cluster: Cluster, way: str) -> None:
    """P7: when it ends, nothing of it is left in the grid, and it cannot be resumed anywhere."""
    end, code, reason = WAYS[way]
    window = 1 if way == "window" else 60
    async with RawClient(cluster.n1.url) as raw:
        opened = await raw.hello("alice", window=window)
        await raw.send({"id": 1, "request": 1, "type": "subscribe", "selector": "a/**"})
        await raw.expect("reply")
    session = SessionId(opened["session"])
    await cluster.go_away()
    await cluster.see(GridState.UNREACHABLE)
    async with RawClient(cluster.n1.url) as back:
        again = await back.resume(opened["token"], attempt=1, received=1, oldest=2)
        assert again["outcome"] == "reattached"
        ending = asyncio.ensure_future(end(cluster, back, session))
        if way == "bye":
            await eventually_asked_to_end(cluster.n1, session)
            assert not ending.done(), "a bye is confirmed when it is true"
        else:
            assert await ending == code
        await cluster.come_back()
        assert await ending == code
    await cluster.see(GridState.UP)
    await eventually(lambda: not cluster.n1.gateway.node.readiness.reasons(), within=PATIENCE)

    await eventually_not_held(cluster, session)
    await eventually(lambda: bool(cluster.n1.log.of(SESSION_ENDED)), within=PATIENCE)
    assert len(cluster.n1.log.of(SESSION_ENDED)) == 1
    for node in (cluster.n1, cluster.n2):
        async with RawClient(node.url) as late:
            refused = await late.resume(again["token"], attempt=2, received=1, oldest=2)
        # In a grid that has just lost writes, what looks expired may be a session that its node has yet to restore.
        assert refused["code"] in {reason.value, *(["try_later"] if way == "window" else [])}


@pytest.mark.parametrize("way", WAYS)
async def test_a_session_stays_ended_in_a_grid_that_has_lost_its_end(way: str) -> None:
    """P7: a replica that is promoted without its tail does not bring a session back whose end was confirmed."""
    end, code, reason = WAYS[way]
    memory = MemoryGridServer()
    async with two_nodes(OnMemory(memory), memory=memory) as cluster:
        async with RawClient(cluster.n2.url) as raw:
            opened = await raw.hello("alice", window=1 if way == "window" else 60)
        session = SessionId(opened["session"])
        # The replica has not heard of the last claim either.
        replica = memory.snapshot()
        async with RawClient(cluster.n1.url) as raw:
            again = await raw.resume(opened["token"], attempt=1)
            assert again["outcome"] == "failed_over"
            assert await end(cluster, raw, session) == code
        await eventually_not_held(cluster, session)
        memory.go_away()
        memory.come_back(snapshot=replica)
        await cluster.see(GridState.UP)
        grid = cluster.n1.gateway.node._context.grid
        await eventually(lambda: grid.generation == 2)
        await eventually_not_held(cluster, session)
        for token, attempt in ((opened["token"], 2), (again["token"], 3)):
            async with RawClient(cluster.n2.url) as late:
                refused = await late.resume(token, attempt=attempt)
            assert refused["type"] == "error"
            assert refused["code"] in {reason.value, "token_superseded", "try_later"}


async def eventually_asked_to_end(node: TestNode, session: SessionId) -> None:
    """Wait until a bye has come and the grid did not take it."""
    held = node.gateway.node.sessions.get(session)
    assert held is not None
    await eventually(lambda: held.ending)


async def test_a_bye_that_the_grid_has_not_taken_is_not_confirmed() -> None:
    """P7: one that was confirmed in an outage of the grid was lost with its node, and the session could be resumed."""
    memory = MemoryGridServer()
    async with running_node("n2", memory=memory, **QUICK) as n2:
        async with running_node("n1", memory=memory, **QUICK) as n1, RawClient(n1.url) as raw:
            opened = await raw.hello("alice", window=60)
            memory.go_away()
            await raw.send({"type": "bye"})
            await eventually_asked_to_end(n1, SessionId(opened["session"]))
            await n1.gateway.close()
            assert await raw.closed() != 1000
        memory.come_back()
        await eventually(lambda: not n2.gateway.node.readiness.reasons(), within=PATIENCE)
        async with RawClient(n2.url) as back:
            welcome = await back.resume(opened["token"], attempt=1)
        assert welcome["outcome"] == "failed_over", "nobody was told that it had ended"


async def test_a_bye_counts_though_its_client_hangs_up_before_the_grid_has_taken_it(cluster: Cluster) -> None:
    async with RawClient(cluster.n1.url) as raw:
        opened = await raw.hello("alice", window=60)
        session = SessionId(opened["session"])
        await cluster.go_away()
        await cluster.see(GridState.UNREACHABLE)
        await raw.send({"type": "bye"})
        await eventually_asked_to_end(cluster.n1, session)
    await cluster.come_back()
    await cluster.see(GridState.UP)
    await eventually_not_held(cluster, session)
    async with RawClient(cluster.n2.url) as late:
        refused = await late.resume(opened["token"], attempt=1)
    assert refused["code"] in {ErrorCode.SESSION_CLOSED.value, "try_later"}


async def eventually_not_held(cluster: Cluster, session: SessionId) -> None:
    for _ in range(400):
        if not await cluster.held(session):
            return
        await cluster.n1.gateway.node._store.until_available()
    raise AssertionError(f"the grid still holds {session}")


async def test_a_pending_end_is_announced_when_the_grid_has_confirmed_it(cluster: Cluster) -> None:
    """Once, and not before: until then nobody may take the session for one of which nothing is left."""
    async with RawClient(cluster.n1.url) as raw:
        opened = await raw.hello("alice", window=60)
        session = SessionId(opened["session"])
        await cluster.go_away()
        await cluster.see(GridState.UNREACHABLE)
        sessions = cluster.n1.gateway.node.administration.sessions
        assert await sessions.close(session) is CloseResult.PENDING
        assert await raw.closed() == 4205
        assert await sessions.close(session) is CloseResult.PENDING, "asked again, the answer is the same"
    log = cluster.n1.log
    assert log.of(SESSION_END_PENDING) == [{"session": session}]
    assert log.of(SESSION_DISCONNECTED) == [{"session": session, "code": 4205}]
    assert log.of(SESSION_ENDED) == []

    await cluster.come_back()
    await cluster.see(GridState.UP)
    await eventually(lambda: bool(log.of(SESSION_ENDED)), within=PATIENCE)

    assert not await cluster.held(session)
    assert not cluster.n1.gateway.node.sessions.is_end_pending(session)
    with pytest.raises(NotThere):
        await sessions.close(session)
    assert log.of(SESSION_ENDED) == [{"session": session, "reason": "closed"}]


async def test_a_session_that_another_node_has_taken_in_before_its_end_is_not_called_ended() -> None:
    """One node alone has lost the grid; the client goes to the other one, as nothing keeps it from."""
    memory = MemoryGridServer()
    async with two_nodes(OnMemory(memory), memory=memory) as cluster:
        async with RawClient(cluster.n1.url) as raw:
            opened = await raw.hello("alice", window=60)
            session = SessionId(opened["session"])
            grid = cluster.n1.gateway.node._context.grid
            assert isinstance(grid, MemoryGrid)
            grid.cut()
            assert await cluster.n1.gateway.node.administration.sessions.close(session) is CloseResult.PENDING
            assert await raw.closed() == 4205
        async with RawClient(cluster.n2.url) as back:
            assert (await back.resume(opened["token"], attempt=1))["outcome"] == "failed_over"
            grid.mend()
            await eventually(lambda: bool(cluster.n1.log.of(SESSION_NOT_ENDED)), within=PATIENCE)
            assert cluster.n1.log.of(SESSION_NOT_ENDED) == [{"session": session}]
            assert cluster.n1.log.of(SESSION_ENDED) == []
            assert await cluster.held(session)
            assert not cluster.n1.gateway.node.sessions.is_end_pending(session)
            await back.send({"type": "ping"})
            await back.expect("pong")


async def test_a_session_ends_though_this_very_node_claims_it_meanwhile(cluster: Cluster) -> None:
    """A refusal for a claim of its own is no other owner's word."""
    async with RawClient(cluster.n1.url) as raw:
        opened = await raw.hello("alice", window=60)
        held = cluster.n1.gateway.node.sessions.get(SessionId(opened["session"]))
        assert held is not None
        grid = cluster.n1.gateway.node._context.grid
        # As a claim whose answer has come just before that to the end.
        claimed: Any = await grid.sessions.claim(
            held.id,
            by=held.owner,
            token_generation=held.token_generation,
            attempt=Attempt(held.attempt + 1),
            now=time.time(),
        )
        store: Any = cluster.n1.gateway.node._store
        end = store._grid.sessions.end

        async def end_and_take_over(ownership: Any, **how: Any) -> None:
            held.take_over(claimed.record, stored_under=store.writes_under)
            await end(ownership, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store._grid.sessions, "end", end_and_take_over)
            await raw.send({"type": "bye"})
            assert await raw.closed() == 1000
    assert not await cluster.held(held.id)
