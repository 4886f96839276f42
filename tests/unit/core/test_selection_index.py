from __future__ import annotations

import gc
import weakref

import pytest

from gateway.core.topics import selection_index
from gateway.core.topics.selection_index import UNCHANGED, InterestChange, SelectionIndex
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import ALL_PARTITIONS
from gateway.core.topics.topics import parse_topic, topic_partition

PRICES, ORDERS = (topic_partition(parse_topic(each), 1) for each in ("prices", "orders"))


def wire(*entries: str) -> Selections:
    return Selections.from_wire(entries)


def indexed(**selections: str) -> SelectionIndex[str]:
    """An index with subscribers by name, each with its entries separated by blanks."""
    index: SelectionIndex[str] = SelectionIndex()
    for subscriber, entries in selections.items():
        index.set(subscriber, wire(*entries.split()))
    return index


def matched(index: SelectionIndex[str], topic: str) -> list[str]:
    first = index.match(parse_topic(topic))
    assert index.match(parse_topic(topic)) is first, "an answer is kept until something changes"
    return sorted(first)


def test_an_empty_index_matches_nothing() -> None:
    index: SelectionIndex[str] = SelectionIndex()
    assert matched(index, "prices") == []
    assert index.interest == frozenset()
    assert len(index) == 0


def test_each_subscriber_comes_up_once() -> None:
    index = indexed(ann="+prices/** +prices/ACME +*/ACME", bob="+prices/ACME", cat="+orders/**")
    assert matched(index, "prices/ACME") == ["ann", "bob"]
    assert matched(index, "prices/XYZ") == ["ann"]
    assert matched(index, "orders/1") == ["cat"]
    assert matched(index, "news") == []


def test_the_last_entry_of_a_subscriber_decides() -> None:
    index = indexed(
        ann="+prices/** -*/ACME",
        bob="-*/ACME +prices/**",
        cat="+prices/** -prices/ACME +**/ACME",
        dan="-prices/ACME",
    )
    assert matched(index, "prices/ACME") == ["bob", "cat"]
    assert matched(index, "prices/XYZ") == ["ann", "bob", "cat"]


def test_a_deselected_topic_that_nobody_else_selects_matches_nobody() -> None:
    assert matched(indexed(ann="-prices/ACME +orders/1"), "prices/ACME") == []


def test_selections_can_be_replaced_in_any_way() -> None:
    index = indexed(ann="+prices/** -prices/ACME")
    assert matched(index, "prices/ACME") == []
    index.set("ann", wire("-prices/ACME", "+prices/**"))
    assert matched(index, "prices/ACME") == ["ann"]
    index.set("ann", wire("+orders/1", "-prices/ACME", "+prices/**", "-prices/ACME"))
    assert matched(index, "prices/ACME") == []
    assert matched(index, "orders/1") == ["ann"]
    index.set("ann", NOTHING)
    assert matched(index, "orders/1") == []
    assert "ann" in index
    assert index.selections("ann") == NOTHING


def test_a_sign_can_change_in_place() -> None:
    index = indexed(ann="+prices/ACME", bob="+prices/ACME")
    index.set("ann", wire("-prices/ACME"))
    assert matched(index, "prices/ACME") == ["bob"]
    index.set("ann", wire("+prices/ACME"))
    assert matched(index, "prices/ACME") == ["ann", "bob"]


def test_entries_that_stay_are_not_touched() -> None:
    """Adding one selection must not disturb the answers of the others: it happens with every subscribe."""
    index = indexed(ann="+prices/** +orders/1")
    prices = index.match(parse_topic("prices/ACME"))
    index.set("ann", wire("+prices/**", "+orders/1", "+news"))
    assert index.match(parse_topic("prices/ACME")) is prices
    index.set("ann", wire("+prices/**", "+news"))
    assert index.match(parse_topic("prices/ACME")) is prices


def test_a_new_selector_reaches_topics_that_are_remembered() -> None:
    index = indexed(ann="+prices/ACME")
    for n, entry in enumerate(["+prices/ACME", "+prices/*", "+prices/**", "+*/ACME", "+**", "+**/ACME"]):
        before = matched(index, "prices/ACME")
        index.set(f"new{n}", wire(entry))
        assert matched(index, "prices/ACME") == sorted([*before, f"new{n}"])
    for n in range(6):
        before = matched(index, "prices/ACME")
        index.remove(f"new{n}")
        assert matched(index, "prices/ACME") == [each for each in before if each != f"new{n}"]


