"""Selection lists against the plainest reading of the rule that the last matching entry decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import parse_topic, topic_partition
from tests.property.topic_strategies import naive_matches, selector_texts, topics

Changes: TypeAlias = Sequence[tuple[bool, str]]

changes = st.lists(st.tuples(st.booleans(), selector_texts(max_segments=4)), max_size=10)
"""What a client asked for: select or deselect, and which topics."""


def naive_selects(entries: Changes, topic: str) -> bool:
    deciding = [selects for selects, selector in entries if naive_matches(selector, topic)]
    return bool(deciding) and deciding[-1]


def after(entries: Changes, start: Selections = NOTHING) -> Selections:
    for selects, selector in entries:
        start = start.select(parse_selector(selector)) if selects else start.deselect(parse_selector(selector))
    return start


@given(changes, st.lists(topics(), min_size=1, max_size=10))
def test_compaction_never_changes_what_is_selected(entries: Changes, paths: list[str]) -> None:
    selections = after(entries)
    assert len(selections) <= len(entries)
    for path in paths:
        assert selections.selects(parse_topic(path)) == naive_selects(entries, path)


@given(changes, st.lists(topics(), min_size=1, max_size=10))
def test_a_list_that_was_not_compacted_means_the_same(entries: Changes, paths: list[str]) -> None:
    selections = Selections.from_wire(f"{'+' if selects else '-'}{selector}" for selects, selector in entries)
    assert len(selections) == len({parse_selector(selector) for _, selector in entries})
    for path in paths:
        assert selections.selects(parse_topic(path)) == naive_selects(entries, path)


@given(changes, changes, st.lists(topics(), min_size=1, max_size=10))
def test_changes_to_a_list_that_was_not_compacted_mean_the_same(
    first: Changes, then: Changes, paths: list[str]
) -> None:
    raw = Selections.from_wire(f"{'+' if selects else '-'}{selector}" for selects, selector in first)
    selections = after(then, raw)
    for path in paths:
        assert selections.selects(parse_topic(path)) == naive_selects([*first, *then], path)


@given(changes)
def test_the_wire_form_is_read_back_as_it_was(entries: Changes) -> None:
    selections = after(entries)
    again = Selections.from_wire(selections.to_wire())
    assert again == selections
    assert hash(again) == hash(selections)
    assert again.to_wire() == selections.to_wire()


@given(changes, st.booleans(), selector_texts(max_segments=4))
def test_asking_twice_is_asking_once(entries: Changes, selects: bool, selector: str) -> None:
    once = after([*entries, (selects, selector)])
    assert after([(selects, selector)], once) is once


@example([(True, "a/**"), (True, "$r"), (False, "*"), (False, "a/**")], "a")  # a deselect stays that decides nothing
@given(changes, topics())
def test_the_widest_selector_has_the_last_word(entries: Changes, path: str) -> None:
    """The last word of all that is not the system's, which is selected by name only."""
    nothing = after([*entries, (False, "**")])
    everything = after([*entries, (True, "**")])
    assert all(entry.selector.text.startswith("$") for entry in nothing if entry.selects)
    if path.startswith("$"):
        assert nothing.selects(parse_topic(path)) == everything.selects(parse_topic(path))
    else:
        assert everything.selects(parse_topic(path))
        assert not nothing.selects(parse_topic(path))


@given(changes)
def test_a_compact_list_begins_with_a_select(entries: Changes) -> None:
    selections = after(entries)
    assert not selections.entries or selections.entries[0].selects


@given(changes, topics(), st.integers(1, 3))
def test_a_selected_topic_is_in_a_partition_of_the_list(entries: Changes, path: str, depth: int) -> None:
    selections, topic = after(entries), parse_topic(path)
    if selections.selects(topic):
        assert topic_partition(topic, depth) in selections.partitions(depth)
