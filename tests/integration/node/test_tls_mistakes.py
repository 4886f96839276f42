"""TLS on one side alone: commands say so, instead of that nobody answers."""

from __future__ import annotations

import asyncio

import pytest

from gateway.cli.program import run
from tests.support.certificates import Authority
from tests.support.nodes import running_node


async def typed(captured: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that fails; returns what it complains of."""
    assert await asyncio.to_thread(run, list(words)) == 1
    return captured.readouterr().err


async def test_a_url_without_tls_to_a_port_with_tls(
    authority: Authority, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_ADMIN_TOKEN", "x" * 43)
    certificate = authority.issue("node")
    async with running_node(tls_certificate=certificate, admin_tls_certificate=certificate) as node:
        url = f"ws://127.0.0.1:{node.gateway.port}"
        said = await typed(capsys, "sub", "**", "--url", url, "--timeout", "1")
        assert said.startswith("gateway: error: no session within 1 s; last: ")
        assert said.endswith("; if it speaks TLS, its URL begins with wss\n")

        said = await typed(capsys, "admin", "nodes", "--url", f"http://127.0.0.1:{node.gateway.admin_port}")
        assert said.endswith("; if it speaks TLS, its URL begins with https\n")


async def test_a_url_with_tls_to_a_port_without(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_ADMIN_TOKEN", "x" * 43)
    async with running_node() as node:
        said = await typed(capsys, "sub", "**", "--url", f"wss://127.0.0.1:{node.gateway.port}", "--timeout", "1")
        assert "it answers, but not in TLS, and a URL that begins with wss asks for TLS" in said

        said = await typed(capsys, "admin", "nodes", "--url", f"https://127.0.0.1:{node.gateway.admin_port}")
        assert said.endswith(" was reached, but not in TLS; if it has none, its URL begins with http\n")
