"""A node with several interfaces: each serves whom it is for, and sessions know by which one they came."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.catalogue.log_events import CONNECTION_FAILED
from gateway.client import ConnectFailed, connect
from gateway.settings import HostPort, Interface
from tests.support.certificates import Authority
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import scaled

LOOPBACK = HostPort("127.0.0.1", 0)
PUBLIC, INSIDE = Interface(name="public", listen=LOOPBACK), Interface(name="inside", listen=LOOPBACK, tls=False)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def url(node: TestNode, interface: str, scheme: str = "ws") -> str:
    return f"{scheme}://127.0.0.1:{node.gateway.ports[interface]}"


async def test_each_interface_speaks_tls_or_does_not(authority: Authority) -> None:
    files = authority.issue("n1")
    trust: ssl.SSLContext = authority.trust()
    async with running_node(tls_certificate=files, interface=(PUBLIC, INSIDE)) as node:
        async with connect(url(node, "public", "wss"), ssl=trust) as session:
            assert session.properties["$interface"] == "public"
        async with connect(url(node, "inside")) as session:
            assert session.properties["$interface"] == "inside"
        with pytest.raises(ConnectFailed):
            await connect(url(node, "public"), connect_timeout=0.5)


async def test_updates_reach_clients_of_all_interfaces_at_once(authority: Authority) -> None:
    """One node writes to sockets of both kinds in one turn."""
    trust: ssl.SSLContext = authority.trust()
    async with running_node(tls_certificate=authority.issue("n1"), interface=(PUBLIC, INSIDE)) as node:
        async with AsyncExitStack() as open_ones:
            sessions = [
                await open_ones.enter_async_context(connect(place, ssl=trust))
                for place in (url(node, "public", "wss"), url(node, "inside")) * 3
            ]
            streams = [await session.subscribe("t") for session in sessions]
            for number in range(10):
                await sessions[number % 2].publish("t", number)
            for stream in streams:
                assert [(await anext(stream)).value for _ in range(10)] == list(range(10))
        assert not node.log.of(CONNECTION_FAILED)


async def test_only_advertised_interfaces_for_clients_are_listed() -> None:
    advertised = replace(PUBLIC, url="ws://public.example", advertise=True)
    silent = replace(INSIDE, url="ws://inside.example")
    links = Interface(name="cluster", listen=LOOPBACK, clients=False, links=True)
    async with (
        running_node(dev=True, interface=(advertised, silent, links), link=LOOPBACK, lease_renew=scaled(0.1)) as node,
        RawClient(f"http://127.0.0.1:{node.gateway.port}/v1/connect") as raw,
    ):
        welcome = await raw.hello(supports=["topology"])
        listed = welcome.get("cluster") or (await raw.expect("topology"))["cluster"]
        assert listed["nodes"] == [{"node": "n1", "urls": ["ws://public.example"]}]


@pytest.mark.promise("P19")
async def test_who_comes_by_the_tls_of_the_node_is_told_of_no_clear_text(authority: Authority) -> None:
    both = (
        replace(PUBLIC, url="wss://public.example", advertise=True),
        replace(INSIDE, url="ws://inside.example", advertise=True),
    )
    async with running_node(tls_certificate=authority.issue("n1"), interface=both, lease_renew=scaled(0.1)) as node:
        await eventually(lambda: bool(node.gateway.node._cluster_list._lists[True].nodes))
        async with connect(url(node, "public", "wss"), ssl=authority.trust()) as session:
            assert session.urls[1:] == ("wss://public.example/v1/connect",)
        async with connect(url(node, "inside")) as session:
            assert session.urls[1:] == ("ws://inside.example/v1/connect",)


async def test_a_node_with_one_place_says_nothing_of_interfaces() -> None:
    async with running_node() as node, connect(node.url) as session:
        assert "$interface" not in session.properties


async def test_a_session_goes_on_by_another_interface() -> None:
    async with (
        running_node(memory=MemoryGridServer(), interface=(PUBLIC, INSIDE)) as node,
        connect([url(node, "public"), url(node, "inside")]) as session,
    ):
        assert session.properties["$interface"] == "public"
        for each in [*node.gateway.node.connections._open]:
            each.close(4000, "go to the other one")
        await anext(aiter(session.recoveries()))
        assert session.properties["$interface"] == "inside"


async def test_an_interface_for_links_serves_no_client() -> None:
    links = Interface(name="cluster", listen=LOOPBACK, clients=False, links=True)
    async with running_node(dev=True, interface=(links,), link=LOOPBACK) as node:
        assert list(node.gateway.ports) == [""], "listen is there for clients"
        assert node.gateway.node.links is not None
        host, _, port = node.gateway.node.links.links.address.rpartition(":")
        with pytest.raises(ConnectFailed):
            await connect(f"ws://{host}:{port}", connect_timeout=0.5)
