"""WebSocket (RFC 6455) as a client speaks it, reduced to what a load generator needs.

One upgrade request with a fixed key, masked text frames out, unmasked frames in. The fixed key and mask spare the
generator the random numbers; servers cannot tell, and every answer is still checked.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

_KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
"""The example of RFC 6455 section 1.3, whose answer is known."""
_ACCEPT: Final = b"s3pplmbitxaq9kygzzhzrbk+xoo="
"""That answer, in lower case, as header fields are compared here."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_STATUS: Final = re.compile(rb"http/1\.[01] (\d{3}) ")
_RETRY_AFTER: Final = re.compile(rb"\r\nretry-after: *(\d+)")
_LARGEST_HEAD: Final = 16_384
"""Bytes of a response head; more is not an answer to an upgrade."""

_MASK: Final = bytes.fromhex("a51e3c72")
"""Not zero, so that servers do all the work of unmasking."""
_MASK_REPEATED: Final = int.from_bytes(_MASK * 16_384, "big")
_MASK_BITS: Final = len(_MASK) * 16_384 * 8
"""Longest payload that is masked in one go, in bits: 64 KiB, the largest message that a node accepts by default."""

_FINAL: Final = 0x80
_MASKED: Final = 0x80
_SHORT: Final = 126
"""Values of the 7-bit length from here on say that the length follows."""
_LENGTH_16: Final = 126
_LENGTH_64: Final = 127
_BYTE_MASKED_16: Final = _MASKED | _LENGTH_16


class WireError(Exception):
    """The server answered with something that is not WebSocket, or refused the upgrade."""


class UpgradeRefused(WireError):
    """The server answered the upgrade, and not by 101.

    Attributes:
        status: of HTTP.
        retry_after: seconds after which to come again, or None.
    """

    def __init__(self, head: bytes, shown: bytes) -> None:
        super().__init__(f"the upgrade was answered by {shown!r}")
        found = _STATUS.match(head)
        self.status = int(found[1]) if found else 0
        after = _RETRY_AFTER.search(head)
        self.retry_after = float(after[1]) if after else None


class Opcode(IntEnum):
    """What a frame carries."""

    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


def upgrade_request(host: str, port: int, target: str, subprotocol: str | None) -> bytes:
    """Write the request that opens a WebSocket.

    Args:
        host: for the Host header.
        port: likewise.
        target: path and query.
        subprotocol: to offer, or None for none.
    """
    offer = "" if subprotocol is None else f"Sec-WebSocket-Protocol: {subprotocol}\r\n"
    return (
        f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Version: 13\r\n{offer}\r\n"
    ).encode()


def read_upgrade(received: bytearray) -> bool:
    """Take the head of the response off *received*.

    Returns:
        False if it is not complete yet.

    Raises:
        WireError: the server did not accept the upgrade.
    """
    end = received.find(_END_OF_HEAD)
    if end < 0:
        if len(received) > _LARGEST_HEAD:
            raise WireError("the head of the response does not end")
        return False
    head = bytes(received[:end]).lower()
    if not head.startswith(b"http/1.1 101") or _ACCEPT not in head:
        raise UpgradeRefused(head, bytes(received[:200]))
    del received[: end + len(_END_OF_HEAD)]
    return True


def frame(payload: bytes, opcode: Opcode = Opcode.TEXT) -> bytes:
    """Write one masked frame.

    Raises:
        ValueError: the payload is longer than a node accepts (64 KiB).
    """
    size = len(payload)
    bits = size * 8
    if bits > _MASK_BITS:
        raise ValueError(f"a payload of {size} bytes is longer than any node accepts")
    masked = (int.from_bytes(payload, "big") ^ (_MASK_REPEATED >> (_MASK_BITS - bits))).to_bytes(size, "big")
    if size < _SHORT:
        return b"%c%c%b%b" % (_FINAL | opcode, _MASKED | size, _MASK, masked)
    if size < 1 << 16:
        return b"%c%c%b%b%b" % (_FINAL | opcode, _BYTE_MASKED_16, size.to_bytes(2, "big"), _MASK, masked)
    return b"%c%c%b%b%b" % (_FINAL | opcode, _MASKED | _LENGTH_64, size.to_bytes(8, "big"), _MASK, masked)


def read_frames(received: bytearray) -> list[tuple[int, bytes]]:
    """Take all complete frames off *received*.

    Returns:
        Opcode and payload of each, in order.

    Raises:
        WireError: a frame is fragmented or masked, which none of the servers under test has a reason to send.
    """
    frames: list[tuple[int, bytes]] = []
    start, available = 0, len(received)
    while available - start >= 2:  # noqa: PLR2004 - the two bytes that every frame begins with
        first, size = received[start], received[start + 1]
        if not first & _FINAL or size & _MASKED:
            raise WireError(f"a frame begins with {bytes(received[start : start + 2])!r}")
        body = start + 2
        if size >= _SHORT:
            width = 2 if size == _LENGTH_16 else 8
            body += width
            if available < body:
                break
            size = int.from_bytes(received[body - width : body], "big")
        if available < body + size:
            break
        frames.append((first & ~_FINAL, bytes(received[body : body + size])))
        start = body + size
    del received[:start]
    return frames
