"""The time of the grid: the clock of Redis, followed by the nodes, so that nobody who sets it ends a session by that.

```text
time of the grid = clock of Redis - shift          estimate = what it was when last read + what has passed here since
```

Redis has the time of day, which can be set. Every deadline of the grid, of windows and leases, would move with it. So a
node reads it whenever it renews its lease, and compares: what has passed in Redis since the last reading, and what has
passed here, by a clock that nobody sets. If both agree within a few seconds, Redis is right, and each step uses its
clock as it is. If they do not, the clock was set: the node that finds out first records by how much in the grid, as the
*shift*, and the time of the grid goes on evenly for all. Steps that come before that go by the estimate of their
caller, so that there is no moment in which the wrong time counts.

A node whose own clock stood still, as that of a machine that was suspended, would find the same. It is contradicted by
any other node that has followed the clock all the while and found nothing, and begins to follow it anew. A node that
came after the clock was set has found nothing either; so each tells since when it has followed the clock.

A node that has just come has nothing to compare with but the time of the last renewal of any node. If that is later
than what the clock says, the clock was set back, and the time goes on from there. If it is long ago, either nobody
reached the grid meanwhile, or the clock was set forward and the others have yet to find out. They do so within a lease;
until then the newcomer is not *sure* of the time, and ends nothing of others by it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

TOLERANCE_MS: Final = 5_000
"""Milliseconds by which the clock of Redis may differ from the estimate before it counts as set: more than a step waits
for its execution, and less than any window is worth. Whoever sets the clock by less moves deadlines by as much."""

_UNREAD: Final = "-"
"""In the place of an estimate, before the first reading."""


class GridClock:
    """One node's knowledge of the time of the grid.

    Args:
        local: seconds that nobody sets, also counted while the process is suspended.

    Attributes:
        shift: milliseconds by which the clock of Redis is ahead of the time of the grid, as far as is known here.
        last: what the clock of Redis said when it was read last and fitted, in milliseconds; 0 before.
        since: what it said when this node began to follow it by this shift, likewise.
        doubt: milliseconds within which all who have followed the clock for longer find out that it was set: a lease.
    """

    def __init__(self, local: Callable[[], float]) -> None:
        self._local = local
        self._answered = 0.0
        """When the answer of the last reading was there, by the local clock, in milliseconds."""
        self._known: tuple[float, float] | None = None
        """A local time, and that of the grid at that moment, both in milliseconds."""
        self._born = 0.0
        """Local time, in milliseconds, since when it follows the clock without having been wrong."""
        self._is_doubtful = False
        """Whether there was nothing to compare the first reading with."""
        self.shift = 0
        self.last = 0
        self.since = 0
        self.doubt = inf

    @property
    def is_sure(self) -> bool:
        """Whether everybody who may know that the clock was set before this node came has had the time to say so."""
        return not self._is_doubtful or self.age() >= self.doubt

    def local(self) -> float:
        """Read the local clock, in milliseconds."""
        return self._local() * 1000

    def estimate(self, local: float | None = None) -> float | None:
        """Tell the time of the grid, in milliseconds, now or at a local time; None before the first reading."""
        if self._known is None:
            return None
        then, grid = self._known
        return grid + (self.local() if local is None else local) - then

    def earliest(self) -> float | None:
        """Tell what the time of the grid is now at least, in milliseconds, if its clock is right."""
        return None if self._known is None else self._known[1] + self.local() - self._answered

    def age(self, local: float | None = None) -> int:
        """For how many milliseconds it has followed the clock at a local time, or when it read it last."""
        if self._known is None:
            return 0
        return round((self._known[0] if local is None else local) - self._born)

    def last_by(self, shift: int) -> int:
        """What the clock of Redis would have said when it was read last, had it been ahead by another shift."""
        return self.last - self.shift + shift

    def went_on_evenly(self, clock: int, *, asked: float, answered: float) -> bool:
        """Tell whether the clock of Redis itself was not set since it was read last, whatever the shift is.

        Args:
            clock: what it said, in milliseconds.
            asked: when it was asked for, by the local clock in milliseconds.
            answered: when the answer was there, likewise.
        """
        return self._misfit(clock - self.shift, asked=asked, answered=answered) == 0

    def argument(self) -> str:
        """Make what every step that depends on the time is given first; see ``scripts/clock.lua``."""
        estimate = self.estimate()
        return f"{self.shift} {_UNREAD if estimate is None else round(estimate)} {TOLERANCE_MS} {int(self.is_sure)}"

    def begin(self, clock: int, shift: int, *, now: int, silence: int, asked: float, answered: float) -> None:
        """Take in the first reading.

        Args:
            clock: see ``read``.
            shift: see ``read``.
            now: the time of the grid, in milliseconds; later than the two tell if the clock was set back.
            silence: milliseconds for which nobody had renewed a lease.
            asked: see ``read``.
            answered: see ``read``.
        """
        self.follow(clock, shift, asked=asked, answered=answered)
        self._known = ((asked + answered) / 2, now)
        self._is_doubtful = silence > TOLERANCE_MS

    def read(self, clock: int, shift: int, *, asked: float, answered: float) -> int:
        """Take in a reading of the clock of Redis, if it fits what is known.

        Args:
            clock: what it said, in milliseconds.
            shift: that the grid has recorded.
            asked: when it was asked for, by the local clock in milliseconds.
            answered: when the answer was there, likewise.

        Returns:
            0 if it fits; else by how many milliseconds the clock of Redis was certainly set, forward if that is
            positive, and nothing is taken in.
        """
        step = self._misfit(clock - shift, asked=asked, answered=answered)
        if step:
            return step
        self.follow(clock, shift, asked=asked, answered=answered)
        return 0

    def follow(self, clock: int, shift: int, *, asked: float, answered: float, anew: bool = False) -> None:
        """Take in a reading whatever was known; the arguments are those of ``read``.

        Args:
            clock: see ``read``.
            shift: see ``read``.
            asked: see ``read``.
            answered: see ``read``.
            anew: whether what was known has turned out to be wrong.
        """
        local = (asked + answered) / 2
        if self._known is None or anew:
            self._born = local
        if self._known is None or anew or shift != self.shift:
            self.since = clock
            # Now it goes by what somebody knew who had followed it.
            self._is_doubtful = False
        self._known = (local, clock - shift)
        self._answered = answered
        self.shift = shift
        self.last = clock

    def _misfit(self, grid: float, *, asked: float, answered: float) -> int:
        """Tell by how many milliseconds a time is not that of the grid between two local times; 0 if it may well be."""
        earliest, latest = self.estimate(asked), self.estimate(answered)
        if earliest is None or latest is None or earliest - TOLERANCE_MS <= grid <= latest + TOLERANCE_MS:
            return 0
        return round(grid - (earliest + latest) / 2)
