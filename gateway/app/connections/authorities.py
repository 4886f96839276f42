"""Who says who clients are, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.app.security.authentication import Authentication
from gateway.app.security.authorisation import Authorisation
from gateway.app.security.enforcement import Enforcement
from gateway.app.security.revocations import Revocations
from gateway.ports import TokenSigner


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorities:
    """What hello and resume ask before a client has a session.

    Attributes:
        authentication: says who clients are, by their credentials.
        signer: signs and reads the tokens they come back with.
        authorisation: what they may do.
        revocations: who is refused whatever he shows.
        enforcement: ends the sessions of those who are.
    """

    authentication: Authentication
    signer: TokenSigner
    authorisation: Authorisation
    revocations: Revocations
    enforcement: Enforcement
