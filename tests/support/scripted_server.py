"""A server that does what a test tells it, packet by packet: refuse, hang, cut, lie, or behave.

A test takes each connection of the client in turn and plays the server's side of it::

    async with ScriptedServer() as server:
        connecting = asyncio.create_task(open_session(server.url))
        peer = await server.connection()
        await peer.welcome()
        session = await connecting
"""

from __future__ import annotations

import asyncio
from collections import deque
from ssl import SSLContext
from types import TracebackType
from typing import Any, Self

import orjson
from aiohttp import WSMsgType, web

from gateway.core.wire.codec import SUBPROTOCOL
from tests.support.numbering import SESSION_PACKETS, packets_of
from tests.support.times import PATIENCE, time_limit

Packet = dict[str, Any]

LIMITS: Packet = {
    "message_bytes": 65_536,
    "value_bytes": 32_768,
    "requests": 16,
    "selections": 100,
    "resend_packets": 256,
    "resend_bytes": 1_048_576,
}
"""What the scripted server announces, unless told otherwise."""


class Gone(Exception):
    """The client ended the connection while a packet was expected.

    Attributes:
        code: of its close frame, or None.
    """

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the client closed with {code}")
        self.code = code


def welcome(**fields: Any) -> Packet:
    """Make a welcome; *fields* replace what is usual. Reconnecting is advised to be quick."""
    return {
        "type": "welcome",
        "session": "s1",
        "principal": "alice",
        "node": "n1",
        "token": "token-1",
        "outcome": "created",
        "received": 0,
        "resent": 0,
        "lost": 0,
        "conflated": 0,
        "window": 30.0,
        "ping_interval": 10.0,
        "ping_timeout": 20.0,
        "replicated": True,
        "limits": LIMITS,
        "backoff": {"initial": 0.01, "maximum": 0.05, "stable_after": 10.0},
        "properties": {"$session": "s1", "$node": "n1", "team": "fx"},
        "selections": [],
    } | fields


