"""A client that speaks the wire protocol packet by packet, so that tests can do what no well-behaved client does."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from gateway.core.wire.codec import SUBPROTOCOL
from tests.support.numbering import packets_of
from tests.support.times import PATIENCE, scaled, time_limit

Packet = dict[str, Any]


class Closed(Exception):
    """The connection was closed while a packet was expected."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class RawClient:
    """One connection; reads packets one by one and acknowledges nothing by itself.

    Args:
        url: of the node or the load balancer, with path.
        headers: of the upgrade.
    """

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self._url = url
        self._headers = headers
        self._http = aiohttp.ClientSession()
        self._ws: aiohttp.ClientWebSocketResponse | None = None
        self._waiting: list[Packet] = []
        self.seen: list[Packet] = []

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.cut()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cut()

    @property
    def ws(self) -> aiohttp.ClientWebSocketResponse:
        assert self._ws is not None, "connect first"
        return self._ws

    async def connect(self) -> None:
        self._ws = await self._http.ws_connect(
            self._url, protocols=(SUBPROTOCOL,), headers=self._headers, max_msg_size=0, autoping=True
        )

    async def cut(self) -> None:
        """Lose the transport without a close frame."""
        if self._ws is not None:
            connection = self._ws._response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
            # aiohttp warns of a connection that is never given back, at whatever moment the collector finds it.
            self._ws._response.close()
        await self._http.close()

    async def send(self, *packets: Packet) -> None:
        """Send one message: a packet, or an array of several."""
        await self.send_text(orjson.dumps(packets[0] if len(packets) == 1 else packets).decode())

    async def send_text(self, text: str) -> None:
        await self.ws.send_str(text)

    async def receive(self, *, within: float = PATIENCE) -> Packet:
        """Return the next packet.

        Raises:
            Closed: there is none any more.
            TimeoutError: none came in time.
        """
        while not self._waiting:
            message = await self.ws.receive(timeout=scaled(within))
            if message.type is aiohttp.WSMsgType.CLOSE:
                # aiohttp forgets the code if it cannot answer, because the other side has closed the socket too.
                raise Closed(message.data)
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise Closed(self.ws.close_code)
            self._waiting = packets_of(message.data)
        packet = self._waiting.pop(0)
        self.seen.append(packet)
        return packet

    async def expect(
        self, kind: str, *, within: float = PATIENCE, where: Callable[[Packet], bool] | None = None
    ) -> Packet:
        """Return the next packet of a type, skipping others (they stay in ``seen``)."""
        async with time_limit(within):
            while True:
                packet = await self.receive(within=within)
                if packet["type"] == kind and (where is None or where(packet)):
                    return packet

    async def closed(self, *, within: float = PATIENCE) -> int | None:
        """Wait for the close and return its code; packets before it stay in ``seen``."""
        try:
            async with time_limit(within):
                while True:
                    await self.receive(within=within)
        except Closed as closed:
            return closed.code

    async def hello(self, principal: str = "alice", **fields: Any) -> Packet:
        await self.send({"type": "hello", "principal": principal, **fields})
        return await self.expect("welcome")

    async def ask_to_resume(
        self, token: str, *, attempt: int, received: int = 0, oldest: int = 1, **fields: Any
    ) -> None:
        """Send a resume, and leave the answer to the test."""
        resume = {"type": "resume", "token": token, "attempt": attempt, "received": received, "oldest": oldest}
        await self.send(resume | fields)

    async def resume(self, token: str, *, attempt: int, **fields: Any) -> Packet:
        """Resume and return the welcome, or the error; see ``ask_to_resume``."""
        await self.ask_to_resume(token, attempt=attempt, **fields)
        while True:
            packet = await self.receive()
            if packet["type"] in {"welcome", "error"}:
                return packet
