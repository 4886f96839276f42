"""The contract of ``OriginStore``: of two values the one counts that was published later, however late it leaves."""

from __future__ import annotations

import pytest

from gateway.core.types import TopicPath
from gateway.core.zones.stream_times import MOST_TIMES
from gateway.ports import Grid, NotTaken, Published, Taken
from tests.contract.examples import ownership, publish, published, session, topic_of
from tests.contract.harness import LONG, Harness
from tests.contract.test_origins import HERE, PARTITION, TOPIC, apply, event, stamp, value_of

pytestmark = pytest.mark.promise("P18")

LATE = 0.3
"""Seconds by which an event leaves later than it was published."""
HOUR = 3_600_000
NEIGHBOUR = next(path for number in range(10_000) if topic_of(path := f"prices/{number}") == PARTITION)
"""Another topic of the same partition."""


class Publisher:
    """Publishes values of this cluster."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._owner = ownership(session())
        self._request = 0

    async def publish(self, value: str = "own", topic: str = TOPIC) -> Published:
        """Publish a value."""
        self._request += 1
        (receipt,) = await published(self._grid, publish(self._owner, self._request, topic, value.encode()))
        return receipt

    async def now(self) -> int:
        """Tell the time that a value gets which is stamped while it is published."""
        receipt = await self.publish(topic=NEIGHBOUR)
        return await time_of(self._grid, receipt, NEIGHBOUR)


async def time_of(grid: Grid, receipt: Published, topic: str = TOPIC) -> int:
    """Stamp an event, and tell its time."""
    (mark,) = await stamp(grid, receipt, topic=TopicPath(topic))
    assert mark is not None
    assert mark.stamp.cluster == HERE
    return mark.stamp.time


async def test_a_value_is_stamped_with_when_it_was_published(harness: Harness) -> None:
    grid = await harness.grid()
    publisher = Publisher(grid)
    before = await publisher.now()
    receipt = await publisher.publish()
    await grid.origins.note_times()
    after = await publisher.now()
    await harness.advance(LATE)
    assert before <= await time_of(grid, receipt) <= after
    assert await publisher.now() >= before + LATE * 1000


async def test_what_nobody_has_noted_was_published_now(harness: Harness) -> None:
    grid = await harness.grid()
    publisher = Publisher(grid)
    await grid.origins.note_times()
    receipt = await publisher.publish()
    await harness.advance(LATE)
    before = await publisher.now()
    assert await time_of(grid, receipt) >= before


async def test_a_value_that_is_newer_stays_though_it_has_no_stamp_yet(harness: Harness) -> None:
    """Nobody elsewhere has asked for it, or the link is down, when an older one comes that was late."""
    grid = await harness.grid()
    publisher = Publisher(grid)
    await publisher.publish()
    await grid.origins.note_times()
    now = await publisher.now()
    await harness.advance(LATE)
    assert await apply(grid, event("late", at=now - HOUR), event("late", at=now - HOUR, repeated=True)) == [
        NotTaken.OLDER,
        NotTaken.OLDER,
    ]
    assert await value_of(grid) == b"own"
    (result,) = await apply(grid, event("newer", at=now + 1))
    assert isinstance(result, Taken)
    assert await value_of(grid) == b"newer"


async def test_a_removal_that_is_newer_stays(harness: Harness) -> None:
    grid = await harness.grid()
    publisher = Publisher(grid)
    await publisher.publish()
    await grid.topics.remove(TOPIC, keep=LONG)
    await grid.origins.note_times()
    now = await publisher.now()
    assert await apply(grid, event("late", at=now - HOUR)) == [NotTaken.OLDER]
    assert await value_of(grid) == b""


async def test_a_value_published_on_top_of_another_one_counts_as_later(harness: Harness) -> None:
    """Whatever the clocks say, and before it is stamped."""
    grid = await harness.grid()
    publisher = Publisher(grid)
    now = await publisher.now()
    assert isinstance((await apply(grid, event("from the future", at=now + HOUR)))[0], Taken)
    await publisher.publish()
    await grid.origins.note_times()
    assert await apply(grid, event("late", at=now + HOUR)) == [NotTaken.OLDER]
    assert await value_of(grid) == b"own"


@pytest.mark.parametrize("kind", ["clean", "rolled back"])
async def test_times_go_on_in_a_grid_that_was_restarted(fragile: Harness, kind: str) -> None:
    grid = await fragile.grid()
    publisher = Publisher(grid)
    await publisher.publish()
    await grid.origins.note_times()
    snapshot = await fragile.snapshot() if kind == "rolled back" else None
    await fragile.restart(grid, snapshot=snapshot)
    await fragile.up(grid)
    before = await publisher.now()
    receipt = await publisher.publish("again")
    await grid.origins.note_times()
    after = await publisher.now()
    await fragile.advance(LATE)
    assert before <= await time_of(grid, receipt) <= after


async def test_notes_are_bounded_and_stay_in_order(harness: Harness) -> None:
    grid = await harness.grid()
    publisher = Publisher(grid)
    topics = [path for number in range(20_000) if topic_of(path := f"prices/of/{number}") == PARTITION]
    receipts = []
    for topic in topics[: MOST_TIMES + 20]:
        receipts.append((await publisher.publish(topic=topic), topic))
        await grid.origins.note_times()
    now = await publisher.now()
    times = [await time_of(grid, receipt, topic) for receipt, topic in receipts]
    assert times == sorted(times)
    assert times[-1] <= now