class Peer:
    """The server's side of one connection.

    Attributes:
        query: of the client's URL.
        headers: of its upgrade.
        first: the hello or resume, once it was received.
        sent: id of the last session packet sent; set it to go on numbering where an earlier connection stopped.
        received: id of the last session packet received.
    """

    def __init__(self, websocket: web.WebSocketResponse, request: web.Request) -> None:
        self._websocket = websocket
        self._request = request
        self._waiting: deque[Packet] = deque()
        self._answering: asyncio.Task[None] | None = None
        self.over = asyncio.Event()
        self.query = dict(request.query)
        self.headers = dict(request.headers)
        self.first: Packet = {}
        self.sent = 0
        self.received = 0

    # --- Receiving ----------------------------------------------------------------------------------------------------

    async def packet(self, *, within: float = PATIENCE) -> Packet:
        """Return the next packet of whatever type.

        Raises:
            Gone: there is none any more.
            TimeoutError: none came in time.
        """
        async with time_limit(within):
            while not self._waiting:
                message = await self._websocket.receive()
                if message.type is not WSMsgType.TEXT:
                    raise Gone(self._websocket.close_code)
                self._waiting.extend(packets_of(message.data))
        packet = self._waiting.popleft()
        if packet["type"] in SESSION_PACKETS:
            self.received = packet["id"]
        return packet

    async def expect(self, kind: str, *, within: float = PATIENCE) -> Packet:
        """Return the next packet of a type, skipping others."""
        async with time_limit(within):
            while True:
                packet = await self.packet(within=within)
                if packet["type"] == kind:
                    return packet

    async def closed(self, *, within: float = PATIENCE) -> int | None:
        """Wait until the client ends the connection, and return its close code."""
        try:
            async with time_limit(within):
                while True:
                    await self.packet(within=within)
        except Gone as gone:
            return gone.code

    # --- Sending ------------------------------------------------------------------------------------------------------

    async def send(self, *packets: Packet) -> None:
        """Send one message: a packet, or an array of several."""
        await self._websocket.send_str(orjson.dumps(packets[0] if len(packets) == 1 else list(packets)).decode())

    async def send_text(self, text: str) -> None:
        """Send a message as it is, whatever it is."""
        await self._websocket.send_str(text)

    def numbered(self, kind: str, **fields: Any) -> Packet:
        """Make the next session packet."""
        self.sent += 1
        return {"type": kind, "id": self.sent, **fields}

    async def welcome(self, **fields: Any) -> Packet:
        """Take the first packet and answer with a welcome.

        Returns:
            The first packet.
        """
        self.first = await self.packet()
        await self.send(welcome(**fields))
        return self.first

    async def refuse(self, code: str, message: str, close: int, retry_after: float | None = None) -> Packet:
        """Take the first packet and answer with an error and a close.

        Returns:
            The first packet.
        """
        self.first = await self.packet()
        error: Packet = {"type": "error", "code": code, "message": message}
        await self.send(error if retry_after is None else error | {"retry_after": retry_after})
        await self.close(close, message)
        return self.first

    async def update(self, topic: str, version: int, value: Any, *, snapshot: bool = False) -> None:
        """Send one update."""
        await self.send(self.make_update(topic, version, value, snapshot=snapshot))

    def make_update(self, topic: str, version: int, value: Any, *, snapshot: bool = False) -> Packet:
        """Make the next session packet, an update."""
        event = f"0-1-{version}"
        return self.numbered("update", topic=topic, version=version, event=event, value=value, snapshot=snapshot)

    async def reply(self, request: Packet, **fields: Any) -> None:
        """Answer a request."""
        await self.send(self.make_reply(request, **fields))

    def make_reply(self, request: Packet, **fields: Any) -> Packet:
        """Make the answer to a request: by default that it has been executed."""
        if request["type"] == "publish" and not fields:
            fields = {"version": request["request"], "event": f"0-1-{request['request']}"}
        return self.numbered("reply", request=request["request"], received=self.received, **fields)

    async def decline(self, request: Packet, code: str, *, retry_after: float | None = None) -> None:
        """Refuse a request."""
        error: Packet = {"code": code, "message": f"declined: {code}"}
        if retry_after is not None:
            error["retry_after"] = retry_after
        await self.reply(request, error=error)

    async def answer(self) -> Packet:
        """Wait for the next request and answer that it has been executed.

        Returns:
            The request.
        """
        while (request := await self.packet())["type"] not in SESSION_PACKETS:
            pass
        await self.reply(request)
        return request

    def answer_all(self) -> None:
        """From now on answer every request, and a bye, in the background."""
        self._answering = asyncio.create_task(self._answer_all())

    async def _answer_all(self) -> None:
        try:
            while True:
                packet = await self.packet(within=60)
                if packet["type"] in SESSION_PACKETS:
                    await self.reply(packet)
                elif packet["type"] == "bye":
                    await self.confirm_bye()
        except (Gone, ConnectionError):
            return

    async def confirm_bye(self) -> None:
        """Say that the session is ended, and close."""
        await self.send({"type": "bye", "reason": "closed"})
        await self.close(1000, "closed")

    # --- Ending -------------------------------------------------------------------------------------------------------

    async def close(self, code: int, reason: str = "") -> None:
        """Close with a code."""
        await self._websocket.close(code=code, message=reason.encode())
        self.over.set()

    def cut(self) -> None:
        """Lose the transport without a close frame."""
        if self._request.transport is not None:
            self._request.transport.abort()
        self.over.set()

    async def release(self) -> None:
        """Stop whatever runs for this connection."""
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)
        self.cut()


class ScriptedServer:
    """A WebSocket server on a free port of 127.0.0.1 whose connections a test takes one by one.

    Args:
        tls: its certificate; None for a server without TLS.

    Attributes:
        port: where it listens; stays the same over ``stop`` and ``start``.
        statuses: HTTP statuses to answer the next upgrades with, in place of accepting them.
        upgrades: how many upgrades were asked for.
        hanging: while True, upgrades are not answered at all.
        subprotocols: accepted ones.
    """

    def __init__(self, *, tls: SSLContext | None = None) -> None:
        self._tls = tls
        self.port = 0
        self.statuses: deque[int] = deque()
        self.upgrades = 0
        self.hanging = False
        self.subprotocols: tuple[str, ...] = (SUBPROTOCOL,)
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._all: list[Peer] = []
        self._runner: web.AppRunner | None = None
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"{'ws' if self._tls is None else 'wss'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; on the same port as before, if it did before."""
        self._stopping.clear()
        application = web.Application()
        application.router.add_get("/v1/connect", self._accept)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True, ssl_context=self._tls)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    async def stop(self) -> None:
        """Cut every connection and refuse new ones."""
        self._stopping.set()
        for peer in self._all:
            await peer.release()
        self._all.clear()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def connection(self, *, within: float = PATIENCE) -> Peer:
        """Wait for the client's next connection."""
        async with time_limit(within):
            return await self._peers.get()

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        self.upgrades += 1
        if self.hanging:
            await self._stopping.wait()
        if self.statuses:
            status = self.statuses.popleft()
            return web.Response(status=status, headers={"Location": "/elsewhere"})
        websocket = web.WebSocketResponse(protocols=self.subprotocols, compress=False, max_msg_size=0)
        await websocket.prepare(request)
        peer = Peer(websocket, request)
        self._all.append(peer)
        self._peers.put_nowait(peer)
        await peer.over.wait()
        return websocket
