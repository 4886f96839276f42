"""Several selectors together, against the enumeration of all topics up to a length."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.topics.selector_sets import MAX_PARTS, common, is_covered
from gateway.core.topics.selectors import MAX_ANY, Selector, parse_selector
from gateway.core.types import TopicPath
from tests.property.topic_strategies import all_topics, naive_matches, selector_texts, topics

LONGEST = 5
UNIVERSE = all_topics(max_segments=LONGEST)

few = st.lists(selector_texts(max_segments=4, max_anys=2), max_size=5)


def topics_of(*texts: str) -> set[TopicPath]:
    return {topic for topic in UNIVERSE if any(naive_matches(text, topic) for text in texts)}


def parsed(texts: list[str]) -> list[Selector]:
    return [parse_selector(text) for text in texts]


@given(selector_texts(max_segments=4, max_anys=2), few)
@example("**", ["*", "*/*/**"])
@example("a/*/**", ["a/*", "a/*/*", "a/*/*/*/**"])
@example("**", ["*", "*/*", "*/*/*", "*/*/*/*", "*/*/*/*/*"])
@example("**/$r", ["*/$r", "*/*/**/$r"])
@example("*", ["a", "b", "$r"])
def test_covering_is_inclusion(narrow: str, wide: list[str]) -> None:
    """Exact both ways for topics up to a length: the alphabet of the universe has a segment that no selector has."""
    expected = topics_of(narrow) <= topics_of(*wide)
    assert is_covered(parse_selector(narrow), parsed(wide), longest=LONGEST) == expected


@given(
    selector_texts(max_segments=8), st.lists(selector_texts(max_segments=8), max_size=5), st.lists(topics(), max_size=9)
)
def test_what_is_covered_has_no_topic_of_its_own(narrow: str, wide: list[str], tried: list[TopicPath]) -> None:
    if is_covered(parse_selector(narrow), parsed(wide)):
        for topic in tried:
            assert not naive_matches(narrow, topic) or any(naive_matches(each, topic) for each in wide)


@given(selector_texts(max_segments=4, max_anys=2), few)
@example("**/a/**", ["**/b/**", "$r/**"])
@example("**/$r/**", ["**/a/**"])
@example("**", ["$r/**", "a"])
def test_what_is_common_is_the_intersection(one: str, others: list[str]) -> None:
    found, complete = common(parse_selector(one), parsed(others))
    expected = topics_of(one) & topics_of(*others)
    actual = topics_of(*(each.text for each in found))
    assert actual <= expected
    assert actual == expected or not complete


@given(selector_texts(max_segments=5, max_anys=2), few)
def test_nothing_common_is_named_twice(one: str, others: list[str]) -> None:
    found, _ = common(parse_selector(one), parsed(others))
    assert len(found) <= MAX_PARTS
    for each in found:
        assert not is_covered(each, [other for other in found if other is not each])


@given(selector_texts(max_segments=6, max_anys=1), st.lists(selector_texts(max_segments=6, max_anys=1), max_size=4))
def test_what_can_be_said_is_said(one: str, others: list[str]) -> None:
    """With one ``**`` each the parts never need more of them than a selector may have."""
    assert MAX_ANY >= 2
    found, complete = common(parse_selector(one), parsed(others))
    assert complete
    for each in found:
        assert is_covered(each, [parse_selector(one)])
        assert is_covered(each, parsed(others))


def test_a_search_made_to_be_costly_ends() -> None:
    """The n-th segment from the end: as many combinations of states as there are subsets of its places."""
    costly = [parse_selector(f"**/{letter}" + "/*" * 14) for letter in "abcdefgh"]
    rest = [parse_selector("/".join("*" * length)) for length in range(1, 15)]
    narrow = parse_selector("**/a/**/b/**/c/**")
    assert not is_covered(narrow, costly + rest)


def test_a_list_longer_than_people_write_is_decided() -> None:
    """Where the bound is met the answer would be no."""
    markets = [parse_selector(f"prices/market-{number}/**") for number in range(500)]
    wide = [*markets, parse_selector("*/*"), parse_selector("*/*/*/**")]
    assert is_covered(parse_selector("prices/*/**"), wide)
    assert not is_covered(parse_selector("prices/**"), wide)
