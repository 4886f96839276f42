from __future__ import annotations

import pytest

from gateway.core.topics.entry_index import FEW_WILDCARDS, Entry
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import ALL_PARTITIONS, parse_selector
from gateway.core.topics.topics import parse_topic, topic_partition
from gateway.core.wire.errors import InvalidSelector


def after(*changes: str) -> Selections:
    """The list after selecting (``+``) and deselecting (``-``) in order."""
    selections = NOTHING
    for change in changes:
        selector = parse_selector(change[1:])
        selections = selections.select(selector) if change[0] == "+" else selections.deselect(selector)
    return selections


def selects(selections: Selections, topic: str) -> bool:
    return selections.selects(parse_topic(topic))


def test_nothing_selects_nothing() -> None:
    assert len(NOTHING) == 0
    assert not selects(NOTHING, "prices")
    assert NOTHING.to_wire() == ()
    assert NOTHING.partitions(1) == frozenset()


def test_the_last_matching_entry_decides() -> None:
    selections = after("+prices/**", "-prices/secret/**", "+prices/secret/open")
    assert selects(selections, "prices/ACME")
    assert not selects(selections, "prices/secret/x")
    assert selects(selections, "prices/secret/open")
    assert not selects(selections, "orders/1")
    assert after("-prices/secret/**", "+prices/**").to_wire() == ("+prices/**",)


def test_entries_without_wildcards_take_part_in_the_order() -> None:
    selections = after("+prices/**", "-*/ACME", "+prices/ACME", "-prices/XYZ")
    assert selects(selections, "prices/ACME")
    assert not selects(selections, "prices/XYZ")
    assert selects(selections, "prices/ABC")
    assert not selects(after("+prices/ACME", "+prices/XYZ", "-*/ACME"), "prices/ACME")


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        (["+a", "+a"], ["+a"]),
        (["+a", "-a"], []),
        (["-a"], []),
        (["-a/**", "+a"], ["+a"]),
        (["+a/b", "+a/*"], ["+a/*"]),
        (["+a/*", "+a/b"], ["+a/*"]),
        (["+a/*", "-b/**"], ["+a/*"]),
        (["+a/*", "-*/b"], ["+a/*", "-*/b"]),
        (["+a/*", "-*/b", "+a/b"], ["+a/*", "-*/b", "+a/b"]),
        (["+a/*", "-*/b", "+a/c"], ["+a/*", "-*/b"]),
        (["+a/*", "-*/b", "+a/**"], ["+a/**"]),
        (["+a/b", "+c", "-a/**"], ["+c"]),
        (["+a/*", "-*/b", "+c", "-a/*"], ["+c"]),
        (["+a/**", "+b/**", "-**/x", "+b/c/**"], ["+a/**", "+b/**", "-**/x", "+b/c/**"]),
        (["+a/**", "+b/**", "-a/x/**", "+b/c/**"], ["+a/**", "+b/**", "-a/x/**"]),
        (["+*/a", "-x/*", "+**"], ["+**"]),
        (["+**", "-**"], []),
    ],
)
def test_entries_that_decide_nothing_are_left_out(changes: list[str], left: list[str]) -> None:
    assert list(after(*changes).to_wire()) == left


def test_a_deselect_that_comes_to_the_front_is_left_out() -> None:
    """``a/*`` goes with the last entry that covers it, and leaves a deselect with nothing to deselect."""
    assert after("+a/*", "-**/b", "+a/*/**").to_wire() == ("+a/*/**",)


def test_old_entries_are_not_looked_at_again() -> None:
    """The price of linear time: ``*/a`` mattered only because of an entry that has gone since, and stays."""
    selections = after("+**", "-a/*", "+*/a", "+a/*")
    assert selections.to_wire() == ("+**", "+*/a")
    assert all(selects(selections, topic) for topic in ("a", "a/b", "b/a"))


def test_a_change_without_effect_gives_the_same_object() -> None:
    selections = after("+a/**", "-a/b")
    assert selections.select(parse_selector("a/c")) is selections
    assert selections.deselect(parse_selector("a/b")) is selections
    assert NOTHING.deselect(parse_selector("**")) is NOTHING


def test_a_list_never_changes() -> None:
    one = after("+a")
    two = one.select(parse_selector("b"))
    assert one.to_wire() == ("+a",)
    assert two.to_wire() == ("+a", "+b")


def test_many_wildcards_are_found_in_a_map() -> None:
    wire = [f"+t{n}/**" for n in range(FEW_WILDCARDS + 1)]
    selections = Selections.from_wire([*wire, "-t1/x", "-t2/*", "-**/y", "+t3/z/y", "+t4/**"])
    for _ in range(2):
        assert selects(selections, "t1")
        assert not selects(selections, "t1/x")
        assert not selects(selections, "t2/x")
        assert not selects(selections, "t3/y")
        assert selects(selections, "t3/z/y")
        assert selects(selections, "t4/y")
        assert not selects(selections, "elsewhere")
    twice = Selections.from_wire([*wire, "-t1/**", "+t1/**", "-t2/**"])
    assert selects(twice, "t1/x")
    assert not selects(twice, "t2/x")


def test_the_wire_form() -> None:
    selections = Selections.from_wire(["+a/**", "-a/b"])
    assert selections.to_wire() == ("+a/**", "-a/b")
    assert selections.entries == (Entry(True, parse_selector("a/**")), Entry(False, parse_selector("a/b")))
    assert list(selections) == list(selections.entries)
    assert repr(selections) == "Selections.from_wire(['+a/**', '-a/b'])"
    assert Selections.from_wire(["+b/**/*"]).to_wire() == ("+b/*/**",)


def test_equality() -> None:
    assert after("+a", "+b") == Selections.from_wire(["+a", "+b"])
    assert after("+a", "+b") != after("+b", "+a")
    assert after("+a") != ("+a",)
    assert len({after("+a"), Selections.from_wire(["+a"])}) == 1


@pytest.mark.parametrize("entry", ["", "a", "*a", "+", "-a//b", "+AC*"])
def test_a_bad_entry_is_refused(entry: str) -> None:
    with pytest.raises(InvalidSelector):
        Selections.from_wire(["+a", entry])


def test_the_sign_is_named_in_the_complaint() -> None:
    with pytest.raises(InvalidSelector, match="begins with '\\+' or '-', but 'prices' does not"):
        Selections.from_wire(["prices"])


def test_partitions_are_those_of_the_selects() -> None:
    prices, orders = (topic_partition(parse_topic(each), 1) for each in ("prices", "orders"))
    assert after("+prices/**", "+orders/1", "-prices/*").partitions(1) == {prices, orders}
    assert after("+prices/**", "+*/x").partitions(1) == ALL_PARTITIONS
