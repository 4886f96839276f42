from __future__ import annotations

from random import Random

import pytest

from benchmarks.micro.worst_selectors import DEEP, worst_list
from gateway.core.topics import joint_automaton, selector_map
from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.topics.topics import parse_topic
from gateway.core.topics.work import Work


def filled(*texts: str) -> SelectorMap[str]:
    selectors: SelectorMap[str] = SelectorMap()
    for text in texts:
        selectors.setdefault(parse_selector(text), str)
    return selectors


def found(selectors: SelectorMap[str], topic: str) -> list[str]:
    return sorted(selectors.match(parse_topic(topic)))


def test_a_topic_finds_every_selector_that_matches_it_once() -> None:
    selectors = filled("a/b", "a/*", "a/**", "*/b", "**", "**/b", "a/**/b", "*/**/b", "*/*/**", "c/**", "a/b/*", "b")
    assert found(selectors, "a/b") == sorted(
        ["a/b", "a/*", "a/**", "*/b", "**", "**/b", "a/**/b", "*/**/b", "*/*/**"],
    )
    assert found(selectors, "b") == ["**", "**/b", "b"]
    assert found(selectors, "a") == ["**", "a/**"]
    assert found(selectors, "a/b/c") == ["**", "*/*/**", "a/**", "a/b/*"]


def test_a_root_of_the_system_is_found_by_its_name_alone() -> None:
    selectors = filled("**", "*/nodes", "**/nodes", "$gateway/**", "$gateway/*", "$gateway/nodes", "a/$gateway/**")
    assert found(selectors, "$gateway/nodes") == ["$gateway/*", "$gateway/**", "$gateway/nodes"]
    assert found(selectors, "$other/nodes") == []
    assert found(selectors, "a/$gateway") == ["**", "a/$gateway/**"]


def test_a_selector_that_matches_in_many_ways_is_found_once() -> None:
    assert found(filled("**/a/**/a/**", "**/a/**"), "a/a/a/a/a") == ["**/a/**", "**/a/**/a/**"]


def test_a_value_is_made_once() -> None:
    selectors: SelectorMap[object] = SelectorMap()

    def make(_: Selector) -> object:
        return object()

    for text in ("a/b", "a/*"):
        first, first_is_new = selectors.setdefault(parse_selector(text), make)
        second, second_is_new = selectors.setdefault(parse_selector(text), make)
        assert first is second
        assert (first_is_new, second_is_new) == (True, False)
    assert len(selectors) == 2


def test_none_is_a_value_like_any_other() -> None:
    selectors: SelectorMap[None] = SelectorMap()
    for text in ("a/*", "a/b"):
        selectors.setdefault(parse_selector(text), lambda _: None)
    assert selectors.match(parse_topic("a/b")) == [None, None]
    assert not selectors.setdefault(parse_selector("a/*"), lambda _: None)[1]


def test_what_is_removed_leaves_nothing_behind() -> None:
    texts = ["a/b", "a/*", "a/*/c", "a/**", "a/**/b", "**"]
    selectors = filled(*texts)
    for text in texts:
        selectors.remove(parse_selector(text))
        assert text not in found(selectors, "a/b") + found(selectors, "a/b/c")
    assert len(selectors) == 0
    assert not selectors._root.children


def test_removing_one_keeps_those_below_and_above_it() -> None:
    selectors = filled("a/*", "a/b/*", "a/b/c/*", "a/*/b", "a/*/b/*")
    selectors.remove(parse_selector("a/b/*"))
    selectors.remove(parse_selector("a/*/b"))
    assert found(selectors, "a/x") == ["a/*"]
    assert found(selectors, "a/b/c/y") == ["a/b/c/*"]
    assert found(selectors, "a/x/b/y") == ["a/*/b/*"]
    selectors.remove(parse_selector("a/b/c/*"))
    selectors.remove(parse_selector("a/*/b/*"))
    assert found(selectors, "a/x") == ["a/*"]
    assert list(selectors._root.children) == ["a"]
    assert not selectors._root.children["a"].children
    assert not selectors._files
    assert not selectors._filed


def test_selectors_are_filed_where_fewest_are() -> None:
    """A topic asks for what is filed under its segments: of a thousand symbols below one root it looks at two."""
    selectors = filled(*(f"prices/*/{number}/bid" for number in range(1_000)))
    work = Work()
    assert selectors.match(parse_topic("prices/x/7/bid"), work) == ["prices/*/7/bid"]
    assert work.taken <= 4 * 4


def test_wildcards_at_the_end_differ_in_how_many_segments_they_stand_for() -> None:
    selectors = filled("a/*", "a/**", "a/*/*", "a/*/**", "a/*/*/**")
    assert found(selectors, "a") == ["a/**"]
    assert found(selectors, "a/x") == sorted(["a/*", "a/**", "a/*/**"])
    assert found(selectors, "a/x/y") == sorted(["a/**", "a/*/*", "a/*/**", "a/*/*/**"])
    assert found(selectors, "a/x/y/z") == sorted(["a/**", "a/*/**", "a/*/*/**"])


def test_what_stays_of_an_automaton_moves_when_most_of_it_is_gone() -> None:
    """Selectors that came and went leave no automata behind that are read for a few."""
    texts = list(worst_list(500))
    for seed in range(5):
        random = Random(seed)
        random.shuffle(texts)
        selectors = filled(*texts)
        (file,) = selectors._files.values()
        assert len(file.automata) > 5
        for number, text in enumerate(texts[10:]):
            selectors.remove(parse_selector(text))
            assert all(2 * each.living >= each.taken for each in file.automata if each.taken > selector_map._SPARSE)
            if not number % 100:
                assert found(selectors, DEEP) == sorted(texts[:10] + texts[11 + number :])
        assert len(file.automata) <= 2
        assert found(selectors, DEEP) == sorted(texts[:10])


def test_a_match_never_reads_more_states_than_an_automaton_has() -> None:
    selectors = filled(*worst_list(1_000))
    for file in selectors._files.values():
        assert all(each.taken <= joint_automaton.STATES for each in file.automata)


@pytest.mark.parametrize("absent", ["a", "b/*", "a/*"])
def test_removing_what_is_not_there_is_an_error(absent: str) -> None:
    selectors = filled("a/*/b")
    with pytest.raises(KeyError):
        selectors.remove(parse_selector(absent))
    assert len(selectors) == 1
