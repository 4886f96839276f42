"""Bytes of a connection that were not served yet, and where a request begins among them."""

from __future__ import annotations

from typing import Final

from gateway.adapters.admin.request_head import HEAD_BYTES, HEAD_END

_EMPTY_LINE: Final = b"\r\n"


class HeadTooLong(Exception):
    """More has come than the head of a request may have, and it has not ended."""


class RequestBuffer:
    """Keeps what has come, in order. Each byte is searched once, however little comes at a time."""

    __slots__ = ("_data", "_searched")

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        """Keep what has come."""
        self._data += data

    def take_head(self) -> bytes | None:
        """Take out the head of a request, to the empty line that ends it; None if it is not whole yet.

        Raises:
            HeadTooLong: it is longer than ``HEAD_BYTES``.
        """
        while self._data.startswith(_EMPTY_LINE):
            del self._data[: len(_EMPTY_LINE)]  # some send an empty line behind a request (RFC 9112 section 2.2)
        end = self._data.find(HEAD_END, max(0, self._searched - len(HEAD_END) + 1))
        if end < 0 and len(self._data) <= HEAD_BYTES:
            self._searched = len(self._data)
            return None
        self._searched = 0
        if end < 0 or end > HEAD_BYTES:
            raise HeadTooLong
        return self.take(end + len(HEAD_END))

    def take(self, most: int) -> bytes:
        """Take out what came first, at most so many bytes."""
        data = bytes(self._data[:most])
        del self._data[: len(data)]
        return data

    def take_all(self) -> bytes:
        """Take out everything."""
        data, self._data = bytes(self._data), bytearray()
        self._searched = 0
        return data
