"""The contract of queues that are declared: of shared subscriptions, and for the life of a session (P14, P15)."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.destinations.reserved import may_consume, shared_queue, temporary_queue
from gateway.core.topics.topics import topic_partition
from gateway.core.types import RequestNumber, SessionId, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    Attached,
    AttachRefused,
    DeliveryTag,
    Fed,
    Fenced,
    Grid,
    NotDeclared,
    QueueBounds,
    Removal,
    SendCommand,
    SendResult,
    Sent,
    SessionRecord,
)
from tests.contract.examples import DEPTH, new_id, ownership, session
from tests.contract.harness import Harness

BOUNDS = QueueBounds()
SHARED = shared_queue("alice", "billing")
SOURCE = '["alice","billing","orders/**"]'
MANY = 100


def event(number: int) -> tuple[bytes, bytes]:
    return b'{"topic":"orders/%d"}' % number, b"%d" % number


async def attach(grid: Grid, record: SessionRecord, queue: TopicPath, credit: int = 10) -> Attached | AttachRefused:
    return await grid.queues.attach(ownership(record), queue, credit=credit, bounds=BOUNDS, most_consumers=MANY)


async def held(grid: Grid, record: SessionRecord, queue: TopicPath, credit: int = 10) -> list[bytes]:
    attached = await attach(grid, record, queue, credit)
    assert isinstance(attached, Attached)
    found = await grid.queues.read(queue, [each.message for each in attached.held])
    return [each.value for each in found if each is not None]


async def send(grid: Grid, record: SessionRecord, queue: TopicPath, request: int = 1) -> SendResult:
    command = SendCommand(ownership(record), RequestNumber(request), RequestNumber(0), queue, b"1", b"", BOUNDS)
    (result,) = await grid.queues.send([command])
    return result


@pytest.mark.promise("P14")
async def test_an_event_becomes_a_message_once_however_many_feed(harness: Harness) -> None:
    one, other = await harness.grid("n1"), await harness.grid("n2")
    assert await one.queues.feed(SHARED, BOUNDS) is None
    for _ in range(2):
        assert await one.queues.declare(SHARED, BOUNDS, source=SOURCE, fed="1-1-0")
    assert await other.queues.feed(SHARED, BOUNDS) == Fed("1-1-0", 0, SOURCE)
    events = [event(number) for number in range(3)]
    results = await asyncio.gather(
        *(grid.queues.feed(SHARED, BOUNDS, after="1-1-0", upto="1-1-3", events=events) for grid in (one, other) * 3)
    )
    assert set(results) == {Fed("1-1-3", 3, SOURCE)}
    assert await other.queues.feed(SHARED, BOUNDS, after="1-1-3", upto="1-1-4", events=[event(3)]) == Fed(
        "1-1-4", 4, SOURCE
    )
    record = session()
    assert await held(one, record, SHARED) == [b"0", b"1", b"2", b"3"]
    await one.queues.leave(ownership(record), SHARED, seen=DeliveryTag(0))
    assert await held(one, session(), SHARED, credit=2) == [b"0", b"1"], "in their places again"
    assert await harness.asked_again(
        one, lambda: one.queues.feed(SHARED, BOUNDS, after="1-1-4", upto="1-1-5", events=[event(4)])
    ) == Fed("1-1-5", 3, SOURCE)


async def test_it_begins_where_nothing_was_read(harness: Harness) -> None:
    grid = await harness.grid()
    await grid.queues.declare(SHARED, BOUNDS, source=SOURCE)
    assert await grid.queues.feed(SHARED, BOUNDS, after="", upto="1-1-1", events=[event(1)]) == Fed("1-1-1", 1, SOURCE)


async def test_it_is_there_without_messages_and_consumers_until_it_is_removed(harness: Harness) -> None:
    grid = await harness.grid()
    record = session()
    assert await attach(grid, record, SHARED) is AttachRefused.ABSENT
    assert await grid.queues.remove(SHARED) is Removal.ABSENT
    await grid.queues.declare(SHARED, BOUNDS, source=SOURCE)
    assert await held(grid, record, SHARED) == []
    assert await grid.queues.remove(SHARED) is Removal.USED
    await grid.queues.leave(ownership(record), SHARED, seen=DeliveryTag(0))
    assert await grid.queues.feed(SHARED, BOUNDS) is not None
    assert await grid.queues.remove(SHARED) is Removal.DONE
    assert await grid.queues.feed(SHARED, BOUNDS) is None
    assert not [each for each in await harness.inventory() if SHARED in each]
    # By force also from those who consume, who hold nothing then.
    await grid.queues.declare(SHARED, BOUNDS, source=SOURCE)
    await grid.queues.feed(SHARED, BOUNDS, after="", upto="1-1-1", events=[event(1)])
    assert await held(grid, record, SHARED) == [b"1"]
    assert await grid.queues.remove(SHARED, force=True) is Removal.DONE
    assert await attach(grid, record, SHARED) is AttachRefused.ABSENT


@pytest.mark.promise("P7")
async def test_a_temporary_queue_ends_with_its_session(harness: Harness) -> None:
    grid = await harness.grid()
    record, sender = session(), session()
    queue = temporary_queue(record.id, 1)
    partition = topic_partition(queue, DEPTH)
    record, sender = (session(session_id=each.id, partitions=frozenset({partition})) for each in (record, sender))
    for each in (record, sender):
        await grid.sessions.create(each)
    assert await send(grid, sender, queue) == NotDeclared(queue)
    for _ in range(2):
        assert await grid.queues.declare(queue, BOUNDS, owner=ownership(record))
    assert isinstance(await send(grid, sender, queue), Sent), "what was refused is asked again, and done now"
    assert await held(grid, record, queue) == [b"1"]
    # Consuming no more is not its end.
    await grid.queues.leave(ownership(record), queue, seen=DeliveryTag(0))
    assert await held(grid, record, queue) == [b"1"]
    await grid.queues.leave(ownership(record), queue, seen=DeliveryTag(0))
    await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)
    assert await send(grid, sender, queue, 2) == NotDeclared(queue)
    assert await attach(grid, sender, queue) is AttachRefused.ABSENT
    with pytest.raises(Fenced):
        await grid.queues.declare(queue, BOUNDS, owner=ownership(record))
    assert not [each for each in await harness.inventory() if queue in each or "consuming" in each]


def test_whose_a_queue_is_can_be_told_by_its_path() -> None:
    me, other = new_id(), SessionId("other")
    assert may_consume(SHARED, principal="alice", session=me)
    assert not may_consume(SHARED, principal="bob", session=me)
    mine = temporary_queue(me, 1)
    assert may_consume(mine, principal="alice", session=me)
    assert not may_consume(mine, principal="alice", session=other)
    assert len({shared_queue("a", "b"), shared_queue("b", "a"), mine, temporary_queue(me, 2)}) == 4
