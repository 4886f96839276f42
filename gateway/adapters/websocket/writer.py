"""The half of a connection that writes: frames go to the kernel at once, and what it does not take is kept.

asyncio's transports put a write buffer, flow control and an object or two between a frame and its ``send``, and gather
what is written until the end of the loop's turn. The gateway has an outbox per session, and writes once per turn.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import islice
from socket import socket
from typing import Any, ClassVar, Final, Self, TypeAlias

from gateway.adapters.websocket.frames import text_frame
from gateway.adapters.websocket.transport import Transport

Send: TypeAlias = Callable[[Any, bytes], int]
"""A connection's method ``send``, unbound."""

_NO_BYTES: Final = bytearray()
"""Stands for "nothing is unsent" at all connections; never written to."""


class State(Enum):
    """How far a connection is."""

    OPEN = "open"
    CLOSING = "closing"
    """A close frame has been written and its answer is awaited; nothing else of the client is looked at."""
    LEAVING = "leaving"
    """Both close frames are there: the socket is closed as soon as nothing is unsent."""
    FAILED = "failed"
    """The client broke the rules and cannot be understood any more: what comes is thrown away until it hangs up."""
    OVER = "over"
    """The socket is closed."""


OPEN: Final = State.OPEN
"""For what is done for every message: Python 3.11 finds a member of an enumeration by a function call, in 70 ns."""


class FrameWriter(ABC):
    """Writes to one transport for as long as the connection is open.

    Args:
        transport: not blocking.

    Attributes:
        SEND: how transports of this kind of connections are written to.
    """

    __slots__ = ("_loop", "_socket", "_state", "_unsent")

    SEND: ClassVar[Send] = socket.send

    def __init__(self, transport: Transport) -> None:
        self._socket = transport
        self._loop = asyncio.get_running_loop()
        self._state = State.OPEN
        self._unsent = _NO_BYTES

    @abstractmethod
    def _end(self) -> None:
        """Close the socket: it is broken."""

    @abstractmethod
    def _sent_all(self) -> None:
        """Do what comes after everything has been sent."""

    # --- The port -----------------------------------------------------------------------------------------------------

    def write(self, message: bytes) -> None:
        """See the port."""
        if self._state is OPEN:
            self._send(text_frame(message))

    @classmethod
    def write_all(cls, connections: Sequence[Self], messages: Sequence[bytes]) -> None:
        """See the port.

        No code in Python runs between two ``send``, which measurably makes all of it cheaper: presumably, code and data
        of the kernel and of Python drive each other out of the processor's cache when they take turns.
        """
        kinds = set(map(type, connections))
        if not kinds <= {cls}:
            _write_by_kind(kinds, connections, messages)
            return
        sockets = [each._socket for each in connections if each._state is OPEN and not each._unsent]  # noqa: SLF001 - its own
        if len(sockets) < len(connections) or len(connections) == 1:
            for connection, message in zip(connections, messages, strict=True):
                connection.write(message)
            return
        frames = _frames_of(messages)
        sizes = list(map(len, frames))
        sent: list[int] = []
        send = cls.SEND
        while len(sent) < len(frames):
            at = len(sent)
            try:
                # Should one fail, those before it have been noted.
                sent.extend(map(send, islice(sockets, at, None), islice(frames, at, None)))
            except OSError:
                at = len(sent)
                connections[at]._send(frames[at])  # noqa: SLF001 - its own
                sent.append(sizes[at])
        if sent != sizes:
            for connection, frame, taken in zip(connections, frames, sent, strict=True):
                if taken < len(frame):
                    connection._keep(frame, taken)  # noqa: SLF001 - its own

    def backlog(self) -> int:
        """See the port."""
        return len(self._unsent)

    @property
    def is_closing(self) -> bool:
        """Whether a close frame has been written, or could not be."""
        return self._state is not State.OPEN

    # --- inside -------------------------------------------------------------------------------------------------------

    def _send(self, frame: bytes) -> None:
        if self._unsent:
            self._unsent += frame
            return
        try:
            sent = self._socket.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._end()
            return
        if sent < len(frame):
            self._keep(frame, sent)

    def _keep(self, frame: bytes, sent: int) -> None:
        """Keep what the kernel has not taken until it does."""
        self._unsent = bytearray(memoryview(frame)[sent:])
        self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._end()
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._unsent = _NO_BYTES
            self._loop.remove_writer(self._socket.fileno())
            self._sent_all()

    def _forget_unsent(self) -> None:
        if self._unsent:
            self._loop.remove_writer(self._socket.fileno())
            self._unsent = _NO_BYTES


def _write_by_kind(kinds: Iterable[type[Any]], connections: Sequence[Any], messages: Sequence[bytes]) -> None:
    """Have each kind write to its own: with and without TLS, consoles."""
    for kind in kinds:
        own = [pair for pair in zip(connections, messages, strict=True) if type(pair[0]) is kind]
        kind.write_all([connection for connection, _ in own], [message for _, message in own])


def _frames_of(messages: Sequence[bytes]) -> list[bytes]:
    """Frame text messages; neighbours that are the same object get the same frame."""
    frames: list[bytes] = []
    last: bytes | None = None
    frame = b""
    for message in messages:
        if message is not last:
            last = message
            frame = text_frame(message)
        frames.append(frame)
    return frames
