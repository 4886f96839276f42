"""What a hello and a resume share, and which of them does what."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from gateway.app.admission.handshake_limiter import Turnstile
from gateway.app.connections.authorities import Authorities
from gateway.app.connections.claims import Claims
from gateway.app.connections.hello import Hellos
from gateway.app.connections.resume import Resumes
from gateway.app.connections.welcome import Greeter
from gateway.app.context import Context
from gateway.app.registry.persistence import Persistence
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.session.session import Session
from gateway.core.wire.packets import Hello, Resume
from gateway.ports import Authenticator, Link


class Handshake:
    """Opens and resumes sessions.

    Args:
        context: of the node.
        persistence: for writes of sessions held here.
        sessions: the sessions held here.
        requests: makes lanes.
        authorities: who says who clients are, and what they may do.
        turnstile: says when the grid may be asked for them.
        is_recovering: whether the grid has just lost writes, so that what it does not know may exist all the same.
        has_lost: whether it has lost any since this node began to work.
    """

    def __init__(
        self,
        context: Context,
        *,
        persistence: Persistence,
        sessions: Sessions,
        requests: Requests,
        authorities: Authorities,
        turnstile: Turnstile,
        is_recovering: Callable[[], bool],
        has_lost: Callable[[], bool],
    ) -> None:
        claims = Claims(context, persistence=persistence, sessions=sessions, is_recovering=is_recovering)
        greeter = Greeter(
            context,
            persistence=persistence,
            sessions=sessions,
            requests=requests,
            signer=authorities.signer,
            authorisation=authorities.authorisation,
        )
        self._hellos = Hellos(
            context,
            persistence=persistence,
            sessions=sessions,
            authorities=authorities,
            claims=claims,
            greeter=greeter,
            turnstile=turnstile,
        )
        self._resumes = Resumes(
            context,
            persistence=persistence,
            sessions=sessions,
            requests=requests,
            authorities=authorities,
            claims=claims,
            greeter=greeter,
            turnstile=turnstile,
            has_lost=has_lost,
        )

    # Both hand on a coroutine, and add no step of their own to it.

    def hello(
        self, packet: Hello, link: Link, administrators: Authenticator | None = None
    ) -> Coroutine[Any, Any, Session]:
        """Open a new session; see ``Hellos.open``."""
        return self._hellos.open(packet, link, administrators)

    def resume(self, packet: Resume, link: Link, *, inside: bool, heard: float) -> Coroutine[Any, Any, Session]:
        """Go on with a session; see ``Resumes.go_on``."""
        return self._resumes.go_on(packet, link, inside=inside, heard=heard)
