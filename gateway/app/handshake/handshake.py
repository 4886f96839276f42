"""What a hello and a resume share, and which of them does what."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from gateway.app.authorisation import Authorisation
from gateway.app.claims import Claims
from gateway.app.context import Context
from gateway.app.gatekeeper import Gatekeeper
from gateway.app.greeter import Greeter
from gateway.app.handshake.hello import Hellos
from gateway.app.handshake.resume import Resumes
from gateway.app.persistence import Persistence
from gateway.app.requests import Requests
from gateway.app.revocation import Enforcement, Revocations
from gateway.app.session import Session
from gateway.app.sessions import Sessions
from gateway.core.packets import Hello, Resume
from gateway.ports import Authenticator, Link, TokenSigner


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorities:
    """Who says who clients are.

    Attributes:
        gatekeeper: decides it by their credentials.
        signer: signs and reads the tokens they resume with.
    """

    gatekeeper: Gatekeeper
    signer: TokenSigner


class Handshake:
    """Opens and resumes sessions.

    Args:
        context: of the node.
        persistence: for writes of sessions held here.
        sessions: the sessions held here.
        requests: makes lanes.
        authorities: who says who clients are, and signs the tokens they come back with.
        authorisation: what they may do.
        is_recovering: whether the grid has just lost writes, so that what it does not know may exist all the same.
        revocations: who is refused whatever he shows.
        enforcement: ends the sessions of those who are.
    """

    def __init__(
        self,
        context: Context,
        *,
        persistence: Persistence,
        sessions: Sessions,
        requests: Requests,
        authorities: Authorities,
        authorisation: Authorisation,
        is_recovering: Callable[[], bool],
        revocations: Revocations,
        enforcement: Enforcement,
    ) -> None:
        claims = Claims(context, persistence=persistence, sessions=sessions, is_recovering=is_recovering)
        greeter = Greeter(
            context,
            persistence=persistence,
            sessions=sessions,
            requests=requests,
            signer=authorities.signer,
            authorisation=authorisation,
        )
        self._hellos = Hellos(
            context,
            persistence=persistence,
            sessions=sessions,
            gatekeeper=authorities.gatekeeper,
            authorisation=authorisation,
            revocations=revocations,
            enforcement=enforcement,
            claims=claims,
            greeter=greeter,
        )
        self._resumes = Resumes(
            context,
            persistence=persistence,
            sessions=sessions,
            requests=requests,
            gatekeeper=authorities.gatekeeper,
            signer=authorities.signer,
            authorisation=authorisation,
            revocations=revocations,
            enforcement=enforcement,
            claims=claims,
            greeter=greeter,
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
