"""Lists of selections that have one index between them: each says what it said, whoever asked another one meanwhile.

The bounds below which lists are copied, and entries tried one by one, are taken away here: the few entries of these
tests must go the way of many.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.topics import entry_index, selections
from gateway.core.topics.entry_index import Entry
from gateway.core.topics.literal_ranges import matched
from gateway.core.topics.pattern_trie import PatternTrie
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import Selector, covers, overlaps, parse_selector
from gateway.core.topics.topics import parse_topic, topic_partition
from gateway.core.topics.work import Work
from tests.property.topic_strategies import all_topics, naive_matches, selector_texts

SELECTORS = selector_texts(max_segments=4).map(parse_selector)
PATTERNS = SELECTORS.filter(lambda selector: not selector.literal)
TOPICS = all_topics(max_segments=3)
ENOUGH = 1_000_000
"""Steps that no test takes."""


@pytest.fixture(autouse=True)
def no_bounds() -> Iterator[None]:
    with patch.object(selections, "SHORT_LIST", -1), patch.object(entry_index, "FEW_WILDCARDS", 0):
        yield


class Versions(RuleBasedStateMachine):
    """Any list that was ever made is changed and asked in any order; what each is to select is written down apart."""

    @initialize(steps=st.sampled_from((0, 20, ENOUGH)))
    def begin(self, steps: int) -> None:
        self.patches = [patch.object(selections, "SHORT_LIST", -1), patch.object(entry_index, "FEW_WILDCARDS", 0)]
        for each in self.patches:
            each.start()
        self.steps = steps
        self.lists: list[tuple[Selections, tuple[tuple[bool, str], ...]]] = [(NOTHING, ())]

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()

    @rule(at=st.integers(0, 1000), selects=st.booleans(), selector=SELECTORS)
    def change(self, at: int, selects: bool, selector: Selector) -> None:
        before, asked = self.lists[at % len(self.lists)]
        work = Work(self.steps)
        after = before.select(selector, work) if selects else before.deselect(selector, work)
        assert work.taken <= self.steps
        self.lists.append((after, (*asked, (selects, selector.text))))

    @rule(selects=st.booleans(), selector=SELECTORS)
    def change_the_newest(self, selects: bool, selector: Selector) -> None:
        self.change(len(self.lists) - 1, selects, selector)

    @rule(older=st.integers(0, 1000), newer=st.integers(0, 1000))
    def tell_the_changes(self, older: int, newer: int) -> None:
        (one, _), (other, _) = self.lists[older % len(self.lists)], self.lists[newer % len(self.lists)]
        changes = other.changes_since(one)
        if changes is not None:
            removed = set(changes.removed)
            assert {entry.selector.text for entry in one} >= removed
            left = [entry for entry in one if entry.selector.text not in removed]
            assert Selections([*left, *changes.added]) == other
            assert len(left) + len(changes.added) == len(other), "nothing is added that is there"

    @rule(at=st.integers(0, 1000))
    def ask_anyone(self, at: int) -> None:
        some, asked = self.lists[at % len(self.lists)]
        entries = some.entries
        assert len(some) == len(entries) == len({entry.selector for entry in entries})
        assert some.text_bytes == sum(len(entry) for entry in some.to_wire())
        assert some == Selections.from_wire(some.to_wire())
        assert some.of_system == any(entry.selects and entry.selector.text.startswith("$") for entry in entries)
        reached = some.partitions(1)
        assert reached == Selections(entries).partitions(1)
        for topic in TOPICS[::7]:
            deciding = [selects for selects, selector in asked if naive_matches(selector, topic)]
            assert some.selects(topic) == bool(deciding and deciding[-1])
            assert not some.selects(topic) or topic_partition(topic, 1) in reached

    @invariant()
    def one_of_them_has_the_index(self) -> None:
        for some, _ in getattr(self, "lists", ()):
            assert (some.version.index is None) != (some.version.step is None)


TestVersions = Versions.TestCase
TestVersions.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)


@given(st.lists(st.tuples(st.booleans(), SELECTORS), max_size=12), st.booleans(), SELECTORS)
def test_a_change_says_the_last_word(entries: list[tuple[bool, Selector]], selects: bool, selector: Selector) -> None:
    """However little may be done to keep the list short: what is selected does not depend on it."""
    start = Selections(Entry(*each) for each in entries)
    wanted = [start.select(selector, Work(steps)) if selects else start.deselect(selector, Work(steps)) for steps in (
        0, 5, 25, ENOUGH
    )]  # fmt: skip
    for topic in TOPICS[::5]:
        assert len({each.selects(topic) for each in wanted}) == 1
        if naive_matches(selector.text, topic):
            assert wanted[0].selects(topic) == selects


@given(st.lists(PATTERNS, max_size=12, unique=True), PATTERNS)
def test_patterns_are_found_in_the_trie_as_by_comparing_two(patterns: list[Selector], asked: Selector) -> None:
    found: PatternTrie[Selector] = PatternTrie()
    for each in patterns:
        found.add(each, each)
    work = Work(ENOUGH)
    covering, covered, meeting = (
        sorted(each.text for each in question(asked, work))
        for question in (found.covering, found.covered, found.meeting)
    )
    assert covering == sorted(each.text for each in patterns if covers(each, asked))
    assert covered == sorted(each.text for each in patterns if covers(asked, each))
    assert meeting == sorted(each.text for each in patterns if overlaps(each, asked))


@given(st.lists(st.sampled_from(all_topics(max_segments=3)), max_size=30, unique=True), PATTERNS)
def test_topics_in_order_are_found_by_how_they_begin(topics: list[str], pattern: Selector) -> None:
    found = list(matched(sorted(topics), pattern, Work(ENOUGH)))
    assert sorted(found) == sorted(topic for topic in topics if naive_matches(pattern.text, parse_topic(topic)))
