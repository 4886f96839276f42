from __future__ import annotations

import pytest

from gateway.core.selector_map import SelectorMap
from gateway.core.selectors import Selector, parse_selector
from gateway.core.topics import parse_topic


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


def test_ways_that_meet_are_followed_once() -> None:
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
    selectors = filled("a/*", "a/*/b", "a/*/b/*")
    selectors.remove(parse_selector("a/*/b"))
    assert found(selectors, "a/x") == ["a/*"]
    assert found(selectors, "a/x/b/y") == ["a/*/b/*"]
    selectors.remove(parse_selector("a/*/b/*"))
    assert found(selectors, "a/x") == ["a/*"]
    assert list(selectors._root.children["a"].children) == ["*"]
    assert not selectors._root.children["a"].children["*"].children


@pytest.mark.parametrize("absent", ["a", "b/*", "a/*"])
def test_removing_what_is_not_there_is_an_error(absent: str) -> None:
    selectors = filled("a/*/b")
    with pytest.raises(KeyError):
        selectors.remove(parse_selector(absent))
    assert len(selectors) == 1
