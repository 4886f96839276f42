"""Consoles, administrators and unauthenticated clients at the admin port of a whole node (P20)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import aiohttp
import pytest

from gateway.adapters.admin.places import UNAUTHENTICATED
from gateway.catalogue import metrics as catalogue
from gateway.client import connect
from gateway.core.wire.codec import SUBPROTOCOL
from tests.integration.admin.support import Pair
from tests.support.nodes import TestNode, eventually
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P20")

UPGRADE = (
    f"GET /v1/connect HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
).encode()
PING = b"\x89\x80\x00\x00\x00\x00"


def shown(node: TestNode, kind: str) -> float:
    """Read a gauge of connections."""
    return node.gateway.metrics._reads[catalogue.ADMIN_CONNECTIONS, kind]()


def rejected(node: TestNode, reason: str) -> float:
    """Read how many were."""
    return node.gateway.metrics._amounts[catalogue.ADMIN_CONNECTIONS_REFUSED, reason]


async def test_a_console_with_a_session_has_a_place_apart_and_lives_on_in_a_crowd(pair: Pair) -> None:
    secret = pair.admins.tokens["viewer"]
    async with (
        connect(pair.n1.admin, principal="console", secret=secret) as console,
        connect(pair.n1.url, principal="alice") as alice,
    ):
        await eventually(lambda: shown(pair.n1, "callers") == 1)
        prices = await console.subscribe("prices/**")
        with ExitStack() as stack:
            for _ in range(UNAUTHENTICATED + 50):
                stack.enter_context(socket.create_connection(("127.0.0.1", pair.n1.gateway.admin_port)))
            await eventually(lambda: rejected(pair.n1, "crowded_out") >= 50)
            await alice.publish("prices/ACME", 1)
            async with time_limit():
                assert (await anext(prices)).value == 1
            # And a new one gets in.
            async with connect(pair.n1.admin, principal="console", secret=secret):
                await eventually(lambda: shown(pair.n1, "callers") == 2)


async def test_a_console_without_a_token_stays_an_unauthenticated_client(pair: Pair) -> None:
    async with aiohttp.ClientSession() as http:
        url = f"{pair.n1.admin}/v1/connect"
        async with http.ws_connect(url, protocols=(SUBPROTOCOL,)) as websocket:
            await websocket.send_json({"type": "hello"})
            async with time_limit():
                async for _ in websocket:
                    pass
            assert shown(pair.n1, "callers") == 0
    await eventually(lambda: shown(pair.n1, "unauthenticated") == 0)


async def test_what_comes_before_a_hello_is_bounded(pair: Pair) -> None:
    """A hundred thousand pings at once are not answered one by one: they are not even read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.n1.gateway.admin_port)
    writer.write(UPGRADE)
    async with time_limit():
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(PING * 100_000)
        await eventually(lambda: rejected(pair.n1, "too_much") == 1)
    writer.close()


async def test_a_token_that_is_taken_away_ends_the_connection_with_its_refusal(pair: Pair) -> None:
    headers = {"Authorization": f"Bearer {pair.admins.tokens['viewer']}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        async with http.get(f"{pair.n1.admin}/v1/access") as answer:
            assert answer.status == 200
        assert shown(pair.n1, "callers") == 1
        lines = pair.admins.file.read_text().splitlines()
        pair.admins.file.write_text("\n".join(line for line in lines if "the-viewer" not in line))
        pair.n1.gateway.reload()
        async with http.get(f"{pair.n1.admin}/v1/access") as answer:
            assert answer.status == 401
            assert answer.headers["Connection"] == "close"
    await eventually(lambda: shown(pair.n1, "callers") == 0)


async def test_an_unauthenticated_clients_body_does_not_keep_its_answer(pair: Pair) -> None:
    """A wrong token on a request with a body is refused and written down before the body has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.n1.gateway.admin_port)
    writer.write(
        b"POST /v1/revocations HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer bad\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    )
    async with time_limit():
        head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert b"Connection: close" in head
    writer.close()
