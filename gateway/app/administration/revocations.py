"""What is blocked, as an administrator sees and changes it; implements ``RevocationAdministration``."""

from __future__ import annotations

from gateway.app.administration.cursors import Place, from_cursor, to_cursor
from gateway.app.security.revocations import InvalidRevocation, Revocations, TooManyRevocations
from gateway.core.policy.revocations import Revocation, RevocationKind
from gateway.ports.administration import BadParameter, Conflict, NotThere, Page


class ClusterRevocations:
    """Revocations, as every node knows all of them.

    Args:
        revocations: of this node.
    """

    def __init__(self, revocations: Revocations) -> None:
        self._revocations = revocations

    async def list(self, *, cursor: str | None, limit: int) -> Page[Revocation]:
        """See ``RevocationAdministration.list``."""
        place = from_cursor(cursor, partitions=1)
        page = self._revocations.page(limit=limit, after=place.after or "")
        return Page(page.revocations, None if page.after is None else to_cursor(Place(after=page.after)))

    async def add(self, kind: RevocationKind, value: str, *, reason: str, until: float | None) -> Revocation:
        """See ``RevocationAdministration.add``."""
        try:
            return await self._revocations.revoke(kind, value, reason=reason, until=until)
        except InvalidRevocation as invalid:
            raise BadParameter("value", str(invalid)) from None
        except TooManyRevocations as too_many:
            raise Conflict(str(too_many)) from None

    async def unblock(self, kind: RevocationKind, value: str) -> None:
        """See ``RevocationAdministration.unblock``."""
        if not await self._revocations.unblock(kind, value):
            # The grid was asked all the same, and has none from now on.
            raise NotThere(
                "revocation",
                f"this node knows of no {kind.value} of that name that is revoked; if one was just made through "
                "another node, it is unblocked now",
            )
