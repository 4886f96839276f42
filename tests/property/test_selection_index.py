"""The index against brute force, through random lives of a few subscribers."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.topics import selection_index
from gateway.core.topics.selection_index import InterestChange, SelectionIndex
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.topics.topics import parse_topic
from tests.property.topic_strategies import selector_texts, topics

SUBSCRIBERS = range(4)
"""Few, so that they meet at the same selectors all the time."""

selectors = selector_texts(max_segments=3, max_anys=2).map(parse_selector)


class Index(RuleBasedStateMachine):
    """Subscribers come, change their minds in every way, and go; the index must agree with asking each of them."""

    @initialize(
        depth=st.integers(1, 2),
        resolved=st.sampled_from((3, 65_536)),
        merged=st.sampled_from((0, 3, 1_000_000)),
        tidied=st.sampled_from((0, 1, 250)),
    )
    def begin(self, depth: int, resolved: int, merged: int, tidied: int) -> None:
        # Small bounds bring about in a few steps what takes a large node hours: everything remembered is forgotten.
        self.patches = [
            patch.object(selection_index, "MAX_RESOLVED", resolved),
            patch.object(selection_index, "MAX_MERGED", merged),
            patch.object(selection_index, "TIDIED_AT_ONCE", tidied),
        ]
        for each in self.patches:
            each.start()
        self.depth = depth
        self.index: SelectionIndex[int] = SelectionIndex(depth=depth)
        self.model: dict[int, Selections] = {}
        self.followed: frozenset[int] = frozenset()
        self.watches = False
        self.told = 0

    def teardown(self) -> None:
        for subscriber in list(self.model):
            self.remove(subscriber)
        assert not self.followed
        assert not self.index.interest
        assert not self.index._terminals
        assert not self.index._terminals._root.children
        with patch.object(selection_index, "TIDIED_AT_ONCE", 1_000):
            self.index.tidy()
        assert not self.index.outdated
        assert not self.index._made
        assert self.index._made_members == 0
        for each in self.patches:
            each.stop()

    def follow(self, change: InterestChange) -> None:
        assert not change.gained & self.followed
        assert change.lost <= self.followed
        self.followed = (self.followed | change.gained) - change.lost

    @rule(subscriber=st.sampled_from(SUBSCRIBERS), selector=selectors)
    def select(self, subscriber: int, selector: Selector) -> None:
        self.put(subscriber, self.model.get(subscriber, NOTHING).select(selector))

    @rule(subscriber=st.sampled_from(SUBSCRIBERS), selector=selectors)
    def deselect(self, subscriber: int, selector: Selector) -> None:
        self.put(subscriber, self.model.get(subscriber, NOTHING).deselect(selector))

    @rule(subscriber=st.sampled_from(SUBSCRIBERS), entries=st.lists(st.tuples(st.sampled_from("+-"), selectors)))
    def replace(self, subscriber: int, entries: Iterable[tuple[str, Selector]]) -> None:
        """Any list, with repetitions and in any order, as a grid written by another release may hold it."""
        self.put(subscriber, Selections.from_wire(f"{sign}{selector}" for sign, selector in entries))

    @rule(subscriber=st.sampled_from(SUBSCRIBERS), order=st.randoms(use_true_random=False))
    def shuffle(self, subscriber: int, order: Random) -> None:
        entries = list(self.model.get(subscriber, NOTHING))
        order.shuffle(entries)
        self.put(subscriber, Selections(entries))

    def put(self, subscriber: int, selections: Selections) -> None:
        self.model[subscriber] = selections
        self.follow(self.index.set(subscriber, selections))

    @rule(subscriber=st.sampled_from(SUBSCRIBERS))
    def remove(self, subscriber: int) -> None:
        self.model.pop(subscriber, None)
        self.follow(self.index.remove(subscriber))

    @rule(paths=st.lists(topics(max_segments=4), min_size=1, max_size=8))
    def match(self, paths: list[str]) -> None:
        for path in paths:
            topic = parse_topic(path)
            found = self.index.match(topic)
            assert len(set(found)) == len(found)
            assert set(found) == {each for each, selections in self.model.items() if selections.selects(topic)}
            assert self.index.match(topic) == found

    @rule()
    def watch(self) -> None:
        self.index.watch_selected(self.hear)
        self.watches, self.told = True, len(self.index.selected)

    def hear(self) -> None:
        """What is told is one selector more or less."""
        assert abs(len(self.index.selected) - self.told) == 1
        self.told = len(self.index.selected)

    @rule()
    def unwatch(self) -> None:
        self.index.unwatch_selected()
        self.watches = False

    @rule()
    def tidy(self) -> None:
        self.index.tidy()

    @invariant()
    def knows_its_subscribers(self) -> None:
        if not hasattr(self, "model"):
            return
        assert len(self.index) == len(self.model)
        for subscriber in SUBSCRIBERS:
            assert (subscriber in self.index) == (subscriber in self.model)
            assert self.index.selections(subscriber) == self.model.get(subscriber, NOTHING)

    @invariant()
    def follows_what_is_wanted(self) -> None:
        if not hasattr(self, "model"):
            return
        assert self.index.interest == self.followed
        # Of entries with the same selector only the last counts.
        wanted = [Selections({entry.selector: entry for entry in each}.values()) for each in self.model.values()]
        assert self.index.interest == frozenset().union(*(each.partitions(self.depth) for each in wanted))

    @invariant()
    def knows_what_is_selected_while_it_is_watched(self) -> None:
        if not hasattr(self, "model"):
            return
        last = [{entry.selector: entry.selects for entry in each} for each in self.model.values()]
        selected = {selector for each in last for selector, selects in each.items() if selects}
        assert self.index.selected == (selected if self.watches else set())

    @invariant()
    def remembers_no_answer_that_could_be_stale(self) -> None:
        if not hasattr(self, "model"):
            return
        made = self.index._made
        assert self.index._made_members == sum(made.values())
        for merge, members in made.items():
            assert merge.members is not None
            assert len(merge.members) == members
            is_known = all(merge in (terminal.merges or ()) for terminal in merge.terminals)
            assert is_known or merge in self.index._outdated


TestIndex = Index.TestCase
TestIndex.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
