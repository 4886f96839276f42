"""A whole node over TLS: sessions, the admin port, mutual TLS, and new certificates while clients are connected."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.catalogue import log_events as events
from gateway.client import Session, connect
from tests.support.certificates import Authority
from tests.support.nodes import TestNode, eventually, running_node


def wss(node: TestNode) -> str:
    return f"wss://127.0.0.1:{node.gateway.port}"


async def asked(node: TestNode, path: str, trust: ssl.SSLContext) -> str:
    async with aiohttp.ClientSession() as http:
        url = f"https://127.0.0.1:{node.gateway.admin_port}{path}"
        async with http.get(url, ssl=trust) as answer:
            answer.raise_for_status()
            return await answer.text()


@asynccontextmanager
async def opened(node: TestNode, trust: ssl.SSLContext) -> AsyncIterator[Session]:
    session = await connect(wss(node), "alice", ssl=trust)
    try:
        yield session
    finally:
        await session.close()


async def test_a_session_lives_over_tls(authority: Authority) -> None:
    async with running_node(tls_certificate=authority.issue("node")) as node:
        async with opened(node, authority.trust()) as session:
            values = await session.subscribe("a/**")
            await session.publish("a/b", "x" * 20_000)
            update = await anext(aiter(values))
            assert (update.topic, update.value) == ("a/b", "x" * 20_000)
        with pytest.raises(aiohttp.ClientError):
            async with aiohttp.ClientSession() as http:
                await http.get(node.url)


async def test_who_reloads_keeps_everybody_connected(authority: Authority) -> None:
    certificate = authority.issue("node", life=timedelta(hours=1))
    async with (
        running_node(tls_certificate=certificate, admin_tls_certificate=certificate) as node,
        opened(node, authority.trust()) as early,
    ):
        metric = 'gateway_certificate_expiry_timestamp_seconds{port="clients"} '

        async def expiry() -> float:
            text = await asked(node, "/metrics", authority.trust())
            return float(text.partition(metric)[2].partition("\n")[0])

        before = await expiry()
        certificate.write_text("not a certificate")
        node.gateway.reload()
        assert {each["port"] for each in node.log.of(events.CERTIFICATE_KEPT)} == {"clients", "admin"}
        assert await expiry() == before

        authority.issue("node", life=timedelta(hours=2))
        node.gateway.reload()
        assert await expiry() == pytest.approx(before + 3600, abs=120)
        async with opened(node, authority.trust()) as late:
            await late.publish("a", 1)
        assert early.state == "connected"
        assert (await early.publish("a", 2)).version == 2


async def test_the_admin_port_asks_for_certificates_where_it_is_told_to(authority: Authority, tmp_path: Path) -> None:
    own = authority.issue("node")
    async with running_node(admin_tls_certificate=own, admin_tls_client_ca=authority.file) as node:
        operator = authority.trust(authority.issue("operator", "operator"))
        assert "true" in await asked(node, "/healthz", operator)
        stranger = authority.trust(Authority(tmp_path).issue("stranger", "operator"))
        for trust in (authority.trust(), stranger):
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await asked(node, "/healthz", trust)
        # Whom that concerns is the admin port alone.
        async with aiohttp.ClientSession() as http, http.get(node.url) as answer:
            assert answer.status == 426


async def test_the_client_port_may_ask_for_certificates_of_the_load_balancer(authority: Authority) -> None:
    async with running_node(tls_certificate=authority.issue("node"), tls_client_ca=authority.file) as node:
        async with opened(node, authority.trust(authority.issue("haproxy", "haproxy"))) as session:
            await session.publish("a", 1)
        async with aiohttp.ClientSession() as http:
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await http.get(wss(node).replace("wss", "https"), ssl=authority.trust())
        await eventually(
            lambda: b'gateway_upgrades_refused_total{reason="tls"} 0.0' not in node.gateway.metrics.render()
        )


@pytest.mark.promise("P20")
@pytest.mark.parametrize("why_exempt", ["limit_exempt", "trusted_proxies"])
async def test_handshakes_from_exempt_addresses_and_proxies_have_a_rate_of_their_own(
    authority: Authority, why_exempt: str
) -> None:
    here = ip_network("127.0.0.1/32")
    settings: dict[str, Any] = {"limit_exempt": (), "trusted_proxies": ()} | {why_exempt: (here,)}
    async with running_node(
        tls_certificate=authority.issue("node"), rate_exempt_tls_handshakes=0.2, **settings
    ) as node:
        for _ in range(2):
            async with opened(node, authority.trust()):
                pass
        with pytest.raises(aiohttp.ClientError):
            async with aiohttp.ClientSession() as http:
                await http.get(f"https://127.0.0.1:{node.gateway.port}", ssl=authority.trust())
        text = node.gateway.metrics.render().decode()
        assert 'gateway_limits_exceeded_total{limit="rate_exempt_tls_handshakes"} 1.0' in text
        # An address that has a limit of its own pays no other.
        elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with (
            aiohttp.ClientSession(connector=elsewhere) as http,
            http.get(f"https://127.0.0.1:{node.gateway.port}", ssl=authority.trust()) as answer,
        ):
            assert answer.status < 500
