"""What a witness does besides: it stays away, stops reading, stops acknowledging, leaves. Pure, decided by a seed."""

from __future__ import annotations

from random import Random
from typing import Final

ABSENT: Final = "absent"
"""Loses its transport, and stays away for part of its window."""
DEAF: Final = "deaf"
"""Stops reading."""
MUTE: Final = "mute"
"""Stops acknowledging."""
BACKLOG: Final = "backlog"
"""Stops acknowledging until its node may number nothing more, and for longer: updates are folded (5.3.4, 5.7.3)."""
LEAVER: Final = "leaver"
"""Says bye after a while, and tries to resume what was closed."""

FILLING: Final = 15.0
"""Seconds in which the buffer of a node is to fill up: 256 packets, of some eighty a second."""
OVERFULL: Final = (1.0, 3.0)
"""Seconds for which it is left full, from and to."""
SOON: Final = 1.0
"""Seconds after a connection was made in which that one begins, which takes its time."""


class Habits:
    """The habits of one witness, and what it is at now.

    Args:
        names: which it has.
        random: decides what it does when.

    Attributes:
        deaf_until: reads nothing until then.
    """

    def __init__(self, names: frozenset[str], random: Random) -> None:
        self.names = names
        self.deaf_until = 0.0
        self._random = random
        self._mute_until = 0.0
        self._fill_until = 0.0
        self._leave_at = 0.0
        self._next = 0.0

    def opened(self, now: float) -> None:
        """A session was created."""
        self._leave_at = now + self._random.uniform(6.0, 20.0)

    def connected(self, now: float) -> None:
        """A connection was made."""
        self._next = now + (SOON if BACKLOG in self.names else self._random.uniform(2.0, 9.0))

    def due(self, now: float, *, may_leave: bool) -> str:
        """Begin what is due; ``ABSENT`` and ``LEAVER`` are for the caller to do, the others are noted here.

        Args:
            now: the time.
            may_leave: whether nothing is under way that a bye would cut off.

        Returns:
            The habit; empty for none.
        """
        if now < self._next:
            return ""
        self._next = now + self._random.uniform(4.0, 12.0)
        if LEAVER in self.names and now >= self._leave_at and may_leave:
            return LEAVER
        others = sorted(self.names - {LEAVER})
        habit = self._random.choice(others) if others else ""
        if habit == DEAF:
            self.deaf_until = now + self._random.uniform(1.0, 8.0)
        elif habit == MUTE:
            self._mute_until = now + self._random.uniform(1.0, 4.0)
        elif habit == BACKLOG:
            self._fill_until = now + FILLING
        return habit

    def away(self, window: float) -> float:
        """Draw for how many seconds of its window it stays away; the rest belongs to the node."""
        return self._random.uniform(0.1, 0.5) * window

    def is_mute(self, now: float) -> bool:
        """Tell whether it acknowledges nothing now."""
        return max(self._mute_until, self._fill_until) > now

    def is_full(self, now: float) -> None:
        """Its node may number nothing more now: from here on it folds what it owes."""
        if self._fill_until > now:
            self._fill_until = 0.0
            self._mute_until = now + self._random.uniform(*OVERFULL)
