"""Finds the head of a request in what has come, and reads it as far as it decides who answers it and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

HEAD_END: Final = b"\r\n\r\n"
"""Behind the head of every request."""

HEAD_BYTES: Final = 128 * 1024
"""Longest head of a request: the longest line (see ``server.LINE_BYTES``), and as much again in headers."""


class BadHead(Exception):
    """This is no request of HTTP."""


@dataclass(slots=True)
class RequestHead:
    """What the head of a request says.

    Attributes:
        method: as it was sent.
        path: without the query, as it was sent.
        has_body: whether something may come behind it.
        keeps_alive: whether the connection may be used for another request.
        version: of HTTP, ``1.1`` for example.
        upgrade: whether it asks for another protocol.
        authorization: what its Authorization headers hold.
    """

    method: bytes = b""
    path: bytes = b""
    has_body: bool = False
    keeps_alive: bool = False
    version: str = ""
    upgrade: bool = False
    authorization: tuple[bytes, ...] = ()


def read_head(data: bytes) -> RequestHead:
    """Read a head.

    Args:
        data: to the empty line that ends it, and no further.

    Raises:
        BadHead: it is none.
    """
    found = _Found()
    parser = HttpRequestParser(found)
    found.parser = parser
    try:
        parser.feed_data(data)
    except HttpParserUpgrade:
        pass
    except HttpParserError as error:
        raise BadHead(str(error)) from None
    finally:
        found.parser = None  # which holds this object as this object holds it
    if not found.complete:
        raise BadHead("the head has no end")
    found.head.path = found.target.partition(b"?")[0]
    return found.head


def path_of(data: bytes) -> bytes:
    """Tell what a request that begins like that is for, without the query; cheap, and no proof that it is one."""
    line = data.partition(b"\r\n")[0].split(b" ", 2)
    return line[1].partition(b"?")[0] if len(line) > 1 else b""


class _Found:
    """Is called by the parser."""

    __slots__ = ("complete", "head", "parser", "target")

    def __init__(self) -> None:
        self.head = RequestHead()
        self.parser: HttpRequestParser | None = None
        self.target = b""
        self.complete = False

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"authorization":
                self.head.authorization += (value,)
            case b"transfer-encoding":
                self.head.has_body = True
            case b"content-length":
                self.head.has_body = self.head.has_body or value.strip() != b"0"

    def on_headers_complete(self) -> None:
        if self.parser is None or self.complete:
            return
        self.complete = True
        # Behind the head the parser has forgotten it.
        self.head.method = self.parser.get_method()
        self.head.version = self.parser.get_http_version()
        self.head.keeps_alive = self.parser.should_keep_alive()
        self.head.upgrade = self.parser.should_upgrade()


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
