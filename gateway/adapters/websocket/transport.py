"""What clients come over: a socket as it is, or a ``TlsConnection``.

Both are used in the same way, without waiting: ``BlockingIOError`` means later, any other ``OSError`` means broken.
"""

from __future__ import annotations

import socket
import struct
import termios
from collections.abc import Callable
from fcntl import ioctl
from typing import Protocol, TypeAlias

Wrap: TypeAlias = Callable[[socket.socket], "Transport"]
"""Makes a transport of an accepted socket."""


class Transport(Protocol):
    """What a WebSocket connection needs of a socket."""

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


def unread(descriptor: int) -> int:
    """Tell how many bytes have come over a socket that nobody has taken; 0 also at its end, or if it is broken."""
    try:
        (count,) = struct.unpack("i", ioctl(descriptor, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return int(count)
