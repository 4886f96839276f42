"""A node keeps a removed topic no longer than the grid does, and nobody who is under way misses it (P6, P20)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.app.delivery import removal_sweeper
from gateway.app.delivery.partition import NOTHING
from gateway.app.delivery.value_pages import ValuePage, ValuePages
from gateway.app.runtime.parameters import REMOVAL_GRACE
from gateway.app.session.session import Session
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from gateway.ports import PRESENCE_REMOVAL, GridUnavailable, TopicValue
from tests.support.delivery import WINDOW, DeliveryBench, Reader

pytestmark = [pytest.mark.promise("P6"), pytest.mark.promise("P20")]

LONG = WINDOW + REMOVAL_GRACE


@pytest.fixture
async def bench() -> AsyncIterator[DeliveryBench]:
    made = DeliveryBench()
    yield made
    await made.close()
    assert not made.failures


async def reading(bench: DeliveryBench, selector: str = "a/**") -> tuple[Session, Reader]:
    reader = Reader()
    session = bench.session(reader)
    await bench.subscribe(session, selector)
    await bench.turns(5)
    return session, reader


async def restored(bench: DeliveryBench, reader: Reader, selector: str = "a/**") -> Session:
    """A session that fails over to this node."""
    session = bench.session(reader)
    session.selections = session.selections.select(parse_selector(selector))
    await bench.delivery.prepare(session, session.selections)
    bench.delivery.select(session, session.selections)
    bench.delivery.feed(session)
    return session


def remove(bench: DeliveryBench, *topics: str) -> None:
    bench.publish(*topics, text=b"")


async def sweep(bench: DeliveryBench, after: float = LONG) -> None:
    bench.time.now += after
    await bench.delivery.removals.sweep()


def held(bench: DeliveryBench) -> set[str]:
    return set(bench.partition("a/1").values)


def came(reader: Reader) -> list[tuple[str, int, bool]]:
    return [(update.topic, update.version, update.removed) for _, update in reader.updates]


async def test_a_removal_that_the_grid_has_forgotten_is_let_go_of(bench: DeliveryBench) -> None:
    await reading(bench)
    topics = [f"a/{number}" for number in range(1_000)]
    bench.publish("a/stays", *topics)
    remove(bench, *topics)
    bench.grid.forget(*topics)
    await sweep(bench, after=LONG - 1)
    partition = bench.partition("a/1")
    assert len(partition.values) == 1_001, "those who are away are still to be told"
    await sweep(bench, after=1)
    assert list(partition.values) == ["a/stays"]
    assert [each for each in partition.values.newest if each is not NOTHING] == [
        partition.values.get(TopicPath("a/stays"))
    ]
    assert not partition.removals
    reader = Reader()
    await bench.all_sent(await restored(bench, reader), reader)
    assert came(reader) == [("a/stays", 1, False)]


async def test_as_many_places_are_kept_as_there_were_topics_at_once(bench: DeliveryBench) -> None:
    """Topics that are named after orders come and go for as long as the node lives."""
    await reading(bench)
    for number in range(300):
        topics = [f"a/{number}/{each}" for each in range(10)]
        bench.publish(*topics)
        remove(bench, *topics)
        bench.grid.forget(*topics)
        await sweep(bench)
    partition = bench.partition("a/1")
    assert (len(partition.values), partition.values.end, len(partition.removals)) == (0, 10, 0)


async def test_what_the_grid_remembers_is_kept_and_asked_for_again_later(bench: DeliveryBench) -> None:
    """A copy that is read now has it, too."""
    await reading(bench)
    bench.publish("a/1")
    remove(bench, "a/1")
    for _ in range(3):
        await sweep(bench)
        await sweep(bench, after=LONG / 2)
        assert "a/1" in held(bench)
        bench.time.now -= LONG / 2
    assert bench.grid.asked == [1, 1, 1]
    bench.grid.forget("a/1")
    await sweep(bench)
    assert "a/1" not in held(bench)


async def test_who_has_left_a_tree_is_forgotten_as_soon_as_by_the_grid(bench: DeliveryBench) -> None:
    """Sessions come and go all the time: some minutes are enough for those who watch."""
    await reading(bench, "$presence/rooms/**")
    topics = [f"$presence/rooms/{number}" for number in range(10)]
    for topic in topics:
        bench.publish(topic)
        remove(bench, topic)
        bench.grid.forget(topic)
    numbers = {topic_partition(TopicPath(topic), 1) for topic in topics}
    copies = [copy for number in numbers if (copy := bench.delivery.replicas.get(number)) is not None]
    await sweep(bench, after=PRESENCE_REMOVAL - 1)
    assert sum(len(copy.values) for copy in copies) == len(topics)
    await sweep(bench, after=1)
    assert sum(len(copy.values) + len(copy.departures) for copy in copies) == 0


async def test_a_topic_that_has_a_value_again_is_not_let_go_of(bench: DeliveryBench) -> None:
    _, reader = await reading(bench)
    bench.publish("a/1", "a/2")
    remove(bench, "a/1", "a/2")
    bench.grid.forget("a/1", "a/2")
    bench.publish("a/1")
    await sweep(bench)
    assert list(bench.partition("a/1").values) == ["a/1"]
    assert not bench.partition("a/1").removals
    bench.publish("a/2")
    await bench.turns(3)
    assert came(reader)[-1] == ("a/2", 3, False), "above its removal"


async def test_a_topic_that_is_published_while_the_grid_is_asked_is_not_let_go_of(bench: DeliveryBench) -> None:
    await reading(bench)
    bench.publish("a/1", "a/2")
    remove(bench, "a/1", "a/2")
    bench.grid.forget("a/1", "a/2")
    read = bench.grid.read

    async def read_slowly(topics: list[str]) -> list[object]:
        found = await read(topics)  # type: ignore[arg-type]
        bench.publish("a/1")
        bench.publish("a/2")
        remove(bench, "a/2")
        return list(found)

    bench.grid.read = read_slowly  # type: ignore[method-assign, assignment]
    await sweep(bench)
    assert set(bench.partition("a/1").values) == {"a/1", "a/2"}
    assert list(bench.partition("a/1").removals) == ["a/2"], "noted anew"


async def test_who_is_yet_to_be_sent_a_removal_is_sent_it(bench: DeliveryBench) -> None:
    """A session that fails over knows the value, and its client reads slowly."""
    topics = [f"a/{number}" for number in range(2_000)]
    bench.grid.publish(topics)
    await bench.all_sent(*await reading(bench))
    slow = Reader()
    slow.room = False
    session = await restored(bench, slow)
    await bench.turns(5)
    remove(bench, topics[0], topics[-1])
    bench.grid.forget(topics[0], topics[-1])
    await sweep(bench)
    assert topics[0] not in held(bench), "its place was passed, and the removal is an update"
    assert topics[-1] in held(bench)
    bench.publish("a/new")
    assert bench.partition("a/1").values.end == len(topics), "at the place of another one"
    await bench.all_sent(session, slow)
    newest = {topic: (version, is_removed) for topic, version, is_removed in came(slow)}
    assert len(newest) == len(topics) + 1
    assert newest[topics[0]] == newest[topics[-1]] == (2, True)
    assert newest["a/new"] == (3, False)
    await sweep(bench)
    assert topics[-1] not in held(bench)


async def test_a_new_topic_at_a_place_that_a_feed_has_yet_to_pass_is_left_to_it(bench: DeliveryBench) -> None:
    topics = [f"a/{number}" for number in range(2_000)]
    bench.grid.publish(topics)
    await reading(bench)
    remove(bench, topics[-1])
    slow = Reader()
    slow.room = False
    session = bench.session(slow)
    await bench.subscribe(session, "a/**")
    await bench.turns(5)
    bench.partition("a/1").let_go(bench.partition("a/1").values.newest[-1].topic)
    bench.publish("a/new")
    bench.publish("a/new")
    await bench.all_sent(session, slow)
    assert [each for each in came(slow) if each[0] == "a/new"] == [("a/new", 2, False)]
    assert len(slow.updates) == len(topics)


async def test_removals_that_are_read_with_a_copy_are_let_go_of_too(bench: DeliveryBench) -> None:
    bench.grid.publish(["a/1", "a/2"])
    bench.grid.publish(["a/1"], b"")
    await reading(bench)
    assert set(bench.partition("a/1").values) == {"a/1", "a/2"}
    bench.grid.forget("a/1")
    await sweep(bench)
    assert list(bench.partition("a/1").values) == ["a/2"]


async def test_the_grid_is_asked_for_a_portion_at_a_time(bench: DeliveryBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal_sweeper, "ASKED_AT_ONCE", 10)
    await reading(bench)
    topics = [f"a/{number}" for number in range(95)]
    bench.publish(*topics)
    remove(bench, *topics)
    bench.grid.forget(*topics)
    await sweep(bench)
    assert bench.grid.asked == [10] * 9 + [5]
    assert len(bench.partition("a/1").values) == 0


async def test_a_grid_that_is_away_is_asked_in_the_next_sweep(bench: DeliveryBench) -> None:
    await reading(bench)
    bench.publish("a/1")
    remove(bench, "a/1")
    bench.grid.forget("a/1")
    read = bench.grid.read

    async def refuse(_: object) -> list[object]:
        raise GridUnavailable("away")

    bench.grid.read = refuse  # type: ignore[method-assign, assignment]
    await sweep(bench)
    assert "a/1" in held(bench)
    bench.grid.read = read  # type: ignore[method-assign]
    await sweep(bench, after=0)
    assert "a/1" not in held(bench)


async def test_a_partition_that_is_refused_keeps_no_other_from_its_turn(bench: DeliveryBench) -> None:
    await reading(bench, "a/**")
    await reading(bench, "b/**")
    for topic in ("a/1", "b/1"):
        bench.publish(topic)
        remove(bench, topic)
        bench.grid.forget(topic)
    read = bench.grid.read

    async def read_but_a(topics: Sequence[TopicPath]) -> list[TopicValue | None]:
        if topics[0].startswith("a/"):
            raise GridUnavailable("a slot is half moved")
        return await read(topics)

    first, other = bench.partition("a/1"), bench.partition("b/1")
    assert list(bench.delivery.replicas).index(first) < list(bench.delivery.replicas).index(other)
    bench.grid.read = read_but_a  # type: ignore[method-assign]
    await sweep(bench)
    assert set(first.values) == {"a/1"}
    assert set(other.values) == set()


async def test_a_copy_that_is_read_again_is_right_though_places_have_changed_hands(bench: DeliveryBench) -> None:
    """Values that the grid has are not taken for lost, and those that it has lost are given back."""
    _, reader = await reading(bench)
    bench.publish("a/1", "a/2", "a/3")
    remove(bench, "a/1")
    bench.grid.forget("a/1")
    await sweep(bench)
    partition = bench.partition("a/1")
    values = bench.grid.values

    async def values_while_places_change(number: int) -> AsyncIterator[object]:
        bench.publish("a/4")  # gets the place of a/1
        partition.let_go(partition.values.newest[1].topic)
        bench.publish("a/5")  # gets that of a/2
        async with aclosing(values(number)) as pages:  # type: ignore[type-var]
            async for page in pages:
                yield page

    bench.grid.values = values_while_places_change  # type: ignore[method-assign, assignment]
    del bench.grid.values_of[partition.number]["a/3"]  # type: ignore[arg-type]
    bench.delivery.replicas.read_again(partition.number)
    await bench.turns(20)
    assert set(partition.values) == {"a/2", "a/3", "a/4", "a/5"}
    assert bench.delivery.replicas.restored == 1
    assert {topic for topic, _, _ in came(reader)} == {"a/1", *partition.values}, "all of it was sent"


async def test_pages_of_values_have_topics_that_came_to_the_place_of_another_one(bench: DeliveryBench) -> None:
    """The order of a copy's topics is kept between pages, and was brought up to date up to a place."""
    most: Any = SimpleNamespace(values=1_000, bytes=1_000_000, at_once=0)
    parameters: Any = SimpleNamespace(pages=most, topic_depth=1)
    presence: Any = SimpleNamespace(partitions=lambda _: (), watch=_nobody_watches)
    context: Any = SimpleNamespace(grid=SimpleNamespace(topics=bench.grid), parameters=parameters)
    pages = ValuePages(context, bench.delivery.replicas, presence)

    async def names() -> list[str]:
        page = ValuePage()
        await pages.find([parse_selector("a/**")], None, None, page, may_be_named=lambda _: True)
        return [each.topic for each in page.values]

    await reading(bench)
    topics = [f"a/{number}" for number in range(9)]
    bench.publish(*topics)
    assert await names() == topics
    remove(bench, *topics[2:])
    bench.grid.forget(*topics[2:])
    await sweep(bench)
    assert await names() == topics[:2]
    bench.publish("a/11", "a/5")
    assert bench.partition("a/1").values.end == len(topics)
    assert await names() == ["a/0", "a/1", "a/11", "a/5"]
    number = bench.partition("a/1").number
    pages._kept[number].cancel()
    pages._let_go(number)
    assert bench.partition("a/1").values.refilled is None
    remove(bench, "a/11")
    bench.grid.forget("a/11")
    await sweep(bench)
    bench.publish("a/3")
    assert await names() == ["a/0", "a/1", "a/3", "a/5"]
    pages._kept[number].cancel()


async def _nobody_watches(_: object) -> None:
    """Presence is no matter here."""
