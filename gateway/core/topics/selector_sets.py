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

Both count their work, for one of the selectors is written by a client. Where it is spent, the answer errs on the side
of less: not covered, not common.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from gateway.core.topics.selectors import (
    ANY,
    ONE,
    Selector,
    automaton_of,
    begins_with_wildcard,
    covers,
    overlaps,
    parse_selector,
)
from gateway.core.topics.topics import MAX_SEGMENTS, SEPARATOR, is_reserved
from gateway.core.topics.work import Work, WorkSpent
from gateway.core.wire.errors import InvalidSelector

MAX_PARTS: Final = 64
"""Most selectors that what is common may consist of; nobody reads more, and a session's list could not hold them."""

_FRESH: Final = ""
"""Stands for a segment that occurs in none of the selectors; no segment is empty."""

_STATES_PER_STEP: Final = 4096
"""States of automata that one step sees to. Up to some thousands a set of them costs little more than a small one."""

_STEPS_PER_SYMBOL: Final = 2
"""Steps that it takes to follow one symbol, in what is to be covered and in what is to cover it."""

_LITERALS_PER_STEP: Final = 16
"""Literal segments that one step looks at, to find those that lead on from a set of states."""

_PARSE_STEPS: Final = 10
"""Steps that reading a selector takes."""


def is_covered(
    narrow: Selector, wide: Iterable[Selector], *, longest: int = MAX_SEGMENTS, work: Work | None = None
) -> bool:
    """Tell whether every topic that *narrow* matches is matched by at least one of *wide*.

    True is always right. False is right too, unless the work is spent.

    Args:
        narrow: what is to be covered.
        wide: what is to cover it together.
        longest: segments of the longest topics that count.
        work: what it may cost; the usual if it is None.
    """
    work = Work() if work is None else work
    try:
        relevant = []
        for each in wide:
            work.take(1)
            if _meet(each, narrow):
                relevant.append(each)
        work.take(len(relevant))
        return any(covers(each, narrow) for each in relevant) or are_all_matched(
            narrow, relevant, longest=longest, work=work
        )
    except WorkSpent:
        return False


def are_all_matched(narrow: Selector, wide: Sequence[Selector], *, longest: int = MAX_SEGMENTS, work: Work) -> bool:
    """Tell whether every topic that *narrow* matches is matched by at least one of *wide*, none of which covers it.

    Raises:
        WorkSpent: nobody knows.
    """
    if narrow.literal or not wide:
        return False
    return _is_each_topic_matched(narrow, wide, longest, work)


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
        self.states = at

    def after(self, states: int, symbol: str) -> int:
        # As ``selectors.step``, written out: this is what a search does most.
        anys = self.anys
        following = ((states & (self.ones | self.by_text.get(symbol, 0))) << 1) | (states & anys)
        return following | ((following & anys) << 1)

    def literals(self, states: int) -> list[str]:
        """Segments that lead elsewhere than a fresh one does."""
        return [text for text, leading_on in self.by_text.items() if leading_on & states]


def _is_each_topic_matched(narrow: Selector, wide: Sequence[Selector], longest: int, work: Work) -> bool:
    work.take(sum(len(each.segments) for each in wide))
    inner, outer = _Together([narrow]), _Together(wide)
    each_step = _STEPS_PER_SYMBOL + outer.states // _STATES_PER_STEP
    each_look = 1 + (len(inner.by_text) + len(outer.by_text)) * each_step // _LITERALS_PER_STEP
    frontier = {(inner.start, outer.start)}
    seen = set(frontier)
    for length in range(1, longest + 1):
        following: set[tuple[int, int]] = set()
        for within, without in frontier:
            work.take(each_look)
            symbols = dict.fromkeys((_FRESH, *inner.literals(within), *outer.literals(without)))
            work.take(len(symbols) * each_step)
            for symbol in symbols:
                if length == 1 and is_reserved(symbol):
                    left = inner.after(within & ~inner.not_of_the_system, symbol)
                    right = outer.after(without & ~outer.not_of_the_system, symbol)
                else:
                    left = inner.after(within, symbol)
                    right = outer.after(without, symbol) if left else 0
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


def common(one: Selector, others: Iterable[Selector], *, most: int = MAX_PARTS, work: Work | None = None) -> Common:
    """Find the topics that *one* and at least one of *others* match.

    Args:
        one: a selector.
        others: selectors, in an order that the answer keeps as far as it can.
        most: selectors that are asked for; whether there are more is told as well.
        work: what it may cost; the usual if it is None. Where it is spent, the answer is what was found until then.
    """
    work = Work() if work is None else work
    found: dict[Selector, None] = {}
    complete = True
    try:
        for other in others:
            work.take(1)
            if not _meet(one, other):
                continue
            work.take(2)
            if covers(other, one):
                return Common((one,), complete=True)
            if covers(one, other):
                found[other] = None
            else:
                parts, all_of_it = _intersection(one, other, work)
                found |= dict.fromkeys(parts)
                complete &= all_of_it
            if len(found) > most:
                break
    except WorkSpent:
        complete = False
    # Cut first, because each is compared with all others.
    parts = _irredundant(list(found)[:most], work)
    return Common(tuple(parts), complete and len(found) <= most)


def _irredundant(selectors: list[Selector], work: Work) -> list[Selector]:
    """Leave out, the last first, what the others cover; when the work is spent, the rest stays as it is."""
    kept = selectors
    for each in reversed(kept):
        others = [other for other in kept if other is not each]
        if is_covered(each, others, work=work):
            kept = others
    return kept


_Segments: TypeAlias = tuple[str, ...]


def _intersection(one: Selector, other: Selector, work: Work) -> tuple[list[Selector], bool]:
    ways, complete = _ways(one.segments, other.segments, work)
    work.take(_PARSE_STEPS * len(ways))
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


def _ways(one: _Segments, other: _Segments, work: Work) -> tuple[list[_Segments], bool]:
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
            work.take(1 + len(ways))
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
