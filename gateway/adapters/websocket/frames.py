"""WebSocket frames (RFC 6455 section 5), without I/O: built for the client, and read from it.

Frames of the server are built without a copy more than needed. The gateway decides itself what waits and what is
conflated, so it hands whole frames to the transport and looks at the transport's backlog.

No extension is negotiated (protocol 1.5), so a message is the payload of a text frame, or of several fragments.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, TypeAlias

from gateway.catalogue.refusals import FrameRule as Rule

TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA
_CONTINUATION: Final = 0x0
"""Opcodes (section 5.2)."""

_FINAL: Final = 0x80
"""In the first byte: the last frame of its message."""
_RESERVED: Final = 0x70
"""In the first byte: bits of extensions, of which there are none."""
_CONTROL: Final = 0x08
"""In the opcode: close, ping or pong, or one of those that nobody has defined."""
_MASKED: Final = 0x80
"""In the second byte: the payload is masked, as a client must and a server must not."""
_MASK_BYTES: Final = 4

_LENGTH_7_BITS: Final = 125
"""Longest payload whose length fits into the second byte; also the longest of a control frame."""
_LENGTH_16_BITS: Final = 0xFFFF
"""Longest payload whose length fits into two further bytes."""
_IN_2_BYTES: Final = 126
_IN_8_BYTES: Final = 127
"""In the place of a length: it follows in that many bytes."""

_TEXT_FINAL: Final = _FINAL | TEXT

_STATUS_BYTES: Final = 2
_LONGEST_REASON: Final = _LENGTH_7_BITS - _STATUS_BYTES
"""Bytes of UTF-8 beside the code in a close frame."""

_HEADER_16_BITS: Final = Struct(">BBH").pack
"""Writes the header of a message whose length is in two bytes, as that of nearly all that a node sends."""

_SENDABLE: Final = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})
"""Close codes below 3000 that an endpoint may send (section 7.4.1 and the registry of IANA)."""
_OF_LIBRARIES: Final = range(3000, 5000)
"""Close codes of libraries and applications."""

FRAMES_AT_ONCE: Final = 128
"""Frames that are read before others get their turn: some 0.3 ms of the smallest ones."""

_SHORT_HEAD_BYTES: Final = 2 + _MASK_BYTES
"""Of a frame whose length is in the second byte."""

_REPEATED: Final = tuple(
    [sum([1 << (8 * at) for at in range(0, size, _MASK_BYTES)]) for size in range(_LENGTH_7_BITS + 1)]
)
"""For each short length: what a mask is multiplied by to stand behind itself until it is as long, or longer."""

_ONES: Final = tuple([(1 << (8 * size)) - 1 for size in range(_LENGTH_7_BITS + 1)])
"""For each short length: what cuts the mask off that is repeated too often."""

_int: Final = int.from_bytes

LARGE: Final = 4096
"""Bytes from which on a payload is unmasked byte by byte of the mask, which is faster then: twice, for the largest."""

_UNMASKED: Final = tuple([bytes([byte ^ mask for byte in range(256)]) for mask in range(256)])
"""For each byte of a mask, what each byte of a payload becomes: 64 KiB."""

Frame: TypeAlias = tuple[int, bytes]
"""Opcode and payload: of a whole message, or of a control frame."""


BEGINNING: Final = 256
"""Bytes of a message that is too big which are read beyond the largest one: they may say which packet begins there."""


class Breach(IntEnum):
    """Close codes that tell a client which rule of RFC 6455 it broke (section 7.4.1)."""

    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_TEXT = 1007
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009


def text_frame(payload: bytes) -> bytes:
    """Frame one text message.

    Args:
        payload: UTF-8.
    """
    size = len(payload)
    if size <= _LENGTH_7_BITS:
        return b"%c%c%b" % (_TEXT_FINAL, size, payload)
    if size <= _LENGTH_16_BITS:
        return _HEADER_16_BITS(_TEXT_FINAL, _IN_2_BYTES, size) + payload
    return b"%c\x7f%b%b" % (_TEXT_FINAL, size.to_bytes(8, "big"), payload)


def close_frame(code: int | None, reason: str = "") -> bytes:
    """Build a close frame; a reason that is too long is cut between two characters.

    Args:
        code: None for a frame without one.
        reason: for people.
    """
    text = reason.encode("utf-8", "replace")[:_LONGEST_REASON].decode("utf-8", "ignore").encode()
    payload = b"" if code is None else code.to_bytes(_STATUS_BYTES, "big") + text
    return b"%c%c%b" % (_FINAL | CLOSE, len(payload), payload)


def pong_frame(payload: bytes) -> bytes:
    """Build the answer to a ping with *payload*."""
    return b"%c%c%b" % (_FINAL | PONG, len(payload), payload)


def close_code(payload: bytes) -> int | None:
    """Read the code of a close frame.

    Args:
        payload: of the frame.

    Returns:
        The code; None if the frame has none.

    Raises:
        FrameError: there is no such code, or the reason is not UTF-8.
    """
    if not payload:
        return None
    code = int.from_bytes(payload[:_STATUS_BYTES], "big")
    if len(payload) < _STATUS_BYTES or (code not in _SENDABLE and code not in _OF_LIBRARIES):
        raise FrameError(Rule.CLOSE, Breach.PROTOCOL_ERROR, "a close frame has a code that nobody may send")
    if not _is_utf_8(payload[_STATUS_BYTES:]):
        raise FrameError(Rule.NOT_UTF_8, Breach.INVALID_TEXT, "the reason of a close frame is not UTF-8")
    return code


class FrameError(Exception):
    """The client broke RFC 6455.

    Attributes:
        rule: that it broke.
        code: with which to close.
        beginning: of a message that is too big, as far as it has come; None for other rules.
    """

    def __init__(self, rule: Rule, code: Breach, message: str, beginning: bytes | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.code = code
        self.beginning = beginning


class FrameReader:
    """Turns the bytes of a client into messages and control frames.

    Args:
        most: largest message, in bytes.

    Attributes:
        awaits_culprit: whether the frame that is not whole yet is too big, and more of it is waited for.
        explains: whether of a message that is too big as much is waited for as the largest message has, and
            ``BEGINNING`` more, before it is refused: it may say which packet is to blame. Else it is refused by its
            head.
        is_behind: whether there may be more frames in what has been fed than were read.
        others: frames of the last ``feed`` that are no message by themselves: control frames and fragments.
    """

    __slots__ = ("_begun", "_fragments", "_most", "_rest", "awaits_culprit", "explains", "is_behind", "others")

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest: bytearray | None = None
        """A frame that is not whole yet. None, as nearly always, costs nothing per connection."""
        self._fragments: bytearray | None = None
        self._begun = 0
        """Opcode of the message of which there are fragments."""
        self.awaits_culprit = False
        self.explains = False
        self.is_behind = False
        self.others = 0

    def feed(self, data: bytes) -> tuple[list[Frame], FrameError | None]:
        """Take in bytes, and read at most ``FRAMES_AT_ONCE`` frames.

        Args:
            data: what the transport brought; nothing, to go on with what came before.

        Returns:
            What they complete, in order, and what is wrong with what follows; after that nothing may be fed.
        """
        self.is_behind = False
        self.others = 0
        rest = self._rest
        if rest is not None:
            rest += data
            data = rest  # type: ignore[assignment]  # read just as bytes are
            self._rest = None
        frames: list[Frame] = []
        start, end, left = 0, len(data), FRAMES_AT_ONCE
        longest = -1 if self._fragments is not None else min(self._most, _LENGTH_7_BITS)
        try:
            while start < end:
                if not left:
                    self._rest = bytearray(memoryview(data)[start:])
                    self.is_behind = True
                    break
                left -= 1
                body = start + _SHORT_HEAD_BYTES
                if body <= end and data[start] == _TEXT_FINAL:
                    # As ``_read``, without calls: nearly all that clients say is short, whole and ASCII.
                    size = data[start + 1] - _MASKED
                    following = body + size
                    if 0 <= size <= longest and following <= end:
                        key = _int(data[start + 2 : body], "little") * _REPEATED[size] & _ONES[size]
                        payload = (_int(data[body:following], "little") ^ key).to_bytes(size, "little")
                        frames.append((TEXT, payload if payload.isascii() else _text(payload)))
                        start = following
                        continue
                read = self._read(data, start, end, frames)
                if read is None:
                    # A long frame that comes byte by byte must not be copied for each of them.
                    self._rest = rest if rest is not None and start == 0 else bytearray(memoryview(data)[start:])
                    break
                start = read
                longest = -1 if self._fragments is not None else min(self._most, _LENGTH_7_BITS)
        except FrameError as error:
            # Its trace would lead back to whoever holds the error, and all of them with their buffers would stay until
            # somebody looks for cycles, which is seldom (``gateway.garbage``).
            return frames, error.with_traceback(None)
        return frames, None

    def _read(self, data: bytes, start: int, end: int, frames: list[Frame]) -> int | None:
        """Read one frame; returns where the next one begins, or None if this one is not whole yet."""
        if end - start < 2:  # noqa: PLR2004 - the two bytes that every frame begins with
            return None
        first, second = data[start], data[start + 1]
        size = second & ~_MASKED
        at = start + 2
        if size == _IN_2_BYTES:
            size = int.from_bytes(data[at : at + 2], "big")
            at += 2
        elif size == _IN_8_BYTES:
            size = int.from_bytes(data[at : at + 8], "big")
            at += 8
        if at > end:
            return None
        self._check(first, second, size)
        body = at + _MASK_BYTES
        if not first & _CONTROL and size + (0 if self._fragments is None else len(self._fragments)) > self._most:
            self.awaits_culprit = self.explains and self._is_worth_more(end - body, size)
            if self.awaits_culprit:
                return None
            raise self._too_big(data[body : min(body + self._most + BEGINNING, end)], data[at:body])
        following = body + size
        if following > end:
            return None
        payload = _unmask(data[body:following], data[at:body], size)
        if first == _TEXT_FINAL and self._fragments is None:
            frames.append((TEXT, _text(payload)))
        else:
            self.others += 1
            self._take(first, payload, frames)
        return following

    def _check(self, first: int, second: int, size: int) -> None:
        """Refuse a frame by its head, before its payload is waited for."""
        if not second & _MASKED:
            raise FrameError(Rule.UNMASKED, Breach.PROTOCOL_ERROR, "a frame of a client must be masked")
        if first & _RESERVED:
            raise FrameError(
                Rule.RESERVED_BITS, Breach.PROTOCOL_ERROR, "a frame has reserved bits, but no extension was agreed on"
            )
        form = second & ~_MASKED
        if form > _LENGTH_7_BITS and size <= (_LENGTH_7_BITS if form == _IN_2_BYTES else _LENGTH_16_BITS):
            raise FrameError(Rule.LENGTH, Breach.PROTOCOL_ERROR, "a length takes more bytes than it needs")
        opcode = first & 0x0F
        if opcode & _CONTROL:
            if opcode > PONG:
                raise FrameError(Rule.OPCODE, Breach.PROTOCOL_ERROR, f"there is no opcode {opcode}")
            if size > _LENGTH_7_BITS or not first & _FINAL:
                raise FrameError(Rule.CONTROL, Breach.PROTOCOL_ERROR, "a control frame is too long or not whole")
            return
        if opcode > BINARY:
            raise FrameError(Rule.OPCODE, Breach.PROTOCOL_ERROR, f"there is no opcode {opcode}")
        if (opcode == _CONTINUATION) is (self._fragments is None):
            raise FrameError(
                Rule.ORDER, Breach.PROTOCOL_ERROR, "a message begins within another, or goes on without one"
            )

    def _is_worth_more(self, come: int, size: int) -> bool:
        """Tell whether to wait for more of a message that is too big; cheap, as it may come byte by byte.

        Args:
            come: bytes of the payload of its last frame that have come; negative as long as its head is not whole.
            size: of that payload when it is whole.
        """
        before = 0 if self._fragments is None else len(self._fragments)
        return come < min(size, self._most + BEGINNING - before)

    def _too_big(self, payload: bytes, mask: bytes) -> FrameError:
        beginning = _unmask(payload, mask, len(payload)) if len(mask) == _MASK_BYTES else b""
        if self._fragments is not None:
            beginning = bytes(self._fragments) + beginning
        message = f"a message has at most {self._most} bytes"
        return FrameError(Rule.TOO_BIG, Breach.MESSAGE_TOO_BIG, message, beginning[: self._most + BEGINNING])

    def _take(self, first: int, payload: bytes, frames: list[Frame]) -> None:
        opcode = first & 0x0F
        if opcode & _CONTROL:
            frames.append((opcode, payload))
            return
        if self._fragments is None:
            if first & _FINAL:
                frames.append((opcode, payload))
                return
            self._fragments, self._begun = bytearray(), opcode
        self._fragments += payload
        if first & _FINAL:
            whole, self._fragments = bytes(self._fragments), None
            frames.append((self._begun, _text(whole) if self._begun == TEXT else whole))


def _text(payload: bytes) -> bytes:
    """Let UTF-8 pass (section 8.1). A message is bounded, so it is early enough to look at it when it is whole."""
    if not (payload.isascii() or _is_utf_8(payload)):
        raise FrameError(Rule.NOT_UTF_8, Breach.INVALID_TEXT, "a text message is not UTF-8")
    return payload


def _is_utf_8(text: bytes) -> bool:
    """Tell it, and be done with the error: one that is raised meanwhile would hold this one, and its trace the buffers.

    ``from None`` only hides it.
    """
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _unmask(payload: bytes, mask: bytes, size: int) -> bytes:
    """Take the mask off.

    One exclusive or of two large numbers is the fastest that Python has, but takes longer than in proportion to their
    length. So large payloads are looked up in tables, every fourth byte at a time.
    """
    if size >= LARGE:
        plain = bytearray(size)
        for at, byte in enumerate(mask):
            plain[at::_MASK_BYTES] = payload[at::_MASK_BYTES].translate(_UNMASKED[byte])
        return bytes(plain)
    if size <= _LENGTH_7_BITS:
        short = _int(mask, "little") * _REPEATED[size] & _ONES[size]
        return (_int(payload, "little") ^ short).to_bytes(size, "little")
    key = bytes(mask) * (size // _MASK_BYTES) + bytes(mask[: size % _MASK_BYTES])
    return (int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")
