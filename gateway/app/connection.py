"""One client connection from its first message to its end (protocol section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from gateway.app.context import Context
from gateway.app.gathering import Gathering
from gateway.app.handshake import Handshake
from gateway.app.limits import Meter
from gateway.app.persistence import Persistence, Proof
from gateway.app.refusals import HandshakeRefused
from gateway.app.requests import Requests
from gateway.app.session import Session
from gateway.app.sessions import Sessions
from gateway.app.storms import Turnstile
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core import codec, quick
from gateway.core.codes import GOING_AWAY, HANDSHAKE_TIMEOUT, INTERNAL_ERROR, CloseCode, ErrorCode
from gateway.core.errors import RemoteProtocolError
from gateway.core.packets import Bye, Error, GoAway, Hello, Notice, NoticeCode, Packet, Ping, Resume
from gateway.core.types import PacketId, TokenGeneration
from gateway.ports import (
    Authenticator,
    Fenced,
    GridUnavailable,
    Link,
    Operation,
    Ownership,
    SessionChanges,
    SessionGone,
)

CONFIRM_DELAY: Final = 0.0
"""Seconds in which proofs of tokens gather: one tick of the loop. Until the grid knows, other nodes take older ones."""


class Connections:
    """Serves connections: a coroutine greets the client, and a ``Conversation`` hears it from then on.

    Args:
        context: of the node.
        handshake: opens and resumes sessions.
        sessions: the sessions held here.
        turnstile: says when a first packet may be answered.
        requests: executes what clients ask for.
        persistence: confirms tokens.
        draining: whether connections that were accepted earlier come too late for a session.

    Attributes:
        greeting: connections whose first packet is being answered: each may still bring a session.
    """

    def __init__(
        self,
        context: Context,
        *,
        handshake: Handshake,
        turnstile: Turnstile,
        sessions: Sessions,
        requests: Requests,
        persistence: Persistence,
        draining: Callable[[], bool],
    ) -> None:
        self._policy = context.policy
        self._clock = context.clock
        self._background = context.background
        self._metrics = context.metrics
        self._tracer = context.tracer
        self._log = context.log
        self._limits = context.limits
        self._handshake = handshake
        self._turnstile = turnstile
        self._sessions = sessions
        self._requests = requests
        self._persistence = persistence
        self._draining = draining
        self._open: set[Link] = set()
        # In the order in which they came, which is that of their deadlines.
        self._silent: dict[Link, float] = {}
        self._impatience: asyncio.TimerHandle | None = None
        self._proofs: Gathering[Session, Proof] = Gathering(
            context.background, "confirm-tokens", delay=CONFIRM_DELAY, work=self._confirm
        )
        self.greeting = 0
        self._metrics.watch(catalogue.CONNECTIONS, lambda: len(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """Close every connection with a code that lets its client go on elsewhere."""
        for link in list(self._open):
            self._sessions.close_link(link, GOING_AWAY)
        self._proofs.close()
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None

    async def serve(self, link: Link, administrators: Authenticator | None = None) -> None:
        """Greet a client and see to it that it is heard; never raises for anything a client does.

        Args:
            link: the connection.
            administrators: knows who may come in at the admin port; None for the client port.
        """
        self._open.add(link)
        session: Session | None = None
        try:
            session = await self._greet(link, administrators)
        except Exception as error:  # noqa: BLE001 - a bug met on one connection must not harm the others
            self.failed(link, None, error)
        finally:
            if session is None:
                self._open.discard(link)
        if session is not None:
            link.listen(Conversation(self, session, link))

    # --- The first packet ---------------------------------------------------------------------------------------------

    async def _greet(self, link: Link, administrators: Authenticator | None) -> Session | None:
        self._expect_word(link)
        try:
            message = await link.receive()
        finally:
            self._silent.pop(link, None)
        if message is None:
            return None
        self.greeting += 1
        try:
            inside = administrators is not None
            if self._draining() and not inside:
                raise HandshakeRefused(ErrorCode.DRAINING, "the node drains; another one will serve you", GOING_AWAY)
            match codec.decode_from_client(message):
                case [Hello() as hello]:
                    opening = self._handshake.hello(hello, link, administrators)
                    return await self._shake_hands(Operation.CONNECT, opening, inside=inside)
                case [Resume() as resume]:
                    opening = self._handshake.resume(resume, link, inside=inside, heard=self._clock.monotonic())
                    return await self._shake_hands(Operation.RESUME, opening, inside=inside)
                case _:
                    raise RemoteProtocolError("the first message must be a single hello or resume packet")
        except RemoteProtocolError as violation:
            self._violated(link, violation)
        except HandshakeRefused as refused:
            self._fail(link, refused.close, refused.error)
        finally:
            self.greeting -= 1
        return None

    async def _shake_hands(
        self, operation: Operation, opening: Coroutine[Any, Any, Session], *, inside: bool
    ) -> Session:
        """Open or resume a session when it is its turn, which is soon unless there is a storm.

        Those who come in at the admin port do not queue: they are few, and want to look at the storm.
        """
        if not inside:
            try:
                await self._turnstile.enter(returning=operation is Operation.RESUME)
            except BaseException:
                opening.close()
                raise
        try:
            with self._tracer.span(operation) as span:
                try:
                    session = await opening
                except HandshakeRefused as refused:
                    span.note("refused", refused.error.code.value)
                    raise
                span.note("session", session.id)
                span.note("outcome", session.outcome.value)
                return session
        finally:
            if not inside:
                self._turnstile.leave()

    def _expect_word(self, link: Link) -> None:
        """Close the link unless it is heard in time; one timer serves all."""
        timeout = self._policy.handshake_timeout
        self._silent[link] = self._clock.monotonic() + timeout
        if self._impatience is None:
            self._impatience = asyncio.get_running_loop().call_later(timeout, self._give_up_the_silent)

    def _give_up_the_silent(self) -> None:
        self._impatience = None
        now = self._clock.monotonic()
        for link, deadline in list(self._silent.items()):
            if deadline > now:
                self._impatience = asyncio.get_running_loop().call_later(deadline - now, self._give_up_the_silent)
                return
            del self._silent[link]
            self._fail(
                link,
                HANDSHAKE_TIMEOUT,
                Error(
                    ErrorCode.HANDSHAKE_TIMEOUT,
                    f"the first packet must come within {self._policy.handshake_timeout:g} seconds",
                ),
            )

    # --- All others ---------------------------------------------------------------------------------------------------

    def hear(self, session: Session, link: Link, meter: Meter | None, message: bytes) -> None:
        """Take in what a client said."""
        if session.link is not link:
            return  # superseded, fenced or closed meanwhile; what still comes has no meaning
        received = quick.acknowledged(message) if session.proved else None
        if received is not None:
            self._take_ack(session, link, meter, received)
            return
        try:
            packets = codec.decode_from_client(message)
        except RemoteProtocolError as violation:
            self._violated(link, violation)
            return
        if not self._take_in(session, link, packets):
            return
        pause = 0.0 if meter is None else meter.charge(self._clock.monotonic(), packets)
        self._slow_down(session, link, meter, pause)

    def _take_ack(self, session: Session, link: Link, meter: Meter | None, received: PacketId) -> None:
        """Take in what a client that only listens says, and nothing else: some of it for every few updates."""
        machine = session.machine
        now = self._clock.monotonic()
        try:
            pinged = machine.receive_ack(received, now)
        except RemoteProtocolError as violation:
            self._violated(link, violation)
            return
        if machine.has_output:
            self._sessions.flusher.mark(session)
        if pinged:
            self._sessions.reschedule(session)
        if meter is not None:
            self._slow_down(session, link, meter, meter.packets(now, 1))

    def _slow_down(self, session: Session, link: Link, meter: Meter | None, pause: float) -> None:
        """Read no more of a client for *pause* seconds, and for as long as it has too many unanswered requests."""
        if pause > 0 or len(session.lane) > self._policy.limits.requests:
            session.paused = True
            link.pause()
            if pause > 0 and meter is not None:
                told = self._limits.slowed(session, meter, pause)
                if told is not None:
                    self._sessions.delivery.notify((session,), Notice(NoticeCode.SLOWED_DOWN, told))
            else:
                self._limits.count("limit_requests")
            self._background.once(self._pause(session, link, pause), "pause")

    async def _pause(self, session: Session, link: Link, pause: float) -> None:
        """Do not read: the kindest way to slow a client down. Its transport pushes back, and nothing is lost."""
        try:
            if pause > 0:
                self._metrics.add(catalogue.RATE_LIMITED_SECONDS, pause)
                await asyncio.sleep(pause)
            await session.lane.below(self._policy.limits.requests + 1)
        finally:
            if session.link is link:
                session.paused = False
            link.resume()

    def meter(self, session: Session, link: Link) -> Meter | None:
        """Make what limits the packets of one connection; None if nothing does."""
        return self._limits.meter(session, link.address)

    def over(self, session: Session, link: Link) -> None:
        """A connection has ended."""
        self._open.discard(link)
        self._sessions.detach(session, link)

    def _take_in(self, session: Session, link: Link, packets: list[Packet]) -> bool:
        """Hand packets to the session; False if the connection has to end."""
        if not session.proved:
            session.proved = True
            if self._persistence.replicated:
                self._proofs.put(session, (session.right, session.generation))
            session.confirmed = session.generation
        machine = session.machine
        due = machine.next_deadline()
        for item in machine.receive(packets, self._clock.monotonic()):
            match item:
                case RemoteProtocolError():
                    self._violated(link, item)
                    return False
                case Ping() | GoAway():
                    pass
                case Error():
                    self._log.emit(events.PROTOCOL_VIOLATED, address=link.address, error=f"client says: {item.message}")
                case Bye():
                    self._requests.accept(session, item)
                case _:
                    self._requests.accept(session, item)  # type: ignore[arg-type]  # a client sends only requests
        if machine.has_output:
            self._sessions.flusher.mark(session)
        # A sign of life moves the deadline away, which is noticed when the old one comes. What is owed brings it near.
        sooner = machine.next_deadline()
        if sooner is not None and (due is None or sooner < due):
            self._sessions.reschedule(session)
        return True

    async def _confirm(self, proofs: dict[Session, Proof]) -> None:
        """Clients have shown that they hold the newest token: refuse the older ones from now on (P8)."""
        for session in await self._persistence.confirm(proofs):
            await self._confirm_again(session, *proofs[session])

    async def _confirm_again(self, session: Session, right: Ownership, proved: TokenGeneration) -> None:
        try:
            await self._persistence.change(session, SessionChanges(confirmed=proved))
        except GridUnavailable:
            return  # marked as unsaved; written when the grid is back
        except (Fenced, SessionGone):
            # Ending takes several steps, and from the first on the grid refuses everything else.
            if session.right == right and not session.ending:
                self._sessions.fence(session)

    # --- Ends ---------------------------------------------------------------------------------------------------------

    def failed(self, link: Link, session: Session | None, bug: Exception) -> None:
        """A bug was met on one connection, which must not harm the others."""
        self._log.emit(events.CONNECTION_FAILED, session=session.id if session else None, error=repr(bug))
        self._fail(link, INTERNAL_ERROR, Error(ErrorCode.INTERNAL, "the node failed on this connection"))

    def _violated(self, link: Link, violation: RemoteProtocolError) -> None:
        self._log.emit(events.PROTOCOL_VIOLATED, address=link.address, error=str(violation))
        self._fail(link, violation.close, Error(violation.code, str(violation)))

    def _fail(self, link: Link, close: CloseCode, error: Error) -> None:
        link.write(codec.encode_link(error))
        self._sessions.close_link(link, close)


class Conversation:
    """What a client says after the first packet; a ``Receiver``.

    Args:
        connections: serve it.
        session: whose connection it is.
        link: the connection.
    """

    __slots__ = ("_connections", "_link", "_meter", "_session")

    def __init__(self, connections: Connections, session: Session, link: Link) -> None:
        self._connections = connections
        self._session = session
        self._link = link
        self._meter = connections.meter(session, link)

    def received(self, message: bytes) -> None:
        """See ``Receiver``."""
        try:
            self._connections.hear(self._session, self._link, self._meter, message)
        except Exception as bug:  # noqa: BLE001 - it must not harm other connections
            self._connections.failed(self._link, self._session, bug)

    def ended(self) -> None:
        """See ``Receiver``."""
        self._connections.over(self._session, self._link)
