"""Says with few selectors what many select: all that they match, or more, and never less (003-09).

Interest decides what crosses between clusters. A selector too wide costs bytes; one too narrow loses updates. So what
others cover is left out, and if there are too many left, they are widened to their first segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import orjson

from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selectors import ANY, ONE, Selector, covers, parse_selector
from gateway.core.topics.topics import MAX_SEGMENTS, SEPARATOR, is_reserved
from gateway.core.types import TopicPath

MOST_SELECTORS: Final = 1_000
"""Selectors by which a cluster tells its interest: some 50 kB, which every other cluster of the zone is sent whole when
a link comes up."""

MOST_INTEREST_BYTES: Final = 400 * 1024
"""Bytes of those selectors in JSON: 400 for each. What is said of them is no longer than a message may be."""

_SEARCHED: Final = 4
"""How many times as many as there may be are searched for what others cover; of more so few are, that it is not worth
the time."""

_WILDCARDS: Final = frozenset({ONE, ANY})

_MOST_COMPARED: Final = 64
"""Selectors with wildcards that are compared with each other, each with all. Of more, only those that one with its
``**`` behind literals covers are left out, which is what people write."""


def compact(selectors: Iterable[Selector], *, most: int = MOST_SELECTORS) -> frozenset[Selector]:
    """Find at most *most* selectors, of a bounded length, that together match what *selectors* match, or more.

    Selectors of the system's topics are left out: those never cross.

    Args:
        selectors: what is selected.
        most: how many there may be, at least 1.
    """
    own = {each for each in selectors if not is_reserved(each.text)}
    if len(own) <= _SEARCHED * most:
        own = _irredundant(own)
        if len(own) <= most and _length(each.segments for each in own) <= MOST_INTEREST_BYTES:
            return frozenset(own)
    # From the longest beginnings to the shortest, halving what is left to try: with shorter ones there are fewer, and
    # they are shorter themselves.
    shortest, longest, best = 1, MAX_SEGMENTS - 1, 0
    while shortest <= longest:
        length = (shortest + longest + 1) // 2
        widened = {_widened(each, length) for each in own}
        if len(widened) <= most and _length(widened) <= MOST_INTEREST_BYTES:
            best, shortest = length, length + 1
        else:
            longest = length - 1
    if not best:
        return frozenset({parse_selector(ANY)})
    return frozenset(
        _irredundant({parse_selector(SEPARATOR.join(each)) for each in {_widened(one, best) for one in own}})
    )


def _length(selectors: Iterable[tuple[str, ...]]) -> int:
    """Tell how many bytes a list of selectors has in JSON, given their segments."""
    return sum(len(orjson.dumps(SEPARATOR.join(each))) + 1 for each in selectors)


def _widened(selector: Selector, length: int) -> tuple[str, ...]:
    """Cut a selector of more segments to its first literals, at most *length* of them, with ``**`` behind."""
    segments = selector.segments
    if len(segments) <= length:
        return segments
    leading = segments[:length]
    if not selector.literal and not _WILDCARDS.isdisjoint(leading):
        leading = leading[: next(at for at, each in enumerate(leading) if each in _WILDCARDS)]
    return (*leading, ANY)


def _irredundant(selectors: set[Selector]) -> set[Selector]:
    """Leave out what a single other one covers, as far as that is found quickly."""
    wild: SelectorMap[Selector] = SelectorMap()
    several = [each for each in selectors if not each.literal]
    for each in several:
        wild.setdefault(each, lambda selector: selector)
    kept = {each for each in selectors if not each.literal or not wild.match(TopicPath(each.text))}
    if len(several) <= _MOST_COMPARED:
        return {each for each in kept if each.literal or not any(_is_wider(other, each) for other in several)}
    # ``a/b/**`` is asked for by its beginnings.
    beginnings = {each.segments[:-1] for each in several if _is_tree(each)}
    return {
        each for each in kept if not any(each.segments[:length] in beginnings for length in _shorter_beginnings(each))
    }


def _is_wider(other: Selector, selector: Selector) -> bool:
    return other is not selector and other != selector and covers(other, selector)


def _is_tree(selector: Selector) -> bool:
    """Tell whether a selector is literals with one ``**`` behind."""
    return selector.segments[-1] == ANY and not _WILDCARDS.intersection(selector.segments[:-1])


def _shorter_beginnings(selector: Selector) -> range:
    """Tell which lengths of its literal beginning may stand in front of the ``**`` of a wider one."""
    own = len(selector.segments) - _is_tree(selector)
    literals = next((at for at, each in enumerate(selector.segments) if each in _WILDCARDS), len(selector.segments))
    # A tree does not cover itself; a wildcard in the first place stands for nothing of the system's.
    return range(min(literals + 1, own))
