"""A node's link without a node: says what a test wants it to say, right or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Final

import orjson

from gateway.adapters.peers.frames import Frame, FrameReader, FrameType, encode
from tests.support.times import time_limit

_READ: Final = 65_536


class RawPeer:
    """One connection to the port of links.

    Args:
        reader: of its socket.
        writer: of its socket.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = FrameReader()

    def hello(self, **changed: object) -> None:
        """Say hello, as the node n2 unless told otherwise."""
        body = {
            "cluster": "cluster-under-test",
            "node": "n2",
            "incarnation": "first",
            "started": 1.0,
            "protocols": [1],
            "features": [],
            **changed,
        }
        self.say(FrameType.HELLO, orjson.dumps(body))

    def say(
        self, type_: FrameType, body: bytes = b"", *, stream: int = 0, version: int = 1, more: bool = False
    ) -> None:
        """Say a frame."""
        self.writer.write(encode(type_, stream, body, version=version, more=more))

    async def frame(self) -> Frame | None:
        """Read a frame; None if the node hung up."""
        async with time_limit():
            while (frame := self._frames.next()) is None:
                try:
                    data = await self.reader.read(_READ)
                except OSError:
                    return None
                if not data:
                    return None
                self._frames.feed(data)
            return frame

    async def heard(self, type_: FrameType) -> Frame:
        """Read until a frame of this type comes."""
        while (frame := await self.frame()) is not None:
            if frame.type is type_:
                return frame
        raise AssertionError(f"the node hung up before it sent a {type_.name.lower()}")

    async def refusal(self) -> str:
        """Read the reason for which the node refuses."""
        return str(orjson.loads((await self.heard(FrameType.REFUSE)).body)["reason"])

    async def hung_up(self) -> None:
        """Wait until the node hangs up."""
        while await self.frame() is not None:
            pass


@asynccontextmanager
async def raw_peer(address: str, tls: SSLContext | None = None) -> AsyncIterator[RawPeer]:
    """Connect to the port of links at *address*, host:port."""
    host, _, port = address.rpartition(":")
    async with time_limit():
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()
