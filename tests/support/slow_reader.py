"""A client that reads when it is told to and not otherwise, over a socket with a small receive buffer.

Libraries read ahead, so that a test which stops asking them does not stop reading. This one asks the kernel itself; the
frames are made and read by ``websockets`` without its I/O.
"""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType
from typing import Any, Final, Self

import orjson
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from gateway.core.wire.codec import SUBPROTOCOL
from tests.support.numbering import packets_of
from tests.support.raw_client import Packet
from tests.support.times import PATIENCE, time_limit

RECEIVE_BUFFER: Final = 32 * 1024
"""Bytes that the kernel takes for a client that does not read; it doubles this for its own bookkeeping. With much less,
also a client that reads would be a slow one: the other side waits for room again and again."""

_CHUNK: Final = 65_536


class SlowReader:
    """One connection. Use as ``async with SlowReader(url) as reader``.

    Args:
        url: of the node or the load balancer, with path.

    Attributes:
        received: id of the last session packet read.
        packets: how many packets were read.
    """

    def __init__(self, url: str) -> None:
        uri = parse_uri(url)
        self._address = (uri.host, uri.port)
        self._protocol = ClientProtocol(uri, subprotocols=[Subprotocol(SUBPROTOCOL)], max_size=None)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._waiting: list[Packet] = []
        self._ended = False
        self.received = 0
        self.packets = 0

    async def __aenter__(self) -> Self:
        # Before connecting, or the kernel has promised more already.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.setblocking(False)
        await asyncio.get_running_loop().sock_connect(self._socket, self._address)
        self._protocol.send_request(self._protocol.connect())
        await self._write()
        while self._protocol.handshake_exc is None and not self._protocol.state.value:
            await self._read()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def close_code(self) -> int | None:
        """The close code that was read; None before."""
        close = self._protocol.close_rcvd
        return None if close is None else close.code

    async def send(self, *packets: Packet) -> None:
        """Send one message: a packet, or an array of several."""
        self._protocol.send_text(orjson.dumps(packets[0] if len(packets) == 1 else packets))
        await self._write()

    async def receive(self, *, within: float = PATIENCE) -> Packet | None:
        """Read on until there is a packet; None if the connection is over.

        Raises:
            TimeoutError: nothing came in time.
        """
        async with time_limit(within):
            while not self._waiting and not self._ended:
                await self._read()
        if not self._waiting:
            return None
        packet = self._waiting.pop(0)
        self.packets += 1
        self.received = packet.get("id", self.received)
        return packet

    async def expect(self, kind: str) -> Packet:
        """Return the next packet of a type, skipping others."""
        while (packet := await self.receive()) is not None:
            if packet["type"] == kind:
                return packet
        raise AssertionError(f"closed with {self.close_code} before a {kind} came")

    async def rest(self) -> list[Packet]:
        """Read everything that is left, up to the end of the connection."""
        packets: list[Packet] = []
        while (packet := await self.receive()) is not None:
            packets.append(packet)
        return packets

    async def hello(self, principal: str) -> Packet:
        await self.send({"type": "hello", "principal": principal})
        return await self.expect("welcome")

    async def _write(self) -> None:
        for data in self._protocol.data_to_send():
            await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def _read(self) -> None:
        await self._readable()
        try:
            data = self._socket.recv(_CHUNK)
        except ConnectionError:
            data = b""
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
            self._ended = True
        for event in self._protocol.events_received():
            self._take_in(event)

    async def _readable(self) -> None:
        """Wait until there is something to read; whoever is cancelled here has taken nothing."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._socket, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._socket)

    def _take_in(self, event: Any) -> None:
        match event:
            case Frame(opcode=Opcode.TEXT, data=text):
                self._waiting += packets_of(bytes(text))
            case Frame(opcode=Opcode.CLOSE):
                self._ended = True
            case Response() | Frame():
                pass
