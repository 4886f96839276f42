"""Who holds how much of something that all nodes share: a bound for everybody, one for each, and fair shares between.

Nobody may come to hold more than is left for all others together (the dynamic thresholds of Choudhury and Hahne): one
alone gets half, and each that comes after that half of what it finds. So one cannot take all, nor can ten, and nobody
has to know how many principals there are; who holds little meets this bound last.

Each node counts what its own clients hold, exactly and at once, and hears from the others now and then what theirs do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

TOLD_SHARE: Final = 64
"""Part of a principal's bound from which on a node tells the others what it holds. What is below it on each node sums
up to the bound on as many nodes; and the message has no more principals than twice this number, by the defaults."""


class Exceeded(Enum):
    """Which bound would be exceeded."""

    ONE = "one"
    """That of one principal."""
    SHARE = "share"
    """It would hold more than is left for all others."""
    ALL = "all"
    """That of all together."""


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """What the clients of one node hold, as it tells the others.

    Attributes:
        total: of all.
        large: of those that hold much, by principal.
    """

    total: int = 0
    large: dict[str, int] = field(default_factory=dict)


class SharedBytes:
    """Bytes that principals hold, on this node and on the others.

    Args:
        most: of all principals on all nodes; 0 for no bound.
        most_of_one: of one principal on all nodes; 0 for no bound.

    Attributes:
        total: what is held by way of this node.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._told_from = max(1, (most_of_one or most) // TOLD_SHARE)
        self._held: dict[str, int] = {}
        self._large: dict[str, int] = {}
        self._elsewhere = HeldBytes()
        self.total = 0

    @property
    def bounded(self) -> bool:
        """Whether there is a bound at all."""
        return bool(self._most or self._most_of_one)

    def add(self, principal: str, change: int) -> None:
        """Count that a principal holds more, or less, by way of this node."""
        held = self._held.get(principal, 0) + change
        if held > 0:
            self._held[principal] = held
        else:
            self._held.pop(principal, None)
        if held >= self._told_from:
            self._large[principal] = held
        else:
            self._large.pop(principal, None)
        self.total += change

    def held_by(self, principal: str) -> int:
        """Tell what a principal holds, on all nodes as far as is known."""
        return self._held.get(principal, 0) + self._elsewhere.large.get(principal, 0)

    def exceeded(self, principal: str, more: int) -> Exceeded | None:
        """Tell which bound would be exceeded if a principal held so many bytes more; None if none would."""
        if more <= 0:
            return None
        held = self.held_by(principal) + more
        if 0 < self._most_of_one < held:
            return Exceeded.ONE
        if self._most:
            total = self.total + self._elsewhere.total + more
            if held > self._most - total:
                # Whoever holds nothing yet is not the cause.
                return Exceeded.ALL if held == more or total > self._most else Exceeded.SHARE
        return None

    # --- Other nodes --------------------------------------------------------------------------------------------------

    def report(self) -> HeldBytes:
        """Tell what the other nodes have to know."""
        return HeldBytes(self.total, dict(self._large))

    def told(self, others: Iterable[HeldBytes]) -> None:
        """Take in what the other nodes have told last."""
        total = 0
        large: dict[str, int] = {}
        for each in others:
            total += each.total
            for principal, held in each.large.items():
                large[principal] = large.get(principal, 0) + held
        self._elsewhere = HeldBytes(total, large)
