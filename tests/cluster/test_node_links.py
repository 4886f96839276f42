"""Links between node processes, as `make up` has them, and with certificates: up, gone with a node, up again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.link_authority import make_certificates
from gateway.local.stack import Stack
from tests.cluster.linked import all_linked, links
from tests.support.faults import eventually
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis]


@pytest.mark.parametrize(
    "secured",
    [
        pytest.param(False, id="as make up has them", marks=pytest.mark.thorough),
        pytest.param(True, id="with certificates"),
    ],
)
async def test_nodes_hear_of_each_other(tmp_path: Path, secured: bool) -> None:
    settings: dict[str, Any] = {}
    if secured:
        folder = tmp_path / "certificates"
        make_certificates(folder, ["n1", "n2"], now=time.time())
        settings = {
            "dev": "false",
            "link_tls_ca": folder / "link-ca.pem",
            "link_tls_certificate": lambda node: folder / f"{node}.pem",
            "link_tls_key": lambda node: folder / f"{node}.key",
        }
    async with cluster(tmp_path / "run", nodes=2, balancer=False, **settings) as stack:
        await eventually(lambda: all_linked(stack, "n1", "n2"), "both nodes have their link")

        stack.pause_node("n2")
        await eventually(lambda: _lost(stack, "n1"), "n1 notices that n2 says nothing")
        stack.resume_node("n2")
        await eventually(lambda: all_linked(stack, "n1", "n2"), "n2 woke up and is linked again")

        await stack.kill_node("n2")
        await eventually(lambda: _is_down(stack, "n1"), "n1 notices that n2 is gone")
        await stack.start_node("n2")
        await eventually(lambda: all_linked(stack, "n1", "n2"), "the next run of n2 is linked")

        assert await stack.drain_node("n2") == 0
        await eventually(lambda: _is_alone(stack, "n1"), "n2 has left, and nobody misses it")


async def _lost(stack: Stack, node: str) -> bool:
    """By its silence or, on a busy machine, because its lease has expired before."""
    return (await stack.metrics(node)).get("gateway_links_lost_total", 0) >= 1 or await _is_down(stack, node)


async def _is_down(stack: Stack, node: str) -> bool:
    return (await links(stack, node))[0] == 0


async def _is_alone(stack: Stack, node: str) -> bool:
    return await links(stack, node) == (0, 0)
