"""The first packet of a connection, a hello or a resume: waited for and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.app.admission.refusals import HandshakeRefused, HungUp
from gateway.app.connections.failures import Failures
from gateway.app.connections.hello import HelloHandler
from gateway.app.connections.resume import ResumeHandler
from gateway.app.context import Context
from gateway.app.session.session import Session
from gateway.core.wire import codec
from gateway.core.wire.codes import GOING_AWAY, HANDSHAKE_TIMEOUT, ErrorCode
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Error, Hello, Resume
from gateway.ports import Authenticator, Connection, Operation


class FirstPackets:
    """Gives connections their sessions.

    Args:
        context: of the node.
        hello: opens sessions.
        resume: goes on with sessions.
        failures: ends those that get none.
        draining: whether connections that were accepted earlier come too late for a session.

    Attributes:
        greeting: connections whose first packet is being answered: each may still bring a session.
    """

    def __init__(
        self,
        context: Context,
        *,
        hello: HelloHandler,
        resume: ResumeHandler,
        failures: Failures,
        draining: Callable[[], bool],
    ) -> None:
        self._policy = context.policy
        self._clock = context.clock
        self._tracer = context.tracer
        self._hello = hello
        self._resume = resume
        self._failures = failures
        self._draining = draining
        # In the order in which they came, which is that of their deadlines.
        self._silent: dict[Connection, float] = {}
        self._impatience: asyncio.TimerHandle | None = None
        self.greeting = 0

    def close(self) -> None:
        """Stop the timer."""
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None

    async def greet(self, connection: Connection, administrators: Authenticator | None) -> Session | None:
        """Wait for the first packet and answer it.

        Args:
            connection: the connection.
            administrators: knows who may come in at the admin port; None for the client port.

        Returns:
            The session that the client has from now on; None if it has none, and then the connection is closed.
        """
        self._expect_word(connection)
        try:
            message = await connection.receive()
        finally:
            self._silent.pop(connection, None)
        if message is None:
            return None
        self.greeting += 1
        try:
            inside = administrators is not None
            if self._draining() and not inside:
                raise HandshakeRefused(ErrorCode.DRAINING, "the node drains; another one will serve you", GOING_AWAY)
            match codec.decode_from_client(message):
                case [Hello() as hello]:
                    opening = self._hello.open(hello, connection, administrators)
                    return await self._shake_hands(Operation.CONNECT, opening)
                case [Resume() as resume]:
                    opening = self._resume.go_on(resume, connection, inside=inside, heard=self._clock.monotonic())
                    return await self._shake_hands(Operation.RESUME, opening)
                case _:
                    raise RemoteProtocolError("the first message must be a single hello or resume packet")
        except RemoteProtocolError as violation:
            self._failures.violated(connection, violation)
        except HandshakeRefused as refused:
            self._failures.end(connection, refused.close, refused.error)
        except HungUp:
            pass
        finally:
            self.greeting -= 1
        return None

    async def _shake_hands(self, operation: Operation, opening: Coroutine[Any, Any, Session]) -> Session:
        with self._tracer.span(operation) as span:
            try:
                session = await opening
            except HandshakeRefused as refused:
                span.note("refused", refused.error.code.value)
                raise
            span.note("session", session.id)
            span.note("outcome", session.outcome.value)
            return session

    def _expect_word(self, connection: Connection) -> None:
        """Close the connection unless it is heard in time; one timer serves all."""
        timeout = self._policy.handshake_timeout
        self._silent[connection] = self._clock.monotonic() + timeout
        if self._impatience is None:
            self._impatience = asyncio.get_running_loop().call_later(timeout, self._give_up_the_silent)

    def _give_up_the_silent(self) -> None:
        self._impatience = None
        now = self._clock.monotonic()
        for connection, deadline in list(self._silent.items()):
            if deadline > now:
                self._impatience = asyncio.get_running_loop().call_later(deadline - now, self._give_up_the_silent)
                return
            del self._silent[connection]
            self._failures.end(
                connection,
                HANDSHAKE_TIMEOUT,
                Error(
                    ErrorCode.HANDSHAKE_TIMEOUT,
                    f"the first packet must come within {self._policy.handshake_timeout:g} seconds",
                ),
            )
