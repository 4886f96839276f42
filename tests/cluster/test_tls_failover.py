"""Everything encrypted, and a node dies: wss to HAProxy, verified TLS to the nodes, and the session goes on (P1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.client import connect
from gateway.local.stack import Stack
from lb.topology import Node
from tests.support.certificates import Authority
from tests.support.faults import eventually
from tests.support.haproxy import FAST, running_haproxy
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P1")]


def nodes_of(stack: Stack) -> list[Node]:
    return [
        Node(name=name, tls_name="localhost", client_port=ports.listen, admin_port=ports.admin, agent_port=ports.agent)
        for name, ports in stack.options.ports.nodes.items()
    ]


async def test_a_session_survives_its_node_through_tls(tmp_path: Path, authority: Authority) -> None:
    own = authority.issue("haproxy")
    node = authority.issue("node")
    settings = {
        **FAST,
        "frontend": {"certificate": str(own)},
        "nodes_tls": {"ca": str(authority.file), "certificate": str(own), "admin": False},
    }
    async with cluster(
        tmp_path,
        nodes=2,
        balancer=False,
        lease=scaled(2.0),
        lease_renew=scaled(0.5),
        tls_certificate=node,
        tls_client_ca=authority.file,
    ) as stack:
        with running_haproxy(nodes_of(stack), settings) as proxy:
            proxy.wait_checked()
            session = await connect(proxy.url, "alice", ssl=authority.trust())
            values = await session.subscribe("a/**")
            assert (await session.publish("a/b", 1)).version == 1
            identity, victim = session.id, session.node

            await stack.kill_node(victim)
            await eventually(lambda: session.state == "connected" and session.node != victim, "failed over")

            assert session.id == identity
            assert (await session.publish("a/b", 2)).version == 2
            async for update in values:
                if update.version == 2:
                    assert (update.topic, update.value) == ("a/b", 2)
                    break
            await session.close()
