"""Values that every listener sees from the beginning: recoveries and notices.

Somebody who begins to listen after the first failover still learns of it, because the last values are kept. A listener
that is slower than the values skips what is no longer kept: they describe what happened to the session, and the newest
are the ones that matter. How listeners wait is the shell's matter.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from gateway.core.client.errors import SessionEnded

KEPT: Final = 256
"""Values kept for listeners that come later: at one failover a minute, the last four hours."""

_T = TypeVar("_T")


class Record(Generic[_T]):
    """An append-only record of values.

    Attributes:
        ended: whether nothing is added any more.
        error: what listeners get after the last value; None if they just stop.
    """

    def __init__(self) -> None:
        self._kept: deque[_T] = deque(maxlen=KEPT)
        self._count = 0
        self.ended = False
        self.error: SessionEnded | None = None

    def __len__(self) -> int:
        """Count all values there ever were."""
        return self._count

    def append(self, value: _T) -> bool:
        """Add a value; False after ``end``, when it has no effect."""
        if self.ended:
            return False
        self._kept.append(value)
        self._count += 1
        return True

    def end(self, error: SessionEnded | None) -> bool:
        """Let listeners finish with what is kept, and then stop, or raise *error*; False if it had ended before."""
        if self.ended:
            return False
        self.ended = True
        self.error = error
        return True

    def at(self, place: int) -> tuple[int, _T] | None:
        """Return the value at a place, or the first one after it that is still kept.

        Returns:
            Its place, from 0, and the value; None if it has yet to come.
        """
        place = max(place, self._count - len(self._kept))
        return (place, self._kept[place - self._count]) if place < self._count else None
