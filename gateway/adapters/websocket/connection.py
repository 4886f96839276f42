"""One WebSocket, on a socket of its own (ADR 0012).

asyncio's transports put a read and a write buffer, flow control and three or four objects between a frame and its
``send``, and collect what is written until the end of the loop's turn. The gateway has an outbox per session and writes
once per turn already, so it hands its frames to the kernel directly, and keeps only what the kernel does not take.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from socket import SHUT_WR
from time import monotonic
from typing import ClassVar, Final

from gateway.adapters.tls_connection import NothingSaid, TlsConnection
from gateway.adapters.websocket.addresses import network_of
from gateway.adapters.websocket.frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    Breach,
    Frame,
    FrameError,
    FrameReader,
    close_code,
    close_frame,
    pong_frame,
)
from gateway.adapters.websocket.read_scheduler import PacedReader, Share
from gateway.adapters.websocket.transport import Transport
from gateway.adapters.websocket.work import (
    BYTE_COST,
    CHARGED_FROM,
    FRAME_COST,
    READ_COST,
    SESSION,
    UNAUTHENTICATED,
)
from gateway.adapters.websocket.writer import OPEN, FrameWriter, Send, State
from gateway.adapters.work_budget import WorkBudget
from gateway.catalogue.refusals import FrameRule
from gateway.ports import Access, Receiver

CLOSE_TIMEOUT: Final = 10.0
"""Seconds a client gets to take what is on its way and the close frame after it; then the socket is closed."""

CULPRIT_TIMEOUT: Final = 2.0
"""Seconds a client gets to send as much of a message that is too big as tells which of its packets is to blame.

