"""The map of selectors against the definition of matching, through random lives of its selectors."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.topics import joint_automaton, selector_map
from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.types import TopicPath
from tests.property.topic_strategies import naive_matches, selector_texts, topics

SELECTORS = selector_texts(max_segments=7).map(parse_selector)


class Map(RuleBasedStateMachine):
    """Selectors come and go; what a topic finds must be what the definition says of each."""

    @initialize(states=st.sampled_from((9, 20, 2048)), sparse=st.sampled_from((0, 8)))
    def begin(self, states: int, sparse: int) -> None:
        # Small bounds bring about in a few steps that automata are full, and are given up when most of them is gone.
        self.patches = [patch.object(joint_automaton, "STATES", states), patch.object(selector_map, "_SPARSE", sparse)]
        for each in self.patches:
            each.start()
        self.map: SelectorMap[str] = SelectorMap()
        self.model: dict[str, Selector] = {}

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        for selector in list(self.model.values()):
            self.remove(selector)
        assert not self.map._root.children
        assert not self.map._root.by_wildcards
        assert not self.map._literals
        assert not self.map._filed
        assert not self.map._files
        for each in self.patches:
            each.stop()

    @rule(selectors=st.lists(SELECTORS, min_size=1, max_size=12))
    def add(self, selectors: list[Selector]) -> None:
        for selector in selectors:
            value, is_new = self.map.setdefault(selector, str)
            assert value == selector.text
            assert is_new == (selector.text not in self.model)
            self.model[selector.text] = selector

    @rule(data=st.data())
    def remove_some(self, data: st.DataObject) -> None:
        if self.model:
            for text in data.draw(st.lists(st.sampled_from(sorted(self.model)), max_size=12, unique=True)):
                self.remove(self.model[text])

    def remove(self, selector: Selector) -> None:
        self.map.remove(selector)
        del self.model[selector.text]

    @rule(topic=topics(max_segments=7))
    def match(self, topic: TopicPath) -> None:
        found = self.map.match(topic)
        assert len(set(found)) == len(found)
        assert set(found) == {text for text in self.model if naive_matches(text, topic)}

    @invariant()
    def keeps_count(self) -> None:
        if not hasattr(self, "model"):
            return
        assert len(self.map) == len(self.model)
        for file in self.map._files.values():
            assert file.size == sum(len(each.places) for each in file.automata) > 0
            for each in file.automata:
                assert each.living == sum(len(place.selector.segments) + 1 for place in each.places.values())
                assert each.living <= each.taken <= joint_automaton.STATES


TestMap = Map.TestCase
TestMap.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