def test_what_cannot_match_a_remembered_topic_leaves_it_remembered() -> None:
    index = indexed(ann="+prices/ACME +prices/**")
    matched(index, "prices/ACME")
    resolved = index._resolved["prices"]
    index.set("bob", wire("+prices/XYZ", "+orders/**"))
    assert index._resolved["prices"] is resolved
    assert "prices/ACME" in resolved
    index.set("cat", wire("+prices/ACME", "+prices/**"))
    assert "prices/ACME" in resolved, "joining a selector in use changes no way to it"


def test_topics_with_the_same_terminals_share_their_answer() -> None:
    index = indexed(ann="+prices/** +**", bob="+prices/**")
    assert index.match(parse_topic("prices/A")) is index.match(parse_topic("prices/B"))


def test_an_answer_stays_as_it_is_while_the_index_changes() -> None:
    index = indexed(ann="+prices/**", bob="+prices/**", cat="+prices/** +**")
    for subscriber in index.match(parse_topic("prices/ACME")):
        index.remove(subscriber)
    assert matched(index, "prices/ACME") == []


def test_interest_is_told_as_it_comes_and_goes() -> None:
    index: SelectionIndex[str] = SelectionIndex()
    assert index.set("ann", wire("+prices/**", "-prices/x")) == InterestChange(gained=frozenset((PRICES,)))
    assert not index.set("bob", wire("+prices/ACME"))
    assert index.interest == {PRICES}
    assert index.set("bob", wire("+orders/1", "-news/*")) == InterestChange(gained=frozenset((ORDERS,)))
    assert index.remove("ann") == InterestChange(lost=frozenset((PRICES,)))
    everything = index.set("ann", wire("+*/ACME"))
    assert everything.gained == ALL_PARTITIONS - {ORDERS}
    assert bool(everything)
    assert index.interest == ALL_PARTITIONS
    assert index.remove("bob") is UNCHANGED
    assert index.remove("ann").lost == ALL_PARTITIONS
    assert index.interest == frozenset()


def test_moving_from_one_partition_to_another_is_one_change() -> None:
    index = indexed(ann="+prices/**")
    change = index.set("ann", wire("+orders/**"))
    assert change == InterestChange(gained=frozenset((ORDERS,)), lost=frozenset((PRICES,)))


def test_the_depth_decides_about_interest() -> None:
    index: SelectionIndex[str] = SelectionIndex(depth=2)
    assert index.set("ann", wire("+prices/ACME/**")).gained == {topic_partition(parse_topic("prices/ACME"), 2)}
    assert index.set("ann", wire("+prices/**")).gained | {topic_partition(parse_topic("prices/ACME"), 2)} == (
        ALL_PARTITIONS
    )


def test_a_stranger_is_removed_without_effect() -> None:
    index = indexed(ann="+a")
    assert index.remove("bob") is UNCHANGED
    assert index.selections("bob") is NOTHING
    assert len(index) == 1


def test_nothing_keeps_a_removed_subscriber_in_memory() -> None:
    class Subscriber:
        pass

    index: SelectionIndex[Subscriber] = SelectionIndex()
    staying, leaving = Subscriber(), Subscriber()
    for each in (staying, leaving):
        index.set(each, wire("+prices/**", "+prices/ACME", "+*/ACME", "-prices/XYZ"))
    for topic in ("prices/ACME", "prices/XYZ", "prices/ABC"):
        index.match(parse_topic(topic))
    trace = weakref.ref(leaving)
    index.remove(leaving)
    del leaving, each
    gc.collect()
    assert trace() is None


def test_topics_that_were_published_once_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_index, "MAX_RESOLVED", 10)
    index = indexed(ann="+prices/** +**", bob="+prices/7")
    for n in range(100):
        assert matched(index, f"prices/{n}") == (["ann", "bob"] if n == 7 else ["ann"])
        assert sum(map(len, index._resolved.values())) <= 10
        assert len(index._merges) <= 10


@pytest.mark.promise("P20")
def test_what_is_remembered_is_forgotten_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """P20: to forget all of it at once, when it is full, would take a tenth of a second of everybody's time."""
    monkeypatch.setattr(selection_index, "MAX_RESOLVED", 10)
    monkeypatch.setattr(selection_index, "MAX_MERGED", 16)
    index = indexed(ann="+prices/**", **{f"s{n}": f"+prices/{n}" for n in range(100)})
    for n in range(100):
        assert matched(index, f"prices/{n}") == ["ann", f"s{n}"]
        assert sum(map(len, index._resolved.values())) == min(n + 1, 10)
        assert len(index._merges) == min(n + 1, 10)
        assert len(index._made) == min(n + 1, 8)
        assert index._resolved_bytes == pytest.approx(min(n + 1, 10) * (2 * 80 + 200 + 58), rel=0.02)


