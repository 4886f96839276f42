"""The contract of how many queues a session may declare: nothing counts that is none (P15, P20)."""

from __future__ import annotations

import itertools

import pytest

from gateway.core.destinations.presence import count_topic, member_value
from gateway.core.destinations.reserved import shared_queue
from gateway.core.topics.topics import principal_partition, topic_partition
from gateway.core.types import TopicPath
from gateway.ports import (
    DurableName,
    DurableTerms,
    Enter,
    Grid,
    Handling,
    Ownership,
    QueueBounds,
    Removal,
    SessionRecord,
)
from tests.contract.examples import DEPTH, ownership, session
from tests.contract.harness import Harness

pytestmark = [pytest.mark.promise("P15"), pytest.mark.promise("P20")]

MINE = TopicPath("$temp/mine")
PARTITION = topic_partition(MINE, DEPTH)
BOUNDS = QueueBounds()


async def begin(grid: Grid) -> tuple[SessionRecord, Ownership]:
    record = session(partitions=frozenset({PARTITION}))
    await grid.sessions.create(record)
    return record, ownership(record)


async def test_what_a_session_asks_and_handles_is_no_queue(harness: Harness) -> None:
    """Found: who handled questions, was a member of trees or used durables had fewer temporary queues."""
    grid = await harness.grid()
    _, mine = await begin(grid)
    await grid.exchanges.handle(mine, PARTITION, "alice", Handling(("x/**",), 1, present=True))
    assert await grid.queues.declare(MINE, BOUNDS, owner=mine, most=1)


async def test_a_tree_of_members_is_no_queue(harness: Harness) -> None:
    grid = await harness.grid()
    record, mine = await begin(grid)
    trees = map(TopicPath, map("rooms{}".format, itertools.count()))
    tree = next(each for each in trees if topic_partition(count_topic(each), DEPTH) == PARTITION)
    await grid.presence.enter([Enter(mine, tree, member_value(record.id, "alice", {}, ()), 10)])
    assert await grid.queues.declare(MINE, BOUNDS, owner=mine, most=1)
    assert not await grid.queues.declare(TopicPath("$temp/mine/second"), BOUNDS, owner=mine, most=1), "but one is"


async def test_a_durable_subscription_is_no_queue(harness: Harness) -> None:
    grid = await harness.grid()
    _, mine = await begin(grid)
    principal = next(each for each in map(str, itertools.count()) if principal_partition(each) == PARTITION)
    name = DurableName(principal, "billing")
    await grid.durables.open(mine, name, DurableTerms("x/**", 60.0), start="", instead_of=None)
    assert await grid.queues.declare(MINE, BOUNDS, owner=mine, most=1)


async def test_a_queue_that_was_removed_under_its_consumer_does_not_count(harness: Harness) -> None:
    grid = await harness.grid()
    record, mine = await begin(grid)
    names = (shared_queue(str(number), "billing") for number in itertools.count())
    shared = next(each for each in names if topic_partition(each, DEPTH) == PARTITION)
    await grid.queues.declare(shared, BOUNDS, source="of a test")
    await grid.queues.attach(mine, shared, credit=1, bounds=BOUNDS, most_consumers=1)
    assert not await grid.queues.declare(MINE, BOUNDS, owner=mine, most=1)

    assert await grid.queues.remove(shared, force=True) is Removal.DONE

    assert await grid.queues.declare(MINE, BOUNDS, owner=mine, most=1)
    await grid.queues.declare(shared, BOUNDS, source="of a test")
    assert not [each for each in await harness.inventory() if "consumer" in each and record.id in each]
    assert await grid.queues.declare(TopicPath("$temp/mine/second"), BOUNDS, owner=mine, most=2), "it consumes no more"
