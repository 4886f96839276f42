"""The contract of values that end: by the time of the grid, once, for everybody, and never a later value (P6)."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.destinations.limits import HistoryLimits
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import NEVER, Grid, HistoryQuestion, Published, StagedPublish, TopicValue
from tests.contract.examples import ownership, publish, published, session, topic_of, values_of
from tests.contract.following import Follower
from tests.contract.harness import LONG, Harness

pytestmark = pytest.mark.promise("P6")

TOPIC = TopicPath("prices/ACME")
OTHER = TopicPath("prices/XYZ")
PARTITION = topic_of(TOPIC)
KEPT = HistoryLimits()


async def publish_for(
    grid: Grid, ttl: float, text: bytes = b"1", topic: str = TOPIC, history: HistoryLimits | None = None
) -> Published:
    """Publish a value that ends, as a session that nobody knows."""
    command = publish(ownership(session()), 1, topic, text)._replace(ttl=ttl, history=history)
    (receipt,) = await published(grid, command)
    return receipt


async def end_all(grid: Grid, history: HistoryLimits | None = None) -> int:
    """End what is due; returns how many values have ended."""
    due = await grid.topics.due(range(64), limit=100)
    return await grid.topics.end([(each, history) for each in due], keep=LONG)


async def read(grid: Grid, topic: TopicPath = TOPIC) -> TopicValue:
    """Read one topic that is there."""
    (value,) = await grid.topics.read([topic])
    assert value is not None
    return value


async def test_a_value_ends_when_its_time_is_over_and_not_before(harness: Harness) -> None:
    grid = await harness.grid()
    receipt = await publish_for(grid, harness.roomy)

    assert await grid.topics.due(range(64), limit=100) == []
    assert await grid.topics.end([(TOPIC, None)], keep=LONG) == 0, "asked too early"
    assert (await read(grid)).value == b"1"
    await harness.advance(harness.roomy)
    assert list(await grid.topics.due([PARTITION], limit=100)) == [TOPIC]
    assert await end_all(grid) == 1

    ended = await read(grid)
    assert (ended.value, ended.version, ended.ends) == (b"", receipt.version + 1, NEVER)
    assert await end_all(grid) == 0


async def test_everybody_can_tell_when_it_ends(harness: Harness) -> None:
    """Whoever follows the stream, reads the values or the stream again, may have to put the value back."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    async with Follower(n2) as follower:
        position = await n2.topics.position(PARTITION)
        await follower.follow_from_here(PARTITION)
        receipt = await publish_for(n1, LONG)
        await publish_for(n1, 0, topic=OTHER)
        seen = await follower.has(PARTITION, 2)

    assert [(each.topic, each.event, each.ends > 0) for each in seen] == [
        (TOPIC, receipt.event, True),
        (OTHER, seen[1].event, False),
    ]
    assert await read(n2) == seen[0]
    assert await values_of(n2, PARTITION) == {each.topic: each for each in seen}
    again = await n2.topics.between(PARTITION, position, await n2.topics.position(PARTITION))
    assert list(again or ()) == list(seen)
    page = await n2.topics.scan(PARTITION, step=None, count=100)
    assert sorted(page.values) == sorted(seen)


async def test_followers_see_the_end(harness: Harness) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await publish_for(n1, harness.short)
    await harness.advance(harness.short)
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        assert await end_all(n1) == 1
        seen = await follower.has(PARTITION, 1)

    assert seen == [await read(n1)]
    assert seen[0].value == b""


@pytest.mark.parametrize("ttl", [0.0, LONG])
async def test_a_later_value_is_left_alone(harness: Harness, ttl: float) -> None:
    """Never a value that was published later, whether it ends, too."""
    grid = await harness.grid()
    await publish_for(grid, harness.short)
    receipt = await publish_for(grid, ttl, b"2")
    await harness.advance(harness.short)

    assert await grid.topics.end([(TOPIC, None)], keep=LONG) == 0
    assert await end_all(grid) == 0
    value = await read(grid)
    assert (value.value, value.event, value.ends > 0) == (b"2", receipt.event, ttl > 0)
    assert await grid.topics.due(range(64), limit=100) == []


async def test_nodes_that_ask_at_the_same_time_end_it_once(harness: Harness) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    receipt = await publish_for(n1, harness.short)
    await harness.advance(harness.short)

    ended = await asyncio.gather(*(each.topics.end([(TOPIC, None)], keep=LONG) for each in (n1, n2, n1, n2)))

    assert sum(ended) == 1
    assert (await read(n1)).version == receipt.version + 1


