"""Whether new sessions should come to this node, and what follows from that for the role of the master."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.app.cluster.namesakes import Namesakes
from gateway.app.context import Context
from gateway.app.destinations.destinations import Destinations
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.security.revocations import Revocations
from gateway.ports import MasterWish


class Readiness:
    """Looks at all that a node must know and have before it serves; costs nothing, and may be asked at any time.

    Args:
        context: of the node.
        store: knows whether sessions are written.
        revocations: who is refused.
        destinations: what paths are.
        namesakes: other living nodes that have the name of this one.
    """

    def __init__(
        self,
        context: Context,
        *,
        store: FencedStore,
        revocations: Revocations,
        destinations: Destinations,
        namesakes: Namesakes,
    ) -> None:
        self._grid = context.grid
        self._limits = context.limits
        self._lifecycle = context.lifecycle
        self._store = store
        self._revocations = revocations
        self._destinations = destinations
        self._namesakes = namesakes

    def reasons(self) -> Sequence[str]:
        """Tell why no new sessions should come here; nothing means that they may."""
        reasons: list[str] = []
        if not self._lifecycle.joined:
            reasons.append("the grid has not been reached yet")
        elif not self._revocations.loaded:
            reasons.append("what is revoked has not been read yet")
        elif not self._destinations.loaded:
            reasons.append("what paths are has not been read yet")
        elif self._store.replicated and not self._store.available:
            reasons.append("the grid is unreachable")
        reasons += self._namesakes.reasons()
        if self._lifecycle.draining:
            reasons.append("the node drains")
        return reasons

    def warnings(self) -> Sequence[str]:
        """Tell what is wrong though new sessions may come: all nodes have the same grid, and none would be left."""
        short = ["memory is short"] if self._limits.memory_short else []
        return [*self._grid.complaints, *short, *self._namesakes.warnings()]

    def master_wish(self) -> MasterWish:
        """Tell what this node wants of the role of the master: it is sticky, and given up by a drain."""
        if self._lifecycle.draining:
            return MasterWish.YIELD
        return MasterWish.KEEP if self.reasons() else MasterWish.TAKE
