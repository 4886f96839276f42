"""What one request may cost in thought: steps are counted, and when they are spent the answer errs on the side of less.

Time would depend on the machine, and no test could hold it. A *step* is one place of a trie, one segment read by a
joint automaton, or a few segments of one selector or topic compared: half a microsecond, or one. Whoever searches takes
steps as it goes, and charges its client for them.
"""

from __future__ import annotations

from typing import Final

MOST_STEPS: Final = 4096
"""Steps of one request in judging, and as many in keeping its list short: two to four milliseconds each, which other
clients hardly notice. What people write takes some dozens."""

SEGMENTS_PER_STEP: Final = 4
"""Segments of a topic or selector that one comparison with a selector reads in the time of a step. What people write
has hardly more, so for them a comparison is a step; with the longest it is eight."""


def steps_to_compare(segments: int) -> int:
    """Tell how many steps it takes to compare a topic or selector of so many segments with a selector."""
    return 1 + (segments - 1) // SEGMENTS_PER_STEP


class WorkSpent(Exception):
    """A search would take more steps than it may."""


class Work:
    """Steps that may be taken together.

    Args:
        most: of them.

    Attributes:
        taken: so many were taken; at most one search's last stride more than there were.
        is_spent: a search was broken off; what it was to find is not known.
    """

    __slots__ = ("_most", "is_spent", "taken")

    def __init__(self, most: int = MOST_STEPS) -> None:
        self._most = most
        self.taken = 0
        self.is_spent = False

    def __repr__(self) -> str:
        return f"<Work {self.taken} of {self._most} steps{', spent' if self.is_spent else ''}>"

    def take(self, steps: int) -> None:
        """Take steps that are going to be made.

        Raises:
            WorkSpent: they are not there; nor will there be any later.
        """
        if self.is_spent or self.taken + steps > self._most:
            self.is_spent = True
            raise WorkSpent
        self.taken += steps
