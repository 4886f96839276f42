"""One WebSocket, on a socket of its own (ADR 0012).

asyncio's transports put a read and a write buffer, flow control and three or four objects between a frame and its
``send``, and collect what is written until the end of the loop's turn. The gateway has an outbox per session and writes
once per turn already, so it hands its frames to the kernel directly, and keeps only what the kernel does not take.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_WR
from typing import ClassVar, Final

from gateway.adapters.websocket.connections import Connection, TlsConnection
from gateway.adapters.websocket.frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    Breach,
    FrameError,
    FrameReader,
    close_code,
    close_frame,
    pong_frame,
)
from gateway.adapters.websocket.writer import OPEN, FrameWriter, Send, State
from gateway.catalogue.refusals import FrameRule
from gateway.ports import Receiver

CLOSE_TIMEOUT: Final = 10.0
"""Seconds a client gets to take what is on its way and the close frame after it; then the socket is closed."""

READ_BYTES: Final = 16 * 1024
"""Most bytes of one read, after which the others get their turn: at worst they are nearly three thousand pings, which
take some 5 ms. Also what ``TlsConnection`` wants to be asked for."""

READS_AT_ONCE: Final = 4
"""Smaller reads of one client in one turn of the loop, for the same reason; nearly always the second finds nothing."""

PONG_BACKLOG: Final = 16 * 1024
"""Unsent bytes above which pings go unanswered: who asks and does not read gets no more."""


class WebSocketLink(FrameWriter):
    """Implements ``gateway.ports.Link``.

    Args:
        connection: after the upgrade, not blocking.
        address: where the client comes from.
        message_bytes: largest message accepted.
        violated: called with the rule that the client has broken, if it is closed for that.
        over: called once the socket is closed.
    """

    __slots__ = (
        "__weakref__",
        "_code",
        "_frames",
        "_inbox",
        "_is_read",
        "_over",
        "_paused",
        "_receiver",
        "_timer",
        "_violated",
        "_waiter",
        "address",
    )

    def __init__(
        self,
        connection: Connection,
        address: str,
        *,
        message_bytes: int,
        violated: Callable[[FrameRule], None],
        over: Callable[[WebSocketLink], None],
    ) -> None:
        super().__init__(connection)
        self.address = address
        self._violated = violated
        self._over = over
        self._frames = FrameReader(message_bytes)
        self._inbox: deque[bytes] | None = None
        """Messages nobody has wanted yet. None, as nearly always, costs nothing per connection."""
        self._receiver: Receiver | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._code: int | None = None
        self._paused = False
        self._is_read = False

    def begin(self, early: bytes) -> None:
        """Begin to read; to be called once.

        Args:
            early: what the client sent right behind its request.
        """
        self._read_on()
        if early:
            self._take_in(early)

    # --- The port -----------------------------------------------------------------------------------------------------

    @property
    def close_code(self) -> int | None:
        """See the port."""
        return self._code

    async def receive(self) -> bytes | None:
        """See the port."""
        while not (inbox := self._inbox):
            if self._state is not State.OPEN:
                return None
            self._read_on()
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = inbox.popleft()
        if not inbox:
            self._inbox = None
        return message

    def listen(self, receiver: Receiver) -> None:
        """See the port."""
        self._receiver = receiver
        self._hand_over()
        if self._state is not State.OPEN:
            self._loop.call_soon(self._tell_end)

    def pause(self) -> None:
        """See the port."""
        self._paused = True
        self._read_no_more()

    def resume(self) -> None:
        """See the port."""
        self._paused = False
        self._hand_over()
        if self._state is not State.OPEN:
            self._loop.call_soon(self._tell_end)

    def close(self, code: int, reason: str) -> None:
        """See the port."""
        if self._state is State.OPEN:
            self._code = code
            self._inbox = None
            self._begin_close(State.CLOSING, close_frame(code, reason))

    def abort(self) -> None:
        """Close the socket at once."""
        self._end()

    # --- Reading ------------------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if not self._is_read and self._state is not State.OVER:
            self._is_read = True
            self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def _read_no_more(self) -> None:
        if self._is_read:
            self._is_read = False
            self._loop.remove_reader(self._socket.fileno())

    def _on_readable(self) -> None:
        # Until nothing is left, though one read would do for asyncio: uvloop tells of a break once, perhaps together
        # with the last words, and of nothing after it. Who reads only the words never hears of the break.
        for _ in range(READS_AT_ONCE):
            if not self._is_read:
                return
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                self._end()
                return
            if data:
                self._take_in(data)
                if len(data) == READ_BYTES:
                    break
            elif self._state is State.LEAVING:
                self._read_no_more()  # it has said all it had to say, and gets what was written before
            else:
                self._end()
        self._loop.call_soon(self._on_readable)

    def _take_in(self, data: bytes) -> None:
        if self._state is not OPEN and self._state is not State.CLOSING:
            return
        arrived, error = self._frames.feed(data)
        pings: list[bytes] = []
        for opcode, payload in arrived:
            if opcode == PING:
                pings.append(payload)
                continue
            if pings:
                self._answer(pings)
                pings = []
            if opcode == CLOSE:
                self._take_close(payload)
                return  # nothing may follow a close
            if opcode != PONG:  # which nobody has asked for
                self._hear(opcode, payload)
        if pings:
            self._answer(pings)
        if error is not None:
            self._fail(error)

    def _hear(self, opcode: int, message: bytes) -> None:
        if self._state is not OPEN:
            return
        if opcode == BINARY:
            self._violated(FrameRule.BINARY)
            self.close(Breach.UNSUPPORTED_DATA, "text messages only")
            return
        if self._receiver is not None and not self._paused and not self._inbox:
            self._receiver.received(message)
            return
        if self._inbox is None:
            self._inbox = deque()
        self._inbox.append(message)
        if self._waiter is None:
            self._read_no_more()
        else:
            self._wake()

    def _answer(self, pings: list[bytes]) -> None:
        """Answer in one write: thousands of pings fit into one read."""
        if self._state is State.OPEN and len(self._unsent) <= PONG_BACKLOG:
            self._send(b"".join(map(pong_frame, pings)))

    def _hand_over(self) -> None:
        """Give the receiver what came before it was there, or while it wanted nothing."""
        while (inbox := self._inbox) and self._receiver is not None and not self._paused:
            message = inbox.popleft()
            if not inbox:
                self._inbox = None
            self._receiver.received(message)
        if not self._paused and not self._inbox:
            self._read_on()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- The end ------------------------------------------------------------------------------------------------------

    def _take_close(self, payload: bytes) -> None:
        try:
            code = close_code(payload)
        except FrameError as error:
            self._fail(error)
            return
        if self._state is State.OPEN:
            self._code = code
            self._begin_close(State.LEAVING, close_frame(code))
        elif self._state is State.CLOSING:
            self._state = State.LEAVING
            self._sent_all()

    def _fail(self, error: FrameError) -> None:
        if self._state is State.OPEN:
            self._violated(error.rule)
            if error.beginning is not None and self._receiver is not None:
                self._receiver.oversized(error.beginning, str(error))
            self._close_failed(error)
        elif self._state is State.CLOSING:
            # It is told to close already, and must get the chance to read that.
            self._state = State.FAILED
            if not self._unsent:
                self._sent_all()

    def _close_failed(self, error: FrameError) -> None:
        if self._state is State.OPEN:  # what the receiver has written may have met a broken connection
            self._code = error.code
            self._begin_close(State.FAILED, close_frame(error.code, str(error)))

    def _begin_close(self, state: State, frame: bytes) -> None:
        self._state = state
        self._timer = self._loop.call_later(CLOSE_TIMEOUT, self._end)
        self._loop.call_soon(self._tell_end)
        self._read_on()  # for the answer, or for the end
        self._send(frame)
        if not self._unsent:
            self._sent_all()

    def _sent_all(self) -> None:
        """Do what comes after everything has been sent."""
        if self._state is State.LEAVING and not self._unsent:
            self._end()
        elif self._state is State.FAILED:
            # A socket that is closed with something unread throws away what the client has not read yet.
            with suppress(OSError):
                self._socket.shutdown(SHUT_WR)

    def _end(self) -> None:
        if self._state is State.OVER:
            return
        self._state = State.OVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._read_no_more()
        self._forget_unsent()
        self._socket.close()
        # Not at once: whoever is just writing to this connection need not expect to lose its session meanwhile.
        self._loop.call_soon(self._tell_end)
        self._over(self)

    def _tell_end(self) -> None:
        if self._receiver is not None and self._inbox:
            return  # it has paused, and hears what came before the end first
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.ended()
        self._wake()


class SecureWebSocketLink(WebSocketLink):
    """The same over TLS; its connection is a ``TlsConnection``."""

    __slots__ = ()

    SEND: ClassVar[Send] = TlsConnection.send
