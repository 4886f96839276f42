"""Who is locked out of the cluster, as administrators see and change it."""

from __future__ import annotations

from typing import Protocol

from gateway.core.policy.revocations import Revocation, RevocationKind
from gateway.ports.administration.pages import Page


class RevocationAdministration(Protocol):
    """Who is locked out of the cluster."""

    async def list(self, *, cursor: str | None, limit: int) -> Page[Revocation]:
        """List revocations by name, as this node knows them.

        Raises:
            BadParameter: the cursor cannot be read.
        """

    async def add(self, kind: RevocationKind, value: str, *, reason: str, until: float | None) -> Revocation:
        """Lock somebody out, in the place of an earlier revocation of the same (``gateway.app.security.revocations``).

        Raises:
            BadParameter: this cannot be revoked.
            Conflict: there are too many.
            GridUnavailable: to be tried again.
        """

    async def lift(self, kind: RevocationKind, value: str) -> None:
        """Let somebody in again; sessions that were ended stay ended.

        Raises:
            NotThere: there is no such revocation.
            GridUnavailable: to be tried again.
        """
