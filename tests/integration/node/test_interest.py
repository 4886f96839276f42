"""The interest of a cluster: what its sessions select, while it has links (003-09, 003-10); else nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.zones import durable_interest
from gateway.client import connect
from gateway.core.types import NodeRef
from gateway.core.zones.records import Member, Zone, ZoneUid, zone_key
from gateway.ports import DurableName, DurableStore
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import scaled

NORTH = Zone(uid=ZoneUid("z1"), name="north", key=zone_key(b"a secret of the zone"), made=1.0)


def texts(told: Mapping[NodeRef, AbstractSet[object]]) -> dict[str, set[str]]:
    return {node.node: {each.text for each in selectors} for node, selectors in told.items()}  # type: ignore[attr-defined]


def interest(node: TestNode) -> dict[str, set[str]]:
    """Tell what a node knows of the interest of all nodes."""
    return texts(node.gateway.node.zones.knowledge.interest)


async def enter(node: TestNode) -> None:
    """Have the cluster join a zone."""
    knowledge = node.gateway.node.zones.knowledge
    await knowledge.loaded()
    grid = node.gateway.node._context.grid
    await grid.zones.enter(NORTH, Member(zone=NORTH.uid, cluster=knowledge.cluster), made=2.0)
    await eventually(lambda: knowledge.is_linked)


async def test_interest_begins_with_the_first_subscriber_and_ends_with_the_last() -> None:
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory) as n1, running_node("n2", memory=memory) as n2:
        async with connect(n1.url, "alice") as alice, connect(n2.url, "bob") as bob:
            _all = await alice.subscribe("prices/**")
            _one = await bob.subscribe("prices/ACME")
            assert memory.data.zones.interest() == {}, "without a zone nobody is told anything"
            await enter(n1)
            await eventually(lambda: interest(n2) == {"n1": {"prices/**"}, "n2": {"prices/ACME"}})
            _news = await alice.subscribe("news/*")
            await eventually(lambda: interest(n2)["n1"] == {"prices/**", "news/*"})
            await alice.unsubscribe("news/*")
            await eventually(lambda: interest(n1)["n1"] == {"prices/**"})
        await eventually(lambda: interest(n1) == {})  # both have ended their sessions


async def test_a_session_whose_window_runs_is_owed_what_it_selects() -> None:
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory) as n1:
        await enter(n1)
        async with RawClient(n1.url) as raw:
            await raw.hello()
            await raw.send({"type": "subscribe", "id": 1, "request": 1, "selector": "prices/**"})
            await raw.expect("reply")
            await eventually(lambda: interest(n1) == {"n1": {"prices/**"}})
        sessions = n1.gateway.node.sessions
        await eventually(lambda: len(sessions) == 1 and not sessions.connected())
        await eventually(lambda: n1.gateway.node.zones.interest.is_quiet)
        assert interest(n1) == {"n1": {"prices/**"}}


@pytest.mark.promise("P11")
async def test_nothing_is_written_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory) as n1, connect(n1.url, "alice") as alice:
        await enter(n1)
        _all = await alice.subscribe("prices/**")
        await eventually(lambda: interest(n1) == {"n1": {"prices/**"}})
        zones = n1.gateway.node._context.grid.zones
        written: list[object] = []

        async def note(*arguments: object, **_: object) -> None:
            written.append(arguments)

        monkeypatch.setattr(zones, "put_interest", note)
        monkeypatch.setattr(zones, "change_interest", note)
        async with connect(n1.url, "bob") as bob:
            _one = await bob.subscribe("prices/ACME")  # which is covered
            await eventually(lambda: n1.gateway.node.zones.interest.is_quiet)
            _other = await bob.subscribe("prices/**")
            await eventually(lambda: n1.gateway.node.zones.interest.is_quiet)
        assert written == []


@pytest.mark.promise("P10")
async def test_a_grid_that_was_emptied_gets_zones_and_interest_back() -> None:
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory) as n1, connect(n1.url, "alice") as alice:
        await enter(n1)
        _all = await alice.subscribe("prices/**")
        await eventually(lambda: interest(n1) == {"n1": {"prices/**"}})
        cluster = n1.gateway.node.zones.knowledge.cluster
        memory.go_away()
        memory.come_back(emptied=True)
        await eventually(lambda: memory.data.zones.table().zone == NORTH)
        await eventually(lambda: texts(memory.data.zones.interest()) == {"n1": {"prices/**"}})
        assert n1.gateway.node.zones.knowledge.cluster == cluster, "it is the same cluster"
        assert [each.cluster for each in memory.data.zones.table().members_of(NORTH.uid)] == [cluster]


async def test_leaving_the_zone_ends_interest() -> None:
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory) as n1, connect(n1.url, "alice") as alice:
        await enter(n1)
        _all = await alice.subscribe("prices/**")
        await eventually(lambda: interest(n1) == {"n1": {"prices/**"}})
        await n1.gateway.node._context.grid.zones.leave(n1.gateway.node.zones.knowledge.cluster, made=3.0)
        await eventually(lambda: memory.data.zones.interest() == {})
        await enter(n1)
        await eventually(lambda: interest(n1) == {"n1": {"prices/**"}})


async def test_durable_subscriptions_are_owed_what_they_select_while_nobody_uses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durable_interest, "READ_SECONDS", 0.05)
    monkeypatch.setattr(durable_interest, "HELD_SECONDS", scaled(0.5))
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory) as n1, running_node("n2", memory=memory) as n2:
        async with connect(n1.url, "alice") as alice:
            await (await alice.subscribe_durable("before", "log/**")).close()
        await enter(n1)
        await eventually(lambda: set().union(*interest(n2).values()) == {"log/**"})
        await eventually(lambda: len(interest(n2)) == 1)  # the master alone tells what it has read
        (teller,) = interest(n2)
        assert n1.gateway.node.zones.interest.durables.selectors | n2.gateway.node.zones.interest.durables.selectors
        async with connect(n1.url, "alice") as alice:
            await (await alice.subscribe_durable("after", "events/*")).close()
        await eventually(lambda: set().union(*interest(n2).values()) == {"log/**", "events/*"})
        await eventually(lambda: interest(n2)[teller] == {"log/**", "events/*"})
        assert await memory_durables(n1).remove(DurableName("alice", "before"))
        await eventually(lambda: set().union(*interest(n2).values()) == {"events/*"})


def memory_durables(node: TestNode) -> DurableStore:
    return node.gateway.node._context.grid.durables
