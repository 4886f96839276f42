"""What zones promise (P18), by simulation: random links that break, repeat and delay, and clocks that differ."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.topics.selectors import matches, parse_selector
from gateway.core.types import TopicPath
from gateway.core.zones.compaction import compact
from gateway.core.zones.interest import ClusterInterest, HeardInterest, InterestTeller
from gateway.core.zones.routes import Arrival, Crossing
from gateway.core.zones.stamps import Seen
from tests.property.topic_strategies import all_topics, selector_texts
from tests.property.zones_model import Cluster, Link, World

LOG = "log/a"
VALUE = "value/a"


def trouble(world: World, *, minutes: int = 1) -> None:
    """Break links at random moments, and mend them; receivers may forget how far they were."""
    random = world.random
    for _ in range(20 * minutes):
        moment = random.random() * 60 * minutes
        world.later(moment, partial(break_for_a_while, world, random.choice(world.links)))


def break_for_a_while(world: World, link: Link) -> None:
    if link.up:
        world.break_(link, forget=world.random.choice([0, 0, 3]))
        world.later(world.random.random() * 2, lambda: None if link.up else world.open(link))


def publishes(world: World, topics: tuple[str, ...], *, count: int = 200, minutes: int = 1) -> None:
    """Publish at random clusters at random moments."""
    for number in range(count):
        cluster, topic = world.random.choice(world.clusters), world.random.choice(topics)
        moment = world.random.random() * 60 * minutes
        world.later(moment, partial(publish, world, cluster, topic, f"{cluster.id}-{number}"))


def publish(world: World, cluster: Cluster, topic: str, value: str) -> None:
    world.publish(cluster, topic, value)


def of_topic(cluster: Cluster, topic: str) -> Counter[str]:
    return Counter(entry.value for entry in cluster.stream if entry.topic == topic)


def ring(world: World) -> None:
    """Three zones of two members each, in a ring of joins, one of which is doubled."""
    for zone in ("x", "y", "z"):
        for number in (1, 2):
            world.cluster(f"{zone}{number}", zone, histories=[LOG], skew=world.random.randint(-5000, 5000))
    x1, x2, y1, y2, z1, z2 = world.clusters
    for cluster in world.clusters:
        cluster.selected["**"] += 1
    world.connect()
    for sender, receiver in ((x1, y1), (y2, z1), (z2, x2), (x2, y2)):
        world.join(sender, receiver, "**")
    world.run(5)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32))
def test_each_event_of_a_history_is_in_each_interested_cluster_once(seed: int) -> None:
    world = World(seed)
    ring(world)
    trouble(world)
    publishes(world, (LOG, VALUE))
    world.run(70)
    world.settle()
    published = sum((of_topic(each, LOG) for each in world.clusters), Counter[str]()).keys()
    for cluster in world.clusters:
        assert of_topic(cluster, LOG) == dict.fromkeys(published, 1), cluster.id


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32))
def test_values_converge_whatever_the_clocks_say(seed: int) -> None:
    world = World(seed)
    ring(world)
    trouble(world)
    publishes(world, (VALUE, "value/b"))
    world.run(70)
    world.settle()
    for topic in (VALUE, "value/b"):
        ends = {cluster.values[TopicPath(topic)][0] for cluster in world.clusters}
        assert len(ends) == 1, ends
        for cluster in world.clusters:
            assert max(of_topic(cluster, topic).values()) == 1, "no value is applied twice"


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32))
def test_the_value_that_was_published_last_is_left_however_long_links_were_down(seed: int) -> None:
    """Clocks agree here, and publishes are as far apart as two notes of the time."""
    world = World(seed)
    for zone in ("x", "x", "y"):
        world.cluster(f"{zone}{len(world.clusters)}", zone)
    for cluster in world.clusters:
        cluster.selected["**"] += 1
    world.connect()
    world.join(world.clusters[1], world.clusters[2], "**")
    world.join(world.clusters[2], world.clusters[1], "**")
    world.run(1)
    world.note_times(until=120)
    for link in world.links:
        downs = world.random.random() * 60
        world.later(downs, partial(break_for_a_while, world, link))
        if world.random.random() < 0.7:
            world.later(downs + 3, partial(world.break_, link))
    moment, last = 5.0, {VALUE: "", "value/b": ""}
    while moment < 100:
        topic = world.random.choice([*last])
        last[topic] = f"{moment}"
        world.later(moment, partial(publish, world, world.random.choice(world.clusters), topic, last[topic]))
        moment += 2 + world.random.random() * 10
    world.run(120)
    world.settle()
    for cluster in world.clusters:
        assert {str(topic): value for topic, (value, _) in cluster.values.items()} == last, cluster.id


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32))
def test_old_values_that_nobody_asked_for_do_not_win_when_somebody_does(seed: int) -> None:
    world = World(seed)
    a, b = world.cluster("a", "x"), world.cluster("b", "x")
    world.connect()
    world.note_times(until=100)
    moments = sorted([world.random.uniform(1, 80), world.random.uniform(1, 80)])
    older, newer = (a, b) if world.random.random() < 0.5 else (b, a)
    world.later(moments[0], partial(publish, world, older, VALUE, "older"))
    world.later(moments[1] + 1.5, partial(publish, world, newer, VALUE, "newer"))
    world.run(90)
    for cluster in (a, b):
        world.select(cluster, "value/*")
        world.run(world.now + world.random.random() * 5)
    world.settle()
    assert [each.values[TopicPath(VALUE)][0] for each in (a, b)] == ["newer", "newer"]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32))
def test_what_comes_from_a_member_goes_to_no_member(seed: int) -> None:
    world = World(seed)
    for number in range(4):
        world.cluster(f"c{number}", "x", histories=[LOG])
    world.connect()
    for cluster in world.clusters[:2]:
        world.select(cluster, "**")
    world.run(1)
    trouble(world)
    publishes(world, (LOG, VALUE))
    world.run(70)
    world.settle()
    for cluster in world.clusters:
        for entry in cluster.stream:
            if entry.arrival is Arrival.MEMBER:
                assert entry.sender == entry.origin.cluster
    for link in world.links:
        if link.receiver in world.clusters[2:]:
            assert link.events == 0, "nobody there has any interest"


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32))
def test_interest_ends_with_the_last_subscriber_and_begins_with_current_values(seed: int) -> None:
    world = World(seed)
    a, b = world.cluster("a", "x"), world.cluster("b", "x", skew=world.random.randint(-9000, 9000))
    world.connect()
    world.publish(b, VALUE, "first")
    world.run(1)
    assert not a.stream
    world.select(a, "value/*")
    world.run(5)
    assert a.values[TopicPath(VALUE)][0] == "first"
    world.select(a, "value/*", -1)
    world.run(10)
    crossed = sum(link.events for link in world.links)
    world.publish(b, VALUE, "second")
    world.run(15)
    assert sum(link.events for link in world.links) == crossed
    world.select(a, "value/*")
    trouble(world)
    world.run(90)
    world.settle()
    assert a.values[TopicPath(VALUE)][0] == "second"


def test_first_example_of_the_source() -> None:
    world = World(1)
    a, b, c = (world.cluster(each, "zone A", histories=[LOG]) for each in "ABC")
    d, e, f = (world.cluster(each, "zone B", histories=[LOG]) for each in "DEF")
    world.select(a, LOG)
    world.select(e, LOG)
    world.connect()
    world.join(d, b, LOG)
    world.run(1)
    world.publish(f, LOG, "message")
    world.settle()
    found = {each.id: [(x.arrival, x.sender) for x in each.stream] for each in (a, b, c, d, e, f)}
    assert found == {
        "F": [(Arrival.CLIENT, None)],
        "D": [(Arrival.MEMBER, "F")],
        "E": [(Arrival.MEMBER, "F")],
        "B": [(Arrival.JOIN, "D")],
        "A": [(Arrival.MEMBER, "B")],
        "C": [],
    }
    assert {link.name: link.events for link in world.links if link.events} == {"F>D": 1, "F>E": 1, "D=>B": 1, "B>A": 1}


def test_second_example_of_the_source() -> None:
    world = World(2)
    a, b, c = (world.cluster(each, "zone A", histories=[LOG]) for each in "ABC")
    d, e, f = (world.cluster(each, "zone B", histories=[LOG]) for each in "DEF")
    g, h, i = (world.cluster(each, "zone C", histories=[LOG]) for each in "GHI")
    for cluster in (a, b, f, h):
        world.select(cluster, LOG)
    world.connect()
    world.join(g, c, LOG)
    world.join(g, d, LOG)
    world.run(1)
    world.publish(i, LOG, "message")
    world.settle()
    found = {each.id: [(x.arrival, x.sender) for x in each.stream] for each in world.clusters}
    assert found == {
        "I": [(Arrival.CLIENT, None)],
        "H": [(Arrival.MEMBER, "I")],
        "G": [(Arrival.MEMBER, "I")],
        "C": [(Arrival.JOIN, "G")],
        "D": [(Arrival.JOIN, "G")],
        "A": [(Arrival.MEMBER, "C")],
        "B": [(Arrival.MEMBER, "C")],
        "F": [(Arrival.MEMBER, "D")],
        "E": [],
    }
    assert e.stream == []
    events = {link.name: link.events for link in world.links if link.events}
    assert events == dict.fromkeys(("I>G", "I>H", "G=>C", "G=>D", "C>A", "C>B", "D>F"), 1)


def test_a_circle_of_joins_ends() -> None:
    world = World(3)
    a, b, c = (world.cluster(each, each, histories=[LOG]) for each in "abc")
    for sender, receiver in ((a, b), (b, c), (c, a)):
        world.join(sender, receiver, "**")
    world.run(1)
    for number in range(10):
        world.publish(world.clusters[number % 3], LOG, str(number))
        world.publish(world.clusters[number % 3], "$gateway/x", str(number))
    world.settle()
    for cluster in world.clusters:
        assert of_topic(cluster, LOG) == {str(number): 1 for number in range(10)}
        assert all(entry.arrival is Arrival.CLIENT for entry in cluster.stream if entry.topic.startswith("$"))
    assert all(link.crossing is Crossing.JOIN for link in world.links)


@given(st.lists(st.integers(1, 60), max_size=80))
def test_ranges_take_each_version_once(versions: list[int]) -> None:
    seen, taken = Seen(), set[int]()
    for version in versions:
        if seen.take(version):
            assert version not in taken
            taken.add(version)
        assert version in taken or len(seen.ranges) > 10, "it is refused only if it is there, or there are many holes"
        assert Seen.parse(str(seen)) == seen
        assert all(first <= last for first, last in seen.ranges)
        assert all(last + 1 < first for (_, last), (first, _) in zip(seen.ranges, seen.ranges[1:], strict=False)), (
            "ranges do not touch"
        )


@given(st.lists(selector_texts(), max_size=12), st.integers(1, 6))
def test_what_is_compacted_matches_no_less(texts: list[str], most: int) -> None:
    selectors = [parse_selector(text) for text in texts]
    compacted = compact(selectors, most=most)
    assert len(compacted) <= most
    for topic in all_topics(max_segments=4):
        if not topic.startswith("$") and any(matches(each, topic) for each in selectors):
            assert any(matches(each, topic) for each in compacted), topic


@given(st.lists(st.tuples(st.sampled_from("nm"), st.lists(selector_texts(), max_size=5)), max_size=12))
def test_what_is_heard_is_the_union_of_what_nodes_tell(steps: list[tuple[str, list[str]]]) -> None:
    interest, teller, heard = ClusterInterest[str](), InterestTeller(), HeardInterest(depth=1, most=1000)
    heard.whole(0, ())
    told: dict[str, set[str]] = {}
    for node, texts in steps:
        selectors = [parse_selector(each) for each in texts if not each.startswith("$")]
        interest.put(node, selectors)
        told[node] = {each.text for each in selectors}
        change = teller.change(interest.selectors)
        if change is not None:
            assert heard.change(change) is not None
        assert {each.text for each in heard.selectors} == set().union(*told.values())
        assert heard.agrees(teller.digest())


def test_a_change_that_was_missed_is_noticed() -> None:
    teller, heard = InterestTeller(), HeardInterest(depth=1, most=3)
    heard.whole(0, ())
    teller.change([parse_selector("a")])
    second = teller.change([parse_selector("a"), parse_selector("b/**")])
    assert second is not None
    assert heard.change(second) is None
    assert not heard.agrees(teller.digest())
    assert heard.whole(teller.revision, teller.selectors) == teller.selectors
    assert heard.agrees(teller.digest())
    with pytest.raises(ValueError, match="more than the 3"):
        heard.whole(9, [parse_selector(f"a{number}") for number in range(4)])


def test_a_hundred_thousand_selectors_become_few_beginnings() -> None:
    selectors = [parse_selector(f"prices/{n % 500}/{n}") for n in range(100_000)] + [parse_selector("news/*")]
    compacted = compact(selectors)
    assert {each.text for each in compacted} == {f"prices/{n}/**" for n in range(500)} | {"news/*"}
