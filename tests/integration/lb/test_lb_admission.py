"""A node that admits nobody at the moment, behind a real HAProxy: clients do not notice while another one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus

import aiohttp
import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.settings import HostPort
from lb.topology import Node
from tests.support.clock import eventually
from tests.support.haproxy import LOOPBACK, HAProxy, free_ports, running_haproxy
from tests.support.nodes import UPGRADE, TestNode, running_node
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.haproxy


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[HAProxy, dict[str, TestNode]]]:
    """Run two nodes that admit nobody while they are busy, and HAProxy before them."""
    memory, nodes, described = MemoryGridServer(), {}, []
    async with AsyncExitStack() as stack:
        for name, agent in zip(("n1", "n2"), free_ports(2), strict=True):
            settings = {"admission_wait": 0.0, "agent": HostPort(LOOPBACK, agent)}
            node = await stack.enter_async_context(running_node(name, memory=memory, **settings))
            nodes[name] = node
            gateway = node.gateway
            described.append(
                Node(
                    name=name,
                    host=LOOPBACK,
                    client_port=gateway.port,
                    admin_port=gateway.admin_port,
                    agent_port=agent,
                )
            )
        balancer = running_haproxy(described)
        # Waiting for it must not keep the nodes from answering its checks.
        proxy = await asyncio.to_thread(balancer.__enter__)
        stack.callback(balancer.__exit__, None, None, None)
        await asyncio.to_thread(proxy.wait_checked)
        yield proxy, nodes


def rejected(node: TestNode) -> float:
    """Tell how many a node has answered 503."""
    sample = 'gateway_admissions_total{result="rejected"} '
    found = [line for line in node.gateway.metrics.render().decode().splitlines() if line.startswith(sample)]
    return float(found[0].removeprefix(sample)) if found else 0.0


async def test_an_upgrade_that_one_node_refuses_is_served_by_another_within_the_request() -> None:
    async with two_nodes() as (proxy, nodes):
        url = f"{proxy.url}?node=n1"
        nodes["n1"].gateway.node.connection_limiter._busy = lambda: True
        async with RawClient(url) as client:
            assert (await client.hello("alice"))["node"] == "n2"
            assert (rejected(nodes["n1"]), rejected(nodes["n2"])) == (1, 0)

            nodes["n2"].gateway.node.connection_limiter._busy = lambda: True
            async with aiohttp.ClientSession() as http, http.get(url.replace("ws:", "http:"), headers=UPGRADE) as told:
                assert told.status == HTTPStatus.SERVICE_UNAVAILABLE
                assert int(told.headers["Retry-After"]) >= 1
                assert "admission_rate" in await told.text()
            assert rejected(nodes["n1"]) > 1
            assert rejected(nodes["n2"]) > 0, "both were asked before the client was told"
        await eventually(lambda: " 101 " in proxy.log())
        (line,) = [line for line in proxy.log().splitlines() if " 101 " in line]
        # One request of the client; the plus says that the retry went to another node than the first try.
        assert " gateway/n2 " in line
        assert "/+1 " in line
