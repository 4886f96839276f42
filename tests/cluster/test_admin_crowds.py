"""Crowds without a token at the admin and agent ports: no node is taken for dead, and no client notices (P20)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.local.ports import LOOPBACK
from gateway.local.stack import Stack
from tests.cluster.crowds import Counting, Figures, crowd
from tests.support.stack import cluster
from tests.support.times import scaled
from tests.support.unauthenticated_clients import unauthenticated_clients

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P20")]

VICTIM: Final = "n1"
CROWD: Final = int(os.environ.get("CROWD", "600"))
"""Unauthenticated clients at each port: more than have a place."""
SECONDS: Final = float(os.environ.get("STRANGERS_SECONDS", "6"))
"""How long they stay: more health checks than have to fail for a node to be taken for dead."""
MEMBERS: Final = 10
CHECKS: Final = ("haproxy_server_check_failures_total", "haproxy_server_check_up_down_total")


async def checks_failed(stack: Stack) -> dict[str, float]:
    """Tell how often health checks of the victim have failed, and how often it was taken for dead."""
    async with aiohttp.ClientSession() as http, http.get(stack.balancer_metrics_url) as answer:
        lines = (await answer.text()).splitlines()
    found = [line for line in lines if line.startswith(CHECKS) and f'server="{VICTIM}"' in line]
    assert len(found) == len(CHECKS), found
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in found}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["idle", "half", "checks", "kept", "unread", "pages"])
async def test_a_crowd_without_a_token_takes_no_node_from_its_clients(
    tmp_path: Path, kind: str, figures: Figures
) -> None:
    async with cluster(tmp_path, nodes=2) as stack, crowd(stack.url, MEMBERS) as members:
        ports = stack.options.ports.nodes[VICTIM]
        before, admin = await checks_failed(stack), aiohttp.ClientSession()
        busy = (await stack.metrics(VICTIM))["process_cpu_seconds_total"]
        token = {"Authorization": f"Bearer {stack.admin_token_file.read_text().strip()}"}
        here = [member for member in members if member.session.node == VICTIM]
        assert here
        counting = Counting(here[0].session, "prices/1")
        waits: list[float] = []
        shown: dict[str, float] = {}
        loop = asyncio.get_running_loop()
        async with (
            admin,
            unauthenticated_clients(ports.admin, CROWD, scaled(SECONDS) + 5, kind) as first,
            unauthenticated_clients(ports.agent, CROWD, scaled(SECONDS) + 5, kind),
        ):
            end = loop.time() + scaled(SECONDS)
            while loop.time() < end:
                begun = loop.time()
                # An operator, over a connection that lasts; and a scrape, over one of its own.
                async with admin.get(stack.admin_url(VICTIM, "/v1/access"), headers=token) as answer:
                    assert answer.status == 200
                shown = await stack.metrics(VICTIM)
                await counting.publish()
                waits.append(loop.time() - begun)
                await asyncio.sleep(0.1)
            assert first.returncode is None, "the clients had gone"
            rejected = shown['gateway_admin_connections_refused_total{reason="crowded_out"}']
            assert rejected > 0 or kind == "checks", "who asks for health alone is answered and gone"
            assert shown['gateway_admin_connections{kind="unauthenticated"}'] <= 448
        cpu = (shown["process_cpu_seconds_total"] - busy) / scaled(SECONDS)
        figures(
            f"{CROWD} connections, {kind}: {rejected:.0f} crowded out in {scaled(SECONDS):g} s; an operator, a scrape "
            f"and a publish took {sorted(waits)[len(waits) // 2] * 1000:.0f} ms, at worst {max(waits) * 1000:.0f} ms; "
            f"the node took {cpu:.0%} of a core; "
            f"failed checks {await checks_failed(stack)}"
        )
        after = await checks_failed(stack)
        assert after["haproxy_server_check_up_down_total"] == before["haproxy_server_check_up_down_total"]
        assert await stack.nodes_up() == {"n1", "n2"}
        assert [recovery for member in members for recovery in member.recoveries] == []
        assert [member.session.node for member in here] == [VICTIM] * len(here)


async def test_the_agent_answers_in_a_crowd(tmp_path: Path) -> None:
    async with cluster(tmp_path, nodes=1, balancer=False) as stack:
        port = stack.options.ports.nodes[VICTIM].agent
        async with unauthenticated_clients(port, CROWD, scaled(SECONDS) + 5, "idle"):
            for _ in range(20):
                reader, writer = await asyncio.open_connection(LOOPBACK, port)
                assert await asyncio.wait_for(reader.read(), scaled(1)) == b"up 100%\n"
                writer.close()
