"""Sessions of a dead node whose lease the grid has lost, while it kept the sessions (P7).

On a Redis Cluster the leases are on one master and sessions on all of them: one that is promoted without its tail may
have lost a lease that no other master could know of.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.catalogue import log_events as events
from gateway.core.types import NodeRef, SessionId
from gateway.ports import LeaseLost, LeaseTable
from tests.support.nodes import SHORT_LEASE, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P7")

QUICK = {**SHORT_LEASE, "reap_interval": scaled(0.2)}


async def test_the_sessions_of_a_dead_node_whose_lease_is_lost_are_taken_over() -> None:
    memory = MemoryGridServer()
    async with running_node("n2", memory=memory, **QUICK) as n2:
        async with running_node("n1", memory=memory, **QUICK) as n1, RawClient(n1.url) as raw:
            session = SessionId((await raw.hello(window=scaled(2.0)))["session"])
            me = n1.gateway.me
            replica = memory.snapshot()
            replica.leases.leave(me, 0.0)
            # Both at once: the node is dead before the grid is back.
            n1.gateway.node._context.grid.cut()  # type: ignore[attr-defined]
            memory.go_away()
        memory.come_back(snapshot=replica)
        await eventually(lambda: bool(n2.log.of(events.TAKEOVER_FINISHED)))
        assert n2.log.of(events.NODES_WITHOUT_LEASE) == [{"nodes": str(me)}]
        assert n2.log.of(events.TAKEOVER_FINISHED) == [{"expired": str(me), "sessions": 1}]
        await eventually(lambda: bool(n2.log.of(events.SESSION_ENDED)))
        assert n2.log.of(events.SESSION_ENDED) == [{"session": session, "reason": "expired"}]


async def test_a_living_node_whose_lease_is_lost_keeps_its_sessions() -> None:
    memory = MemoryGridServer()
    async with (
        running_node("n2", memory=memory, **QUICK) as n2,
        running_node("n1", memory=memory, **QUICK) as n1,
        RawClient(n1.url) as raw,
    ):
        session = SessionId((await raw.hello())["session"])
        replica = memory.snapshot()
        replica.leases.leave(n1.gateway.me, 0.0)
        memory.go_away()
        memory.come_back(snapshot=replica)
        nodes = n2.gateway.node._context.grid
        await eventually(lambda: n1.gateway.me in n2.gateway.node.cluster.alive and nodes.generation == 2)
        await raw.send({"id": 1, "request": 1, "type": "properties", "set": {"still": "here"}})
        await raw.expect("reply")
        record = await nodes.sessions.find(session)
        assert record is not None
        assert record.connected
        assert not n2.log.of(events.LEASE_EXPIRED)


async def test_what_is_written_while_a_lease_is_taken_is_written_again_under_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It bears the term of the lease before, and whoever takes that over would put the session on the clock."""
    async with running_node("n1", **QUICK) as n1, RawClient(n1.url) as raw:
        await raw.hello()
        node = n1.gateway.node
        nodes, store = node._context.grid.nodes, node._grid_recovery._store
        (session,) = node.sessions
        renew, join, expired = nodes.renew, nodes.join, [True]

        async def renew_once_too_late(me: NodeRef, **how: Any) -> LeaseTable:
            if expired:
                expired.clear()
                raise LeaseLost("the process stood still")
            return await renew(me, **how)

        async def join_while_a_session_is_used(me: NodeRef, **how: Any) -> None:
            await store.write_again([session])
            await join(me, **how)

        monkeypatch.setattr(nodes, "renew", renew_once_too_late)
        monkeypatch.setattr(nodes, "join", join_while_a_session_is_used)
        # On a busy machine a lease as short as this may lapse once more, after which it has to be written once more.
        await eventually(lambda: session.restores > 1 and not store.must_restore(session))
