"""The client over TLS: it trusts whom it is told to trust, and nobody else."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gateway.client import ConnectFailed, Session, connect
from tests.support.certificates import Authority
from tests.support.scripted_server import ScriptedServer


@pytest.fixture
async def server(nothing_left_over: None, authority: Authority) -> AsyncIterator[ScriptedServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("scripted"))
    async with ScriptedServer(tls=context) as running:
        yield running


async def test_a_certificate_that_is_trusted_is_accepted(server: ScriptedServer, authority: Authority) -> None:
    trust = authority.trust()

    async def run() -> Session:
        return await connect(server.url, "alice", ssl=trust)

    opening = asyncio.create_task(run())
    peer = await server.connection()
    await peer.welcome()
    session = await opening
    peer.answer_all()

    assert server.url.startswith("wss://")
    assert (await session.publish("a", 1)).version == 1
    await session.close()


async def test_a_certificate_for_somebody_else_is_not_accepted(nothing_left_over: None, authority: Authority) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("other", "gateway.example"))
    async with ScriptedServer(tls=context) as server:
        with pytest.raises(ConnectFailed, match="certificate") as caught:
            await connect(server.url, "alice", "secret", ssl=authority.trust())
    assert not caught.value.retryable
    assert server.upgrades == 0, "the secret has not left"


@asynccontextmanager
async def answering(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], context: ssl.SSLContext | None
) -> AsyncIterator[int]:
    """Run a server that gives one answer to everything; yields its port."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.mark.promise("P19")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_does_not_lead_out_of_tls(nothing_left_over: None, authority: Authority, status: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        target = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/v1/connect"

        async def redirect(_: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": target})

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(authority.issue("redirecting"))
        async with answering(redirect, context) as port:
            with pytest.raises(ConnectFailed, match="redirects elsewhere"):
                await connect(f"wss://127.0.0.1:{port}", "alice", "secret", ssl=authority.trust())
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


@pytest.mark.promise("P19")
@pytest.mark.parametrize(
    "hint", ["n2", "//evil.example/", "n1&x=ws://evil.example", "n1#@evil.example", "..\\\\evil", ""]
)
async def test_a_route_hint_leads_nowhere_else(server: ScriptedServer, authority: Authority, hint: str) -> None:
    """It is a parameter of the URL that the user gave, whatever a node may say."""

    async def run() -> Session:
        return await connect(server.url, "alice", ssl=authority.trust())

    opening = asyncio.create_task(run())
    peer = await server.connection()
    await peer.welcome(node=hint)
    session = await opening
    peer.cut()
    again = await server.connection()

    assert again.query["node"] == hint
    await again.welcome(outcome="reattached", token="token-2")
    again.answer_all()
    await session.close()


@pytest.mark.promise("P19")
async def test_urls_with_and_without_tls_are_not_mixed(nothing_left_over: None) -> None:
    with pytest.raises(ValueError, match="either all URLs use TLS"):
        await connect(["wss://gateway.example", "ws://gateway.example"], "alice", "secret")


async def test_a_certificate_that_is_not_trusted_is_told_at_once(server: ScriptedServer) -> None:
    with pytest.raises(ConnectFailed, match="certificate") as caught:
        await connect(server.url, "alice", "secret")
    assert not caught.value.retryable
    assert server.upgrades == 0, "the secret has not left"


async def test_a_url_without_tls_at_a_port_that_speaks_it_is_told(server: ScriptedServer) -> None:
    with pytest.raises(ConnectFailed, match="if it speaks TLS, its URL begins with wss"):
        await connect(server.url.replace("wss:", "ws:"), "alice", connect_timeout=0.5)
    assert server.upgrades == 0


async def test_a_url_with_tls_at_a_port_that_does_not_speak_it_is_told(nothing_left_over: None) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response()

    async with answering(answer, None) as port:
        with pytest.raises(ConnectFailed, match="it answers, but not in TLS"):
            await connect(f"wss://127.0.0.1:{port}", "alice", connect_timeout=0.5)
