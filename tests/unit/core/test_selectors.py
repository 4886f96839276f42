from __future__ import annotations

import pytest

from gateway.core.topics.selectors import (
    ALL_PARTITIONS,
    MAX_ANY,
    covers,
    literal_selector,
    matches,
    overlaps,
    parse_selector,
    partitions,
)
from gateway.core.topics.topics import MAX_PATH_BYTES, MAX_SEGMENTS, parse_topic, topic_partition
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import InvalidSelector


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("prices/ACME", "prices/ACME"),
        ("*", "*"),
        ("**", "**"),
        ("**/**", "**"),
        ("**/*", "**"),
        ("*/**", "**"),
        ("**/*/**", "**"),
        ("**/*/*", "*/*/**"),
        ("prices/**/*", "prices/*/**"),
        ("prices/**/*/**/bid", "prices/*/**/bid"),
        ("**/a/**/*/b/*", "**/a/*/**/b/*"),
        ("*/a", "*/a"),
        ("**/**/**/**/**/**/a", "**/a"),
        ("**/$a", "*/**/$a"),
        ("**/**/$a/**", "*/**/$a/**"),
        ("**/*/$a", "*/**/$a"),
        ("a/**/$a", "a/**/$a"),
    ],
)
def test_the_canonical_form(written: str, canonical: str) -> None:
    selector = parse_selector(written)
    assert str(selector) == selector.text == canonical
    assert selector.segments == tuple(canonical.split("/"))
    assert parse_selector(canonical) == selector
    assert hash(parse_selector(canonical)) == hash(selector)


def test_equality_is_by_text() -> None:
    assert parse_selector("a/**") != parse_selector("a/*")
    assert repr(parse_selector("a/**/**")) == "Selector(text='a/**')"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "a selector has at least one segment"),
        ("/prices", "segment 1"),
        ("prices/", "segment 2"),
        ("a\nb", "U+000A"),
        ("a/\ud800", "U+D800"),
        ("prices/AC*", "'*' stands for a whole segment and cannot be a part of one, but is in 'AC*'"),
        ("***", "is in '***'"),
        ("/".join(["**", *["$a"] * (MAX_SEGMENTS - 1)]), "leaves no room"),
        ("a/*b/**", "is in '*b'"),
        ("/".join(["*"] * (MAX_SEGMENTS + 1)), f"at most {MAX_SEGMENTS} segments"),
        ("x" * (MAX_PATH_BYTES + 1), f"at most {MAX_PATH_BYTES} bytes"),
        ("/".join(["**/a"] * (MAX_ANY + 1)), f"at most {MAX_ANY} '**'"),
    ],
)
def test_what_is_not_a_selector_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(InvalidSelector) as refused:
        parse_selector(text)
    assert complaint in str(refused.value)
    assert refused.value.code is ErrorCode.BAD_SELECTOR


