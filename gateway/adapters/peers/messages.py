"""Messages of node links: what waits to be sent, in frames, and what has come of messages that are not complete."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Final

from gateway.adapters.peers.frames import BODY_BYTES, Frame, FrameError, FrameType, encode
from gateway.ports.peers import KIND_BYTES, AnswerStatus

AT_ONCE: Final = 8
"""Long questions and answers whose frames take turns; others wait for one of them to end."""

MOST_UNFINISHED: Final = 2 * AT_ONCE + 1
"""Messages that a peer may have begun and not ended: those, and a record. Twice the questions, for later versions."""

MESSAGE_OVERHEAD: Final = 64
"""Bytes that a message counts beside its body: empty ones must not be for free."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A message that waits, or of which a part is sent.

    Attributes:
        type: of its frames.
        stream: of its frames.
        body: all of it.
        sent: bytes of it that were handed out.
        begun: whether any were.
    """

    type: FrameType
    stream: int
    body: bytes
    sent: int = 0
    begun: bool = False

    @property
    def size(self) -> int:
        """What it counts."""
        return len(self.body) + MESSAGE_OVERHEAD


class SendQueue:
    """What waits to be sent to one peer: records in their order, and beside them questions and answers in turns.

    A message counts with all its bytes until the last of them is handed out, so that a peer holds no more of messages
    that are not complete than the queue does.

    Args:
        version: of the protocol, for the heads of frames.

    Attributes:
        bytes: what all of it counts.
        frames: handed out so far.
    """

    def __init__(self, version: int) -> None:
        self.bytes = 0
        self.frames = 0
        self._version = version
        self._urgent: deque[bytes] = deque()
        self._records: deque[Outgoing] = deque()
        self._turns: deque[Outgoing] = deque()
        self._others: deque[Outgoing] = deque()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._records or self._turns or self._others)

    def urgent(self, type_: FrameType, body: bytes = b"") -> None:
        """Put a short frame before all others; who does so sees to it that there are few."""
        self._urgent.append(encode(type_, 0, body, version=self._version))

    def put(self, type_: FrameType, stream: int, body: bytes) -> Outgoing:
        """Put a message behind those of its sort."""
        message = Outgoing(type_, stream, body)
        self.bytes += message.size
        (self._records if type_ is FrameType.RECORD else self._others).append(message)
        return message

    def withdraw(self, message: Outgoing) -> bool:
        """Take a question or answer back; False if it was begun, or there is none."""
        if message.begun:
            return False
        for waiting in (self._others, self._turns):
            if message in waiting:
                waiting.remove(message)
                break
        else:
            return False
        self.bytes -= message.size
        return True

    def take(self, most: int) -> list[bytes]:
        """Hand out frames.

        Args:
            most: bytes after which no other frame is begun.
        """
        frames: list[bytes] = []
        while self._urgent:
            frames.append(self._urgent.popleft())
        taken = sum(map(len, frames))
        while taken < most and (self._records or self._turns or self._others):
            if self._records:
                frames.append(self._piece(self._records[0]))
                taken += len(frames[-1])
                if self._is_done(self._records[0]):
                    self._records.popleft()
            while self._others and len(self._turns) < AT_ONCE:
                self._turns.append(self._others.popleft())
            if self._turns:
                message = self._turns.popleft()
                frames.append(self._piece(message))
                taken += len(frames[-1])
                if not self._is_done(message):
                    self._turns.append(message)
        self.frames += len(frames)
        return frames

    def _piece(self, message: Outgoing) -> bytes:
        message.begun = True
        start, message.sent = message.sent, min(len(message.body), message.sent + BODY_BYTES)
        body = message.body if start == 0 and self._is_done(message) else memoryview(message.body)[start : message.sent]
        if done := self._is_done(message):
            self.bytes -= message.size
        return encode(message.type, message.stream, body, version=self._version, more=not done)

    @staticmethod
    def _is_done(message: Outgoing) -> bool:
        return message.begun and message.sent == len(message.body)


class Assembler:
    """Puts messages together of frames that come in turns.

    Args:
        message: bytes of the largest message.
        total: bytes that all messages may have which are not complete.

    Attributes:
        bytes: that they have.
    """

    def __init__(self, *, message: int, total: int) -> None:
        self.bytes = 0
        self._message = message
        self._total = total
        # Not a list of pieces: of small ones each would cost many times its bytes.
        self._begun: dict[tuple[FrameType, int], bytearray] = {}

    def take(self, frame: Frame) -> bytes | None:
        """Take a frame of a record, question or answer.

        Returns:
            The whole body of its message, or None if that goes on.

        Raises:
            FrameError: the peer sends more than it may.
        """
        key = (frame.type, frame.stream)
        begun = self._begun.get(key)
        if begun is None and not frame.more:
            return frame.body
        if begun is None:
            if len(self._begun) >= MOST_UNFINISHED:
                raise FrameError(f"more than {MOST_UNFINISHED} messages that are not complete")
            begun = self._begun[key] = bytearray()
        elif not frame.body:
            raise FrameError("a message that goes on with an empty frame")
        if frame.more and not frame.body:
            raise FrameError("a message that goes on after an empty frame")
        begun += frame.body
        self.bytes += len(frame.body)
        if len(begun) > self._message or self.bytes > self._total:
            raise FrameError(f"a message above {self._message} bytes, or several above {self._total}")
        if frame.more:
            return None
        del self._begun[key]
        self.bytes -= len(begun)
        return bytes(begun)


# --- Bodies -----------------------------------------------------------------------------------------------------------

_QUESTION: Final = struct.Struct(">IB")
QUESTION_HEAD: Final = _QUESTION.size + KIND_BYTES
"""Bytes that the body of a record or a question has beside what its user gave, at most."""

LONGEST_WAIT: Final = 2**32 - 1
"""Milliseconds of a question: what the field holds."""


def record_body(kind: str, content: bytes) -> bytes:
    """Write the body of a record.

    Raises:
        ValueError: the kind is none.
    """
    return b"".join((_kind(kind), content))


def question_body(kind: str, content: bytes, within: float) -> bytes:
    """Write the body of a question; *within* in seconds.

    Raises:
        ValueError: the kind is none.
    """
    wait = max(0, min(LONGEST_WAIT, round(within * 1000)))
    return b"".join((wait.to_bytes(4, "big"), _kind(kind), content))


def answer_body(status: AnswerStatus, content: bytes) -> bytes:
    """Write the body of an answer."""
    return b"".join((bytes((status,)), content))


def read_record(body: bytes) -> tuple[str, bytes]:
    """Read kind and content of a record.

    Raises:
        FrameError: it is none.
    """
    return _read_kind(body, 0)


def read_question(body: bytes) -> tuple[float, str, bytes]:
    """Read of a question for how many seconds it waits, its kind and its content.

    Raises:
        FrameError: it is none.
    """
    if len(body) < _QUESTION.size:
        raise FrameError("a question without a head")
    kind, content = _read_kind(body, 4)
    return int.from_bytes(body[:4], "big") / 1000, kind, content


def read_answer(body: bytes) -> tuple[AnswerStatus, bytes]:
    """Read status and content of an answer; a status of a later version counts as failed.

    Raises:
        FrameError: it is none.
    """
    if not body:
        raise FrameError("an answer without a status")
    try:
        status = AnswerStatus(body[0])
    except ValueError:
        status = AnswerStatus.FAILED
    return status, body[1:]


def _kind(kind: str) -> bytes:
    encoded = kind.encode("ascii")
    if not 1 <= len(encoded) <= KIND_BYTES or not kind.isprintable():
        raise ValueError(f"{kind!r} is no kind of a message: a word of at most {KIND_BYTES} ASCII characters")
    return bytes((len(encoded),)) + encoded


def _read_kind(body: bytes, start: int) -> tuple[str, bytes]:
    length = body[start] if len(body) > start else 0
    kind = body[start + 1 : start + 1 + length]
    if (
        not 1 <= length <= KIND_BYTES
        or len(kind) < length
        or not kind.isascii()
        or not kind.decode("ascii").isprintable()
    ):
        raise FrameError("a message without a kind")
    return kind.decode("ascii"), body[start + 1 + length :]
