"""The two authenticators that check nothing themselves: one believes everybody, the other asks several in turn."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.adapters.authentication.principals import is_valid_principal
from gateway.ports import Authenticator, Credentials, CredentialsRefused, Identity


class AnonymousAuthenticator:
    """Every client is who it says it is; implements ``gateway.ports.Authenticator``. Secrets are ignored."""

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Believe the principal that the client names, without a role; None if nobody can be called that."""
        return Identity(principal=credentials.principal) if is_valid_principal(credentials.principal) else None


class ChainAuthenticator:
    """Admits whom the first of several admits; implements ``gateway.ports.Authenticator``.

    Each may accept, refuse for good, or leave it to the next. One that cannot tell now ends the matter, too: had it
    been asked in time, it might have refused, and nobody is admitted because something does not work.

    Args:
        authenticators: in the order in which they are asked; at least one.
    """

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Tell who shows these credentials; see the port."""
        refused: CredentialsRefused | None = None
        for each in self._authenticators:
            try:
                identity = await each.authenticate(credentials)
            except CredentialsRefused as error:
                if error.final:
                    raise
                # The first who took the trouble to say why knows best.
                refused = refused or error
            else:
                if identity is not None:
                    return identity
        if refused is not None:
            raise refused
        return None
