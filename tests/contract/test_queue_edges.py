"""The contract of queues at their edges: odd paths, large messages, many messages in one step (P7, P15, P20)."""

from __future__ import annotations

import pytest

from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from gateway.ports import Attached, DeliveryTag, Grid, QueueBounds, SessionRecord
from tests.contract.examples import DEPTH, expire_all, ownership, session
from tests.contract.harness import Harness

MANY = 100
"""Consumers that a queue may have, where it does not matter."""


async def attach(
    grid: Grid, record: SessionRecord, queue: TopicPath, credit: int, bounds: QueueBounds = QueueBounds()
) -> Attached:
    attached = await grid.queues.attach(ownership(record), queue, credit=credit, bounds=bounds, most_consumers=MANY)
    assert isinstance(attached, Attached), attached
    return attached


@pytest.mark.promise("P7")
@pytest.mark.parametrize("path", ["?", "-", "+", "!", "=", "0"])
async def test_a_session_that_ends_leaves_a_queue_whatever_its_path_is(harness: Harness, path: str) -> None:
    """What the grid notes beside the queues of a session is the path of none."""
    grid = await harness.grid()
    queue = TopicPath(path)
    partitions = frozenset({topic_partition(queue, DEPTH)})
    record = session(window=harness.short, connected=False, partitions=partitions)
    other = session(partitions=partitions)
    await grid.sessions.create(record)
    await attach(grid, record, queue, 5)
    await attach(grid, other, queue, 5)
    await harness.advance(harness.short)
    assert [each.session for each in await expire_all(grid)] == [record.id]
    assert list(await grid.queues.consumers(queue)) == [other.id]
    await grid.queues.leave(ownership(other), queue, seen=DeliveryTag(0))
    assert not {each for each in await harness.inventory() if record.id in each and "tombstone" not in each}
