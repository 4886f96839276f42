"""What a small difference is, on a machine that is never quiet: two contestants in short turns, compared turn by turn.

Neighbours of a virtual machine come and go over minutes and change what everything costs by a third. Two measurements
of a second each, one after the other, see the same neighbours, so their ratio tells what the medians of long runs hide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Final, TypeVar

CONFIDENCE: Final = 0.95
"""Probability with which the interval holds the true median."""

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Ratio:
    """How much of the one the other is.

    Attributes:
        middle: median of the ratios of all turns.
        low: beginning of the interval that holds the true median with ``CONFIDENCE``.
        high: its end.
        turns: how many there were.
    """

    middle: float
    low: float
    high: float
    turns: int

    @classmethod
    def of(cls, first: Sequence[float], second: Sequence[float]) -> Ratio:
        """Compare *second* with *first*, turn by turn.

        Nothing is assumed of how the ratios spread: the interval reaches from one of them to another, as far inwards
        as the binomial distribution allows.

        Raises:
            ValueError: they are not as many, or there are none.
        """
        ratios = sorted(other / one for one, other in zip(first, second, strict=True))
        if not ratios:
            raise ValueError("nothing to compare: there was no turn")
        cut = _cut(len(ratios))
        return cls(median(ratios), ratios[cut], ratios[-1 - cut], len(ratios))

    def __str__(self) -> str:
        """Tell it for a table: by how many percent the second differs."""
        return f"{_percent(self.middle)} ({_percent(self.low)} … {_percent(self.high)})"


def _cut(turns: int) -> int:
    """How many ratios may be left out at each end of the interval; of five turns or less, none."""
    left_out, beyond = 0, 2 / 2**turns
    while (beyond := beyond + 2 * comb(turns, left_out + 1) / 2**turns) <= 1 - CONFIDENCE:
        left_out += 1
    return left_out


def _percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f} %"


def in_turns(contestants: Mapping[Key, Callable[[], float]], turns: int) -> Iterator[tuple[Key, float]]:
    """Measure contestants in turns, each time in the opposite order, so that none always comes first.

    Args:
        contestants: what measures each.
        turns: how often each is measured.
    """
    for turn in range(turns):
        order = list(contestants.items())
        for name, measure in reversed(order) if turn % 2 else order:
            yield name, measure()


def values_in_turns(contestants: Mapping[Key, Callable[[], float]], turns: int) -> dict[Key, list[float]]:
    """Measure contestants in turns; returns the values of each, turn by turn.

    One turn comes before all that count: in it code and scripts are loaded, and allocators grow.

    Args:
        contestants: what measures each.
        turns: how often each is measured, that one aside.
    """
    values: dict[Key, list[float]] = {name: [] for name in contestants}
    for number, (name, value) in enumerate(in_turns(contestants, turns + 1)):
        if number >= len(contestants):
            values[name].append(value)
    return values
