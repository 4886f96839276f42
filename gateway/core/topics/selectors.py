"""Selectors: patterns that name sets of topics (protocol section 6.2).

A selector is written like a topic path, and two of its segments are special:

* ``*`` stands for exactly one segment, whatever it is;
* ``**`` stands for zero or more segments, so ``prices/**`` matches ``prices`` and ``prices/ACME/bid``.

A ``*`` within a segment (``AC*``) is refused rather than read literally, because whoever writes it means a pattern.
Users never supply regular expressions, so no selector can make a node think for longer than the bounds below say.

**System topics.** A wildcard in the first place never stands for a first segment that begins with ``$``: who selects
``**`` wants the application's topics, and must name ``$gateway/**`` to see the system's.

**Canonical form.** ``parse_selector`` rewrites each run of wildcards: all ``*`` of the run first, then one ``**`` if
there was any (``**/*/**`` becomes ``*/**``: "one or more"). A selector that is nothing but ``*/**`` becomes ``**``,
since a topic has at least one segment anyway. And a ``**`` in the first place becomes ``*/**`` in front of a literal
that begins with ``$``: if it stood for nothing, the topic would be the system's. Then *two selectors match the same
topics exactly if their canonical texts are equal*. To see it, take a canonical selector other than ``**``, let n be the
number of its segments that are not ``**``, and let x be a segment that occurs nowhere in it and does not begin with
``$``:

1. Its shortest topics have n segments, and they agree exactly in its literal segments. So the set of topics tells n,
   and where among the n the literals are.
2. Between two literals (or before the first, or after the last) lies a run of wildcards. Replace every ``*`` by x, drop
   every ``**``, and put one more x into that run. As the literals must still meet themselves, the result is matched
   exactly if that run has a ``**``. So the set tells which runs have one, and canonical runs have it at their end.

System topics are no exception: what stands in the first place is a literal in all of these topics, or x in those
that matter, because a ``$`` never follows a run at the beginning that could be empty.

A canonical selector with a ``**`` has at most ``MAX_SEGMENTS - 1`` other segments, so every topic used is a valid one.
``*`` and ``**`` differ by step 2, and ``**`` is the only canonical selector without literals and with n = 0.

**Matching** runs the selector as a nondeterministic automaton whose set of states is the bits of one integer. Bit i
says that the first i segments of the selector have been used up. There are at most ``MAX_SEGMENTS + 1`` states, which
fit a machine word, so each segment of a topic costs a constant number of operations, whatever the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final

from gateway.core.topics.remembered import Remembered
from gateway.core.topics.topics import (
    MAX_SEGMENTS,
    SEPARATOR,
    SYSTEM_SIGN,
    TOPIC_PARTITIONS,
    deciding,
    is_reserved,
    partition_of,
    shown,
    split_path,
)
from gateway.core.types import TopicPath
from gateway.core.wire.errors import InvalidSelector

ONE: Final = "*"
"""The segment that stands for exactly one segment."""

ANY: Final = "**"
"""The segment that stands for zero or more segments."""

MAX_ANY: Final = 4
"""Most ``**`` of a canonical selector. Nobody has been seen to need more than two, and with each it takes more steps to
compare a selector with others. What it takes to match a topic does not depend on it."""

ALL_PARTITIONS: Final = frozenset(range(TOPIC_PARTITIONS))
"""What a selector reaches whose topics can begin with anything."""

NO_PARTITIONS: Final[frozenset[int]] = frozenset()
"""Of those who have none: each empty set takes 216 bytes, and ten thousand idle sessions would have some each."""

_CACHED_BYTES: Final = 2 * 1024 * 1024
"""Bytes of selectors kept for reuse, and as many of automata: thousands of sessions share a few wildcards, and parsing
them again at a failover costs more than looking them up. It holds some 4,000 usual ones, or 400 of the longest."""

_SEGMENT_BYTES: Final = 84
"""Bytes of a segment besides its characters: what a string begins with, and its place in a tuple."""

_SELECTOR_BYTES: Final = 200
"""Bytes of a selector besides its text and segments."""

_AUTOMATON_BYTES: Final = 500
"""Bytes of an automaton besides what it knows of literal segments."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A validated selector in canonical form; make one with ``parse_selector``.

    Equal selectors match the same topics, and different selectors do not.

    Attributes:
        text: the canonical text; the only thing that counts for equality and hash.
        segments: the same, split.
        literal: True if there is no wildcard, so that ``text`` is the one topic it matches.
    """

    text: str
    segments: tuple[str, ...] = field(compare=False, repr=False)
    literal: bool = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


def parse_selector(text: str) -> Selector:
    """Validate a selector and bring it into canonical form.

    Args:
        text: what a client or an application wrote.

    Returns:
        The selector; the same object for the same text, as long as it is remembered.

    Raises:
        InvalidSelector: it breaks a rule that it shares with topic paths, has a ``*`` within a segment, or needs more
            than ``MAX_ANY`` ``**``. The message names the rule and the offender.
    """
    known = _selectors.get(text)
    return _selectors.put(text, _parse(text)) if known is None else known


def selector_bytes(selector: Selector) -> int:
    """Tell how much memory a selector takes, or a little more."""
    return _SELECTOR_BYTES + 2 * getsizeof(selector.text) + _SEGMENT_BYTES * len(selector.segments)


_selectors: Final[Remembered[str, Selector]] = Remembered(
    _CACHED_BYTES, lambda text, selector: getsizeof(text) + selector_bytes(selector)
)


def _parse(text: str) -> Selector:
    written = split_path(text, noun="selector", refusal=InvalidSelector)
    for segment in written:
        if ONE in segment and segment not in {ONE, ANY}:
            raise InvalidSelector(
                f"'*' stands for a whole segment and cannot be a part of one, but is in {shown(segment)}; "
                f"select with '*' or '**' in its place and filter what you receive"
            )
    canonical = _canonical(written)
    if (count := canonical.count(ANY)) > MAX_ANY:
        raise InvalidSelector(f"a selector has at most {MAX_ANY} '**', but {shown(text)} has {count}")
    if len(canonical) > MAX_SEGMENTS:
        raise InvalidSelector(
            f"a '**' before a segment that begins with '$' stands for at least one, and {shown(text)} leaves no room"
        )
    return Selector(SEPARATOR.join(canonical), canonical, ONE not in canonical and ANY not in canonical)


def _canonical(written: list[str]) -> tuple[str, ...]:
    result: list[str] = []
    in_open_run = False  # the run of wildcards being read has a '**', which is written when the run ends
    for segment in written:
        if segment == ANY:
            in_open_run = True
            continue
        if in_open_run and segment != ONE:
            result.append(ANY)
            in_open_run = False
        result.append(segment)
    if in_open_run:
        result.append(ANY)
    if result == [ONE, ANY]:
        return (ANY,)
    if result[0] == ANY and len(result) > 1 and result[1].startswith(SYSTEM_SIGN):
        result.insert(0, ONE)
    return tuple(result)


def literal_prefix(selector: Selector) -> str:
    """Return what stands in front of the first wildcard, without a separator at its end; '' if nothing does."""
    literals: list[str] = []
    for segment in selector.segments:
        if segment in {ONE, ANY}:
            break
        literals.append(segment)
    return SEPARATOR.join(literals)


def begins_with_wildcard(selector: Selector) -> bool:
    """Tell whether the first segment is a wildcard, so that the selector matches none of the system's topics."""
    return selector.segments[0] in {ONE, ANY}


