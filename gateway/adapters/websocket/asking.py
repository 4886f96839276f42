"""A connection before it is a WebSocket: its request is read and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from socket import SHUT_WR
from ssl import SSLError
from typing import Final, Protocol

from gateway.adapters.websocket.connections import Connection
from gateway.adapters.websocket.upgrade import HEAD_BYTES, Refusal, Request, RequestReader
from gateway.catalogue.refusals import UpgradeRefusal as Why

REQUEST_TIMEOUT: Final = 10.0
"""Seconds from the connection to the end of the request, however the bytes trickle in: a healthy client sends them at
once, and who waits costs memory."""

LINGER_TIMEOUT: Final = 1.0
"""Seconds a client gets to read why it is refused: a socket that is closed with something unread in it throws away what
the other side has not read yet."""


class Begin(Protocol):
    """Goes on with a connection that has been upgraded."""

    def __call__(self, connection: Connection, peer: str, request: Request) -> None:
        """Take it over, with what came behind the request."""


class Asking:
    """Reads one request and answers it.

    Args:
        connection: just accepted, not blocking.
        peer: its address.
        answer: grants a request by returning the answer; raises ``Refusal`` if it does not.
        begin: called if it was granted.
        refused: called with the reason if it was not.
        over: called when this object has nothing to do any more.
    """

    __slots__ = ("_answer", "_begin", "_connection", "_loop", "_over", "_peer", "_reader", "_refused", "_timer")

    def __init__(
        self,
        connection: Connection,
        peer: str,
        *,
        answer: Callable[[Request], bytes],
        begin: Begin,
        refused: Callable[[Why], None],
        over: Callable[[Asking], None],
    ) -> None:
        self._connection = connection
        self._peer = peer
        self._answer = answer
        self._begin = begin
        self._refused = refused
        self._over = over
        self._reader: RequestReader | None = RequestReader()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(REQUEST_TIMEOUT, self._on_late)
        self._loop.add_reader(connection.fileno(), self._on_readable)

    def end(self, reason: Why = Why.GONE) -> None:
        """Close the connection.

        Args:
            reason: why, unless it has been refused already.
        """
        if self._reader is not None:
            self._refused(reason)
        self._let_go()
        self._connection.close()

    def _let_go(self) -> None:
        self._timer.cancel()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._loop.remove_reader(self._connection.fileno())
        self._over(self)

    def _on_readable(self) -> None:
        try:
            data = self._connection.recv(HEAD_BYTES)
        except BlockingIOError:
            return
        except SSLError:
            self.end(Why.TLS)
            return
        except OSError:
            data = b""
        if not data:
            self.end()
        elif self._reader is not None:  # else it has been refused, and what still comes is thrown away
            self._take_in(self._reader, data)

    def _take_in(self, reader: RequestReader, data: bytes) -> None:
        has_body = True
        try:
            request = reader.feed(data)
            if request is None:
                return
            has_body = request.method != b"HEAD"
            granted = self._answer(request)
        except Refusal as refusal:
            self._refuse(refusal, has_body=has_body)
            return
        # Nothing has been sent before, so a kernel that does not take the few bytes means that the client is gone.
        if self._reply(granted):
            self._let_go()
            self._begin(self._connection, self._peer, request)
        else:
            self.end()

    def _on_late(self) -> None:
        if self._reader is not None and self._reader.has_begun:
            self._refuse(
                Refusal(
                    Why.SLOW,
                    HTTPStatus.REQUEST_TIMEOUT,
                    f"a request must be complete in {REQUEST_TIMEOUT:g} seconds",
                )
            )
        else:
            self.end(Why.SILENT)  # it has asked nothing, so there is nothing to answer

    def _refuse(self, refusal: Refusal, *, has_body: bool = True) -> None:
        self._refused(refusal.reason)
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if not self._reply(refusal.response(has_body=has_body)) or not self._hang_up():
            self.end()
            return
        self._timer.cancel()
        self._timer = self._loop.call_later(LINGER_TIMEOUT, self.end)

    def _reply(self, answer: bytes) -> bool:
        try:
            return self._connection.send(answer) == len(answer)
        except OSError:
            return False

    def _hang_up(self) -> bool:
        """Say that nothing more will be sent."""
        try:
            self._connection.shutdown(SHUT_WR)
        except OSError:
            return False
        return True
