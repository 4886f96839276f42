"""One WebSocket to a node, by websocket-client. Nothing else knows that library; another one can take its place."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Final, Protocol

import websocket

from gateway.core.client.endings import CannotConnect, Ending
from gateway.core.client.urls import describe_url
from gateway.core.wire.codec import SUBPROTOCOL

_PASSING_STATUSES: Final = frozenset({408, 425, 429})
"""HTTP statuses of the 400 range that are no verdict on the request: timeout, too early, too many."""
_CLIENT_ERRORS: Final = range(400, 500)
_CODE_BYTES: Final = 2
"""Length of the code at the beginning of a close frame (RFC 6455 section 5.5.1)."""
_MAX_REASON_BYTES: Final = 123
"""Longest reason in a close frame (RFC 6455 section 5.5: 125 bytes, 2 of which are the code)."""
_NOT_TEXT: Final = 1003
"""Close code for a message that is not text (protocol 1.5)."""


class Transport(Protocol):
    """A connection as the shell needs it. One greenlet receives; any may do the rest."""

    def send(self, message: bytes) -> None:
        """Write one text message; waits while the transport pushes back.

        Raises:
            ConnectionError: the connection is gone.
        """

    def receive(self) -> bytes | Ending:
        """Wait for the next message; an ``Ending`` says that there will be none, and that everything is released."""

    def say_close(self, code: int, reason: str) -> None:
        """Write a close frame; the other side's answer ends ``receive``. No effect if the connection is gone."""

    def cut(self) -> None:
        """Lose the connection without a close frame, as a failing network does; ends ``receive``."""


class Dialer(Protocol):
    """What makes transports."""

    def __call__(self, url: str, *, seconds: float) -> Transport:
        """Open a connection.

        Raises:
            CannotConnect: it could not be opened.
        """


class _Socket(websocket.WebSocket):
    """A socket that does not forget why the other side closed."""

    def send_close(self, status: int = websocket.STATUS_NORMAL, reason: str | bytes = b"") -> None:
        """Write a close frame, unless the other side is gone already.

        The library answers a close frame before it hands it on. If that failed loudly, the code would be lost.
        """
        with suppress(OSError, websocket.WebSocketException):
            super().send_close(status, reason)


class WebSocketTransport:
    """A ``Transport`` over websocket-client; make one with ``open_websocket``."""

    def __init__(self, connection: websocket.WebSocket) -> None:
        self._connection = connection

    def send(self, message: bytes) -> None:
        """See ``Transport.send``."""
        try:
            self._connection.send(message, websocket.ABNF.OPCODE_TEXT)
        except (websocket.WebSocketException, OSError) as error:
            raise ConnectionError(str(error)) from None

    def receive(self) -> bytes | Ending:
        """See ``Transport.receive``."""
        ending: Ending
        try:
            opcode, data = self._connection.recv_data()
            if opcode == websocket.ABNF.OPCODE_TEXT:
                content: bytes = data
                return content
            ending = _closed(data) if opcode == websocket.ABNF.OPCODE_CLOSE else _not_text()
        except websocket.WebSocketConnectionClosedException:
            ending = Ending(message="the connection was lost")
        except (websocket.WebSocketException, OSError) as error:
            ending = Ending(message=f"the connection failed: {error}")
        self._connection.shutdown()  # type: ignore[no-untyped-call]
        return ending

    def say_close(self, code: int, reason: str) -> None:
        """See ``Transport.say_close``."""
        cut = reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()
        self._connection.send_close(code, cut)

    def cut(self) -> None:
        """See ``Transport.cut``."""
        connection = self._connection.sock
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def open_websocket(url: str, *, seconds: float) -> WebSocketTransport:
    """Open a WebSocket that speaks this protocol.

    Args:
        url: of a node or a load balancer, with the route hint; never with anything secret.
        seconds: time for each of TCP, TLS and the HTTP upgrade.

    Raises:
        CannotConnect: it could not be opened.
    """
    where = describe_url(url)
    # The JSON decoder checks UTF-8 anyway, and a hundred times as fast as the library's own check in Python.
    connection = _Socket(skip_utf8_validation=True)
    try:
        connection.connect(  # type: ignore[no-untyped-call]
            # Other clients take http and https as well; this library does not.
            f"ws{url.removeprefix('http')}" if url.startswith("http") else url,
            timeout=seconds,
            subprotocols=[SUBPROTOCOL],
            # A client that is no browser has no origin (protocol 1.4); the library would make one up.
            suppress_origin=True,
            # A redirect might lead to a place without TLS, and the secret would follow.
            redirect_limit=0,
        )
    except websocket.WebSocketTimeoutException:
        raise CannotConnect(Ending(message=f"{where} did not answer within {seconds:g} s", hung=True)) from None
    except websocket.WebSocketBadStatusException as refused:
        status = refused.status_code
        permanent = status in _CLIENT_ERRORS and status not in _PASSING_STATUSES
        message = f"{where} answered the upgrade with HTTP status {status}"
        raise CannotConnect(Ending(message=message, permanent=permanent)) from None
    except ValueError as error:
        raise CannotConnect(Ending(message=f"{where} is not a usable URL: {error}", permanent=True)) from None
    except (websocket.WebSocketException, OSError) as error:
        raise CannotConnect(Ending(message=f"{where} cannot be reached: {error}")) from None
    if connection.subprotocol != SUBPROTOCOL:
        connection.shutdown()  # type: ignore[no-untyped-call]
        message = f"{where} is not a gateway: it did not accept the subprotocol {SUBPROTOCOL}"
        raise CannotConnect(Ending(message=message, permanent=True))
    # The session machine watches for silence itself.
    connection.settimeout(None)
    return WebSocketTransport(connection)


def _closed(data: bytes) -> Ending:
    if len(data) < _CODE_BYTES:
        return Ending(message="the node closed the connection without a code")
    code = struct.unpack("!H", data[:_CODE_BYTES])[0]
    reason = data[_CODE_BYTES:].decode(errors="replace") or "no reason given"
    return Ending(code=code, message=f"the node closed the connection with code {code}: {reason}")


def _not_text() -> Ending:
    return Ending(message="the node sent a message that is not text", code=_NOT_TEXT, violation=True)