def _are_strangers(one: Selector, other: Selector) -> bool:
    """Tell whether one names a root of the system, and the other has a wildcard there, which never stands for it."""
    return (is_reserved(one.text) and begins_with_wildcard(other)) or (
        is_reserved(other.text) and begins_with_wildcard(one)
    )


def literal_selector(topic: TopicPath) -> Selector:
    """Make the selector that matches just *topic*; cheaper than parsing, because the path is valid already."""
    return Selector(topic, tuple(topic.split(SEPARATOR)), literal=True)


# --- The automaton ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Automaton:
    """A selector as sets of states; bit i stands for "i segments of the selector have been used up".

    Attributes:
        by_text: for each literal segment, the states from which it leads on.
        literals: the states from which some literal leads on.
        ones: the states in front of a ``*``.
        anys: the states in front of a ``**``: they remain whatever comes.
        flexible: the states in front of a run of wildcards that has a ``**``, or within it.
        end: the state in which all is used up.
        start: the states to begin with.
    """

    by_text: dict[str, int]
    literals: int
    ones: int
    anys: int
    flexible: int
    end: int
    start: int


def automaton_of(selector: Selector) -> Automaton:
    """Make the automaton of a selector; the same object as long as it is remembered."""
    known = _automata.get(selector.text)
    return _automata.put(selector.text, _automaton_of(selector)) if known is None else known


_automata: Final[Remembered[str, Automaton]] = Remembered(
    _CACHED_BYTES,
    lambda text, automaton: _AUTOMATON_BYTES + 2 * getsizeof(text) + 2 * _SEGMENT_BYTES * len(automaton.by_text),
)


def _automaton_of(selector: Selector) -> Automaton:
    by_text: dict[str, int] = {}
    literals = ones = anys = flexible = 0
    in_flexible_run = False  # read backwards, for in canonical form a run's '**' is its last segment
    for position, segment in reversed(tuple(enumerate(selector.segments))):
        state = 1 << position
        if segment == ANY:
            anys |= state
            in_flexible_run = True
        elif segment == ONE:
            ones |= state
        else:
            literals |= state
            by_text[segment] = by_text.get(segment, 0) | state
            in_flexible_run = False
        if in_flexible_run:
            flexible |= state
    return Automaton(
        by_text, literals, ones, anys, flexible, end=1 << len(selector.segments), start=1 | ((1 & anys) << 1)
    )


def closed(states: int, anys: int) -> int:
    """Add the states reached by letting a ``**`` stand for nothing; one step is enough, as no two are neighbours."""
    return states | ((states & anys) << 1)


