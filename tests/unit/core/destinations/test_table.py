"""The table of destinations: which one counts, what is shown, and what it costs."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from gateway.core.destinations.destination import MAX_DESTINATIONS, Destination, Origin
from gateway.core.destinations.limits import HistoryLimits, Kind, Limits, QueueLimits, ValueLimits
from gateway.core.destinations.table import REMEMBERED_BYTES, DestinationTable, place_in_list
from gateway.core.topics.selector_map import SelectorMap
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import MAX_SEGMENTS
from gateway.core.topics.work import Work
from gateway.core.types import TopicPath

HISTORY, QUEUE = HistoryLimits(), QueueLimits()
FILE, ADMINISTRATOR = Origin.FILE, Origin.ADMINISTRATOR


def destination(selector: str, limits: Limits = HISTORY, origin: Origin = FILE, made: float = 1.0) -> Destination:
    return Destination(selector=parse_selector(selector), limits=limits, origin=origin, made=made)


def topic(text: str) -> TopicPath:
    return TopicPath(text)


def test_a_path_is_a_plain_value_if_nobody_says_anything() -> None:
    table = DestinationTable()
    assert table.empty
    assert (table.find(topic("a")), table.history(topic("a")), table.queue(topic("a"))) == (None, None, None)
    table.put(destination("b/**"))
    assert (table.find(topic("a")), table.history(topic("a")), table.queue(topic("a"))) == (None, None, None)


def test_the_most_specific_counts() -> None:
    few, none = HistoryLimits(count=3), destination("log/debug/**", ValueLimits())
    table = DestinationTable(
        [destination("log/**"), none, destination("log/*/errors", few), destination("log/jobs", QUEUE)]
    )
    assert table.history(topic("log")) == HISTORY
    assert table.history(topic("log/a/b")) == HISTORY
    assert table.history(topic("log/a/errors")) == few
    assert table.history(topic("log/debug/x")) is None
    assert table.find(topic("log/debug/x")) is none
    # Both have two literals; one has a ``*`` more.
    assert table.history(topic("log/debug/errors")) == few
    assert table.history(topic("log/jobs")) is None
    assert table.queue(topic("log/jobs")) == QUEUE
    assert table.queue(topic("log/jobs/1")) is None


def test_wildcards_never_reach_the_topics_of_the_system() -> None:
    assert DestinationTable([destination("**")]).history(topic("$gateway/nodes")) is None


def test_what_administrators_say_counts_until_they_take_it_back() -> None:
    table = DestinationTable([destination("a/**", HistoryLimits(count=1))])
    by_hand = destination("a/**", HistoryLimits(count=2), ADMINISTRATOR)
    assert table.history(topic("a/b")) == HistoryLimits(count=1)
    table.put(by_hand)
    assert table.history(topic("a/b")) == HistoryLimits(count=2)
    assert [table.counts(each) for each in table.after(("", ""), 10)] == [True, False]
    table.drop(by_hand.name)
    assert table.history(topic("a/b")) == HistoryLimits(count=1)
    assert [table.counts(each) for each in table.after(("", ""), 10)] == [True]


def test_answers_follow_every_change() -> None:
    table = DestinationTable()
    for put, kinds in (
        (destination("a", HISTORY), (True, False)),
        (destination("a", QUEUE), (False, True)),
        (destination("a", ValueLimits()), (False, False)),
    ):
        assert table.put(put)
        assert not table.put(put), "that is no news"
        assert table.find(topic("a")) is table.find(topic("a")) is put
        assert (table.has_history, table.has_queues) == kinds
        assert (table.empty, len(table), table.count(put.kind)) == (False, 1, 1)
    assert table.drop(put.name) == put
    assert table.drop(put.name) is None
    assert (table.empty, len(table), table.find(topic("a"))) == (True, 0, None)
    assert [table.count(kind) for kind in Kind] == [0, 0, 0]


def test_pages_are_in_the_order_of_selectors() -> None:
    table = DestinationTable(
        [destination(each, ValueLimits(), origin) for each in ("b", "a/**", "c") for origin in (FILE, ADMINISTRATOR)]
        + [destination("d", ValueLimits())]
    )
    seen: list[tuple[str, str]] = []
    after = ("", "")
    while page := table.after(after, 2):
        assert len(page) <= 2
        seen += [place_in_list(each) for each in page]
        after = seen[-1]
    assert seen == [(each, origin) for each in ("a/**", "b", "c") for origin in (ADMINISTRATOR, FILE)] + [("d", FILE)]
    assert [each.selector.text for each in table.of(FILE)] == ["a/**", "b", "c", "d"]
    assert table.get(FILE, parse_selector("b")) == table.named("file b") == destination("b", ValueLimits())
    assert table.get(ADMINISTRATOR, parse_selector("d")) is None


def test_an_empty_table_costs_no_look_at_any_selector() -> None:
    table = DestinationTable()
    with patch.object(SelectorMap, "match", side_effect=AssertionError("looked up")):
        table.find(topic("a"))
        table.history(topic("a"))
        table.queue(topic("a"))


@pytest.mark.promise("P20")
def test_as_many_as_there_may_be_are_matched_in_bounded_work_whatever_they_are() -> None:
    # Selectors made up for the purpose: all of them may match, for they consist of the topic's segments.
    worst = [
        "/".join(("**", *["ab"[(number >> bit) & 1] for bit in range(10)], *("*",) * 20, "a"))
        for number in range(MAX_DESTINATIONS)
    ]
    table = DestinationTable(destination(each, ValueLimits()) for each in worst)
    assert len(table) == MAX_DESTINATIONS
    work = Work()
    table._map.match(topic("/".join(["a", "b"] * (MAX_SEGMENTS // 2))), work)
    assert 0 < work.taken <= MAX_DESTINATIONS, "not even a step for each"


@pytest.mark.promise("P20")
def test_remembered_answers_take_bounded_memory() -> None:
    table = DestinationTable([destination("**")])
    for number in range(20_000):
        assert table.history(topic(f"t/{number:0500}")) == HISTORY
    assert table._answers.measured() <= REMEMBERED_BYTES


def test_values_end_as_the_most_specific_destination_says() -> None:
    table = DestinationTable()
    table.put(destination("offers/plain", ValueLimits()))
    assert table.ttl(TopicPath("offers/plain")) == 0
    table.put(destination("offers/**", ValueLimits(ttl=30)))
    table.put(destination("offers/kept/**", HistoryLimits()))
    table.put(destination("offers/kept/x", HistoryLimits(ttl=5)))
    table.put(destination("jobs", QueueLimits()))
    found = {path: table.ttl(TopicPath(path)) for path in ("offers/1", "offers/kept/1", "offers/kept/x", "jobs", "a")}
    assert found == {"offers/1": 30, "offers/kept/1": 0, "offers/kept/x": 5, "jobs": 0, "a": 0}

    for each in list(table):
        table.drop(each.name)
    assert not table.has_ttl
