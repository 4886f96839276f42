"""A connection to the client port for attackers and witnesses: bytes out, frames in, nothing that is polite by itself.

Plain asyncio streams over sockets of our own, so that it is known which address they come from and how much they take.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from typing import Any, Final, Self

import orjson

from benchmarks.hostile.target import HOST, PATH, Entry, Target
from benchmarks.storm import wire

SUBPROTOCOL: Final = "gateway.v1.json"
READ_BYTES: Final = 262_144
PATIENCE: Final = 10.0
"""Seconds for a handshake; then the node counts as deaf to it."""
ACK: Final = b'{"type":"ack","received":0}'

_BIND_WITHOUT_PORT: Final = 24
"""IP_BIND_ADDRESS_NO_PORT of Linux: the port is chosen when the peer is known, so that ports do not run out."""
_RESET: Final = struct.pack("ii", 1, 0)
_NUMBERED: Final = (b'"type":"reply"', b'"type":"update"', b'"type":"notice"')
"""What a server numbers (protocol 3), as its messages show it."""
_REFUSED: Final = b'"error":{'
"""What a reply has whose request was refused."""


class Lost(Exception):
    """The node has closed the connection, refused it or not answered; the text says which."""


def plain_socket(address: str, *, receive_buffer: int | None = None) -> socket.socket:
    """Make a TCP socket that comes from *address* and does not wait.

    Args:
        address: of this side, within 127.0.0.0/8.
        receive_buffer: bytes that the kernel may take in for a peer that does not read; its default if None.
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    if receive_buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.setsockopt(socket.SOL_IP, _BIND_WITHOUT_PORT, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    made.bind((address, 0))
    return made


def trusting_context() -> ssl.SSLContext:
    """Make a context that takes any certificate: the one of a benchmark is made for it alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Connection:
    """One connection. ``open`` connects, ``upgrade`` makes it a WebSocket, ``hello`` and ``resume`` a session.

    Attributes:
        sent: bytes that were handed to the kernel, or wait in this process to be.
        received_bytes: bytes that came, once the WebSocket was open.
        received: id of the last session packet that came.
        number: id of the last session packet that was sent; the owner counts.
        request: number of the last request, likewise.
        replies: replies that came.
        refusals: of those that were skimmed, the ones that told of an error.
        token: the newest one.
        first: what came with the welcome, the welcome itself included.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str = PATH) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer
        self._in = bytearray()
        self._closed = ""
        self.sent = 0
        self.received_bytes = 0
        self.received = 0
        self.number = 0
        self.request = 0
        self.replies = 0
        self.refusals = 0
        self.token = ""
        self.first: list[dict[str, Any]] = []

    @classmethod
    async def open(
        cls, target: Target, address: str, *, receive_buffer: int | None = None, entry: Entry = Entry.CLIENTS
    ) -> Self:
        """Connect, by TLS where the node speaks it.

        Args:
            target: the node.
            address: of this side, within 127.0.0.0/8.
            receive_buffer: see ``plain_socket``.
            entry: where it is opened.

        Raises:
            Lost: it could not.
        """
        peer = plain_socket(address, receive_buffer=receive_buffer)
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.get_running_loop().sock_connect(peer, (HOST, target.port_of(entry)))
                context = trusting_context() if target.speaks_tls(entry) else None
                reader, writer = await asyncio.open_connection(
                    sock=peer, ssl=context, server_hostname="localhost" if context else None, limit=READ_BYTES
                )
        except (OSError, TimeoutError) as error:
            peer.close()
            raise Lost(f"connect: {type(error).__name__}") from error
        except BaseException:
            peer.close()
            raise
        return cls(reader, writer, target.path_of(entry))

    async def upgrade(self) -> None:
        """Make it a WebSocket.

        Raises:
            Lost: the node refused, with its status, or went away.
        """
        request = wire.upgrade_request(HOST, 80, self._path, SUBPROTOCOL)
        try:
            async with asyncio.timeout(PATIENCE):
                await self.send(request)
                while not wire.read_upgrade(self._in):
                    await self._more()
        except wire.UpgradeRefused as refused:
            raise Lost(f"HTTP {refused.status}") from refused
        except (wire.WireError, TimeoutError) as error:
            raise Lost(f"upgrade: {type(error).__name__}") from error

    async def hello(self, principal: str, secret: str = "", *, window: float | None = None) -> dict[str, Any]:
        """Open a session, and prove that its token came.

        Returns:
            The welcome.

        Raises:
            Lost: the node refused, with its code, or went away.
        """
        first: dict[str, Any] = {"type": "hello", "principal": principal}
        if secret:
            first["secret"] = secret
        if window is not None:
            first["window"] = window
        return await self._greet(first)

    async def resume(self, token: str, attempt: int, *, received: int, oldest: int, **fields: str) -> dict[str, Any]:
        """Come back to a session.

        Args:
            token: its newest.
            attempt: higher than ever before.
            received: id of the last packet that came.
            oldest: id of the oldest packet that can be sent again.
            fields: credentials, where they are shown again.

        Returns:
            The welcome.

        Raises:
            Lost: the node refused, with its code, or went away.
        """
        return await self._greet(
            {"type": "resume", "token": token, "attempt": attempt, "received": received, "oldest": oldest, **fields}
        )

    async def _greet(self, first: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(PATIENCE):
                await self.send(wire.frame(orjson.dumps(first)))
                while not (packets := await self.packets()):
                    pass
                welcome = packets[0]
                if welcome.get("type") != "welcome":
                    raise Lost(str(welcome.get("code", welcome)))
                self.token = str(welcome["token"])
                if welcome.get("numbering") == "kept":
                    self.received = int(first["received"])
                    self.received += sum(each.get("type") in {"reply", "update", "notice"} for each in packets[1:])
                await self.send(wire.frame(b'{"type":"ack","received":%d}' % self.received))
                self.first = packets
        except TimeoutError as error:
            raise Lost("no welcome") from error
        return welcome

    async def send(self, data: bytes) -> None:
        """Send bytes as they are, and wait while too many of them wait.

        Raises:
            Lost: the connection is over.
        """
        try:
            self._writer.write(data)
            self.sent += len(data)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise Lost(f"send: {type(error).__name__}") from error

    async def packets(self) -> list[dict[str, Any]]:
        """Wait for something, and decode it.

        Raises:
            Lost: the connection is over, with the code if the node told one.
        """
        found: list[dict[str, Any]] = []
        while not found:
            for payload in await self._payloads():
                content = orjson.loads(payload)
                found += content if isinstance(content, list) else [content]
        return found

    async def skim(self) -> None:
        """Wait for something and count what is numbered, without decoding it.

        Raises:
            Lost: the connection is over.
        """
        for payload in await self._payloads():
            replies = payload.count(_NUMBERED[0])
            self.replies += replies
            self.refusals += payload.count(_REFUSED)
            self.received += replies + sum(payload.count(each) for each in _NUMBERED[1:])

    async def drain_input(self) -> None:
        """Read and throw away until the connection is over, so that the node can go on writing.

        Raises:
            Lost: it is over.
        """
        while True:
            self._in.clear()
            await self._more()

    async def until_closed(self) -> None:
        """Wait until the node has closed the connection, as after a bye.

        Raises:
            Lost: it does not.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    await self.skim()
        except Lost:
            return
        except TimeoutError as error:
            raise Lost("not closed") from error

    async def _payloads(self) -> list[bytes]:
        if self._closed:
            raise Lost(self._closed)
        try:
            frames = wire.read_frames(self._in)
            if not frames:
                await self._more()
                frames = wire.read_frames(self._in)
        except wire.WireError as error:
            raise Lost(str(error)) from error
        for opcode, payload in frames:
            if opcode == wire.Opcode.CLOSE:
                # What came before it is looked at first: an error says more than the close code.
                self._closed = f"close {int.from_bytes(payload[:2], 'big')}"
        return [payload for opcode, payload in frames if opcode == wire.Opcode.TEXT]

    async def _more(self) -> None:
        try:
            data = await self._reader.read(READ_BYTES)
        except OSError as error:
            raise Lost(f"read: {type(error).__name__}") from error
        if not data:
            raise Lost("closed")
        self.received_bytes += len(data)
        self._in += data

    @property
    def closing(self) -> bool:
        """Whether this side knows that the connection is over."""
        return self._writer.transport.is_closing()

    def cut(self) -> None:
        """Reset the connection without a word."""
        self._writer.transport.abort()
