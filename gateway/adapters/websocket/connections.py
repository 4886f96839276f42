"""The two kinds of connections that clients come over: a socket as it is, and one that speaks TLS.

Both are used in the same way, without waiting: ``BlockingIOError`` means later, any other ``OSError`` means broken.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext, SSLWantReadError, SSLWantWriteError
from typing import Final, Protocol, TypeAlias

RECORD_BYTES: Final = 16 * 1024
"""Largest content of one record of TLS (RFC 8446 section 5.1)."""

Wrap: TypeAlias = Callable[[socket.socket], "Connection"]
"""Makes a connection of an accepted socket."""


class Connection(Protocol):
    """What a link needs of a socket."""

    def fileno(self) -> int:
        """The descriptor to wait for; -1 once closed."""

    def recv(self, size: int, /) -> bytes:
        """Take what has come, at most *size* bytes; nothing means that the other side says nothing more."""

    def send(self, data: bytes | bytearray | memoryview, /) -> int:
        """Hand over as much as is taken now. What was not is offered again from there, with more behind it or not."""

    def shutdown(self, how: int, /) -> None:
        """Say that nothing more will be sent; what still comes after that has no meaning."""

    def close(self) -> None:
        """Let go of the descriptor."""


class TlsConnection:
    """A socket that speaks TLS as a server, once ``shake_hands`` has come to its end.

    It has no buffer of its own, and OpenSSL lets go of its buffers while nothing is under way, so that an idle
    connection costs little. The kernel is asked for one record at a time: whoever asks ``recv`` for ``RECORD_BYTES`` or
    more leaves nothing behind in OpenSSL, and can rely on the descriptor being readable if there is more.

    Args:
        connection: just accepted, not blocking; taken over.
        context: says how; later changes of it do not concern this connection.

    Raises:
        OSError: the connection is gone already.
    """

    __slots__ = ("_tls",)

    def __init__(self, connection: socket.socket, context: SSLContext) -> None:
        tls = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        if tls.session_reused is None:
            # The standard library makes a plain socket of a connection that is gone already. Nothing may ever be sent
            # over one that looks encrypted and is not.
            tls.close()
            raise ConnectionAbortedError("the connection ended before TLS began")
        self._tls = tls

    def fileno(self) -> int:
        """See ``Connection``."""
        return self._tls.fileno()

    def shake_hands(self) -> None:
        """Go on with the handshake as far as what has come allows; returns when it is done.

        One call may compute a signature, which is the most that a stranger can cause.

        Raises:
            BlockingIOError: more has to come first.
            ssl.SSLError: no connection comes about.
            OSError: the connection is broken.
        """
        try:
            self._tls.do_handshake()
        except (SSLWantReadError, SSLWantWriteError):
            raise BlockingIOError from None

    def recv(self, size: int, /) -> bytes:
        """See ``Connection``.

        Raises:
            ssl.SSLError: no connection comes about, or what has come was tampered with.
        """
        try:
            return self._tls.recv(size)
        except (SSLWantReadError, SSLWantWriteError):
            # To be written is at most the answer to a change of keys. It goes out with what is written next.
            raise BlockingIOError from None

    def send(self, data: bytes | bytearray | memoryview, /) -> int:
        """See ``Connection``. A record is taken whole or not at all."""
        try:
            if len(data) <= RECORD_BYTES:
                return self._tls.send(data)
            return self._send_records(data)
        except (SSLWantReadError, SSLWantWriteError):
            raise BlockingIOError from None

    def _send_records(self, data: bytes | bytearray | memoryview) -> int:
        sent = 0
        with memoryview(data) as view:
            while sent < len(view):
                try:
                    sent += self._tls.send(view[sent : sent + RECORD_BYTES])
                except (SSLWantReadError, SSLWantWriteError):
                    if not sent:
                        raise
                    break
        return sent

    def shutdown(self, how: int, /) -> None:
        """See ``Connection``; ends TLS as well, so that the other side knows that nothing was cut off."""
        self._say_end()
        # Not the method of this class, which would take TLS off and go on in clear text.
        socket.socket.shutdown(self._tls, how)

    def close(self) -> None:
        """See ``Connection``."""
        self._say_end()
        self._tls.close()

    def _say_end(self) -> None:
        # It is told at once, and the answer is not waited for. Who is gone cannot be told.
        with suppress(OSError, ValueError):
            self._tls.unwrap()