def test_a_topic_resolved_anew_is_remembered_as_long_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A selector that comes makes topics be resolved again; the resolution before must not take the new one along."""
    monkeypatch.setattr(selection_index, "MAX_RESOLVED", 4)
    index = indexed(ann="+prices/**")
    for n in range(20):
        for topic in ("prices/x", "prices/y", f"prices/{n}"):
            assert matched(index, topic) == sorted(["ann", *(f"s{each}" for each in range(n))])
        index.set(f"s{n}", wire(f"+*/{'*/' * n}**", "+prices/*"))
        assert sum(map(len, index._resolved.values())) <= len(index._order) <= 4
        assert {id(each) for each in index._merges.values()} == {
            id(found) for _, found in index._order if isinstance(found, selection_index._Merge)
        }


@pytest.mark.promise("P20")
def test_a_change_takes_bounded_work_however_many_topics_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """P20: a monitor joins who shares an answer with the subscriber of each topic; all others wait meanwhile."""
    monkeypatch.setattr(selection_index, "TIDIED_AT_ONCE", 10)
    given_up: list[int] = []

    class CountedIndex(SelectionIndex[str]):
        def _unmake(self, merge: selection_index._Merge[str]) -> None:
            given_up[-1] += 1
            super()._unmake(merge)

    index = CountedIndex()
    index.set("ann", wire("+prices/**"))
    for n in range(100):
        index.set(f"s{n}", wire(f"+prices/{n}"))
        assert matched(index, f"prices/{n}") == ["ann", f"s{n}"]
    for comes in (True, False):
        given_up.append(0)
        if comes:
            index.set("bob", wire("+prices/**"))
        else:
            index.remove("bob")
        assert given_up.pop() == 10
        assert index.outdated == 90
        here = ["ann", "bob"] if comes else ["ann"]
        for n in range(0, 100, 2):
            topic = parse_topic(f"prices/{n}")
            # Outdated or given up, it is not at hand, and never the answer.
            assert not index.knows(topic)
            assert matched(index, topic) == sorted([*here, f"s{n}"])
            assert index.knows(topic)
        while index.outdated:
            given_up.append(0)
            index.tidy()
            assert given_up.pop() <= 10
        for n in range(100):
            assert index.knows(parse_topic(f"prices/{n}")) is not bool(n % 2)
            assert matched(index, f"prices/{n}") == sorted([*here, f"s{n}"])
        assert index._made_members == sum(index._made.values()) == 100 * (1 + len(here))


@pytest.mark.promise("P20")
def test_who_deselects_is_compared_with_who_selects_and_not_with_every_selector() -> None:
    """P20: many sessions of one account deselect a topic that many selectors of another match."""

    class Subscriber:
        hashed = 0

        def __hash__(self) -> int:
            Subscriber.hashed += 1
            return id(self)

    index: SelectionIndex[Subscriber] = SelectionIndex()
    everything = Subscriber()
    index.set(everything, wire(*(f"+a/**/b/{'*/' * ones}**" for ones in range(20)), "+a/**"))
    deselecting = [Subscriber() for _ in range(100)]
    for each in deselecting:
        index.set(each, wire("+a/**", "-a/b/**"))
    back = Subscriber()
    index.set(back, wire("+a/**", "-a/b/**", "+a/**/b/**"))
    Subscriber.hashed = 0
    assert set(index.match(parse_topic(f"a/b{'/x' * 20}"))) == {everything, back}
    assert Subscriber.hashed <= 10 * len(deselecting)


def test_merges_are_bounded_by_the_subscribers_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_index, "MAX_MERGED", 5)
    index = indexed(ann="+prices/** +a/*", bob="+prices/** +*/y", cat="+*/x")
    for topic in ("prices/x", "prices/y", "a/x", "a/y") * 2:
        index.match(parse_topic(topic))
        assert index._made_members <= 5
        assert index._made_members == sum(index._made.values()) == sum(len(each.members or ()) for each in index._made)
    assert matched(index, "prices/x") == ["ann", "bob", "cat"]
