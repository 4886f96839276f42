"""Which request it is because of which a message cannot be taken, told without reading it as packets (protocol 4.8.1).

Such a message is too large, or no JSON, and closes its connection. Its client sends the request again after the resume
and is closed again, unless it is told which one to drop.

What is wrong may stand anywhere, so packets are told apart by brackets and strings alone. Where these are wrong, what
stands before counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.core.types import RequestNumber
from gateway.core.wire.codec.fields import MAX_NUMBER
from gateway.core.wire.codec.salvage import salvage

BEGINNING_BYTES: Final = 256
"""Bytes beyond the largest message that are looked at, if they have come: all that clients write of a packet before a
topic or a value, where it begins just within."""

WORK: Final = 24_000
"""What is spent on a message at most: one for each string and run of brackets, and ``PACKET_WORK`` for each packet. A
message of 64 KiB that a client of ours writes needs less; what needs more is made to, and its request is not named."""

PACKET_WORK: Final = 8
"""What telling apart and reading a packet costs, in what looking at a string costs."""

_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_PIECE: Final = re.compile(_STRING + r'|"|[\[{]+|[\]}]+', re.DOTALL)
"""What tells where a packet ends: strings, a quotation mark without another one, and runs of brackets."""

_NUMBER: Final = re.compile(r"[ \t\n\r]*:[ \t\n\r]*([1-9][0-9]{0,15})(?=[ \t\n\r,}])")
"""The number of a request, after the name of its field."""

_TYPE: Final = re.compile(r'[ \t\n\r]*:[ \t\n\r]*"(subscribe|unsubscribe|publish|history|properties|authenticate)"')
"""The type of a request, after the name of its field."""


class _Extent(NamedTuple):
    """A packet in a message.

    Attributes:
        start: where it begins.
        end: what follows it; None if it does not end in what there is of the message.
        request: its number, if it is a request and says so.
        pieces: that were looked at.
    """

    start: int
    end: int | None
    request: RequestNumber | None
    pieces: int


def unreadable_request(message: str | bytes) -> RequestNumber | None:
    """Tell the number of the request because of which a message is not JSON.

    Args:
        message: all of it: one packet, or an array of packets of which one or more are not JSON.

    Returns:
        The number, if the first packet that is not JSON is a request, and says so before what is wrong or after it;
        else None.
    """
    text = _bytes_as_text(message)
    for packet in _packets(text):
        if packet.end is None:
            return packet.request
        try:
            salvage(text[packet.start : packet.end])
        except ValueError:
            return packet.request
    return None


def excessive_request(beginning: bytes, most: int) -> RequestNumber | None:
    """Tell the number of the request with which a message became larger than it may be.

    Args:
        beginning: of the message; up to ``BEGINNING_BYTES`` more than *most* are looked at, and fewer may have come.
        most: bytes of the largest message that is accepted.

    Returns:
        The number, if the last packet that begins within *most* bytes is a request and says so in what there is; else
        None.
    """
    text = _bytes_as_text(beginning[: most + BEGINNING_BYTES])
    last: _Extent | None = None
    for packet in _packets(text):
        if packet.start > most:
            break
        last = packet
    return None if last is None else last.request


def _bytes_as_text(message: str | bytes) -> str:
    """Read each byte as a character: places stay, and JSON is told from what is not by ASCII alone."""
    return (message.encode(errors="replace") if isinstance(message, str) else message).decode("latin-1")


def _packets(text: str) -> Iterator[_Extent]:
    """Yield the packets of a message, up to the first that does not end or is followed by no other."""
    at = _after_space(text, 0)
    left = WORK
    if text[at : at + 1] != "[":
        yield _extent(text, at, left)
        return
    at = _after_space(text, at + 1)
    while text[at : at + 1] == "{":
        packet = _extent(text, at, left)
        yield packet
        if packet.end is None:
            return
        left -= packet.pieces + PACKET_WORK
        at = _after_space(text, packet.end)
        if text[at : at + 1] != ",":
            return
        at = _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _extent(text: str, start: int, most: int) -> _Extent:
    """Tell where the packet that begins at a place ends, and which request it is; after *most* pieces, neither."""
    if text[start : start + 1] != "{":
        return _Extent(start, None, None, 0)
    depth = pieces = 0
    strings: list[re.Match[str]] = []
    end: int | None = None
    for pieces, piece in enumerate(_PIECE.finditer(text, start), 1):
        if pieces > most:
            return _Extent(start, None, None, pieces)
        written = piece[0]
        first = written[0]
        if first == '"':
            if len(written) == 1:
                break  # a string that does not end: what is inside it and what is not cannot be told
            if depth == 1:
                strings.append(piece)
        elif first in "[{":
            depth += len(written)
        elif depth > len(written):
            depth -= len(written)
        else:
            end = piece.start() + depth
            break
    return _Extent(start, end, _request(text, strings), pieces)


def _request(text: str, strings: list[re.Match[str]]) -> RequestNumber | None:
    """Tell the number of a request by its fields.

    Args:
        text: it is in there.
        strings: its own, not those of what it holds: names of fields, and values. Of two numbers the first counts.
    """
    number: re.Match[str] | None = None
    is_request = False
    for string in strings:
        if string[0] == '"request"':
            number = number or _NUMBER.match(text, string.end())
        elif string[0] == '"type"':
            is_request = is_request or _TYPE.match(text, string.end()) is not None
    if number is None or not is_request or int(number[1]) > MAX_NUMBER:
        return None
    return RequestNumber(int(number[1]))
