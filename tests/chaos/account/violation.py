"""What the account finds, and how it counts generations of the grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_GENERATION_SHIFT: Final = 32
"""A version's high bits are the grid's generation less one, so that versions grow also when the grid lost writes."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken.

    Attributes:
        promise: its number, for example ``P6``.
        at: when it was seen, in seconds since the beginning of the run.
        who: the session or node that it happened to, or the topic.
        what: what was seen and what should have been.
    """

    promise: str
    at: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise} at {self.at:.1f} s, {self.who}: {self.what}"


def shown_as(version: int, generation: int) -> int:
    """Tell the version under which a value is shown in a generation: never below the generation's floor."""
    return max(version, (generation - 1) << _GENERATION_SHIFT)


def generation_of(version: int) -> int:
    """Tell the generation of the grid in which a version was made."""
    return (version >> _GENERATION_SHIFT) + 1


def of_generation(version: int) -> int:
    """Tell how many versions of its topic a generation had made with this one, if the topic began in it."""
    return version & ((1 << _GENERATION_SHIFT) - 1)
