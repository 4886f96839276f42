"""A console's connection on the admin port: the gateway's protocol over a WebSocket of aiohttp.

Consoles are few, and come through whatever the admin port has around it, TLS for example. So they get a plain
connection of their own, and the one for ten thousand clients stays free of their wishes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self

from aiohttp import WSCloseCode, WSMsgType, web

from gateway.ports import Access, Receiver

CLOSE_TIMEOUT: Final = 2.0
"""Seconds a console gets to take what is on its way and to answer the close."""

_ENDED_BADLY: Final = frozenset({WSCloseCode.ABNORMAL_CLOSURE, 1005})
"""What aiohttp reports for a connection without a close frame, or with one that has no code."""


class ConsoleConnection:
    """Implements ``gateway.ports.Connection``; ``run`` carries it, from the handler of the request.

    Args:
        websocket: prepared already.
        address: where the console comes from.
    """

    def __init__(self, websocket: web.WebSocketResponse, address: str) -> None:
        self._websocket = websocket
        self._address = address
        self._inbox: deque[bytes] = deque()
        self._outgoing: deque[bytes] = deque()
        self._queued = 0
        self._receiver: Receiver | None = None
        self._paused = False
        self._over = False
        self._closing: tuple[int, str] | None = None
        self._code: int | None = None
        self._news = asyncio.Event()
        """Something was read, or the connection is over."""
        self._wanted = asyncio.Event()
        """Somebody wants to hear the console."""
        self._work = asyncio.Event()
        """Something is to be written, or the connection is to be closed."""

    # --- The port -----------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """See the port."""
        return self._address

    @property
    def access(self) -> Access:
        """See the port; consoles are told of nothing that is less safe than what they may have come by."""
        return Access(secure=True)

    @property
    def close_code(self) -> int | None:
        """See the port."""
        return self._code

    async def receive(self) -> bytes | None:
        """See the port."""
        while not self._inbox:
            if self._over or self._closing is not None:
                return None
            self._wanted.set()
            self._news.clear()
            await self._news.wait()
        if self._closing is not None:
            return None
        return self._inbox.popleft()

    def listen(self, receiver: Receiver) -> None:
        """See the port."""
        self._receiver = receiver
        self._wanted.set()
        self._hand_over()

    def pause(self) -> None:
        """See the port."""
        self._paused = True
        self._wanted.clear()

    def resume(self) -> None:
        """See the port."""
        self._paused = False
        self._wanted.set()
        self._hand_over()

    @property
    def is_closing(self) -> bool:
        """See the port."""
        return self._over or self._closing is not None

    def write(self, message: bytes) -> None:
        """See the port."""
        if not self._over and self._closing is None:
            self._outgoing.append(message)
            self._queued += len(message)
            self._work.set()

    @classmethod
    def write_all(cls, connections: Sequence[Self], messages: Sequence[bytes]) -> None:
        """See the port."""
        for connection, message in zip(connections, messages, strict=True):
            connection.write(message)

    def backlog(self) -> int:
        """See the port."""
        return self._queued

    def close(self, code: int, reason: str) -> None:
        """See the port."""
        if self._over or self._closing is not None:
            return
        self._closing = (code, reason)
        self._code = code
        self._inbox.clear()
        self._work.set()
        self._news.set()
        self._wanted.set()

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read and write until the connection is over."""
        writing = asyncio.create_task(self._write(), name="console-write")
        reading = asyncio.create_task(self._read(), name="console-read")
        try:
            await asyncio.wait((writing, reading), return_when=asyncio.FIRST_COMPLETED)
            if self._closing is not None and not writing.done():
                await asyncio.wait((writing,), timeout=CLOSE_TIMEOUT)
        finally:
            for task in (writing, reading):
                task.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)
            self._end()

    async def _read(self) -> None:
        while True:
            await self._wanted.wait()
            message = await self._websocket.receive()
            match message.type:
                case WSMsgType.TEXT:
                    self._inbox.append(message.data.encode())
                    if self._receiver is None:
                        self._wanted.clear()  # until it is asked for the next one
                    self._news.set()
                    self._hand_over()
                case WSMsgType.BINARY:
                    self.close(WSCloseCode.UNSUPPORTED_DATA, "messages are text")
                case _:
                    code = self._websocket.close_code
                    if self._code is None and code not in _ENDED_BADLY:
                        self._code = code
                    return

    async def _write(self) -> None:
        with suppress(ConnectionError):
            while True:
                await self._work.wait()
                self._work.clear()
                while self._outgoing:
                    message = self._outgoing[0]
                    await self._websocket.send_frame(message, WSMsgType.TEXT)
                    self._outgoing.popleft()
                    self._queued -= len(message)
                if self._closing is not None:
                    code, reason = self._closing
                    await self._websocket.close(code=code, message=reason.encode())
                    return

    def _hand_over(self) -> None:
        while self._receiver is not None and self._inbox and not self._paused and self._closing is None:
            self._receiver.received(self._inbox.popleft())
        if self._over and self._receiver is not None and (self._closing is not None or not self._paused):
            receiver, self._receiver = self._receiver, None
            asyncio.get_running_loop().call_soon(receiver.ended)

    def _end(self) -> None:
        self._over = True
        self._outgoing.clear()
        self._queued = 0
        self._news.set()
        self._hand_over()
