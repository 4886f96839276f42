"""The HTTP server of the client port: checks an upgrade, then hands the link to the application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web

from gateway.adapters.websocket.addresses import Network, client_address
from gateway.adapters.websocket.link import CLOSE_TIMEOUT, WebSocketLink
from gateway.core.codec import SUBPROTOCOL

CONNECT_PATH: Final = "/v1/connect"
"""The one path of the client port (protocol 1.1)."""

ANY_ORIGIN: Final = "*"
"""In the allow-list: pages of every origin may connect."""

LISTEN_BACKLOG: Final = 4096
"""Connections the kernel may hold for the loop: a storm of returning clients must not be refused by the kernel."""

SHUTDOWN_TIMEOUT: Final = 1.0
"""Seconds that connections which were told to close get to do so when the server stops; a drain has come before."""

SECRET_PARAMETERS: Final = frozenset({"token", "secret"})
"""Query parameters that are refused: what stands in a URL stands in logs (P8)."""

_TEXT: Final = "text/plain"


class WebSocketServer:
    """Accepts clients.

    Args:
        host: address to listen on.
        port: TCP port; 0 lets the system choose, see ``port``.
        serve: serves one link until it is over.
        accepting: whether new connections are wanted; if not they are answered 503, and HAProxy tries another node.
        message_bytes: largest message accepted, in bytes.
        origins: exact values of the Origin header that are allowed; ``*`` for all. A request without one is no browser
            and is allowed.
        trusted_proxies: whose X-Forwarded-For is believed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        serve: Callable[[WebSocketLink], Awaitable[None]],
        accepting: Callable[[], bool],
        message_bytes: int,
        origins: Sequence[str] = (),
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        self._host = host
        self._port = port
        self._serve = serve
        self._accepting = accepting
        self._message_bytes = message_bytes
        self._origins = frozenset(origins)
        self._trusted = tuple(trusted_proxies)
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The TCP port that is listened on."""
        if self._runner is None or not self._runner.addresses:
            return self._port
        port: int = self._runner.addresses[0][1]
        return port

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be bound.
        """
        app = web.Application()
        app.router.add_get(CONNECT_PATH, self._connect)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, backlog=LISTEN_BACKLOG, reuse_address=True)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            self._runner = None
            raise

    async def close(self) -> None:
        """Stop listening and drop what is still connected."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        refused = self._check(request)
        if refused is not None:
            return refused
        websocket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,),
            compress=False,
            max_msg_size=self._message_bytes,
            timeout=CLOSE_TIMEOUT,
            decode_text=False,
        )
        await websocket.prepare(request)
        # uvloop's transports have all of asyncio.Transport's methods without being one.
        transport: asyncio.Transport | None = request.transport
        if transport is None:
            return websocket  # the client is gone already
        address = client_address(request.remote or "", request.headers.getall("X-Forwarded-For", []), self._trusted)
        link = WebSocketLink(websocket, transport, address)
        try:
            await self._serve(link)
        finally:
            await link.closed()
        return websocket

    def _check(self, request: web.Request) -> web.Response | None:
        """Return the refusal of a request that must not be upgraded; None if it may be."""
        if not self._accepting():
            return _refuse(503, "this node takes no new connections; try another", {"Retry-After": "1"})
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return _refuse(426, "this is a WebSocket endpoint", {"Upgrade": "websocket", "Connection": "Upgrade"})
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._origins and ANY_ORIGIN not in self._origins:
            return _refuse(403, "pages of this origin may not connect; see the setting 'origins'")
        if not SECRET_PARAMETERS.isdisjoint(request.query):
            return _refuse(400, "tokens and secrets do not belong into a URL; send them in the first packet")
        offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        if SUBPROTOCOL not in offered:
            return _refuse(400, f"offer the subprotocol {SUBPROTOCOL} in Sec-WebSocket-Protocol")
        return None


def _refuse(status: int, sentence: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=sentence + "\n", content_type=_TEXT, headers=headers)
