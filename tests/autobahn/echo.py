"""The client port of a node with nothing behind it: what a client sends comes back, as test suites want it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics, OpenAdmission
from gateway.adapters.websocket.connection import WebSocketConnection
from gateway.adapters.websocket.frames import BINARY, TEXT, text_frame
from gateway.adapters.websocket.server import ClientInterface, WebSocketServer
from gateway.adapters.websocket.transport import Transport
from gateway.adapters.websocket.upgrade import Upgrade
from gateway.adapters.websocket.upgrade_request import Request
from tests.support.calls import NoCalls

MESSAGE_BYTES: Final = 16 * 1024**2
"""Largest message: as large as any of the suite."""


class EchoConnection(WebSocketConnection):
    """Gives messages back as they came: also binary ones, which a node refuses (protocol 1.5) and the suite needs."""

    __slots__ = ()

    def _hear(self, opcode: int, message: bytes) -> None:
        frame = text_frame(message)
        self._send(bytes([frame[0] ^ TEXT ^ BINARY]) + frame[1:] if opcode == BINARY else frame)


class _Nobody:
    """Hears nothing: what comes has been given back already."""

    def received(self, message: bytes) -> None:
        """See ``Receiver``."""

    def oversized(self, beginning: bytes, reason: str) -> None:
        """See ``Receiver``."""

    def ended(self) -> None:
        """See ``Receiver``."""


class EchoServer(WebSocketServer):
    """Makes such connections."""

    def opened(self, upgrade: Upgrade, transport: Transport, request: Request) -> None:
        """See ``Acceptor``."""
        connection = self._make_connection(EchoConnection, transport, upgrade)
        self._connections[connection] = upgrade.counted
        connection.begin(request.rest)
        # As one that has a session, of which more is borne.
        connection.listen(_Nobody())


async def _nothing_more(_connection: WebSocketConnection) -> None:
    """Nobody is behind these connections."""


@asynccontextmanager
async def echo_server() -> AsyncIterator[EchoServer]:
    """Serve on a free port of this machine."""
    server = EchoServer(
        [ClientInterface("127.0.0.1", 0)],
        serve=_nothing_more,
        calls=NoCalls(),
        admission=OpenAdmission(),
        accepting=lambda: True,
        message_bytes=MESSAGE_BYTES,
        metrics=MemoryMetrics(),
        log=MemoryEventLog(),
    )
    await server.start()
    try:
        yield server
    finally:
        await server.close()
