"""Selectors taken together: whether several cover one, and what one has in common with several.

``selectors.covers`` compares two. A permission is a list, and a selector that no single entry covers may still be
covered by all of them: ``prices/*`` and ``prices/*/**`` together are ``prices/*/**``, and so are ``*`` and ``*/*/**``
all that there is.

**Covering** asks whether a topic exists that the one selector matches and none of the others does. All automata are
run side by side, over every segment that makes a difference: the literals that lead anywhere, and one *fresh* segment
that stands for all the others. What can be told apart of the topics read so far is the combination of states they lead
to, so each combination is followed once. The search goes by length and no further than topics do, so that the answer is
exact for topics that can exist (but for the bound on their bytes).

**What is common** to two selectors is the union of finitely many selectors, because the two automata, run side by side,
stay where they are only while both are at a ``**``, and otherwise always move on: every way through is a selector.

Both have a bound, for one of the selectors is written by a client. Where it is reached, the answer errs on the side of
less: not covered, not common.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from gateway.core.errors import InvalidSelector
from gateway.core.selectors import (
    ANY,
    ONE,
    Selector,
    automaton_of,
    begins_with_wildcard,
    covers,
    overlaps,
    parse_selector,
    step,
)
from gateway.core.topics import MAX_SEGMENTS, SEPARATOR, is_reserved

MAX_STEPS: Final = 1024
"""Most steps of one search, each by one segment: two or three milliseconds. What people write needs one per literal and
length; the bound is for a selector made to be costly."""

MAX_PARTS: Final = 64
"""Most selectors that what is common may consist of; nobody reads more, and a session's list could not hold them."""

_FRESH: Final = ""
"""Stands for a segment that occurs in none of the selectors; no segment is empty."""


def is_covered(narrow: Selector, wide: Iterable[Selector], *, longest: int = MAX_SEGMENTS) -> bool:
    """Tell whether every topic that *narrow* matches is matched by at least one of *wide*.

    True is always right. False is right too, unless the search would have taken more than ``MAX_STEPS``.

    Args:
        narrow: what is to be covered.
        wide: what is to cover it together.
        longest: segments of the longest topics that count.
    """
    relevant = [each for each in wide if _meet(each, narrow)]
    if any(covers(each, narrow) for each in relevant):
        return True
    if narrow.literal or not relevant:
        return False
    return _is_each_topic_matched(narrow, relevant, longest)


def _meet(one: Selector, other: Selector) -> bool:
    """As ``overlaps``, but quick where literals in front differ, as they do in most of a policy."""
    for left, right in zip(one.segments, other.segments, strict=False):
        if left != right and left[0] != ONE and right[0] != ONE:
            return False
        if left[0] == ONE or right[0] == ONE:
            break
    return overlaps(one, other)


class _Together:
    """The automata of several selectors as one, whose states are the bits of one integer, one selector after the other.

    A state leads to no other selector's: the last one of each, in which all is used up, leads nowhere.
    """

    def __init__(self, selectors: Sequence[Selector]) -> None:
        self.by_text: dict[str, int] = {}
        self.ones = self.anys = self.end = self.start = 0
        self.accepting = 0
        """States in front of a ``**`` that is the last segment: whatever follows is matched."""
        self.not_of_the_system = 0
        """All states of the selectors that begin with a wildcard."""
        at = 0
        for selector in selectors:
            automaton = automaton_of(selector)
            for text, states in automaton.by_text.items():
                self.by_text[text] = self.by_text.get(text, 0) | (states << at)
            self.ones |= automaton.ones << at
            self.anys |= automaton.anys << at
            self.end |= automaton.end << at
            self.start |= automaton.start << at
            if selector.segments[-1] == ANY:
                self.accepting |= (automaton.end >> 1) << at
            if begins_with_wildcard(selector):
                self.not_of_the_system |= (automaton.end * 2 - 1) << at
            at += automaton.end.bit_length()

    def after(self, states: int, symbol: str, *, is_first: bool) -> int:
        if is_first and is_reserved(symbol):
            states &= ~self.not_of_the_system
        return step(states, self.ones | self.by_text.get(symbol, 0), self.anys)

    def literals(self, states: int) -> set[str]:
        """Segments that lead elsewhere than a fresh one does."""
        return {text for text, leading_on in self.by_text.items() if leading_on & states}


