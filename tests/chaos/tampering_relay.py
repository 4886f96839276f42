"""A relay between clients and HAProxy that breaks promises on purpose, so that the account can be seen to notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import orjson
from aiohttp import web

from gateway.local.ports import LOOPBACK
from tests.chaos.load.wire import SUBPROTOCOL, Packet
from tests.support.numbering import packets_of

Harm = Callable[[Packet], Packet]
"""Returns what a client gets in the place of a packet, under the same number."""


class LostUpdate:
    """Replaces one update in so many by the one before it: one comes twice, and one never.

    Attributes:
        every: how many updates it takes.
        count: how many were replaced.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.count = 0
        self._seen = 0
        self._last: Packet | None = None

    def __call__(self, packet: Packet) -> Packet:
        """Harm one packet, or not."""
        if packet["type"] != "update" or packet.get("snapshot"):
            return packet
        self._seen += 1
        last, self._last = self._last, packet
        if last is None or self._seen % self.every:
            return packet
        self.count += 1
        return {**last, "id": packet["id"], "received": packet.get("received")}


class LostMark:
    """Takes ``folded`` from every update that has it: what was left out is left out in silence.

    Attributes:
        count: how many marks were taken.
    """

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, packet: Packet) -> Packet:
        """Harm one packet, or not."""
        if packet["type"] != "update" or packet.get("snapshot") or not packet.get("folded"):
            return packet
        self.count += 1
        return {name: value for name, value in packet.items() if name != "folded"}


@asynccontextmanager
async def tampering_relay(url: str, make_harm: Callable[[], Harm]) -> AsyncIterator[str]:
    """Relay WebSockets to *url*, harming what comes back; yields where to connect.

    Args:
        url: of HAProxy, with path.
        make_harm: makes what harms one connection.
    """

    async def serve(request: web.Request) -> web.WebSocketResponse:
        near = web.WebSocketResponse(protocols=(SUBPROTOCOL,), max_msg_size=0)
        harm = make_harm()
        async with aiohttp.ClientSession() as http:
            target = f"{url}?{request.query_string}" if request.query_string else url
            async with http.ws_connect(target, protocols=(SUBPROTOCOL,), max_msg_size=0) as far:
                await near.prepare(request)
                up = asyncio.create_task(_pass(near, far))
                async for message in far:
                    if message.type is not aiohttp.WSMsgType.TEXT or near.closed:
                        break
                    packets = [harm(packet) for packet in packets_of(message.data)]
                    await near.send_str(orjson.dumps(packets).decode())
                await near.close(code=far.close_code or _GOING_AWAY)
                up.cancel()
                await asyncio.gather(up, return_exceptions=True)
        return near

    application = web.Application()
    application.router.add_get("/v1/connect", serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"ws://{LOOPBACK}:{port}/v1/connect"
    finally:
        await runner.cleanup()


_GOING_AWAY: Final = 4000
"""For a connection that ended without a code."""


async def _pass(near: web.WebSocketResponse, far: aiohttp.ClientWebSocketResponse) -> None:
    async for message in near:
        if message.type is aiohttp.WSMsgType.TEXT:
            await far.send_str(message.data)
    await far.close(code=near.close_code or _GOING_AWAY)
