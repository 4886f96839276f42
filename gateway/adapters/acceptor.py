"""The port of links: accepts connections, a few at a time, until they have said who they are (P20)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from gateway.adapters.listeners import listen
from gateway.core.pacing.rates import TokenBucket

BACKLOG: Final = 128
"""Connections that the kernel holds until they are accepted: those of a cluster that starts all at once."""

STRANGERS: Final = 32
"""Connections that have not said who they are. For one more, the oldest is hung up."""

ACCEPT_RATE: Final = 50.0
ACCEPT_BURST: Final = 50.0
"""Connections a second, and at once: a handshake of TLS takes 1 to 2 ms, so strangers take a tenth of a core at most.
A whole cluster of 50 nodes is there after a second."""

ACCEPT_PAUSE: Final = 0.5
"""Seconds without accepting, when the system has no descriptors left."""


class Acceptor:
    """Listens, and hands connections on.

    Args:
        host: where to listen.
        port: likewise; 0 for a free one.
        greet: takes a socket and its address, until it is known who it is; from then on the socket is its own.
        crowded_out: told of each that was hung up to make room.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        greet: Callable[[socket.socket, str], Coroutine[Any, Any, None]],
        crowded_out: Callable[[str], None],
    ) -> None:
        self._host = host
        self._port = port
        self._greet = greet
        self._crowded_out = crowded_out
        self._listeners: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._strangers: dict[asyncio.Task[None], str] = {}
        self._rate = TokenBucket(ACCEPT_RATE, ACCEPT_BURST)

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        return self._port

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: that is not possible.
        """
        self._listeners = await listen(self._host, self._port, backlog=BACKLOG)
        self._port = int(self._listeners[0].getsockname()[1])
        self._tasks = [asyncio.create_task(self._accept(listener), name="link-accept") for listener in self._listeners]

    async def close(self) -> None:
        """Listen no more, and hang up on those who have not said who they are."""
        tasks = [*self._tasks, *self._strangers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        self._listeners = []

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if wait := self._rate.charge(loop.time()):
                await asyncio.sleep(wait)
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            if len(self._strangers) >= STRANGERS:
                oldest, where = next(iter(self._strangers.items()))
                oldest.cancel()
                self._strangers.pop(oldest, None)
                self._crowded_out(where)
            task = asyncio.create_task(self._greet(accepted, str(address[0])), name="link-greeting")
            self._strangers[task] = str(address[0])
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._strangers.pop(task, None)
