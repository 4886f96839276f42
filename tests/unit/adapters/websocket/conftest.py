"""A server on a free port, and clients that are nothing but sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

import pytest
import uvloop

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics, OpenAdmission
from gateway.adapters.websocket import server as server_module
from gateway.adapters.websocket.connection import WebSocketConnection
from gateway.adapters.websocket.server import ClientInterface, WebSocketServer
from tests.support.calls import NoCalls
from tests.support.times import time_limit
from tests.support.upgrade import UPGRADE_REQUEST

REQUEST = UPGRADE_REQUEST.removesuffix(b"\r\n")
"""A good request but for the line that ends it."""


MESSAGE_BYTES = 65_536
"""Largest message in these tests."""


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every test of this folder on both loops: uvloop is optional."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Ear:
    """A receiver that notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.too_big: list[bytes] = []
        self.over = 0
        self.on_message: Callable[[bytes], None] | None = None

    def received(self, message: bytes) -> None:
        assert not self.over, "nothing may come after the end"
        self.heard.append(message)
        if self.on_message is not None:
            self.on_message(message)

    def oversized(self, beginning: bytes, reason: str) -> None:
        self.too_big.append(beginning)

    def ended(self) -> None:
        self.over += 1


class Port:
    """A running server; its connections are heard by ears.

    Attributes:
        connections: those that have begun, in order.
        ears: what hears them.
        listens: whether connections are given their ears at once.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.connections: list[WebSocketConnection] = []
        self.ears: list[Ear] = []
        self.listens = True
        self.metrics = MemoryMetrics()
        self.log = MemoryEventLog()
        self.is_accepting = True
        self.admission = OpenAdmission()
        self.host = host
        self.server = WebSocketServer(
            [ClientInterface(host, 0)],
            serve=self._serve,
            calls=NoCalls(),
            admission=self.admission,
            accepting=lambda: self.is_accepting,
            message_bytes=MESSAGE_BYTES,
            metrics=self.metrics,
            log=self.log,
            origins=["https://app.example"],
        )
        self._sockets = ExitStack()

    async def _serve(self, connection: WebSocketConnection) -> None:
        ear = Ear()
        self.connections.append(connection)
        self.ears.append(ear)
        if self.listens:
            connection.listen(ear)

    async def dial(self, *, receive_buffer: int | None = None) -> Peer:
        """Connect, and say nothing."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        connection = self._sockets.enter_context(socket.socket(family, socket.SOCK_STREAM))
        connection.setblocking(False)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(connection, (self.host, self.server.port))
        return Peer(connection)

    async def upgraded(self, early: bytes = b"", *, receive_buffer: int | None = None) -> Peer:
        """Connect and open a WebSocket."""
        peer = await self.dial(receive_buffer=receive_buffer)
        await peer.send(REQUEST + b"\r\n" + early)
        assert (await peer.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        return peer

    async def close(self) -> None:
        """Hang up, then stop the server."""
        self._sockets.close()
        await self.server.close()


class Peer:
    """The client's end of a connection: bytes, no rules."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = b""

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def _more(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
        except ConnectionResetError:
            return b""

    async def until(self, end: bytes) -> bytes:
        """Return all up to and with *end*."""
        while end not in self._buffer:
            more = await self._more()
            assert more, f"ended after {self._buffer!r}"
            self._buffer += more
        found, _, self._buffer = self._buffer.partition(end)
        return found + end

    async def exactly(self, size: int) -> bytes:
        """Return so many bytes."""
        while len(self._buffer) < size:
            more = await self._more()
            assert more, f"ended after {self._buffer!r}"
            self._buffer += more
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    async def rest(self) -> bytes:
        """Return what comes until the server hangs up."""
        while more := await self._more():
            self._buffer += more
        found, self._buffer = self._buffer, b""
        return found

    def reset(self) -> None:
        """Break the connection: the other side gets an error, not an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    """A server that must have let go of everything in the end."""
    running = Port()
    await running.server.start()
    async with time_limit():
        yield running
    await running.close()
    assert not running.server._requests
    assert not running.server._connections
    assert not running.server._tasks


@pytest.fixture
def accept_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server try again at once."""
    monkeypatch.setattr(server_module, "ACCEPT_PAUSE", 0.01)
