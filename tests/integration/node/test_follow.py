"""Clients that follow the master: at it a bounded time after any change, and served meanwhile (protocol 15.4, P19)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.client import Session, connect
from gateway.local.proxy import FaultProxy
from gateway.ports import MasterWish
from tests.integration.node.test_topology import advertise, own_url
from tests.support.linked_nodes import LinkedNodes
from tests.support.masters import cluster_with_master, master_of
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import RawClient
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P19")

FOLLOWS: dict[str, Any] = {"follow": True}


@asynccontextmanager
async def cluster(*names: str) -> AsyncIterator[list[TestNode]]:
    """Run nodes that advertise themselves; the first is the master, and all know where it is."""
    async with cluster_with_master(*names) as nodes:
        for node in nodes:
            advertise(node, own_url(node))
        await eventually(
            lambda: all(len(node.gateway.node._cluster_list._lists[False].nodes) == len(names) for node in nodes)
        )
        yield nodes


def is_at(session: Session, node: str) -> bool:
    return session.node == node and session.state.value == "connected"


async def test_another_node_names_the_master_and_where_it_is() -> None:
    async with cluster("n1", "n2") as [n1, n2], RawClient(n2.url) as raw:
        await raw.send({"type": "hello", "principal": "alice", **FOLLOWS})
        error = await raw.expect("error")
        assert (error["code"], error["node"], error["urls"]) == ("not_master", "n1", [own_url(n1)])
        assert await raw.closed() == 4007


async def test_who_comes_by_tls_is_not_sent_to_clear_text() -> None:
    async with cluster("n1", "n2") as [_, n2], RawClient(n2.url, headers={"X-Forwarded-Proto": "https"}) as raw:
        await raw.send({"type": "hello", "principal": "alice", **FOLLOWS})
        error = await raw.expect("error")
        assert error["node"] == "n1"
        assert "urls" not in error


async def test_the_master_serves_and_says_so_and_others_are_not_asked() -> None:
    async with cluster("n1", "n2") as [n1, n2]:
        async with RawClient(n1.url) as raw:
            assert (await raw.hello(**FOLLOWS))["following"] is True
        for fields in ({}, {"follow": False}, {"follow": "yes"}, {"supports": ["follow"]}):
            async with RawClient(n2.url) as raw:
                assert "following" not in await raw.hello(**fields), "by default nobody follows"


async def test_after_three_redirects_a_client_is_served_where_it_comes() -> None:
    async with cluster("n1", "n2") as [_, n2]:
        for redirects in (1, 2):
            async with RawClient(n2.url) as raw:
                await raw.send({"type": "hello", "principal": "alice", "redirects": redirects, **FOLLOWS})
                await raw.expect("error")
        async with RawClient(n2.url) as raw:
            assert (await raw.hello(redirects=3, **FOLLOWS))["following"] is False


async def test_a_client_that_follows_finds_the_master_from_any_node() -> None:
    async with cluster("n1", "n2", "n3") as [_, _, n3], connect(n3.url, follow_master=True) as session:
        assert (session.node, session.following) == ("n1", True)


async def test_who_comes_just_after_a_change_and_was_refused_before_it_is_sent_to_the_new_master_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its redirects named the former master, so that it is served; the node knew of the change when it came."""
    monkeypatch.setattr("gateway.app.cluster.followers.LOOK_AGAIN", 3600.0)
    async with cluster("n1", "n2", "n3") as nodes:
        nodes[0].gateway.node.begin_drain()
        await eventually(lambda: all(master_of(each) in {"n2", "n3"} for each in nodes[1:]))
        (other,) = [each for each in nodes[1:] if each.gateway.me.node != master_of(each)]
        async with RawClient(other.url) as raw:
            assert (await raw.hello(redirects=3, **FOLLOWS))["following"] is False
            assert (await raw.expect("go-away"))["node"] == master_of(other)


async def test_nobody_is_sent_to_a_master_without_a_link_unless_it_keeps_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who was sent to one that has died would come back, and miss updates."""
    monkeypatch.setattr("gateway.app.cluster.followers.LOOK_AGAIN", 0.2)
    nodes = LinkedNodes(monkeypatch)
    async with nodes.run("n1", "n2", lease=scaled(1.0), lease_renew=scaled(0.1)) as [n1, n2]:
        await eventually(lambda: master_of(n1) == master_of(n2) is not None)
        master, other = (n1, n2) if master_of(n1) == "n1" else (n2, n1)
        nodes.network.cut(n1.gateway.me, n2.gateway.me)
        async with RawClient(other.url) as raw:
            assert (await raw.hello(**FOLLOWS))["following"] is False
            assert (await raw.expect("go-away"))["node"] == master.gateway.me.node


@pytest.mark.parametrize(("said", "node"), [("true", "n1"), ("on", "n1"), ("false", "n2"), ("", "n2")])
async def test_the_environment_says_so_where_the_application_does_not(
    monkeypatch: pytest.MonkeyPatch, said: str, node: str
) -> None:
    monkeypatch.setenv("GATEWAY_FOLLOW_MASTER", said)
    async with cluster("n1", "n2") as [_, n2]:
        async with connect(n2.url) as session:
            assert session.node == node
        async with connect(n2.url, follow_master=False) as session:
            assert session.node == "n2"


async def test_clients_are_handed_over_when_the_master_changes_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = LinkedNodes(monkeypatch)
    async with nodes.run("n1", "n2") as [n1, n2]:
        for node in (n1, n2):
            advertise(node, own_url(node))
        await eventually(lambda: master_of(n1) == master_of(n2) is not None)
        master, other = (n1, n2) if master_of(n1) == "n1" else (n2, n1)
        new = other.gateway.me.node
        await eventually(lambda: len(master.gateway.node._cluster_list._lists[False].nodes) == 2)
        async with (
            connect(master.url, "alice", follow_master=True) as follower,
            connect(master.url, "bob") as bob,
            connect(other.url, "carol") as carol,
        ):
            stream = await follower.subscribe("t")
            for number in range(20):
                await carol.publish("t", number)
                if number == 5:
                    # It gives the role up, and keeps its clients.
                    monkeypatch.setattr(master.gateway.node.readiness, "master_wish", lambda: MasterWish.YIELD)
                    master.gateway.node._membership.renew_soon()
            await eventually(lambda: is_at(follower, new))
            recovery = await anext(aiter(follower.recoveries()))
            assert recovery.outcome == "handed_over"
            assert follower.following is True
            assert [(await anext(stream)).value for _ in range(20)] == list(range(20)), "no update was missed"
            assert bob.node == master.gateway.me.node
            assert is_at(carol, new)


async def test_who_cannot_reach_the_master_is_served_and_is_at_the_next_one() -> None:
    async with cluster("n1", "n2") as [n1, n2], FaultProxy("127.0.0.1", n1.gateway.port) as proxy:
        advertise(n1, f"ws://127.0.0.1:{proxy.port}")
        await eventually(lambda: str(proxy.port) in str(n2.gateway.node._cluster_list._lists[False]))
        proxy.refuse()
        async with connect(n2.url, follow_master=True) as session:
            assert (session.node, session.following) == ("n2", False)
            n1.gateway.node.begin_drain()
            await eventually(lambda: master_of(n2) == "n2")
            # It may just have been sent to the former master once more, and is on its way back.
            await eventually(lambda: is_at(session, "n2"))
