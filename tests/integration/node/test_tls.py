"""A whole node over TLS: sessions, the admin port, mutual TLS, and new certificates while clients are connected."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

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