Enough for 64 KiB over a slow line. It takes no more memory than a message that is not too big."""

READ_BYTES: Final = 16 * 1024
"""Most bytes of one read; what ``TlsConnection`` wants to be asked for."""

READS_AT_ONCE: Final = 4
"""Reads of one client before others get their turn, unless small frames fill the first: some 0.1 ms of large messages.
Nearly always the second finds nothing."""

FLOOD_REASON: Final = "too much that makes no message: pings, pongs, fragments, TLS records that say nothing"
"""What a client is told that is closed for the work that it causes."""

PONG_BACKLOG: Final = 16 * 1024
"""Unsent bytes above which pings go unanswered: who asks and does not read gets no more."""


class WebSocketConnection(FrameWriter):
    """Implements ``gateway.ports.Connection``.

    Args:
        transport: after the upgrade, not blocking.
        address: where the client comes from.
        access: how it has reached the node.
        reading: has waited for the connection so far, as for that of an unauthenticated client; taken over.
        sessions: the share of the loop's turns from which it is read once it has a session.
        message_bytes: largest message accepted.
        violated: called with the rule that the client has broken, if it is closed for that.
        slowed: called with whether it has a session, when it is read more slowly because of the work that it causes.
        over: called once the socket is closed.
    """

    __slots__ = (
        "__weakref__",
        "_budget",
        "_code",
        "_frames",
        "_inbox",
        "_over",
        "_paused",
        "_reading",
        "_receiver",
        "_sessions",
        "_slowed",
        "_timer",
        "_violated",
        "_waiter",
        "_work",
        "access",
        "address",
    )

    def __init__(
        self,
        transport: Transport,
        address: str,
        *,
        access: Access,
        reading: PacedReader,
        sessions: Share,
        message_bytes: int,
        violated: Callable[[WebSocketConnection, FrameRule], None],
        slowed: Callable[[bool], None],
        over: Callable[[WebSocketConnection], None],
    ) -> None:
        super().__init__(transport)
        self.address = address
        self.access = access
        self._reading = reading
        self._sessions = sessions
        self._violated = violated
        self._slowed = slowed
        self._over = over
        self._frames = FrameReader(message_bytes)
        self._inbox: deque[bytes] | None = None
        """Messages nobody has wanted yet. None, as nearly always, costs nothing per connection."""
        self._receiver: Receiver | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._code: int | None = None
        self._paused = False
        self._work = 0.0
        """Seconds that have not been charged to the budget."""
        self._budget: WorkBudget | None = None
        """None until there was something to charge, as nearly always, costs nothing per connection."""

    def begin(self, early: bytes) -> None:
        """Begin to read; to be called once.

        Args:
            early: what the client sent right behind its request.
        """
        self._reading.take_over(network_of(self.address), self._read)
        self._read_on()
        if early:
            self._take_in(early)
            if self._frames.is_behind:
                self._reading.go_on()

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
        self._frames.explains = True
        self._reading.move(self._sessions)
        self._budget = None  # from now on it has that of a session
        self._hand_over()
        if self._state is not State.OPEN:
            self._loop.call_soon(self._tell_end)

    def pause(self) -> None:
        """See the port."""
        self._paused = True
        self._reading.stop()

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
        if self._state is not State.OVER:
            self._reading.start()
            if self._frames.is_behind:
                self._reading.go_on()

    def _read(self) -> bool:
        """Read some, and tell whether there may be more.

        Until nothing is left, though one read would do for asyncio: uvloop tells of a break once, perhaps together with
        the last words, and of nothing after it. Who reads only the words never hears of the break.
        """
        reading, frames = self._reading, self._frames
        if frames.is_behind and (self._state is OPEN or self._state is State.CLOSING):
            self._take_in(b"")
            return reading.is_readable
        for _ in range(READS_AT_ONCE):
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return False
            except NothingSaid:
                return True
            except OSError:
                self._end()
                return False
            if data:
                self._take_in(data)
            elif self._state is State.LEAVING:
                reading.stop()  # it has said all it had to say, and gets what was written before
            else:
                self._end()
            if not reading.is_readable:
                return False
            if frames.others or frames.is_behind:
                break
        return True

    def _take_in(self, data: bytes) -> None:
        work = len(data) * BYTE_COST
        if self._state is OPEN or self._state is State.CLOSING:
            frames = self._frames
            arrived, error = frames.feed(data)
            if frames.others:
                work += frames.others * FRAME_COST
                self._take(arrived)
            elif arrived:
                self._hear_all(arrived)
            if not arrived:
                work += READ_COST
            if error is not None:
                self._fail(error)
            elif frames.awaits_culprit and self._timer is None:
                self._timer = self._loop.call_later(CULPRIT_TIMEOUT, self._stop_awaiting_culprit)
        else:
            work += READ_COST
        self._work += work
        if self._work >= CHARGED_FROM:
            self._charge()

    def _hear_all(self, arrived: list[Frame]) -> None:
        """Take messages, each of which came in one frame of text: one after the other, as ``_hear``, with less ado."""
        if self._budget is not None and self._state is OPEN:
            self._budget.note_message()
        for place, (_, message) in enumerate(arrived):
            receiver = self._receiver
            if receiver is None or self._state is not OPEN or self._paused or self._inbox:
                self._keep_unheard([kept for _, kept in arrived[place:]])
                return
            receiver.received(message)

    def _stop_awaiting_culprit(self) -> None:
        """Refuse a message that is too big by what has come of it."""
        self._timer = None
        if self._paused:  # it was the node that did not read
            self._timer = self._loop.call_later(CULPRIT_TIMEOUT, self._stop_awaiting_culprit)
            return
        self._frames.explains = False
        self._take_in(b"")

    def _add_work(self, work: float) -> None:
        self._work += work
        if self._work >= CHARGED_FROM:
            self._charge()

    def _take(self, arrived: list[Frame]) -> None:
        """Take what came among frames that are no messages by themselves."""
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

    def _charge(self) -> None:
        """Charge what the client has caused: what is above its budget is paid for by reading it later."""
        if self._state is State.OVER:
            return
        budget = self._budget
        if budget is None:
            budget = self._budget = WorkBudget(UNAUTHENTICATED if self._receiver is None else SESSION)
        now, work, self._work = monotonic(), self._work, 0.0
        pause = budget.charge(now, work)
        if pause:
            self._slowed(self._receiver is not None)
            self._reading.rest(pause)
        if not budget.is_exhausted:
            return
        if self._state is OPEN:
            budget.note_message()  # as much again is borne while it reads why
            self._fail(FrameError(FrameRule.FLOOD, Breach.POLICY_VIOLATION, FLOOD_REASON))
        else:
            self._end()  # it has been told, and goes on all the same

    def _hear(self, opcode: int, message: bytes) -> None:
        if self._state is not OPEN:
            return
        if self._budget is not None:
            self._budget.note_message()
        if opcode == BINARY:
            self._violated(self, FrameRule.BINARY)
            self.close(Breach.UNSUPPORTED_DATA, "text messages only")
            return
        if self._receiver is not None and not self._paused and not self._inbox:
            self._receiver.received(message)
            return
        self._keep_unheard((message,))

    def _keep_unheard(self, messages: Iterable[bytes]) -> None:
        """Keep what came until somebody listens, or wants more."""
        if self._state is not OPEN:
            return
        if self._inbox is None:
            self._inbox = deque()
        self._inbox.extend(messages)
        if self._waiter is None:
            self._reading.stop()
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
            self._violated(self, error.rule)
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
        self._frames.explains = False  # one who is told to close already need not be told for which request
        if self._timer is not None:
            self._timer.cancel()
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
        self._reading.close()
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


class SecureWebSocketConnection(WebSocketConnection):
    """The same over TLS; its connection is a ``TlsConnection``."""

    __slots__ = ()

    SEND: ClassVar[Send] = TlsConnection.send

    _socket: TlsConnection

    def _read(self) -> bool:
        more = super()._read()
        work = self._socket.work
        if work:
            self._socket.work = 0.0
            self._add_work(work)
        return more
