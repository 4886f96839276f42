"""A socket of which it is told how much is read, for tests that count bytes in the place of timing them."""

from __future__ import annotations

import socket
from collections.abc import Callable


class CountedSocket:
    """A socket whose bytes are counted when they are read.

    Args:
        connection: the socket; whatever is not asked here is asked of it.
        count: told of each read how many bytes it had.
    """

    def __init__(self, connection: socket.socket, count: Callable[[int], None]) -> None:
        self._socket = connection
        self._count = count

    def recv(self, size: int) -> bytes:
        """Read from the socket, and have the bytes counted."""
        data = self._socket.recv(size)
        self._count(len(data))
        return data

    def __getattr__(self, name: str) -> object:
        return getattr(self._socket, name)
