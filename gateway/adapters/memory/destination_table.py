"""The destinations that an in-memory grid holds, and what changed last."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gateway.adapters.memory.revocation_table import CHANGES_KEPT
from gateway.core.destinations.destination import MAX_DESTINATIONS, Destination, Origin
from gateway.ports import Applied, DestinationRemoved, TooManyDestinations


class Destinations:
    """All destinations of the grid. Every method is one atomic step.

    Attributes:
        revision: counts the changes ever made.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._held: dict[str, Destination] = {}
        self._changes: deque[Destination | DestinationRemoved] = deque(maxlen=CHANGES_KEPT)

    def put(self, destination: Destination) -> bool:
        """See ``DestinationStore.put``."""
        if destination.name not in self._held and len(self._held) >= MAX_DESTINATIONS:
            raise TooManyDestinations("there is no room for another destination")
        return self._hold(destination)

    def remove(self, name: str) -> bool:
        """See ``DestinationStore.remove``."""
        if self._held.pop(name, None) is None:
            return False
        self._changed(DestinationRemoved(name))
        return True

    def apply(self, origin: Origin, destinations: Sequence[Destination]) -> Applied:
        """See ``DestinationStore.apply``."""
        wanted = {each.name for each in destinations}
        of_origin = [name for name, each in self._held.items() if each.origin is origin]
        if len(self._held) - len(of_origin) + len(destinations) > MAX_DESTINATIONS:
            raise TooManyDestinations("there is no room for so many destinations")
        removed = sum([self.remove(name) for name in of_origin if name not in wanted])
        return Applied(sum([self._hold(each) for each in destinations]), removed)

    def restore(self, destinations: Sequence[Destination]) -> int:
        """See ``DestinationStore.restore``."""
        written = 0
        for each in destinations:
            held = self._held.get(each.name)
            fits = held is not None or len(self._held) < MAX_DESTINATIONS
            if fits and (held is None or held.made < each.made):
                written += self._hold(each)
        return written

    def all(self) -> tuple[Destination, ...]:
        """List everything."""
        return tuple(self._held.values())

    def after(self, revision: int) -> tuple[Destination | DestinationRemoved, ...] | None:
        """List the changes since *revision*; None if they are not all kept any more."""
        behind = self.revision - revision
        if not 0 <= behind <= len(self._changes):
            return None
        return tuple(list(self._changes)[len(self._changes) - behind :])

    def _hold(self, destination: Destination) -> bool:
        held = self._held.get(destination.name)
        if held is not None and held.says_the_same(destination):
            return False
        self._held[destination.name] = destination
        self._changed(destination)
        return True

    def _changed(self, change: Destination | DestinationRemoved) -> None:
        self.revision += 1
        self._changes.append(change)