def _is_each_topic_matched(narrow: Selector, wide: Sequence[Selector], longest: int) -> bool:
    inner, outer = _Together([narrow]), _Together(wide)
    steps = 0
    frontier = {(inner.start, outer.start)}
    seen = set(frontier)
    for length in range(1, longest + 1):
        following: set[tuple[int, int]] = set()
        for within, without in frontier:
            for symbol in (_FRESH, *sorted(inner.literals(within) | outer.literals(without))):
                steps += 1
                if steps > MAX_STEPS:
                    return False
                left = inner.after(within, symbol, is_first=length == 1)
                right = outer.after(without, symbol, is_first=length == 1)
                if left & inner.end and not right & outer.end:
                    return False
                if left and not right & outer.accepting:
                    following.add((left, right))
        frontier = following - seen
        if not frontier:
            return True
        seen |= frontier
    return True


# --- What is common -----------------------------------------------------------------------------------------------


class Common(NamedTuple):
    """What a selector has in common with others.

    Attributes:
        selectors: together they match what is common; none of them is covered by the others.
        complete: False if there is more, which selectors cannot say within their bounds.
    """

    selectors: tuple[Selector, ...]
    complete: bool


def common(one: Selector, others: Iterable[Selector]) -> Common:
    """Find the topics that *one* and at least one of *others* match.

    Args:
        one: a selector.
        others: selectors, in an order that the answer keeps as far as it can.
    """
    found: dict[Selector, None] = {}
    complete = True
    for other in others:
        if not _meet(one, other):
            continue
        if covers(other, one):
            return Common((one,), complete=True)
        parts, all_of_it = _intersection(one, other)
        found |= dict.fromkeys(parts)
        complete &= all_of_it
    # Cut first, because each is compared with all others.
    parts = _irredundant(list(found)[:MAX_PARTS])
    return Common(tuple(parts), complete and len(found) <= MAX_PARTS)


def _irredundant(selectors: list[Selector]) -> list[Selector]:
    """Leave out, the last first, what the others cover."""
    kept = selectors
    for each in reversed(kept):
        others = [other for other in kept if other is not each]
        if is_covered(each, others):
            kept = others
    return kept


_Segments: TypeAlias = tuple[str, ...]


def _intersection(one: Selector, other: Selector) -> tuple[list[Selector], bool]:
    ways, complete = _ways(one.segments, other.segments)
    # A wildcard in the first place of either stands for no root of the system, though it may stand for nothing.
    barred = begins_with_wildcard(one) or begins_with_wildcard(other)
    selectors: dict[Selector, None] = {}
    for way in ways:
        if barred and is_reserved(way[0]):
            continue
        if sum(segment != ANY for segment in way) > MAX_SEGMENTS:
            continue  # no topic is that long
        try:
            selectors[parse_selector(SEPARATOR.join(way))] = None
        except InvalidSelector:
            complete = False
    return list(selectors), complete


def _ways(one: _Segments, other: _Segments) -> tuple[list[_Segments], bool]:
    """Follow two selectors side by side, from their ends.

    Returns:
        What the topics that both match look like, and whether that is all.
    """
    complete = True
    # By what is left of each; the row below the present one is all that is needed of the others.
    below: list[dict[_Segments, None]] = []
    for i in range(len(one), -1, -1):
        row: list[dict[_Segments, None]] = [{} for _ in range(len(other) + 1)]
        for j in range(len(other), -1, -1):
            ways = _ways_from(one, other, i, j, row, below)
            if len(ways) > MAX_PARTS:
                complete = False
                ways = dict.fromkeys(list(ways)[:MAX_PARTS])
            row[j] = ways
        below = row
    return [way for way in below[0] if way], complete


def _ways_from(  # noqa: PLR0917 - two places in two selectors, and what is known of the places behind them
    one: _Segments,
    other: _Segments,
    i: int,
    j: int,
    row: list[dict[_Segments, None]],
    below: list[dict[_Segments, None]],
) -> dict[_Segments, None]:
    left = one[i] if i < len(one) else None
    right = other[j] if j < len(other) else None
    if left is None and right is None:
        return {(): None}
    if left == ANY and right == ANY:
        return {(ANY, *way): None for way in (*below[j], *row[j + 1])}
    if left == ANY:
        # It stands for nothing more, or for what the other asks for next.
        taken = {(right, *way): None for way in row[j + 1]} if right is not None else {}
        return below[j] | taken
    if right == ANY:
        taken = {(left, *way): None for way in below[j]} if left is not None else {}
        return row[j + 1] | taken
    if left is None or right is None or (left != right and ONE not in {left, right}):
        return {}
    return {(right if left == ONE else left, *way): None for way in below[j + 1]}