@pytest.mark.parametrize(
    ("selector", "topic", "expected"),
    [
        ("prices/ACME", "prices/ACME", True),
        ("prices/ACME", "prices/ACME/bid", False),
        ("prices/ACME", "prices", False),
        ("*", "prices", True),
        ("*", "prices/ACME", False),
        ("prices/*", "prices", False),
        ("prices/*", "prices/ACME", True),
        ("prices/*/bid", "prices/ACME/bid", True),
        ("prices/*/bid", "prices/ACME/ask", False),
        ("prices/**", "prices", True),
        ("prices/**", "prices/ACME/bid", True),
        ("prices/**", "price", False),
        ("**", "anything/at/all", True),
        ("**/bid", "bid", True),
        ("**/bid", "prices/ACME/bid", True),
        ("**/bid", "prices/bid/ACME", False),
        ("a/**/b/**/c", "a/b/c", True),
        ("a/**/b/**/c", "a/x/b/y/z/c", True),
        ("a/**/b/**/c", "a/x/c", False),
        ("**/a/a/*", "a/a/a/a", True),
        ("*/*/**", "a", False),
        ("*/*/**", "a/b", True),
    ],
)
def test_matching(selector: str, topic: str, expected: bool) -> None:
    assert matches(parse_selector(selector), parse_topic(topic)) is expected


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("**", "**", True),
        ("**", "a", True),
        ("a", "a", True),
        ("a", "*", False),
        ("*", "a", True),
        ("*", "*", True),
        ("*", "**", False),
        ("a/**", "a", True),
        ("a/**", "a/*/b", True),
        ("a/*", "a/**", False),
        ("*/*/**", "**/a/*", True),
        ("*/*/**", "**/a", False),
        ("**/a/*/**", "a/**/b", True),
        ("**/a/*/**", "a/**", False),
        ("**/a/**", "**/b/**", False),
        ("a/*/c", "a/b/c", True),
        ("a/*/c", "a/**/c", False),
        ("*/b", "**/b", False),
    ],
)
def test_covering(wide: str, narrow: str, expected: bool) -> None:
    assert covers(parse_selector(wide), parse_selector(narrow)) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "*", True),
        ("a/b", "**/b", True),
        ("a/*", "*/b", True),
        ("a/*", "b/*", False),
        ("a/**", "**/b", True),
        ("a/**/c", "a/b", False),
        ("a/*", "*", False),
        ("**/a", "**/b", False),
        ("*/a/**", "b/*", True),
        ("a/**", "b/**", False),
        ("**", "a/**", True),
        ("a/b/**", "*/c/**", False),
    ],
)
def test_overlapping(one: str, other: str, expected: bool) -> None:
    assert overlaps(parse_selector(one), parse_selector(other)) is expected
    assert overlaps(parse_selector(other), parse_selector(one)) is expected


def test_no_wildcard_stands_for_a_root_of_the_system() -> None:
    node = parse_topic("$gateway/nodes")
    for text in ("**", "*/**", "*/nodes", "*/*", "**/nodes", "**/$gateway/nodes", "nodes/**"):
        selector = parse_selector(text)
        assert not matches(selector, node), text
        assert not covers(selector, parse_selector("$gateway/*")), text
        assert not overlaps(selector, parse_selector("$gateway/**")), text
        assert not overlaps(parse_selector("$gateway/**"), selector), text
    for text in ("$gateway/**", "$gateway/*", "$gateway/nodes", "**/$x", "a/*"):
        assert matches(parse_selector(text), parse_topic(text.replace("**", "x").replace("*", "nodes")))
    assert covers(parse_selector("$gateway/**"), parse_selector("$gateway/*"))


def test_partitions() -> None:
    prices = frozenset((topic_partition(parse_topic("prices"), 1),))
    assert partitions(parse_selector("prices"), 1) == prices
    assert partitions(parse_selector("prices/**"), 1) == prices
    assert partitions(parse_selector("prices/*/bid"), 1) == prices
    assert partitions(parse_selector("prices"), 2) == prices
    assert partitions(parse_selector("prices/**"), 2) == ALL_PARTITIONS
    assert partitions(parse_selector("prices/*"), 2) == ALL_PARTITIONS
    assert partitions(parse_selector("*/ACME"), 1) == ALL_PARTITIONS
    assert partitions(parse_selector("**"), 1) == ALL_PARTITIONS
    assert partitions(parse_selector("prices/ACME/**"), 2) == {topic_partition(parse_topic("prices/ACME"), 2)}
    with pytest.raises(ValueError, match="at least one segment"):
        partitions(parse_selector("prices"), 0)


def test_the_selector_of_one_topic() -> None:
    assert literal_selector(parse_topic("prices/ACME")) == parse_selector("prices/ACME")
    assert literal_selector(parse_topic("prices/ACME")).segments == ("prices", "ACME")


def test_the_states_of_a_selector_fit_a_machine_word() -> None:
    """The module's bound on matching rests on it."""
    assert MAX_SEGMENTS + 1 <= 64


def test_the_longest_selector_works() -> None:
    text = "/".join(["a", "*"] * (MAX_SEGMENTS // 2))
    selector = parse_selector(text)
    assert matches(selector, parse_topic("/".join(["a"] * MAX_SEGMENTS)))
    assert not matches(selector, parse_topic("/".join(["a"] * (MAX_SEGMENTS - 1))))
    assert covers(parse_selector("**"), selector)
