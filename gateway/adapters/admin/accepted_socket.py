"""A connection of the admin port before it has a transport: a socket, at which one looks without taking anything."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext
from typing import Final

from gateway.adapters.admin.pacing import Pacer
from gateway.adapters.admin.tls_transport import TlsTransport

PEEK_BYTES: Final = 2048
"""A health check is shorter than that: a line, a host, and what a load balancer says of itself."""


class AcceptedSocket:
    """Wraps it. Nothing that has come is lost to the transport that is made of it.

    Args:
        accepted: not blocking; taken over.
    """

    __slots__ = ("_is_watched", "_loop", "_socket")

    def __init__(self, accepted: socket.socket) -> None:
        self._socket = accepted
        self._loop = asyncio.get_running_loop()
        self._is_watched = False

    def look(self) -> bytes | None:
        """Tell what has come, ``PEEK_BYTES`` of it at most; None if nothing has yet.

        Raises:
            OSError: it has ended.
        """
        try:
            seen = self._socket.recv(PEEK_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        if not seen:
            raise ConnectionAbortedError("the peer has ended it")
        return seen

    def watch(self, readable: Callable[[], None]) -> None:
        """Have *readable* called when something has come; until ``unwatch``."""
        if not self._is_watched:
            self._is_watched = True
            self._loop.add_reader(self._socket.fileno(), readable)

    def unwatch(self) -> None:
        """Call nobody any more."""
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._socket.fileno())

    def answer(self, size: int, answer: bytes) -> None:
        """Take *size* bytes of a request, answer it, and say that nothing follows; whether or not anybody hears that.

        A kernel that has taken nothing of this connection yet has room for a short answer.
        """
        with suppress(OSError):
            self._socket.recv(size)
            self._socket.send(answer)
            self._socket.shutdown(socket.SHUT_WR)

    async def open(self, protocol: asyncio.Protocol) -> None:
        """Make a transport of it, without TLS.

        Args:
            protocol: is told of the transport, and of what has come.

        Raises:
            OSError: it is gone.
        """
        await self._loop.connect_accepted_socket(lambda: protocol, self._socket)

    def secure(
        self,
        protocol: asyncio.Protocol,
        tls: SSLContext,
        *,
        pacer: Pacer,
        flooded: Callable[[], None],
        closing_seconds: float,
    ) -> TlsTransport:
        """Make a transport of it that speaks TLS; for the arguments, see there."""
        return TlsTransport(self._socket, tls, protocol, pacer=pacer, flooded=flooded, closing_seconds=closing_seconds)

    def close(self) -> None:
        """End it."""
        self.unwatch()
        self._socket.close()
