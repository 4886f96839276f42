"""When replicas took over, by a fault or by themselves: what a master had not replicated by then is lost."""

from __future__ import annotations

from typing import Final

from tests.chaos.account.forgotten import Forgotten
from tests.chaos.reader import Claims

DEMOTED: Final = 6.0
"""Seconds after a replica has taken over in which the master before may still take writes that nobody keeps."""


class Promotions:
    """Tells from looks at the servers when the grid may have lost the last writes.

    On a busy machine a master may seem dead without a fault. What it had not yet replicated is lost as with one, and
    until it is told, clients go on with the old one.

    Args:
        kind: of the grid; ``sentinel`` or ``cluster``.

    Attributes:
        count: how often a replica has taken over.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._since = 0.0
        self._masters: frozenset[int] = frozenset()
        self.count = 0

    def look(self, now: float, masters: frozenset[int], claims: Claims) -> tuple[bool, Forgotten | None]:
        """Take a look in.

        Args:
            now: when it was begun.
            masters: ports of those that serve the grid.
            claims: what the servers say of themselves.

        Returns:
            Whether a replica has taken over since the look before, and what may have been lost, if anything.
        """
        since, before = self._since, self._masters
        self._since, self._masters = now, masters
        has_changed = claims.promoted or masters != (before or masters)
        self.count += has_changed
        # A master of Sentinels that was replaced goes on for a while as if it were not.
        if has_changed or (self._kind == "sentinel" and claims.masters > 1):
            return has_changed, Forgotten(since, now + DEMOTED)
        return has_changed, None
