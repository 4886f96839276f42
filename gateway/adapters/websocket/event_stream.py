"""The sending half of a stream of server-sent events, and the head of its answer."""

from __future__ import annotations

import os
import socket
from asyncio import TimerHandle
from collections.abc import Callable, Mapping
from typing import Final

from gateway.adapters.websocket.transport import Transport
from gateway.adapters.websocket.writer import FrameWriter, State

FINISH_SECONDS: Final = 5.0
"""For a reader to take what is written when its stream ends; then the connection is cut."""

UNACKNOWLEDGED_SECONDS: Final = 60.0
"""After which a connection is lost whose other side does not confirm what was sent (RFC 5482). Nothing comes from a
reader by which a machine that has vanished could be told from one that is content; the kernel alone would wait a
quarter of an hour."""

HEAD: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # nginx, and those that have learnt it from there, would else collect what should be passed on at once.
    "X-Accel-Buffering": "no",
    "Connection": "close",
}
"""Of the answer that a stream follows."""


class EventStreamSink(FrameWriter):
    """Writes a stream to a transport; an ``EventSink``.

    Args:
        transport: not blocking.
        address: of the reader.
        over: called when nothing more can be written.
    """

    __slots__ = ("_over", "_timer", "address")

    def __init__(self, transport: Transport, address: str, over: Callable[[], None]) -> None:
        super().__init__(transport)
        self.address = address
        self._over = over
        self._timer: TimerHandle | None = None

    @property
    def is_over(self) -> bool:
        """See ``EventSink``."""
        return self._state is State.OVER

    def send(self, text: bytes) -> None:
        """See ``EventSink``."""
        if text and self._state is State.OPEN:
            self._send(text)

    def finish(self) -> None:
        """See ``EventSink``."""
        if self._state is not State.OPEN:
            return
        if self._unsent:
            self._state = State.LEAVING
            self._timer = self._loop.call_later(FINISH_SECONDS, self.abort)
        else:
            self._end()

    def abort(self) -> None:
        """See ``EventSink``."""
        if self._state is not State.OVER:
            self._end()

    def _end(self) -> None:
        self._state = State.OVER
        self._forget_unsent()
        if self._timer is not None:
            self._timer.cancel()
        self._over()

    def _sent_all(self) -> None:
        if self._state is State.LEAVING:
            self._end()


def lose_if_unacknowledged(transport: Transport) -> None:
    """Have the kernel give a connection up whose other side has vanished; see ``UNACKNOWLEDGED_SECONDS``."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux
    if option is not None:
        # Options are those of the connection, whichever descriptor they are set by.
        with socket.socket(fileno=os.dup(transport.fileno())) as same:
            same.setsockopt(socket.IPPROTO_TCP, option, round(UNACKNOWLEDGED_SECONDS * 1000))
