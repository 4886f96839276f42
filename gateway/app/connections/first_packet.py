"""The first packet of a connection, a hello or a resume: waited for and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.app.admission.refusals import HandshakeRefused
from gateway.app.cluster.followers import Followers
from gateway.app.connections.hello import HelloHandler
from gateway.app.connections.resume import ResumeHandler
from gateway.app.context import Context
from gateway.app.session.session import Session
from gateway.core.wire import codec
from gateway.core.wire.codes import GOING_AWAY, HANDSHAKE_TIMEOUT, CloseCode, ErrorCode
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Error, Hello, Resume
from gateway.ports import Authenticator, Connection, Operation


class FirstPackets:
    """Gives connections their sessions.

    Args:
        context: of the node.
        hello_handler: opens sessions.
        resume_handler: resumes sessions.
        refuse: tells a client why, and closes its connection.
        followers: sends clients to the master that follow it.

    Attributes:
        in_progress: connections whose first packet is being answered: each may still bring a session.
    """

    def __init__(
        self,
        context: Context,
        *,
        hello_handler: HelloHandler,
        resume_handler: ResumeHandler,
        refuse: Callable[[Connection, CloseCode, Error], None],
        followers: Followers,
    ) -> None:
        self._parameters = context.parameters
        self._clock = context.clock
        self._tracer = context.tracer
        self._hello_handler = hello_handler
        self._resume_handler = resume_handler
        self._refuse = refuse
        self._lifecycle = context.lifecycle
        self._followers = followers
        # In the order in which they came, which is that of their deadlines.
        self._silent: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.in_progress = 0

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def answer(self, connection: Connection, administrators: Authenticator | None) -> Session | None:
        """Wait for the first packet and answer it.

        Args:
            connection: the connection.
            administrators: knows who may come in at the admin port; None for the client port.

        Returns:
            The session that the client has from now on; None if the connection was over before anything was said.

        Raises:
            RemoteProtocolError: what was said is neither a hello nor a resume.
            HandshakeRefused: the client gets no session.
            ClientGone: nor does it wait for one any more.
        """
        self._expect(connection)
        try:
            message = await connection.receive()
        finally:
            self._silent.pop(connection, None)
        if message is None:
            return None
        self.in_progress += 1
        try:
            at_admin_port = administrators is not None
            if self._lifecycle.draining and not at_admin_port:
                raise HandshakeRefused(ErrorCode.DRAINING, "the node drains; another one will serve you", GOING_AWAY)
            first = codec.decode_from_client(message)
            if not at_admin_port and len(first) == 1 and isinstance(first[0], Hello | Resume):
                self._followers.refuse_elsewhere(first[0], connection.access)
            match first:
                case [Hello() as hello]:
                    opening = self._hello_handler.open(hello, connection, administrators)
                    return await self._traced(Operation.CONNECT, opening)
                case [Resume() as resume]:
                    resuming = self._resume_handler.resume(
                        resume, connection, at_admin_port=at_admin_port, heard=self._clock.monotonic()
                    )
                    return await self._traced(Operation.RESUME, resuming)
                case _:
                    raise RemoteProtocolError("the first message must be a single hello or resume packet")
        finally:
            self.in_progress -= 1

    async def _traced(self, operation: Operation, handshake: Coroutine[Any, Any, Session]) -> Session:
        with self._tracer.span(operation) as span:
            try:
                session = await handshake
            except HandshakeRefused as refused:
                span.note("refused", refused.error.code.value)
                raise
            span.note("session", session.id)
            span.note("outcome", session.outcome.value)
            return session

    def _expect(self, connection: Connection) -> None:
        """Close the connection unless its first packet comes in time; one timer serves all."""
        timeout = self._parameters.handshake_timeout
        self._silent[connection] = self._clock.monotonic() + timeout
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(timeout, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        for connection, deadline in list(self._silent.items()):
            if deadline > now:
                self._timer = asyncio.get_running_loop().call_later(deadline - now, self._on_time)
                return
            del self._silent[connection]
            self._refuse(
                connection,
                HANDSHAKE_TIMEOUT,
                Error(
                    ErrorCode.HANDSHAKE_TIMEOUT,
                    f"the first packet must come within {self._parameters.handshake_timeout:g} seconds",
                ),
            )
