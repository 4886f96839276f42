"""Many selectors as one automaton, which reads a topic once for all of them.

The automaton of one selector is a set of states, the bits of an integer (``selectors``). Those of several selectors lie
side by side in a longer integer, each with one state more than it has segments, so that none shifts into the next. A
segment of a topic is then read by the same few operations, whatever stands in the bits: it takes less than a
microsecond for all selectors together, and no combination of wildcards and literals makes it take longer (P20).

This is the Shift-And method of Baeza-Yates and Gonnet, with several patterns beside each other and wildcards of any
length as Navarro and Raffinot describe them (*Flexible Pattern Matching in Strings*, chapter 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from gateway.core.topics.selectors import ANY, ONE, Selector, begins_with_wildcard

V = TypeVar("V")

STATES: Final = 2048
"""Most states of one joint automaton: some 60 of the longest selectors, 500 usual ones. Operations on so many bits take
about three times as long as on a few, so more would save little, and each literal segment may take as many bits."""


def states_of(selector: Selector) -> int:
    """Tell how many states a selector takes."""
    return len(selector.segments) + 1


class Place(Generic[V]):
    """Where a selector lies in a joint automaton.

    Attributes:
        selector: which.
        value: what is found when it matches.
        automaton: the joint one.
        first: the number of its first state there.
    """

    __slots__ = ("automaton", "first", "selector", "value")

    def __init__(self, selector: Selector, value: V, automaton: JointAutomaton[V], first: int) -> None:
        self.selector = selector
        self.value = value
        self.automaton = automaton
        self.first = first


class JointAutomaton(Generic[V]):
    """Selectors with wildcards that are matched together. Not thread-safe.

    Attributes:
        places: of its selectors, by the number of the last state of each.
        taken: states that were ever given to a selector; later ones are free.
        living: those of selectors that are still there.
    """

    __slots__ = (
        "_anys",
        "_by_text",
        "_ends",
        "_ones",
        "_start",
        "_start_by_name",
        "living",
        "places",
        "taken",
    )

    def __init__(self) -> None:
        """Make an automaton without selectors."""
        self.places: dict[int, Place[V]] = {}
        self.taken = 0
        self.living = 0
        # As in ``selectors.Automaton``, for all of them.
        self._by_text: dict[str, int] = {}
        self._ones = self._anys = self._ends = self._start = 0
        self._start_by_name = 0
        """Of those that begin with a literal: the others match no topic of the system."""

    def has_room(self, selector: Selector) -> bool:
        """Tell whether a selector can be added."""
        return self.taken + states_of(selector) <= STATES

    def add(self, selector: Selector, value: V) -> Place[V]:
        """Add a selector for which there is room; time in proportion to its segments."""
        first = self.taken
        by_text = self._by_text
        ones = anys = 0
        state = 1
        for segment in selector.segments:
            if segment == ANY:
                anys |= state
            elif segment == ONE:
                ones |= state
            else:
                by_text[segment] = by_text.get(segment, 0) | (state << first)
            state <<= 1
        start = 1 | ((1 & anys) << 1)  # a ``**`` may stand for nothing
        self._ones |= ones << first
        self._anys |= anys << first
        self._ends |= state << first
        self._start |= start << first
        if not begins_with_wildcard(selector):
            self._start_by_name |= start << first
        self.taken += states_of(selector)
        self.living += states_of(selector)
        place = self.places[self.taken - 1] = Place(selector, value, self, first)
        return place

    def remove(self, place: Place[V]) -> None:
        """Take a selector out; its states are not given to another one."""
        selector = place.selector
        number = states_of(selector)
        others = ~(((1 << number) - 1) << place.first)
        by_text = self._by_text
        for text in {*selector.segments} - {ONE, ANY}:
            states = by_text[text] & others
            if states:
                by_text[text] = states
            else:
                del by_text[text]
        self._ones &= others
        self._anys &= others
        self._ends &= others
        self._start &= others
        self._start_by_name &= others
        self.living -= number
        del self.places[place.first + number - 1]

    def match(self, segments: Sequence[str], found: list[V], *, of_system: bool) -> None:
        """Find the values of all selectors that match a topic.

        Args:
            segments: of the topic.
            found: takes the values in.
            of_system: whether the topic is the system's.
        """
        by_text, ones, anys = self._by_text, self._ones, self._anys
        states = self._start_by_name if of_system else self._start
        for segment in segments:
            if not states:
                return
            # As ``selectors.step``, written out: it is the innermost loop of finding subscribers.
            leading_on = by_text.get(segment)
            staying = states & anys
            states = staying | ((states & (ones if leading_on is None else ones | leading_on)) << 1)
            states |= (states & anys) << 1
        states &= self._ends
        while states:
            last = states.bit_length() - 1
            found.append(self.places[last].value)
            states ^= 1 << last
