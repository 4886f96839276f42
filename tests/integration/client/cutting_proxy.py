"""A TCP proxy that loses connections when a test wants it to, and leads new ones where a test wants them to go."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK = 65_536


class CuttingProxy:
    """Forwards connections from a free port of 127.0.0.1.

    Args:
        target: port of 127.0.0.1 to forward to.

    Attributes:
        target: as given; change it to lead new connections elsewhere.
        connections: how many there were.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()
        while self._writers:  # noqa: ASYNC110 - each ends by itself, at once
            await asyncio.sleep(0.002)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Lose every connection there is, with all that is under way on it."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, forth}
        self._writers |= pair
        try:
            await asyncio.gather(_pipe(reader, forth), _pipe(back, writer))
        finally:
            for each in pair:
                each.transport.abort()
            self._writers -= pair


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()