async def test_asking_again_ends_it_once(harness: Harness) -> None:
    """Asking again does no harm."""
    grid = await harness.grid()
    receipt = await publish_for(grid, harness.short)
    await harness.advance(harness.short)

    assert await harness.asked_again(grid, lambda: grid.topics.end([(TOPIC, None)], keep=LONG)) == 0
    assert (await read(grid)).version == receipt.version + 1


async def test_a_publish_that_is_repeated_does_not_live_longer(harness: Harness) -> None:
    grid = await harness.grid()
    command = publish(ownership(session()), 1, TOPIC, b"1")._replace(ttl=LONG)
    await published(grid, command)
    before = await read(grid)
    await harness.advance(harness.short)

    (again,) = await published(grid, command)

    assert again.duplicate
    assert await read(grid) == before


async def test_a_value_that_is_put_back_ends_when_it_would_have(harness: Harness) -> None:
    """It ends when it would have."""
    grid = await harness.grid()
    await publish_for(grid, harness.short)
    held = await read(grid)
    lost = held._replace(topic=OTHER)

    assert await grid.topics.restore([lost]) == 1
    assert (await read(grid, OTHER)).ends == held.ends
    await harness.advance(harness.short)
    assert await end_all(grid) == 2
    assert (await read(grid, OTHER)).value == b""


async def test_a_removed_value_does_not_end_again(harness: Harness) -> None:
    grid = await harness.grid()
    await publish_for(grid, harness.short)
    removed = await grid.topics.remove(TOPIC, keep=LONG)
    await harness.advance(harness.short)

    assert await end_all(grid) == 0
    assert removed is not None
    assert (await read(grid)).version == removed.version


@pytest.mark.promise("P14")
async def test_the_end_is_an_event_of_the_history(harness: Harness) -> None:
    """A history goes on, with the end as an event."""
    grid = await harness.grid()
    first = await publish_for(grid, 0, b"1", history=KEPT)
    second = await publish_for(grid, harness.short, b"2", history=KEPT)
    await harness.advance(harness.short)
    assert await end_all(grid, KEPT) == 1
    third = await read(grid)
    fourth = await publish_for(grid, LONG, b"4", history=KEPT)

    (page,) = await grid.history.read(PARTITION, [HistoryQuestion(TOPIC, None, 100)])

    assert [(each.event, each.value) for each in page.events] == [
        (first.event, b"1"),
        (second.event, b"2"),
        (third.event, b""),
        (fourth.event, b"4"),
    ]
    (after,) = await grid.history.read(PARTITION, [HistoryQuestion(TOPIC, second.event, 100)])
    assert [each.event for each in after.events] == [third.event, fourth.event]
    assert not after.has_gap


async def test_the_room_of_a_value_that_has_ended_is_there_again(harness: Harness) -> None:
    """Its bytes count as long as it is there (P20)."""
    grid = await harness.grid()
    await publish_for(grid, harness.short, b"1" * 1_000)
    room = 1_500
    full = publish(ownership(session()), 1, OTHER, b"2" * 1_000)._replace(most_bytes=room)
    (refused,) = await grid.topics.publish([full])
    assert not isinstance(refused, Published)
    await harness.advance(harness.short)
    await end_all(grid)

    again = full._replace(ownership=ownership(session()))
    (receipt,) = await grid.topics.publish([again])

    assert isinstance(receipt, Published)


@pytest.mark.promise("P16")
async def test_a_value_of_a_transaction_lives_from_the_commit_on(harness: Harness) -> None:
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    owner = ownership(record)
    one, two, three = map(RequestNumber, (1, 2, 3))
    assert await grid.transactions.begin(owner, one, settled=RequestNumber(0)) is None
    await publish_for(grid, harness.roomy, topic=OTHER)
    await grid.transactions.stage(owner, one, two, StagedPublish(TOPIC, b"1", ttl=harness.roomy))
    await harness.advance(harness.short)
    await grid.transactions.commit(owner, one, three, settled=RequestNumber(0))

    staged, before = await read(grid), await read(grid, OTHER)
    assert staged.ends >= before.ends + harness.short * 1000
    await harness.advance(harness.roomy)
    assert await end_all(grid) == 2


async def test_many_values_of_all_partitions_are_named(harness: Harness) -> None:
    """Those due longest first in each partition, and so many at most."""
    grid = await harness.grid()
    topics = [f"end{number}/{each}" for number in range(8) for each in range(5)]
    for topic in topics:
        await publish_for(grid, harness.short, topic=topic)
    await harness.advance(harness.short)

    assert set(await grid.topics.due(range(64), limit=100)) == set(topics)
    assert len(await grid.topics.due(range(64), limit=2)) < len(topics)
    assert await end_all(grid) == len(topics)
    assert await grid.topics.due(range(64), limit=100) == []
