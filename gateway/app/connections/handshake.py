"""What a hello and a resume share, and which of them does what."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from gateway.app.admission.handshake_limiter import HandshakeLimiter
from gateway.app.connections.authorities import Authorities
from gateway.app.connections.claimer import SessionClaimer
from gateway.app.connections.hello import HelloHandler
from gateway.app.connections.resume import ResumeHandler
from gateway.app.connections.session_factory import SessionFactory
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.session.session import Session
from gateway.core.wire.packets import Hello, Resume
from gateway.ports import Authenticator, Connection


class Handshake:
    """Opens and resumes sessions.

    Args:
        context: of the node.
        store: for writes of sessions held here.
        sessions: the sessions held here.
        requests: makes lanes.
        authorities: who says who clients are, and what they may do.
        handshake_limiter: says when the grid may be asked for them.
        is_recovering: whether the grid has just lost writes, so that what it does not know may exist all the same.
        has_lost: whether it has lost any since this node began to work.
    """

    def __init__(
        self,
        context: Context,
        *,
        store: FencedStore,
        sessions: Sessions,
        requests: Requests,
        authorities: Authorities,
        handshake_limiter: HandshakeLimiter,
        is_recovering: Callable[[], bool],
        has_lost: Callable[[], bool],
    ) -> None:
        claimer = SessionClaimer(context, store=store, sessions=sessions, is_recovering=is_recovering)
        session_factory = SessionFactory(
            context,
            store=store,
            sessions=sessions,
            requests=requests,
            signer=authorities.signer,
            authorisation=authorities.authorisation,
        )
        self._hello_handler = HelloHandler(
            context,
            store=store,
            sessions=sessions,
            authorities=authorities,
            claimer=claimer,
            session_factory=session_factory,
            handshake_limiter=handshake_limiter,
        )
        self._resume_handler = ResumeHandler(
            context,
            store=store,
            sessions=sessions,
            requests=requests,
            authorities=authorities,
            claimer=claimer,
            session_factory=session_factory,
            handshake_limiter=handshake_limiter,
            has_lost=has_lost,
        )

    # Both hand on a coroutine, and add no step of their own to it.

    def hello(
        self, packet: Hello, connection: Connection, administrators: Authenticator | None = None
    ) -> Coroutine[Any, Any, Session]:
        """Open a new session; see ``HelloHandler.open``."""
        return self._hello_handler.open(packet, connection, administrators)

    def resume(
        self, packet: Resume, connection: Connection, *, inside: bool, heard: float
    ) -> Coroutine[Any, Any, Session]:
        """Go on with a session; see ``ResumeHandler.go_on``."""
        return self._resume_handler.go_on(packet, connection, inside=inside, heard=heard)
