"""What clients say after the first packet, and how a connection ends on which something went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.app.admission.refusals import RETRY_DELAY
from gateway.app.cluster.handoff.taker import SessionTaker
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore, Proof
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.requests.turns import PACKET_BYTES, Turns, estimated_cost
from gateway.app.runtime.batched import Batched
from gateway.app.session.meter import CHARGED_TOGETHER, Meter
from gateway.app.session.session import Session
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.session.pending import Work
from gateway.core.types import PacketId, RequestNumber
from gateway.core.wire import codec
from gateway.core.wire import fast_path as quick
from gateway.core.wire.codes import INTERNAL_ERROR, TRY_LATER, CloseCode, ErrorCode
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Bye, Error, GoAway, Notice, NoticeCode, Packet, Ping
from gateway.ports import Connection

CONFIRM_DELAY: Final = 0.0
"""Seconds in which proofs of tokens gather: one tick of the loop. Until the grid knows, other nodes take older ones."""


class FailureHandler:
    """Ends connections with an error packet and a close code.

    Args:
        context: of the node.
        sessions: the sessions held here, which count what is closed.
    """

    def __init__(self, context: Context, sessions: Sessions) -> None:
        self._log = context.log
        self._memory = context.memory
        self._message_bytes = context.parameters.limits.message_bytes
        self._sessions = sessions

    def failed(
        self, connection: Connection, session: Session | None, bug: Exception, request: RequestNumber | None = None
    ) -> None:
        """A bug was met on one connection, which must not harm the others; or memory ran out, which is nobody's.

        Args:
            connection: is closed.
            session: its session, if it has one.
            bug: what was raised.
            request: that was being taken in; sent again, it would meet the same bug (protocol 4.8.1).
        """
        if isinstance(bug, MemoryError):
            self._out_of_memory(connection, session)
            return
        self._log.emit(events.CONNECTION_FAILED, session=session.id if session else None, error=repr(bug))
        error = Error(ErrorCode.INTERNAL, "the node failed on this connection", request=request)
        self._end_in_the_middle(connection, session, INTERNAL_ERROR, error)

    def _out_of_memory(self, connection: Connection, session: Session | None) -> None:
        """What was said could not be taken in: the client comes back and says it again."""
        self._memory.exhausted("to take in what a client said")
        why = "the node is short of memory and could not take this in; come back, and say it again"
        self._end_in_the_middle(connection, session, TRY_LATER, Error(ErrorCode.TRY_LATER, why, RETRY_DELAY))

    def _end_in_the_middle(
        self, connection: Connection, session: Session | None, close: CloseCode, error: Error
    ) -> None:
        """Close a connection of whose last message only a part was taken in, though all of it counts as received."""
        self.end(connection, close, error)
        if session is not None and session.connection is connection:
            self._sessions.detach(session, connection)
            # That the rest comes again is certain only after a gap is declared.
            self._sessions.absences.give_up(session)

    def violated(self, connection: Connection, violation: RemoteProtocolError) -> None:
        """The client has broken the protocol."""
        self._log.emit(events.PROTOCOL_VIOLATED, address=connection.address, error=str(violation))
        self.end(connection, violation.close, Error(violation.code, str(violation), request=violation.request))

    def oversized(self, connection: Connection, beginning: bytes, reason: str) -> None:
        """A message was larger than the connection takes, which closes it; tell the client which it was (4.8.1)."""
        request = codec.excessive_request(beginning, self._message_bytes)
        error = Error(ErrorCode.MESSAGE_TOO_BIG, reason, request=request)
        connection.write(codec.encode_link(error))

    def end(self, connection: Connection, close: CloseCode, error: Error) -> None:
        """Tell the client why, and close."""
        connection.write(codec.encode_link(error))
        self._sessions.close_connection(connection, close)


class Conversations:
    """Receives what comes over all connections that have a session.

    Args:
        context: of the node.
        sessions: the sessions held here.
        requests: executes what clients ask for.
        store: confirms tokens.
        taker: tells other nodes that clients of sessions which they gave are served here.
        failures: ends connections on which something went wrong.
        ended: told of each connection that is over.

    Attributes:
        failures: as given.
        turns: how much of what clients say is taken in before the loop gets its turn.
    """

    def __init__(
        self,
        context: Context,
        *,
        sessions: Sessions,
        requests: Requests,
        store: FencedStore,
        taker: SessionTaker,
        failures: FailureHandler,
        ended: Callable[[Connection], None],
    ) -> None:
        self._parameters = context.parameters
        self._clock = context.clock
        self._background = context.background
        self._metrics = context.metrics
        self._log = context.log
        self._limits = context.limits
        self._sessions = sessions
        self._requests = requests
        self._store = store
        self._taker = taker
        self._ended = ended
        self.failures = failures
        self.turns = Turns()
        self._proofs: Batched[Session, Proof] = Batched(
            context.background, "confirm-tokens", delay=CONFIRM_DELAY, work=store.confirm
        )

    def receive(self, session: Session, connection: Connection, meter: Meter | None, message: bytes) -> None:
        """Take in what a client said."""
        if session.connection is not connection:
            return  # superseded, fenced or closed meanwhile; what still comes has no meaning
        if meter is not None:
            meter.read += len(message)
        received = quick.acknowledged(message) if session.token_confirmed else None
        if received is not None:
            self._take_ack(session, connection, meter, received)
            return
        try:
            packets = codec.decode_from_client(message)
        except RemoteProtocolError as violation:
            # What came before it in the same message counts (protocol 2.6.2).
            if self._take_in(session, connection, violation.before):
                self.failures.violated(connection, violation)
            return
        self.turns.left -= PACKET_BYTES * (len(packets) or 1)
        if not self._take_in(session, connection, packets):
            return
        pause = 0.0 if meter is None else meter.charge(self._clock.monotonic(), packets)
        self._slow_down(session, connection, meter, pause)

    def _take_ack(self, session: Session, connection: Connection, meter: Meter | None, received: PacketId) -> None:
        """Take in what a client that only listens says, and nothing else: some of it for every few updates."""
        machine = session.machine
        now = self._clock.monotonic()
        try:
            pinged = machine.receive_ack(received, now)
        except RemoteProtocolError as violation:
            self.failures.violated(connection, violation)
            return
        if session.consumers or session.exchange:
            self._requests.acknowledged(session)
        if machine.has_output:
            self._sessions.flusher.mark(session)
        if pinged:
            self._sessions.reschedule(session)
        if meter is not None:
            pause = meter.packets(now, 1)
            if meter.read >= CHARGED_TOGETHER:
                pause = max(pause, meter.charge_read(now))
            if pause > 0 or session.pending.bytes:  # seldom
                self._slow_down(session, connection, meter, pause)

    def begin(self, session: Session, connection: Connection) -> None:
        """A connection is about to be read: not before there is room for what may come.

        Else whoever comes back again and again could hand over one more message each time.
        """
        self._slow_down(session, connection, None, 0.0)

    def _slow_down(self, session: Session, connection: Connection, meter: Meter | None, pause: float) -> None:
        """Read no more of a client for *pause* seconds, and for as long as it has too many unanswered requests."""
        exceeded = session.lane.exceeded
        if pause > 0 or exceeded is not None:
            session.paused = True
            connection.pause()
            if pause > 0 and meter is not None:
                told = self._limits.slowed(session, meter, pause)
                if told is not None:
                    self._sessions.delivery.notify((session,), Notice(NoticeCode.SLOWED_DOWN, told))
            elif exceeded is not None:
                self._limits.count(exceeded)
            self._background.once(self._pause(session, connection, pause), "pause")

    async def _pause(self, session: Session, connection: Connection, pause: float) -> None:
        """Do not read: the kindest way to slow a client down. Its transport pushes back, and nothing is lost."""
        try:
            if pause > 0:
                self._metrics.add(catalogue.RATE_LIMITED_SECONDS, pause)
                await asyncio.sleep(pause)
            await session.lane.room()
        finally:
            if session.connection is connection:
                session.paused = False
            connection.resume()

    def meter(self, session: Session, connection: Connection) -> Meter | None:
        """Make what limits the packets of one connection; None if nothing does."""
        return self._limits.meter(session, connection.address)

    def ended(self, session: Session, connection: Connection) -> None:
        """A connection has ended."""
        self._ended(connection)
        self._sessions.detach(session, connection)

    def _take_in(self, session: Session, connection: Connection, packets: list[Packet]) -> bool:
        """Hand packets to the session; False if the connection has to end."""
        if not session.token_confirmed:
            self._prove(session)
        machine = session.machine
        due = machine.next_deadline()
        for item in machine.receive(packets, self._clock.monotonic()):
            match item:
                case RemoteProtocolError():
                    self.failures.violated(connection, item)
                    return False
                case Ping() | GoAway():
                    pass
                case Error():
                    error = f"client says: {item.message}"
                    self._log.emit(events.PROTOCOL_VIOLATED, address=connection.address, error=error)
                case _:
                    if not self._accept(session, connection, item):  # type: ignore[arg-type]  # a client's
                        return False
        if session.consumers or session.exchange:
            self._requests.acknowledged(session)
        if machine.has_output:
            self._sessions.flusher.mark(session)
        # A sign of life moves the deadline away, which is noticed when the old one comes. What is owed brings it near.
        sooner = machine.next_deadline()
        if sooner is not None and (due is None or sooner < due):
            self._sessions.reschedule(session)
        return True

    def _prove(self, session: Session) -> None:
        """The client has said something: it holds the newest token, and has its welcome."""
        session.token_confirmed = True
        if self._store.replicated:
            self._proofs.put(session, (session.ownership, session.token_generation))
        session.confirmed = session.token_generation
        if session.given_by is not None:
            self._taker.confirm(session)

    def _accept(self, session: Session, connection: Connection, work: Work) -> bool:
        """Begin what a client asks for; False if a bug was met, and the connection has to end."""
        try:
            self._requests.accept(session, work)
        except MemoryError:
            raise
        except Exception as bug:  # noqa: BLE001 - it must not harm other connections
            self.failures.failed(connection, session, bug, None if isinstance(work, Bye) else work.request)
            return False
        return True


class Conversation:
    """What a client says after the first packet; a ``Receiver``.

    When a turn's work is used up (``Turns``), the message that came is kept and nothing more is read: the transport
    pushes back. It is heard when it is this client's turn, and the end of its connection only after it.

    Args:
        conversations: take in what is said.
        session: whose connection it is.
        connection: the connection.
    """

    __slots__ = ("_connection", "_conversations", "_has_ended", "_kept", "_meter", "_session", "_turns")

    def __init__(self, conversations: Conversations, session: Session, connection: Connection) -> None:
        self._conversations = conversations
        self._session = session
        self._connection = connection
        self._meter = session.meter = conversations.meter(session, connection)
        self._turns = conversations.turns
        self._kept: bytes | None = None
        self._has_ended = False
        conversations.begin(session, connection)

    def received(self, message: bytes) -> None:
        """See ``Receiver``."""
        turns = self._turns
        cost = estimated_cost(message) if turns.serves or turns.left <= 0 else 0
        if turns.left <= 0 or cost > turns.left:
            self._kept = message
            self._connection.pause()
            turns.wait(self._go_on, cost, self._session.principal)
        else:
            self._hear(message)

    def oversized(self, beginning: bytes, reason: str) -> None:
        """See ``Receiver``."""
        self._conversations.failures.oversized(self._connection, beginning, reason)

    def ended(self) -> None:
        """See ``Receiver``."""
        self._has_ended = True
        if self._kept is None:
            self._conversations.ended(self._session, self._connection)

    def _hear(self, message: bytes) -> None:
        self._turns.left -= len(message)
        try:
            self._conversations.receive(self._session, self._connection, self._meter, message)
        except Exception as bug:  # noqa: BLE001 - it must not harm other connections
            self._conversations.failures.failed(self._connection, self._session, bug)

    def _go_on(self) -> None:
        """It is this client's turn."""
        message, self._kept = self._kept, None
        if message is not None:
            self._hear(message)
        if self._has_ended:
            self._conversations.ended(self._session, self._connection)
        elif self._session.connection is not self._connection or not self._session.paused:
            self._connection.resume()
