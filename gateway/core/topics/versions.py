"""Versions of topics over generations of the grid, and which of two publishes is the later one (P6).

A grid that lost writes cannot know which versions clients have seen. So no value is shown in a generation with a
version below the floor of that generation, which is above every version of the generations before: not even one that
was published long ago and that nobody has published since. Which of two publishes of a topic is the later one is
therefore told by their events, which stay what they were.
"""

from __future__ import annotations

from typing import Final

from gateway.core.types import EventId, GridGeneration, Version

GENERATION_SHIFT: Final = 32
"""Bits of a version below its generation: no topic gets four billion publishes within one generation."""

UNSEEN_GENERATIONS: Final = 16
"""By how many the generation grows where whoever adopts the grid has not seen the stored one: so many may have followed
it before the grid went back, each after an outage of its own. There is room for two million."""

BESIDE: Final = 2
"""By how much the version of a restored value is above the floor or the value that it replaces: updates between the two
may be missing, so that nobody may take it for the successor."""


def least_version(generation: GridGeneration) -> Version:
    """Tell the floor of a generation: the least version that a value is shown with in it."""
    return Version(max(0, generation - 1) << GENERATION_SHIFT)


def is_later(event: EventId, other: EventId) -> bool:
    """Tell whether *event* is of a later publish than *other*; both of one topic, and known."""
    return place_of(event) > place_of(other)


def place_of(event: EventId) -> tuple[int, int]:
    """Tell where in the stream of its partition an event is: the generation of the grid, and the number within that.

    Raises:
        ValueError: it is no event id.
    """
    _, generation, sequence = event.split("-")
    return int(generation), int(sequence)