def step(states: int, leading_on: int, anys: int) -> int:
    """Use up one segment: from *leading_on* states to the next one, while ``**`` swallow it and remain."""
    return closed(((states & leading_on) << 1) | (states & anys), anys)


def matches(selector: Selector, topic: TopicPath) -> bool:
    """Tell whether a selector matches a topic.

    It takes time linear in the length of both: the automaton is made once (and remembered), and each segment of the
    topic is one dictionary look-up and some operations on an integer of at most ``MAX_SEGMENTS + 1`` bits.
    """
    if selector.literal:
        return selector.text == topic
    if is_reserved(topic) and begins_with_wildcard(selector):
        return False
    automaton = automaton_of(selector)
    by_text, ones, anys = automaton.by_text, automaton.ones, automaton.anys
    states = automaton.start
    for segment in topic.split(SEPARATOR):
        states = step(states, ones | by_text.get(segment, 0), anys)
        if not states:
            return False
    return bool(states & automaton.end)


# --- Sets of topics compared --------------------------------------------------------------------------------------


def covers(wide: Selector, narrow: Selector) -> bool:
    """Tell whether *wide* matches every topic that *narrow* matches.

    True is always right. False is right too, if topics could have any number of segments; with ``MAX_SEGMENTS`` there
    are selectors so long that the topic which would prove a difference is too long to exist, and False is then merely
    cautious. Time linear in the length of both.

    How: *wide* is run over the segments of *narrow* as if they were a topic. A ``*`` of *narrow* is a segment that no
    literal of *wide* equals, for it can be one. A ``**`` of *narrow* can be many such segments, so it must fall into a
    run of *wide* that has a ``**``; it can also be none, so it uses up no ``*`` of that run.

    Why that finds every case of covering. Call the parts of *wide* between its runs with a ``**`` blocks. An
    *alignment* puts each block onto as many neighbouring segments of *narrow*, in order, leaving at least as many
    segments between two blocks as the run there has ``*``. Look at one ``**`` of *narrow*. *Wide* matches when that
    ``**`` is more fresh segments than any block has: then there is an alignment B where it lies between two blocks.
    *Wide* matches also when it is no segment: then there is an alignment A, where it may lie inside a block, say the
    s-th. If B has its s-th block to the left of the ``**``, take the blocks up to s from B and the later ones from A;
    else take the blocks before s from A and the others from B. Either way the ``**`` lies between two blocks now, which
    are at least as far apart as those of A, so this one alignment serves none, many and all numbers between. By
    induction over its ``**`` one alignment serves all of *narrow*, and the run over the symbols finds it.

    System topics change nothing as long as both begin alike: a topic that *narrow* matches and *wide* does not remains
    one when a fresh segment takes the place of the first, which a wildcard of each stands for.
    """
    if wide.literal or narrow.literal:
        # What covers a literal selector is what matches its topic; a literal selector covers no other.
        return wide.text == narrow.text or (narrow.literal and matches(wide, TopicPath(narrow.text)))
    if _are_strangers(wide, narrow):
        return False
    automaton = automaton_of(wide)
    anys = automaton.anys
    states = automaton.start
    for segment in narrow.segments:
        if segment == ANY:
            states = closed(states & automaton.flexible, anys)
        else:
            states = step(states, automaton.ones | automaton.by_text.get(segment, 0), anys)
        if not states:
            return False
    return bool(states & automaton.end)


def overlaps(one: Selector, other: Selector) -> bool:
    """Tell whether there can be a topic that both match.

    False is always right. True is right too, if topics could have any number of segments; see ``covers``. Time linear
    in the length of both: the states of *other* reachable in step with each segment of *one* are kept as a set.
    """
    if one.literal:
        return matches(other, TopicPath(one.text))
    if other.literal:
        return matches(one, TopicPath(other.text))
    if _are_strangers(one, other):
        return False
    automaton = automaton_of(other)
    anys, everything = automaton.anys, automaton.literals | automaton.ones
    states = automaton.start
    for segment in one.segments:
        if segment == ANY:
            # It can be whatever the other asks for next: every state from the first one on.
            first = states & -states
            states = (automaton.end << 1) - first
        elif segment == ONE:
            states = step(states, everything, anys)
        else:
            states = step(states, automaton.ones | automaton.by_text.get(segment, 0), anys)
        if not states:
            return False
    return bool(states & automaton.end)


def partitions(selector: Selector, depth: int) -> frozenset[int]:
    """Tell in which topic partitions the topics of a selector can be.

    Args:
        selector: which topics.
        depth: how many leading segments decide a topic's partition; see ``topic_partition``.

    Returns:
        One partition if the deciding segments are literal, else all of them. Never one too few, and, as segments can be
        anything, never one too many.

    Raises:
        ValueError: *depth* is below 1.
    """
    leading = selector.segments[: deciding(selector.segments, depth)]
    # A selector with fewer segments than decide is either literal or has its wildcard among them.
    if ANY in leading or ONE in leading:
        return ALL_PARTITIONS
    return frozenset((partition_of(leading, depth),))
