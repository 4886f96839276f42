"""One WebSocket of a witness: packets in and out, and every way in which it can end."""

from __future__ import annotations

from contextlib import suppress

import aiohttp
import orjson

from tests.chaos.load.wire import SUBPROTOCOL, Packet
from tests.support.times import time_limit

CONNECT = 5.0
"""Seconds, on a quiet machine, for one attempt to connect, and for the welcome."""

CLOSE = 1.0
"""Seconds, on a quiet machine, for the close to be answered; then the transport is dropped."""


class Over(Exception):
    """The connection is over.

    Attributes:
        code: of the close; None for a lost transport.
        error: the error packet before it.
    """

    def __init__(self, code: int | None, error: Packet | None = None) -> None:
        super().__init__(f"close {code}, {error}")
        self.code = code
        self.error = error


class Connection:
    """A WebSocket, open or not."""

    def __init__(self) -> None:
        self._ws: aiohttp.ClientWebSocketResponse | None = None

    async def open(self, http: aiohttp.ClientSession, url: str) -> None:
        """Connect.

        Raises:
            Over: nobody is there.
        """
        try:
            async with time_limit(CONNECT):
                self._ws = await http.ws_connect(url, protocols=(SUBPROTOCOL,), max_msg_size=0, autoping=True)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Over(None) from error

    async def receive(self, within: float) -> list[Packet]:
        """Wait for the next message.

        Args:
            within: seconds; a node that is silent for longer is given up.

        Returns:
            Its packets.

        Raises:
            Over: none came, and none will.
        """
        assert self._ws is not None, "connected first"
        try:
            message = await self._ws.receive(timeout=within)
        except TimeoutError:
            await self.close(4002)
            raise Over(None) from None
        except ConnectionError:
            raise Over(None) from None
        if message.type is aiohttp.WSMsgType.CLOSE:
            raise Over(message.data)
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise Over(None)
        content = orjson.loads(message.data)
        return content if isinstance(content, list) else [content]

    async def welcome(self) -> list[Packet]:
        """Wait for what answers the first packet.

        Returns:
            The welcome, and what came with it.

        Raises:
            Over: it was refused, or nothing came.
        """
        packets = await self.receive(CONNECT)
        if packets[0]["type"] == "error":
            code = None
            try:
                await self.receive(CONNECT)
            except Over as over:
                code = over.code
            raise Over(code, packets[0])
        return packets

    async def send(self, packet: Packet) -> None:
        """Send a packet; if there is no connection any more, the reader learns of it."""
        if self._ws is None or self._ws.closed:
            return
        with suppress(ConnectionError, RuntimeError):
            await self._ws.send_str(orjson.dumps(packet).decode())

    async def close(self, code: int) -> None:
        """Close with a code."""
        if self._ws is None:
            return
        with suppress(TimeoutError, ConnectionError, RuntimeError):
            async with time_limit(CLOSE):
                await self._ws.close(code=code)

    def cut(self) -> None:
        """Lose the transport without a close."""
        if self._ws is None:
            return
        connection = self._ws._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()

    def drop(self) -> None:
        """Forget the connection there was."""
        self.cut()
        ws, self._ws = self._ws, None
        if ws is not None:
            # aiohttp warns of a connection that is never given back, at whatever moment the collector finds it.
            ws._response.close()
