"""One client connection from its first message to its end (protocol section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.app.context import Context
from gateway.app.handshake import Handshake, HandshakeRefused
from gateway.app.persistence import Persistence
from gateway.app.requests import Requests
from gateway.app.session import Session
from gateway.app.sessions import Sessions
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core import codec
from gateway.core.codes import GOING_AWAY, HANDSHAKE_TIMEOUT, INTERNAL_ERROR, CloseCode, ErrorCode
from gateway.core.errors import RemoteProtocolError
from gateway.core.packets import Bye, Error, GoAway, Hello, Packet, Ping, Resume
from gateway.core.rates import TokenBucket
from gateway.core.types import TokenGeneration
from gateway.ports import (
    Fenced,
    GridUnavailable,
    Link,
    Ownership,
    SessionChanges,
    SessionGone,
)


class Connections:
    """Serves connections; one coroutine each.

    Args:
        context: of the node.
        handshake: opens and resumes sessions.
        sessions: the sessions held here.
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
        sessions: Sessions,
        requests: Requests,
        persistence: Persistence,
        draining: Callable[[], bool],
    ) -> None:
        self._policy = context.policy
        self._clock = context.clock
        self._background = context.background
        self._metrics = context.metrics
        self._log = context.log
        self._handshake = handshake
        self._sessions = sessions
        self._requests = requests
        self._persistence = persistence
        self._draining = draining
        self._open: set[Link] = set()
        self.greeting = 0
        self._metrics.watch(catalogue.CONNECTIONS, lambda: len(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """Close every connection with a code that lets its client go on elsewhere."""
        for link in list(self._open):
            self._sessions.close_link(link, GOING_AWAY)

    async def serve(self, link: Link) -> None:
        """Serve one connection until it is over; never raises for anything a client does."""
        self._open.add(link)
        session: Session | None = None
        try:
            session = await self._greet(link)
            if session is not None:
                await self._converse(session, link)
        except Exception as error:  # noqa: BLE001 - a bug met on one connection must not harm the others
            self._log.emit(events.CONNECTION_FAILED, session=session.id if session else None, error=repr(error))
            self._fail(link, INTERNAL_ERROR, Error(ErrorCode.INTERNAL, "the node failed on this connection"))
        finally:
            self._open.discard(link)
            if session is not None:
                self._sessions.detach(session, link)

    # --- The first packet ---------------------------------------------------------------------------------------------

    async def _greet(self, link: Link) -> Session | None:
        timeout = self._policy.handshake_timeout
        try:
            async with asyncio.timeout(timeout):
                message = await link.receive()
        except TimeoutError:
            self._fail(
                link,
                HANDSHAKE_TIMEOUT,
                Error(ErrorCode.HANDSHAKE_TIMEOUT, f"the first packet must come within {timeout:g} seconds"),
            )
            return None
        if message is None:
            return None
        self.greeting += 1
        try:
            if self._draining():
                raise HandshakeRefused(ErrorCode.DRAINING, "the node drains; another one will serve you", GOING_AWAY)
            match codec.decode_from_client(message):
                case [Hello() as hello]:
                    return await self._handshake.hello(hello, link)
                case [Resume() as resume]:
                    return await self._handshake.resume(resume, link)
                case _:
                    raise RemoteProtocolError("the first message must be a single hello or resume packet")
        except RemoteProtocolError as violation:
            self._violated(link, violation)
        except HandshakeRefused as refused:
            self._fail(link, refused.close, refused.error)
        finally:
            self.greeting -= 1
        return None

    # --- All others ---------------------------------------------------------------------------------------------------

    async def _converse(self, session: Session, link: Link) -> None:
        rate = self._policy.packet_rate
        bucket = TokenBucket(rate, self._policy.packet_burst) if rate else None
        limit = self._policy.limits.requests
        while (message := await link.receive()) is not None:
            if session.link is not link:
                return  # superseded, fenced or closed meanwhile; what still comes has no meaning
            try:
                packets = codec.decode_from_client(message)
            except RemoteProtocolError as violation:
                self._violated(link, violation)
                return
            if not self._take_in(session, link, packets):
                return
            pause = 0.0 if bucket is None else bucket.take(self._clock.monotonic(), len(packets))
            if pause > 0 or len(session.lane) > limit:
                await self._pause(session, link, pause, limit)

    async def _pause(self, session: Session, link: Link, pause: float, limit: int) -> None:
        """Do not read: the kindest way to slow a client down. Its transport pushes back, and nothing is lost."""
        session.paused = True
        try:
            if pause > 0:
                self._metrics.add(catalogue.RATE_LIMITED_SECONDS, pause)
                await asyncio.sleep(pause)
            await session.lane.below(limit + 1)
        finally:
            if session.link is link:
                session.paused = False

    def _take_in(self, session: Session, link: Link, packets: list[Packet]) -> bool:
        """Hand packets to the session; False if the connection has to end."""
        if not session.proved:
            session.proved = True
            if self._persistence.replicated:
                self._background.once(self._confirm_token(session, session.right, session.generation), "confirm-token")
            session.confirmed = session.generation
        for item in session.machine.receive(packets, self._clock.monotonic()):
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
        if session.machine.has_output:
            self._sessions.flusher.mark(session)
        self._sessions.reschedule(session)
        return True

    async def _confirm_token(self, session: Session, right: Ownership, proved: TokenGeneration) -> None:
        """The client has shown that it holds the newest token: refuse the older ones from now on (P8)."""
        try:
            await self._persistence.change(session, SessionChanges(confirmed=proved))
        except GridUnavailable:
            return  # marked as unsaved; written when the grid is back
        except (Fenced, SessionGone):
            if session.right == right:
                self._sessions.fence(session)

    # --- Ends ---------------------------------------------------------------------------------------------------------

    def _violated(self, link: Link, violation: RemoteProtocolError) -> None:
        self._log.emit(events.PROTOCOL_VIOLATED, address=link.address, error=str(violation))
        self._fail(link, violation.close, Error(violation.code, str(violation)))

    def _fail(self, link: Link, close: CloseCode, error: Error) -> None:
        link.write(codec.encode_link(error))
        self._sessions.close_link(link, close)
