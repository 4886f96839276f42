"""The revocations that an in-memory grid holds, and what changed last."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from gateway.core.policy.revocations import Revocation
from gateway.ports import Unblocked

CHANGES_KEPT: Final = 1000
"""Changes that a follower may lag behind before it is given everything anew."""


class Revocations:
    """All revocations of the grid. Every method is one atomic step.

    Attributes:
        revision: counts the changes ever made.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._held: dict[str, Revocation] = {}
        self._changes: deque[Revocation | Unblocked] = deque(maxlen=CHANGES_KEPT)

    def add(self, revocation: Revocation) -> None:
        """See ``RevocationStore.add``."""
        self._held[revocation.name] = revocation
        self._changed(revocation)

    def unblock(self, name: str) -> None:
        """See ``RevocationStore.unblock``."""
        if self._held.pop(name, None) is not None:
            self._changed(Unblocked(name))

    def restore(self, revocations: Sequence[Revocation]) -> int:
        """See ``RevocationStore.restore``."""
        written = 0
        for each in revocations:
            held = self._held.get(each.name)
            if held is None or held.made < each.made:
                self.add(each)
                written += 1
        return written

    def forget(self, revocations: Sequence[Revocation]) -> None:
        """See ``RevocationStore.forget``."""
        for each in revocations:
            if self._held.get(each.name) == each:
                self.unblock(each.name)

    def all(self) -> tuple[Revocation, ...]:
        """List everything."""
        return tuple(self._held.values())

    def after(self, revision: int) -> tuple[Revocation | Unblocked, ...] | None:
        """List the changes since *revision*; None if they are not all kept any more."""
        behind = self.revision - revision
        if not 0 <= behind <= len(self._changes):
            return None
        return tuple(list(self._changes)[len(self._changes) - behind :])

    def _changed(self, change: Revocation | Unblocked) -> None:
        self.revision += 1
        self._changes.append(change)
