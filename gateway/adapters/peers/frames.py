"""Frames of node links: bytes in and out, without a socket. The page ``docs/reference/node-links.md`` is normative.

```text
length u32 │ type u8 │ version u8 │ stream u32 │ body          big-endian; the length counts what follows it
```

A message that is longer than one frame goes out as several frames of its type and stream, all but the last with the bit
``MORE`` in their type; frames of other messages may come between.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from gateway.core.wire.errors import GatewayError

PROTOCOLS: Final = (1,)
"""Versions of the protocol that this code speaks, ascending."""

FIRST_VERSION: Final = PROTOCOLS[0]
"""In frames of the greeting, before a version is agreed on."""

FRAME_BYTES: Final = 256 * 1024
"""Longest frame with its head: small enough that a heartbeat behind it waits for 2 ms on a link of 1 Gbit/s."""

HELLO_BYTES: Final = 4096
"""Longest frame of somebody who has not said who it is."""

MORE: Final = 0x80
"""In the type of a frame: the message goes on in another one."""

_HEAD: Final = struct.Struct(">IBBI")
_COUNTED: Final = _HEAD.size - 4
"""Bytes of the head that the length counts."""

BODY_BYTES: Final = FRAME_BYTES - _HEAD.size
"""Longest body of one frame."""


class FrameError(GatewayError):
    """What came is not the protocol of node links; the message tells why."""


class FrameType(IntEnum):
    """What a frame is. Each is told with the version of the protocol since which there is one."""

    HELLO = 1
    """Since 1. Who one is; the first frame of each side."""
    REFUSE = 2
    """Since 1. In place of a hello: there will be no link."""
    BEAT = 3
    """Since 1. I live. Sent if nothing else was; a body is ignored, so that later versions may say more."""
    RECORD = 4
    """Since 1. Stream 0; ordered."""
    QUESTION = 5
    """Since 1. The stream is its number."""
    ANSWER = 6
    """Since 1. The stream is the number of the question."""
    BYE = 7
    """Since 1. The link is hung up on purpose; the body tells people why."""


class Frame(NamedTuple):
    """One frame.

    Attributes:
        type: what it is.
        more: whether its message goes on in another one.
        version: of the protocol.
        stream: which of several messages.
        body: the rest.
    """

    type: FrameType
    more: bool
    version: int
    stream: int
    body: bytes


_TYPES: Final = {int(each): each for each in FrameType}
_IN_PIECES: Final = frozenset({FrameType.RECORD, FrameType.QUESTION, FrameType.ANSWER})
"""What may be longer than a frame."""


def encode(type_: FrameType, stream: int, body: bytes | memoryview, *, version: int, more: bool = False) -> bytes:
    """Write one frame; *body* has at most ``BODY_BYTES``."""
    head = _HEAD.pack(_COUNTED + len(body), type_ | MORE if more else type_, version, stream)
    return b"".join((head, body))


class FrameReader:
    """Makes frames of bytes that come as they come.

    Holds no more than one frame that is not complete, beside what was fed and not asked for.

    Args:
        most: bytes of the longest frame.

    Attributes:
        most: bytes of the longest frame; may be changed between two frames.
    """

    def __init__(self, most: int = FRAME_BYTES) -> None:
        self.most = most
        self._bytes = bytearray()
        self._read = 0

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        if self._read:
            del self._bytes[: self._read]
            self._read = 0
        self._bytes += data

    def next(self) -> Frame | None:
        """Return the next frame, or None if it has not come yet.

        Raises:
            FrameError: it is none; nothing more can be read.
        """
        held = len(self._bytes) - self._read
        if held < _HEAD.size:
            return None
        length, type_, version, stream = _HEAD.unpack_from(self._bytes, self._read)
        if not _COUNTED <= length <= self.most - 4:
            raise FrameError(f"a frame of {length} bytes, and {self.most - 4} may be announced at most")
        known = _TYPES.get(type_ & ~MORE)
        if known is None:
            raise FrameError(f"a frame of the unknown type {type_ & ~MORE}")
        if type_ & MORE and known not in _IN_PIECES:
            raise FrameError(f"a {known.name.lower()} in several frames")
        end = self._read + 4 + length
        if len(self._bytes) < end:
            return None
        body = bytes(memoryview(self._bytes)[self._read + _HEAD.size : end])
        self._read = end
        return Frame(known, bool(type_ & MORE), version, stream, body)
