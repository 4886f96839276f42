"""Believes everybody; for development only, and the node says so loudly when it starts."""

from __future__ import annotations

from gateway.adapters.authentication.principals import is_valid_principal
from gateway.ports import Credentials, Identity


class AnonymousAuthenticator:
    """Every client is who it says it is; implements ``gateway.ports.Authenticator``. Secrets are ignored."""

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Believe the principal that the client names, without a role; None if nobody can be called that."""
        return Identity(principal=credentials.principal) if is_valid_principal(credentials.principal) else None
