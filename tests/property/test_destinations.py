"""The destination that counts: the most specific one that matches, whatever came and went before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.destinations.destination import Destination, Origin, rank
from gateway.core.destinations.limits import HistoryLimits, Limits, ValueLimits
from gateway.core.destinations.table import DestinationTable
from gateway.core.topics.selectors import Selector, covers, parse_selector
from gateway.core.topics.topics import is_reserved
from gateway.core.types import TopicPath
from tests.property.topic_strategies import all_selector_texts, naive_matches, selector_texts, topics

SELECTORS = selector_texts().map(parse_selector)
HISTORIES = st.integers(1, 5).map(lambda count: HistoryLimits(count=count))
LIMITS: st.SearchStrategy[Limits] = st.just(ValueLimits()) | HISTORIES
DESTINATIONS = st.builds(Destination, selector=SELECTORS, limits=LIMITS, origin=st.sampled_from(Origin))


def test_of_two_selectors_the_narrower_comes_first() -> None:
    selectors = {parse_selector(each) for each in all_selector_texts(max_segments=4) if each.count("**") <= 3}
    for wide in selectors:
        for narrow in selectors:
            if wide != narrow and covers(wide, narrow):
                assert rank(narrow) < rank(wide), (narrow.text, wide.text)


@given(wide=SELECTORS, narrow=SELECTORS)
def test_of_two_longer_selectors_the_narrower_comes_first(wide: Selector, narrow: Selector) -> None:
    if wide != narrow and covers(wide, narrow):
        assert rank(narrow) < rank(wide)


@given(changes=st.lists(st.tuples(st.booleans(), DESTINATIONS), max_size=30), asked=st.lists(topics(), max_size=8))
def test_what_counts_is_the_first_by_rank_of_those_that_match(
    changes: list[tuple[bool, Destination]], asked: list[TopicPath]
) -> None:
    table = DestinationTable()
    held: dict[str, Destination] = {}
    for comes, destination in changes:
        if comes:
            table.put(destination)
            held[destination.name] = destination
        else:
            assert table.drop(destination.name) == held.pop(destination.name, None)
        for topic in asked:
            matching = [each for each in held.values() if naive_matches(each.selector.text, topic)]
            wanted = min(
                matching, key=lambda each: (rank(each.selector), each.origin is not Origin.ADMINISTRATOR), default=None
            )
            assert table.find(topic) == wanted
            if is_reserved(topic) and wanted is not None:
                assert is_reserved(wanted.selector.text)
    assert len(table) == len(held)
