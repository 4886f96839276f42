"""The contract of removing topics: everybody hears of it, nobody brings them back, and versions only rise (P6)."""

from __future__ import annotations

import pytest

from gateway.core.types import EventId, TopicPath, Version
from gateway.ports import Grid, GridUnavailable, TopicValue
from tests.contract.examples import ownership, publish, published, session, topic_of, values_of
from tests.contract.following import Follower
from tests.contract.harness import LONG, Harness

pytestmark = pytest.mark.promise("P6")

TOPIC = TopicPath("prices/ACME")
OTHER = TopicPath("prices/XYZ")
PARTITION = topic_of(TOPIC)


def value(version: int, text: bytes, topic: TopicPath = TOPIC) -> TopicValue:
    """Make a value as a node may still hold it."""
    return TopicValue(topic, Version(version), EventId(f"{PARTITION}-1-{version}"), text)


async def publish_once(grid: Grid, topic: str = TOPIC, text: bytes = b"1") -> int:
    """Publish as a session that nobody knows; returns the version."""
    (receipt,) = await published(grid, publish(ownership(session()), 1, topic, text))
    return receipt.version


async def test_a_removed_topic_has_no_value_and_its_removal_a_higher_version(harness: Harness) -> None:
    """Put a removal, with a higher version, in the place of a topic's value."""
    grid = await harness.grid()
    before = await publish_once(grid)

    removed = await grid.topics.remove(TOPIC, keep=LONG)

    assert removed is not None
    assert (removed.version, removed.duplicate) == (before + 1, False)
    (read,) = await grid.topics.read([TOPIC])
    assert read == TopicValue(TOPIC, removed.version, removed.event, b"")
    assert await values_of(grid, PARTITION) == {TOPIC: read}


async def test_every_follower_sees_the_removal(harness: Harness) -> None:
    """Every follower sees it."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await publish_once(n1)
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        removed = await n1.topics.remove(TOPIC, keep=LONG)
        assert removed is not None

        seen = await follower.has(PARTITION, 1)

    assert seen == [TopicValue(TOPIC, removed.version, removed.event, b"")]


async def test_what_is_not_there_cannot_be_removed(harness: Harness) -> None:
    """None if there is no such topic."""
    grid = await harness.grid()

    assert await grid.topics.remove(TOPIC, keep=LONG) is None


async def test_asking_again_removes_once(harness: Harness) -> None:
    """A duplicate if the topic was removed before."""
    grid = await harness.grid()
    await publish_once(grid)

    again = await harness.asked_again(grid, lambda: grid.topics.remove(TOPIC, keep=LONG))

    assert again is not None
    assert again.duplicate
    (read,) = await grid.topics.read([TOPIC])
    assert read is not None
    assert (read.version, read.event) == (again.version, again.event)


async def test_a_topic_that_is_published_again_goes_on_from_its_removal(harness: Harness) -> None:
    """A topic that is published to again goes on from the removal's version."""
    grid = await harness.grid()
    await publish_once(grid)
    removed = await grid.topics.remove(TOPIC, keep=LONG)
    assert removed is not None

    assert await publish_once(grid) == removed.version + 1
    second = await grid.topics.remove(TOPIC, keep=LONG)

    assert second is not None
    assert second.version == removed.version + 2


async def forgotten(harness: Harness, grid: Grid) -> int:
    """Remove a topic and have its removal forgotten; returns the removal's version."""
    await publish_once(grid)
    await publish_once(grid)
    removed = await grid.topics.remove(TOPIC, keep=harness.short)
    assert removed is not None
    await harness.advance(harness.short)
    await publish_once(grid, OTHER)
    await grid.topics.remove(OTHER, keep=LONG)
    assert await grid.topics.read([TOPIC]) == [None]
    return removed.version


async def test_a_forgotten_removal_is_still_below_all_that_follows(harness: Harness) -> None:
    """Also when that is forgotten."""
    grid = await harness.grid()
    removed = await forgotten(harness, grid)

    assert await publish_once(grid) > removed
    assert await publish_once(grid, "prices/NEW") > removed
    assert set(await values_of(grid, PARTITION)) == {TOPIC, OTHER, "prices/NEW"}
    page = await grid.topics.scan(PARTITION, step=None, count=100)
    assert {each.topic for each in page.values} == {TOPIC, OTHER, "prices/NEW"}


async def test_nobody_brings_a_removed_topic_back(harness: Harness) -> None:
    """A topic that was removed does not come back by it."""
    grid = await harness.grid()
    old = await publish_once(grid)
    await grid.topics.remove(TOPIC, keep=LONG)

    assert await grid.topics.restore([value(old, b"1")]) == 0
    (read,) = await grid.topics.read([TOPIC])
    assert read is not None
    assert read.value == b""


async def test_nobody_brings_a_forgotten_topic_back(harness: Harness) -> None:
    """A topic that was removed does not come back by it, though nothing of it is left."""
    grid = await harness.grid()
    removed = await forgotten(harness, grid)

    assert await grid.topics.restore([value(removed - 1, b"1"), value(removed, b"")]) == 0
    assert await grid.topics.read([TOPIC]) == [None]


async def test_a_grid_that_lost_a_removal_is_told_of_it(harness: Harness) -> None:
    """Put values back that a grid that lost writes has in an older version: a removal is one."""
    grid = await harness.grid()
    old = await publish_once(grid)

    assert await grid.topics.restore([value(old + 1, b""), value(7, b"", OTHER)]) == 1
    (read, nothing) = await grid.topics.read([TOPIC, OTHER])
    assert read is not None
    assert (read.version, read.value) == (old + 1, b"")
    assert nothing is None


async def test_a_publish_and_a_removal_at_the_same_time_both_happen(harness: Harness) -> None:
    """Each is one atomic step."""
    grid = await harness.grid()
    await publish_once(grid)
    versions = {1}
    for _ in range(5):
        versions.add(await publish_once(grid))
        removed = await grid.topics.remove(TOPIC, keep=LONG)
        assert removed is not None
        versions.add(removed.version)

    assert versions == set(range(1, 12))


async def test_a_grid_that_is_unreachable_removes_nothing(harness: Harness) -> None:
    """GridUnavailable: see the module."""
    grid = await harness.grid()
    await harness.cut(grid)

    with pytest.raises(GridUnavailable):
        await grid.topics.remove(TOPIC, keep=LONG)
    await harness.mend(grid)
