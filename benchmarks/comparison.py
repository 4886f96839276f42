"""When medians may be compared: how far rounds lie apart, who kept up, and between which bounds a ratio lies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Protocol

LARGEST_SPREAD: Final = 0.10
"""Half of the way from the least to the largest round, as a share of the median. Beyond it a median says too little (a
peer has two modes, or the machine was disturbed): the range is shown instead, and ratios are ranges, too."""

OVERLOADED: Final = "overloaded"
"""A flag that begins so: less was delivered than was asked for."""

GENERATOR_LIMIT: Final = "the generator was the limit"
"""A flag that begins so: the figure may be the generator's, not the system's."""


class Flagged(Protocol):
    """A measurement with remarks."""

    @property
    def flags(self) -> Sequence[str]:
        """What makes it not comparable."""


@dataclass(frozen=True)
class Ratio:
    """How many times the other's figure ours is.

    Attributes:
        middle: of the medians.
        least: the smallest that the rounds allow; equal to *middle* unless one of both is spread.
        most: the largest, likewise.
    """

    middle: float
    least: float
    most: float

    @property
    def is_range(self) -> bool:
        """Whether the ratio is known between bounds only."""
        return self.least != self.most


def spread(values: Sequence[float]) -> float:
    """Tell half of the way from least to most, as a share of the median; 0 for a single value or a median of 0."""
    middle = median(values)
    return (max(values) - min(values)) / 2 / abs(middle) if middle else 0.0


def is_spread(values: Sequence[float]) -> bool:
    """Tell whether the range is shown instead of the median."""
    return spread(values) > LARGEST_SPREAD


def ratio_of(ours: Sequence[float], others: Sequence[float]) -> Ratio | None:
    """Divide our rounds by another's; None if one of both has none, or the other's may be zero."""
    if not ours or not others or min(others) <= 0:
        return None
    middle = median(ours) / median(others)
    if is_spread(ours) or is_spread(others):
        return Ratio(middle, min(ours) / max(others), max(ours) / min(others))
    return Ratio(middle, middle, middle)


def has_flag(rows: Iterable[Flagged], beginning: str) -> bool:
    """Tell whether any round has such a flag."""
    return any(flag.startswith(beginning) for row in rows for flag in row.flags)


def kept_up(rows: Sequence[Flagged]) -> bool:
    """Tell whether a contestant kept up with what was asked in at least half of its rounds.

    One round that a disturbed machine has spoilt is marked, and does not take the comparison away.
    """
    return sum(has_flag([row], OVERLOADED) for row in rows) * 2 <= len(rows)
