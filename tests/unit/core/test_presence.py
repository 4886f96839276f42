"""Which trees of topics a session is a member of, and by which topics that is told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway.core.destinations.destination import Destination, Origin, decode_destination, encode_destination
from gateway.core.destinations.destination import read_destination as read
from gateway.core.destinations.limits import HistoryLimits, InvalidDestination, Limits, ValueLimits
from gateway.core.destinations.membership import trees_after, trees_of
from gateway.core.destinations.presence import count_topic, member_topic, member_value, pattern_of
from gateway.core.destinations.table import DestinationTable
from gateway.core.policy.permissions import OPEN, Policy, Role, parse_template
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import parse_selector, partitions
from gateway.core.topics.topics import topic_partition
from gateway.core.types import SessionId, TopicPath

PRESENT = ValueLimits(presence=True)


def table(limits: Mapping[str, Limits]) -> DestinationTable:
    return DestinationTable(
        Destination(selector=parse_selector(selector), limits=each, origin=Origin.FILE)
        for selector, each in limits.items()
    )


ROOMS = table({"rooms/*/**": PRESENT, "rooms/hidden": ValueLimits(), "lobby/**": PRESENT, "plain/**": ValueLimits()})


@pytest.mark.parametrize(
    ("selector", "trees"),
    [
        ("rooms/7", {"rooms/7"}),
        ("rooms/7/chat", {"rooms/7"}),
        ("rooms/7/**", {"rooms/7"}),
        ("rooms/7/*/x", {"rooms/7"}),
        ("rooms/hidden/chat", set()),
        ("rooms/*/chat", set()),
        ("rooms/**", set()),
        ("rooms", set()),
        ("**", set()),
        ("lobby", {"lobby"}),
        ("lobby/**", {"lobby"}),
        ("lobby/a/b", {"lobby"}),
        ("plain/a", set()),
    ],
)
def test_trees_that_a_selector_names(selector: str, trees: set[str]) -> None:
    selections = NOTHING.select(parse_selector(selector))
    assert trees_of(selections, ROOMS) == trees
    assert trees_after(NOTHING, frozenset(), selections, ROOMS) == trees


def test_nested_trees_are_both_entered() -> None:
    nested = table({"a/**": PRESENT, "a/*/**": HistoryLimits(presence=True)})
    assert trees_of(NOTHING.select(parse_selector("a/b/c")), nested) == {"a", "a/b"}


def test_what_is_selected_counts_once_and_what_is_deselected_does_not() -> None:
    selections = Selections()
    trees: frozenset[TopicPath] = frozenset()
    for number in range(100):
        longer = selections.select(parse_selector(f"rooms/{number % 3}/{number}"))
        trees = trees_after(selections, trees, longer, ROOMS)
        selections = longer
        assert trees == trees_of(selections, ROOMS)
    assert trees == {"rooms/0", "rooms/1", "rooms/2"}
    less = selections.deselect(parse_selector("rooms/1/**"))
    assert trees_after(selections, trees, less, ROOMS) == {"rooms/0", "rooms/2"}
    one = less.deselect(parse_selector("rooms/0/0"))
    assert trees_after(less, trees_of(less, ROOMS), one, ROOMS) == {"rooms/0", "rooms/2"}


def test_nobody_asks_where_nothing_is_marked() -> None:
    nothing = table({"rooms/**": ValueLimits()})
    assert not nothing.has_presence
    assert trees_of(NOTHING.select(parse_selector("rooms/7")), nothing) == frozenset()
    nothing.put(Destination(selector=parse_selector("rooms/*/**"), limits=PRESENT, origin=Origin.ADMINISTRATOR))
    assert trees_of(NOTHING.select(parse_selector("rooms/7")), nothing) == {"rooms/7"}
    nothing.drop("administrator rooms/*/**")
    assert not nothing.has_presence


def test_paths_that_are_too_long_are_of_no_tree() -> None:
    long = "rooms/" + "x" * 800
    assert trees_of(NOTHING.select(parse_selector(long)), ROOMS) == frozenset()


@pytest.mark.parametrize(
    ("selector", "pattern"),
    [
        ("rooms/*/**", ("rooms", "*")),
        ("a", ("a",)),
        ("**", ()),
        ("a/**/b", ()),
        ("a/**", ("a",)),
        ("*/x", ("*", "x")),
        ("x" * 768, ("x" * 768,)),
        ("x" * 769 + "/**", ()),
        ("*/" + "é" * 384, ()),
    ],
)
def test_patterns_of_trees(selector: str, pattern: tuple[str, ...]) -> None:
    assert pattern_of(parse_selector(selector)) == pattern


def test_what_cannot_be_marked_is_refused() -> None:
    with pytest.raises(InvalidDestination, match="presence"):
        read({"kind": "value", "selector": "**", "presence": True}, origin=Origin.FILE)
    with pytest.raises(InvalidDestination, match="presence"):
        read({"kind": "queue", "path": "q", "presence": True}, origin=Origin.FILE)
    with pytest.raises(InvalidDestination, match="names"):
        read({"kind": "value", "selector": "a", "presence_properties": "a,,b"}, origin=Origin.FILE)
    with pytest.raises(InvalidDestination, match="text"):
        read({"kind": "value", "selector": "a", "presence_properties": 1}, origin=Origin.FILE)


def test_what_is_said_is_read_again_and_its_absence_is_as_before() -> None:
    said = read(
        {"kind": "value", "selector": "a/**", "presence": True, "presence_properties": "name, team", "ttl": 3.0},
        origin=Origin.FILE,
    )
    assert decode_destination(said.name, encode_destination(said)) == said
    assert isinstance(said.limits, ValueLimits)
    assert said.limits.shown == ("name", "team")
    plain = read({"kind": "value", "selector": "a/**"}, origin=Origin.FILE)
    assert b"presence" not in encode_destination(plain), "as nodes of earlier releases write it"


def test_topics_of_a_tree_are_in_one_partition_and_trees_are_spread() -> None:
    tree = TopicPath("rooms/7")
    member = parse_selector("$presence/rooms/7/$members/*")
    for depth in range(1, 6):
        places = {topic_partition(each, depth) for each in (count_topic(tree), member_topic(tree, SessionId("s")))}
        assert len(places) == 1
        assert partitions(member, depth) == places
        assert partitions(parse_selector("$presence/rooms/7/**"), depth) >= places
    assert len({topic_partition(count_topic(TopicPath(f"tree{each}")), 1) for each in range(100)}) > 30


def test_only_what_is_shown_is_told() -> None:
    told = member_value(SessionId("s"), "alice", {"name": "Alice", "hidden": "1"}, ("name", "missing"))
    assert told == b'{"session":"s","principal":"alice","properties":{"name":"Alice"}}'


def test_who_may_watch() -> None:
    role = Role(select=(parse_template("**"),), presence=(parse_template("rooms/*"),))
    permissions = Policy({"host": role}, default=("host",)).permissions_of("bob")
    may = {
        selector: permissions.may_select(parse_selector(selector))
        for selector in (
            *("$presence/rooms/7/$count", "$presence/rooms/*/$count", "$presence/rooms/7/$members/*"),
            *("$presence/rooms/7/8/$count", "$presence/**", "$presence/halls/7/$count", "$gateway/nodes/n1"),
        )
    }
    assert list(may.values()) == [True, True, True, False, False, False, False]
    nobody = Policy({"guest": Role(select=(parse_template("**"),))}, default=("guest",)).permissions_of("bob")
    assert not nobody.may_select(parse_selector("$presence/rooms/7/$count"))
    anybody = OPEN.permissions_of("bob")
    assert anybody.may_select(parse_selector("$presence/rooms/7/$members/*"))
    assert not anybody.may_select(parse_selector("$gateway/nodes/n1"))
