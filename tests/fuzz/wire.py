"""A client without rules, for fuzzers: bytes out, frames in."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from random import Random
from typing import Any, Final

from tests.fuzz.engine import Case
from tests.fuzz.mutation import cut
from tests.support.times import scaled
from tests.support.upgrade import UPGRADE_REQUEST

PATIENCE: Final = scaled(60.0)
"""Seconds until a connection that ought to have ended counts as hanging: generous, for machines under load."""

TEXT: Final = 0x81
CLOSE: Final = 0x88


def frame(first: int, payload: bytes, *, mask: bytes = b"\0\0\0\0") -> bytes:
    """Write a frame of a client."""
    size = len(payload)
    if size < 126:
        head = bytes([first, 0x80 | size])
    elif size < 1 << 16:
        head = bytes([first, 0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, 0x80 | 127]) + size.to_bytes(8, "big")
    return (
        head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        if any(mask)
        else head + mask + payload
    )


RESET: Final = "reset"
"""Step of a case: break the connection."""


def steps(random: Random, data: bytes) -> Case:
    """Draw how a network brings bytes: in which pieces, and whether the connection breaks behind them."""
    pieces: Case = [["send", piece.decode("latin-1")] for piece in cut(random, data)]
    return [*pieces, [RESET]] if random.random() < 0.05 else pieces


class Wire:
    """One connection.

    Attributes:
        messages: text messages that have come.
        answer: to the upgrade; nothing if the connection ended without.
        code: of the close frame that has come; None without one.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.messages: list[bytes] = []
        self.answer = b""
        self.code: int | None = None

    async def dial(self, connected: socket.socket | None = None) -> None:
        """Connect, or go on with a socket that is."""
        where: dict[str, Any] = {"host": "127.0.0.1", "port": self._port} if connected is None else {"sock": connected}
        self._reader, self._writer = await asyncio.open_connection(**where)

    @property
    def reader(self) -> asyncio.StreamReader:
        """What comes."""
        assert self._reader is not None
        return self._reader

    async def send(self, data: bytes) -> bool:
        """Send; False if the other side has gone."""
        assert self._writer is not None
        if self._writer.transport.is_closing():
            return False
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            return False
        return True

    async def upgrade(self) -> bool:
        """Open a WebSocket; False if it was not."""
        await self.send(UPGRADE_REQUEST)
        with suppress(asyncio.IncompleteReadError, OSError):
            self.answer = await self.reader.readuntil(b"\r\n\r\n")
        return self.answer.startswith(b"HTTP/1.1 101 ")

    async def frame(self) -> tuple[int, bytes] | None:
        """Wait for a frame; None at the end. Frames of a server are not masked."""
        try:
            first, size = await self.reader.readexactly(2)
            if size == 126:
                size = int.from_bytes(await self.reader.readexactly(2), "big")
            elif size == 127:
                size = int.from_bytes(await self.reader.readexactly(8), "big")
            payload = await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None
        if first == TEXT:
            self.messages.append(payload)
        elif first == CLOSE:
            self.code = int.from_bytes(payload[:2], "big") if payload else None
        return first, payload

    async def to_end(self) -> None:
        """Take frames in until the connection has ended."""
        while await self.frame():
            pass

    async def play(self, case: Case) -> bool:
        """Send what the steps say, then say that nothing more comes; False if the last one broke the connection."""
        for action, *data in case:
            if action == RESET:
                self.reset()
                return False
            if not await self.send(data[0].encode("latin-1")):
                break
        self.half_close()
        return True

    def half_close(self) -> None:
        """Say that nothing more comes."""
        assert self._writer is not None
        with suppress(OSError):
            self._writer.write_eof()

    def reset(self) -> None:
        """Break the connection."""
        assert self._writer is not None
        peer = self._writer.get_extra_info("socket")
        with suppress(OSError):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.transport.abort()
            with suppress(OSError):
                await self._writer.wait_closed()
