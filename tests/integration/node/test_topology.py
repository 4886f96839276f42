"""The list of the cluster: who is told of what, when it changes, and what clients make of it (protocol section 15)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import connect
from gateway.core.types import SessionId
from gateway.local.proxy import FaultProxy
from tests.support.masters import EXPIRING, STEADY
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient

WANTED: dict[str, Any] = {"supports": ["topology"]}


def own_url(node: TestNode) -> str:
    return f"ws://127.0.0.1:{node.gateway.port}"


def advertise(node: TestNode, *urls: str) -> None:
    """Say where clients reach a node, whose port is only known now."""
    node.gateway.node.presence.announce(listen="here", admin=node.admin, version="1", urls=urls)


def is_listed(by: TestNode, names: Sequence[str]) -> bool:
    return [each.node for each in by.gateway.node._cluster_list._lists[False].nodes] == list(names)


@asynccontextmanager
async def cluster(*names: str) -> AsyncIterator[tuple[list[TestNode], MemoryGridServer]]:
    """Run nodes that advertise themselves, until each of them knows of all."""
    memory = MemoryGridServer()
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(running_node(name, memory=memory, **STEADY)) for name in names]
        for node in nodes:
            advertise(node, own_url(node))
        await eventually(lambda: all(is_listed(node, names) for node in nodes))
        yield nodes, memory


async def test_the_welcome_lists_all_nodes_to_who_asks() -> None:
    async with cluster("n1", "n2") as ([n1, n2], _), RawClient(n1.url) as raw:
        welcome = await raw.hello(**WANTED)
        assert welcome["cluster"]["nodes"] == [
            {"node": "n1", "urls": [own_url(n1)]},
            {"node": "n2", "urls": [own_url(n2)]},
        ]


async def test_clients_that_do_not_ask_see_nothing_new() -> None:
    async with cluster("n1", "n2") as ([n1, n2], _), RawClient(n1.url) as raw, RawClient(n1.url) as other:
        assert "cluster" not in await raw.hello()
        await other.hello("bob", **WANTED)
        advertise(n2)
        await other.expect("topology")
        await raw.send({"type": "ping"})
        await raw.expect("pong")
        assert all(packet["type"] != "topology" for packet in raw.seen)


async def test_where_nothing_is_advertised_welcomes_are_as_ever() -> None:
    async with running_node() as node, RawClient(node.url) as raw:
        assert "cluster" not in await raw.hello(**WANTED)


@pytest.mark.promise("P19")
async def test_who_came_by_tls_is_told_of_tls_alone_at_once_and_later() -> None:
    """Here a proxy says so; a connection that a node itself secures is told of in test_interfaces."""
    async with cluster("n1", "n2") as ([n1, n2], _):
        advertise(n2, "ws://two.example", "wss://two.example")
        await eventually(lambda: any("wss://two.example" in each.urls for each in _nodes(n1)))
        for secure in ({"X-Forwarded-Proto": "https"}, {"X-Forwarded-Proto": "http, HTTPS"}):
            async with RawClient(n1.url, headers=secure) as raw:
                welcome = await raw.hello(**WANTED)
                assert welcome["cluster"]["nodes"] == [{"node": "n2", "urls": ["wss://two.example"]}]
                advertise(n2, "wss://two.example", "ws://other.example", "wss://new.example")
                told = await raw.expect("topology")
                assert told["cluster"]["nodes"] == [{"node": "n2", "urls": ["wss://two.example", "wss://new.example"]}]
                advertise(n2, "ws://two.example", "wss://two.example")
                await raw.expect("topology")
        async with RawClient(n1.url) as raw:
            urls = [url for each in (await raw.hello(**WANTED))["cluster"]["nodes"] for url in each["urls"]]
            assert urls == [own_url(n1), "ws://two.example", "wss://two.example"]


def _nodes(node: TestNode) -> Sequence[Any]:
    return node.gateway.node._cluster_list._lists[False].nodes


async def test_nodes_that_come_drain_and_die_are_told_of() -> None:
    async with cluster("n1") as ([n1], memory), RawClient(n1.url) as raw:
        first = (await raw.hello(**WANTED))["cluster"]
        async with running_node("n2", memory=memory, **EXPIRING) as n2:
            advertise(n2, own_url(n2))
            both = (await raw.expect("topology"))["cluster"]
            assert [each["node"] for each in both["nodes"]] == ["n1", "n2"]
            assert both["revision"] != first["revision"]
            n2.gateway.node.begin_drain()
            assert (await raw.expect("topology"))["cluster"] == first, "who drains takes nobody"
            await n2.gateway.node.undrain()
            assert (await raw.expect("topology"))["cluster"] == both
        # It ended hard: its lease expires.
        assert (await raw.expect("topology"))["cluster"] == first


async def test_a_client_that_knows_one_url_goes_on_at_a_node_that_it_was_told_of() -> None:
    async with cluster("n1", "n2") as ([n1, n2], _), FaultProxy("127.0.0.1", n1.gateway.port) as proxy:
        advertise(n1)
        await eventually(lambda: is_listed(n1, ["n2"]))
        given = f"ws://127.0.0.1:{proxy.port}/v1/connect"
        async with connect(given) as session:
            assert session.urls == (given, f"{own_url(n2)}/v1/connect")
            proxy.refuse()
            proxy.cut()
            recovery = await anext(aiter(session.recoveries()))
            assert recovery.node == "n2"
            advertise(n2)
            await eventually(lambda: session.urls == (given,))


async def test_a_client_may_be_told_to_keep_to_what_it_was_given() -> None:
    async with cluster("n1", "n2") as ([n1, _], _), connect(n1.url, discover=False) as session:
        assert len(session.urls) == 1


async def test_an_administrator_who_names_a_node_has_a_client_go_straight_there() -> None:
    async with cluster("n1", "n2") as ([n1, n2], _), connect(n1.url) as session:
        await n1.gateway.node.administration.sessions.move(SessionId(session.id), "n2")
        recovery = await anext(aiter(session.recoveries()))
        assert (recovery.node, recovery.attempts) == ("n2", 1)
        assert f"{own_url(n2)}/v1/connect" in session.urls
