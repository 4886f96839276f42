"""Selectors against the definition of matching, and sets of topics against their enumeration."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.topics.selectors import (
    MAX_ANY,
    covers,
    literal_selector,
    matches,
    overlaps,
    parse_selector,
    partitions,
)
from gateway.core.topics.topics import MAX_SEGMENTS, parse_topic, topic_partition
from gateway.core.wire.errors import InvalidSelector, InvalidTopic
from tests.property.topic_strategies import (
    all_selector_texts,
    all_topics,
    instances,
    naive_matches,
    selector_texts,
    topics,
)


@given(selector_texts(max_segments=8), topics(max_segments=8))
def test_matching_follows_the_definition(text: str, topic: str) -> None:
    assert matches(parse_selector(text), parse_topic(topic)) == naive_matches(text, topic)


@given(selector_texts())
def test_the_canonical_form_is_stable(text: str) -> None:
    selector = parse_selector(text)
    again = parse_selector(selector.text)
    assert again == selector
    assert again.segments == selector.segments == tuple(selector.text.split("/"))
    assert selector.literal == ("*" not in text)


def test_small_selectors_compare_as_the_sets_of_their_topics() -> None:
    """All pairs up to three segments: equal text, cover and overlap are equality, inclusion and intersection of sets.

    Two-sided, so it proves that nothing is missed as well. Topics of six segments are long enough to tell all of these
    selectors apart; were they not, this test would fail.
    """
    universe = all_topics(max_segments=6)
    texts = all_selector_texts(max_segments=3)
    selectors = {text: parse_selector(text) for text in texts}
    sets = {
        text: sum(1 << bit for bit, topic in enumerate(universe) if naive_matches(text, topic))
        for text in {selector.text for selector in selectors.values()} | set(texts)
    }
    for text, selector in selectors.items():
        assert sets[text] == sets[selector.text], text
    canonical = {selector.text: selector for selector in selectors.values()}
    for left, one in canonical.items():
        for right, other in canonical.items():
            assert (left == right) == (sets[left] == sets[right]), (left, right)
            assert covers(one, other) == (sets[right] & ~sets[left] == 0), (left, right)
            assert overlaps(one, other) == (sets[right] & sets[left] != 0), (left, right)


@given(selector_texts(max_segments=7), selector_texts(max_segments=7, max_anys=2))
def test_covering_is_matching_every_instance(wide: str, narrow: str) -> None:
    """Exact both ways: fresh segments, up to more of them than *wide* has segments to hold them in place."""
    longest = len(wide.split("/")) + 1
    expected = all(naive_matches(wide, topic) for topic in instances(narrow, most=longest))
    assert covers(parse_selector(wide), parse_selector(narrow)) == expected


@given(selector_texts(), selector_texts(), topics())
def test_a_common_topic_is_an_overlap(left: str, right: str, topic: str) -> None:
    one, other = parse_selector(left), parse_selector(right)
    assert overlaps(one, other) == overlaps(other, one)
    if naive_matches(left, topic) and naive_matches(right, topic):
        assert overlaps(one, other)
    if covers(one, other):
        assert overlaps(one, other)


@given(selector_texts(), selector_texts(), selector_texts())
def test_covering_is_an_order(first: str, second: str, third: str) -> None:
    one, two, three = parse_selector(first), parse_selector(second), parse_selector(third)
    assert covers(one, one)
    if covers(one, two) and covers(two, one):
        assert one == two
    if covers(one, two) and covers(two, three):
        assert covers(one, three)


@given(selector_texts(), topics(), st.integers(1, 4))
def test_a_matched_topic_is_in_a_partition_of_its_selector(text: str, topic: str, depth: int) -> None:
    selector, path = parse_selector(text), parse_topic(topic)
    if matches(selector, path):
        assert topic_partition(path, depth) in partitions(selector, depth)
    assert partitions(literal_selector(path), depth) == {topic_partition(path, depth)}


@given(st.text(max_size=40) | st.text(alphabet="a*/", max_size=40))
def test_arbitrary_text_is_a_selector_or_is_refused(text: str) -> None:
    try:
        selector = parse_selector(text)
    except InvalidSelector:
        return
    assert len(selector.segments) <= MAX_SEGMENTS
    assert selector.segments.count("**") <= MAX_ANY
    if selector.literal:
        topic = parse_topic(text)
        assert matches(selector, topic)
        assert literal_selector(topic) == selector


@given(st.text(max_size=40))
def test_arbitrary_text_is_a_topic_or_is_refused(text: str) -> None:
    try:
        topic = parse_topic(text)
    except InvalidTopic:
        return
    assert topic == text
    assert matches(parse_selector("**"), topic) == (not topic.startswith("$"))
