"""Topics in order, beside a list that is sorted by Python, and selectors' spans beside the definition of matching."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.topics import sorted_topics
from gateway.core.topics.selectors import matches, parse_selector
from gateway.core.topics.sorted_topics import SortedTopics, span
from gateway.core.types import TopicPath
from tests.property.topic_strategies import selector_texts, topics

WORDS = st.text("/0ab-é\U0010ffff", max_size=4)
"""With characters beside the separator, and the last one that there is."""


@given(st.lists(WORDS), WORDS, st.none() | WORDS, st.integers(1, 6), st.booleans())
def test_what_is_taken_is_the_next_of_a_sorted_list(
    added: list[str], start: str, end: str | None, most: int, behind: bool
) -> None:
    known = SortedTopics()
    with patch.object(sorted_topics, "LONGEST_BLOCK", 4):
        for topic in added:
            known.add(TopicPath(topic))
    expected = [
        each
        for each in sorted(set(added))
        if (each > start or (each == start and not behind)) and (end is None or each < end)
    ]
    assert len(known) == len(set(added))
    assert known.take(start, end, most, behind=behind) == expected[:most]


@given(selector_texts(), topics())
def test_whatever_a_selector_matches_is_in_its_span(text: str, topic: TopicPath) -> None:
    selector = parse_selector(text)
    start, end = span(selector)
    if matches(selector, topic):
        assert topic >= start
        assert end is None or topic < end
