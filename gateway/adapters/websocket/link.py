"""One WebSocket as the application sees it."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web

from gateway.adapters.websocket.frames import text_frame

CLOSE_TIMEOUT: Final = 10.0
"""Seconds a client gets to take what is on its way and the close frame after it; then the transport is aborted."""


class WebSocketLink:
    """Implements ``gateway.ports.Link``.

    Args:
        websocket: after its handshake.
        transport: the one under it.
        address: where the client comes from.
    """

    __slots__ = ("_closed_with", "_closing", "_transport", "_websocket", "address")

    def __init__(self, websocket: web.WebSocketResponse, transport: asyncio.Transport, address: str) -> None:
        self._websocket = websocket
        self._transport = transport
        self._closing: asyncio.Task[None] | None = None
        self._closed_with: int | None = None
        self.address = address

    @property
    def close_code(self) -> int | None:
        """See the port."""
        code = self._closed_with or self._websocket.close_code
        # aiohttp has the number that is reserved for "no close frame came" (RFC 6455 section 7.4.1).
        return None if code == WSCloseCode.ABNORMAL_CLOSURE else code

    async def receive(self) -> bytes | None:
        """See the port."""
        message = await self._websocket.receive()
        if message.type is WSMsgType.TEXT:
            data: bytes = message.data
            return data
        if message.type is WSMsgType.BINARY:
            self.close(WSCloseCode.UNSUPPORTED_DATA, "text messages only")
        return None

    def write(self, message: bytes) -> None:
        """See the port."""
        # While nobody reads, aiohttp does not notice that the transport is gone; uvloop raises if it is written to.
        if self._closing is None and not self._websocket.closed and not self._transport.is_closing():
            self._transport.write(text_frame(message))

    def backlog(self) -> int:
        """See the port."""
        return self._transport.get_write_buffer_size()

    def close(self, code: int, reason: str) -> None:
        """See the port."""
        if self._closing is None:
            self._closed_with = code
            self._closing = asyncio.create_task(self._close(code, reason), name="close-websocket")

    async def closed(self) -> None:
        """Wait until a close that was begun is over."""
        if self._closing is not None:
            await self._closing

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._websocket.close(code=code, message=reason.encode())
        except (TimeoutError, ConnectionError):
            pass
        finally:
            # A transport that is asked to close waits for ever for a peer that does not read.
            if self._transport.get_write_buffer_size():
                self._transport.abort()
