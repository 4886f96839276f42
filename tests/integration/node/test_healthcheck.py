"""The health check of the image asks a node by what its admin port speaks, and tells one that hangs or is gone."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.local.ports import free_port
from tests.support.certificates import Authority
from tests.support.nodes import running_node

SCRIPT: Final = Path(__file__).parents[3] / "deploy" / "docker" / "healthcheck.py"
TLS: Final = {"GATEWAY_ADMIN_TLS_CERTIFICATE": "/etc/gateway/tls/tls.crt"}
"""A variable of a node whose admin port speaks TLS."""


async def is_healthy(port: int, variables: Mapping[str, str] | None = None) -> bool:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        SCRIPT,
        env={"GATEWAY_ADMIN": f"0.0.0.0:{port}", **(variables or {})},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert (process.returncode == 0) is not bool(said), said
    return process.returncode == 0


async def test_a_node_is_alive_whether_it_speaks_tls_or_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with running_node() as node:
        assert await is_healthy(node.gateway.admin_port)
    async with running_node(admin_tls_certificate=authority.issue("node")) as node:
        assert await is_healthy(node.gateway.admin_port, TLS)
        assert await is_healthy(node.gateway.admin_port), "the configuration file may name the certificate"


async def test_a_node_that_wants_a_certificate_is_alive(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("node")
    async with running_node(admin_tls_certificate=own, admin_tls_client_ca=authority.file) as node:
        assert await is_healthy(node.gateway.admin_port, TLS)


async def test_a_node_that_is_gone_or_hangs_is_not_healthy() -> None:
    assert not await is_healthy(free_port())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert not await is_healthy(port)
        assert not await is_healthy(port, TLS)
