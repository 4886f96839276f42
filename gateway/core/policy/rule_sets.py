"""The selectors of a policy that permit something, taken together: what they allow of a topic, and of a selector.

Nearly all questions are answered by one walk through a map, however many rules there are: a topic is allowed if a rule
matches it, a selector if a rule covers it. Only where none does are those rules looked at that have a topic in common
with the selector: together they may cover it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.topics.literal_ranges import matched
from gateway.core.topics.pattern_trie import PatternTrie
from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selector_sets import MAX_PARTS, Common, are_all_matched, common
from gateway.core.topics.selectors import ANY, ONE, Selector, matches, parse_selector
from gateway.core.topics.topics import SEPARATOR
from gateway.core.topics.work import Work, WorkSpent
from gateway.core.types import TopicPath

FEW_RULES: Final = 4
"""Rules that are tried one by one; a map takes 2 µs per topic, usually however many."""


class RuleSet:
    """Selectors that permit something.

    Args:
        selectors: in the order in which answers name them.
        base: rules that are in force besides, in front of them; they are shared, and not copied.

    Attributes:
        selectors: of both.
    """

    __slots__ = ("__weakref__", "_base", "_literals", "_map", "_patterns", "selectors")

    def __init__(self, selectors: Iterable[Selector], base: RuleSet | None = None) -> None:
        own = tuple(dict.fromkeys(selectors))
        self.selectors: tuple[Selector, ...] = own if base is None else tuple(dict.fromkeys((*base.selectors, *own)))
        self._base = base
        self._map: SelectorMap[Selector] = SelectorMap()
        self._patterns: PatternTrie[Selector] = PatternTrie()
        for each in own:
            self._map.setdefault(each, lambda selector: selector)
            if not each.literal:
                self._patterns.add(each, each)
        self._literals = sorted(each.text for each in own if each.literal)

    def matches(self, topic: TopicPath) -> bool:
        """Tell whether a rule matches a topic."""
        if len(self.selectors) <= FEW_RULES:
            return any(matches(each, topic) for each in self.selectors)
        return bool(self._map.match(topic)) or (self._base is not None and self._base.matches(topic))

    def covers(self, selector: Selector, work: Work) -> bool:
        """Tell whether the rules together match all that a selector matches.

        True is always right. False is right too, unless the work is spent.
        """
        try:
            if selector.literal:
                return self.matches_within(TopicPath(selector.text), work)
            if self.one_covers(selector, work):
                return True
            if not all(self.matches_within(topic, work) for topic in _witnesses(selector)):
                return False
            meeting = self._in_order(self.meeting(selector, work), work)
            return are_all_matched(selector, meeting, work=work)
        except WorkSpent:
            return False

    def common(self, selector: Selector, work: Work, *, most: int = MAX_PARTS) -> Common:
        """Find the topics that a selector and at least one rule match; see ``selector_sets.common``."""
        try:
            return common(selector, self._in_order(self.meeting(selector, work), work), most=most, work=work)
        except WorkSpent:
            return Common((), complete=False)

    def matches_within(self, topic: TopicPath, work: Work) -> bool:
        """Tell whether a rule matches a topic, counting the work.

        Raises:
            WorkSpent: nobody knows.
        """
        return bool(self._map.match(topic, work)) or (self._base is not None and self._base.matches_within(topic, work))

    def one_covers(self, pattern: Selector, work: Work) -> bool:
        """Tell whether a single rule covers a selector with wildcards.

        Raises:
            WorkSpent: nobody knows.
        """
        if len(self._patterns) and next(self._patterns.covering(pattern, work), None) is not None:
            return True
        return self._base is not None and self._base.one_covers(pattern, work)

    def _in_order(self, rules: list[Selector], work: Work) -> list[Selector]:
        if len(rules) <= 1:
            return rules
        work.take(len(self.selectors) // _RULES_PER_STEP)
        chosen = set(rules)
        return [each for each in self.selectors if each in chosen]

    def meeting(self, selector: Selector, work: Work) -> list[Selector]:
        """Find the rules that have a topic in common with a selector, in no particular order.

        Raises:
            WorkSpent: there may be more.
        """
        found = [] if self._base is None else self._base.meeting(selector, work)
        if selector.literal:
            found.extend(self._map.match(TopicPath(selector.text), work))
        else:
            found.extend(self._patterns.meeting(selector, work))
            found.extend(parse_selector(text) for text in matched(self._literals, selector, work))
        return found


_RULES_PER_STEP: Final = 8
"""Rules that one step puts in order."""

_FRESH: Final = ""
"""Stands for a segment that occurs in no rule; no segment is empty."""


def _witnesses(pattern: Selector) -> list[TopicPath]:
    """Make topics that a selector with wildcards matches and rules hardly do, unless they are as wide.

    Most of what is not allowed is found out by them, without a search: ``prices/**`` matches ``prices``, and rules for
    single markets do not.
    """
    shortest = [_FRESH if each == ONE else each for each in pattern.segments if each != ANY]
    longer = [_FRESH if each in {ONE, ANY} else each for each in pattern.segments]
    return [TopicPath(SEPARATOR.join(each)) for each in (shortest, longer) if each]
