"""The cluster mode replication: the master alone serves clients, administrators are served everywhere (C3)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import aiohttp
import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import connect
from gateway.core.wire.codes import ClusterMode
from gateway.ports import MasterWish
from tests.support.masters import EXPIRING, cluster_with_master, master_of
from tests.support.nodes import UPGRADE, TestNode, eventually, running_node
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.promise("P19")

ALONE: dict[str, Any] = {"cluster_mode": ClusterMode.REPLICATION}


def cluster(*names: str) -> AbstractAsyncContextManager[list[TestNode]]:
    """Run nodes of which the first is the master, and serves alone."""
    return cluster_with_master(*names, **ALONE)


async def answered(node: TestNode) -> tuple[int, str | None, str | None]:
    async with aiohttp.ClientSession() as http, http.get(node.url, headers=UPGRADE) as answer:
        return answer.status, answer.headers.get("Retry-After"), answer.headers.get("X-Gateway-Master")


async def test_a_node_that_is_not_the_master_refuses_clients_and_names_it() -> None:
    async with cluster("n1", "n2") as [n1, n2]:
        assert await answered(n2) == (503, "1", "n1")
        async with RawClient(n1.url) as raw:
            await raw.hello()
        assert not n2.gateway.node.readiness.reasons(), "it is ready to take the role"
        assert not n2.gateway._takes_clients(), "and tells HAProxy a weight of zero"
        assert n1.gateway._takes_clients()


async def test_following_is_ignored() -> None:
    async with cluster("n1", "n2") as [n1, n2]:
        async with RawClient(n1.url) as raw:
            assert (await raw.hello(follow=True))["following"] is True
        async with connect([n2.url, n1.url], follow_master=True, connect_timeout=30) as session:
            assert session.node == "n1"


async def test_a_client_tries_its_urls_until_one_accepts_and_moves_with_the_role() -> None:
    async with (
        cluster("n1", "n2", "n3") as [n1, n2, n3],
        connect([n3.url, n2.url, n1.url], connect_timeout=30) as session,
    ):
        assert session.node == "n1"
        n1.gateway.node.begin_drain()
        recovery = await anext(aiter(session.recoveries()))
        assert recovery.node in {"n2", "n3"}
        assert recovery.node == master_of(n2) == master_of(n3)


async def test_a_master_that_dies_leaves_its_clients_to_the_next() -> None:
    memory, short = MemoryGridServer(), EXPIRING | ALONE
    async with running_node("n2", memory=memory, **short) as n2:
        n2.gateway.node.begin_drain()
        async with AsyncExitStack() as stack:
            n1 = await stack.enter_async_context(running_node("n1", memory=memory, **short))
            await eventually(lambda: master_of(n1) == "n1")
            await n2.gateway.node.undrain()
            await eventually(lambda: master_of(n2) == "n1")
            async with connect([n1.url, n2.url], connect_timeout=30) as session:
                await stack.aclose()
                recovery = await anext(aiter(session.recoveries()))
                assert recovery.node == "n2"


async def test_without_a_master_nobody_is_taken_and_who_is_connected_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster("n1") as [n1], RawClient(n1.url) as raw:
        await raw.hello()
        monkeypatch.setattr(n1.gateway.node.readiness, "master_wish", lambda: MasterWish.YIELD)
        await eventually(lambda: master_of(n1) is None)
        assert await answered(n1) == (503, "1", None)
        await raw.send({"type": "ping"})
        await raw.expect("pong")


async def test_administrators_are_served_everywhere() -> None:
    async with cluster("n1", "n2") as [_, n2]:
        async with aiohttp.ClientSession() as http, http.get(f"{n2.admin}/readyz") as answer:
            assert answer.status == 200
        views = await n2.gateway.node.administration.nodes.list()
        assert [view.node for view in views if view.master] == ["n1"]
