"""Nodes that speak TLS on their admin ports ask each other by it, and show who they are."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from gateway.adapters.memory import MemoryGridServer
from tests.integration.admin.support import Admins
from tests.support.certificates import Authority
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient


async def test_a_request_is_passed_on_by_mutual_tls(tmp_path: Path) -> None:
    authority, admins, memory = Authority(tmp_path), Admins.make(tmp_path), MemoryGridServer()
    settings = {
        "admin_tokens_file": admins.file,
        "admin_tls_certificate": authority.issue("node"),
        "admin_tls_client_ca": authority.file,
        "admin_tls_ca": authority.file,
    }
    operator = authority.trust(authority.issue("operator"))
    headers = {"Authorization": f"Bearer {admins.tokens['viewer']}"}
    async with (
        running_node("n1", memory=memory, **settings) as n1,
        running_node("n2", memory=memory, **settings) as n2,
        RawClient(n1.url) as client,
        aiohttp.ClientSession(headers=headers) as http,
    ):
        welcome = await client.hello()

        url = f"https://127.0.0.1:{n2.gateway.admin_port}/v1/sessions/{welcome['session']}"
        async with http.get(url, ssl=operator) as answer:
            shown = await answer.json()

        assert (answer.status, shown["node"], shown["note"]) == (200, "n1", None)
        assert shown["live"]["link"] == "attached"


async def test_a_node_with_a_certificate_of_a_stranger_gets_no_token(tmp_path: Path) -> None:
    authority, admins, memory = Authority(tmp_path), Admins.make(tmp_path), MemoryGridServer()
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")
    async with (
        running_node(
            "n1", memory=memory, admin_tokens_file=admins.file, admin_tls_certificate=stranger.issue("node")
        ) as n1,
        running_node("n2", memory=memory, admin_tokens_file=admins.file, admin_tls_ca=authority.file) as n2,
        RawClient(n1.url) as client,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {admins.tokens['viewer']}"}) as http,
    ):
        welcome = await client.hello()

        async with http.get(f"{n2.admin}/v1/sessions/{welcome['session']}") as answer:
            shown = await answer.json()

        assert (answer.status, shown["live"]) == (200, None)
        assert shown["note"] == "n1 has to be asked, but it cannot be reached (ClientConnectorCertificateError)"
