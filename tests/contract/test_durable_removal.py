"""How shared durable subscriptions end: a life after their last use, as a whole, whoever dies in between (P14)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.app.cluster.durable_sweeper import DurableSweeper
from gateway.app.registry.durable_removal import DurableRemoval
from gateway.core.destinations.reserved import shared_queue
from gateway.core.topics.topics import principal_partition, topic_partition
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    Attached,
    DeliveryTag,
    DurableName,
    DurableTerms,
    Grid,
    GridUnavailable,
    NotOpened,
    Opened,
    QueueBounds,
    Removal,
    SessionRecord,
)
from tests.contract.examples import DEPTH, ownership, session
from tests.contract.harness import LONG, Harness

pytestmark = pytest.mark.promise("P14")

ORDERS = DurableName("alice", "orders")
QUEUE = shared_queue(*ORDERS)
PARTITION = principal_partition("alice")
BOUNDS = QueueBounds()


def terms(life: float) -> DurableTerms:
    return DurableTerms("orders/**", life, shared=True)


def user() -> SessionRecord:
    return session(partitions=frozenset({PARTITION, topic_partition(QUEUE, DEPTH)}))


def removal(grid: Grid) -> DurableRemoval:
    return DurableRemoval(grid.durables, grid.queues)


def sweeper(grid: Grid) -> DurableSweeper:
    """Make that of a node that is alone."""
    context: Any = SimpleNamespace(
        clock=None, metrics=MemoryMetrics(), log=MemoryEventLog(), grid=grid, cluster=SimpleNamespace(share=range)
    )
    return DurableSweeper(context)


async def opened(grid: Grid, record: SessionRecord, life: float, *, start: str = "1-1-1") -> bool:
    """Open it, as a node does; tells whether it was made now."""
    result = await grid.durables.open(ownership(record), ORDERS, terms(life), start=start)
    assert isinstance(result, Opened), result
    assert await grid.queues.declare(QUEUE, BOUNDS, source="of a test", fed=result.position)
    return result.created


async def consume(grid: Grid, record: SessionRecord) -> None:
    attached = await grid.queues.attach(ownership(record), QUEUE, credit=1, bounds=BOUNDS, most_consumers=9)
    assert isinstance(attached, Attached), attached


async def fed(grid: Grid) -> str | None:
    """Tell where its queue is; None if there is none."""
    found = await grid.queues.feed(QUEUE, BOUNDS)
    return None if found is None else found.position


async def cancel(grid: Grid, record: SessionRecord) -> None:
    await grid.queues.leave(ownership(record), QUEUE, seen=DeliveryTag(0))


async def end(grid: Grid, record: SessionRecord) -> None:
    await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)


async def dismiss(grid: Grid, record: SessionRecord) -> None:
    assert await grid.queues.dismiss(QUEUE, record.id)


@pytest.mark.parametrize("leave", [cancel, end, dismiss])
async def test_its_life_begins_when_the_last_consumer_has_left(
    harness: Harness, leave: Callable[[Grid, SessionRecord], Awaitable[None]]
) -> None:
    grid = await harness.grid()
    one, other, swept = user(), user(), sweeper(grid)
    for record in (one, other):
        await grid.sessions.create(record)
        await opened(grid, record, harness.roomy)
        await consume(grid, record)
    await grid.queues.feed(QUEUE, BOUNDS, after="1-1-1", upto="1-1-9", events=[(b"", b"1")])
    assert await grid.queues.last_use(QUEUE) is None
    await harness.advance(harness.roomy)
    await swept.sweep()
    assert await fed(grid) == "1-1-9", "somebody consumes"
    await harness.advance(harness.roomy)
    await cancel(grid, other)
    assert await grid.queues.last_use(QUEUE) is None
    await leave(grid, one)
    used = await grid.queues.last_use(QUEUE)
    assert used is not None
    (due,) = await grid.durables.due(PARTITION, limit=10)
    assert due.name == ORDERS, "by the time that was written when somebody looked last"
    await swept.sweep()
    assert await fed(grid) == "1-1-9", "it was used this very moment, and what it had is there"
    kept = await grid.durables.find(ORDERS)
    assert kept is not None
    assert kept.until == used + round(harness.roomy * 1000)
    assert not await opened(grid, user(), harness.roomy)
    await harness.advance(harness.roomy)
    await swept.sweep()
    assert (await grid.durables.find(ORDERS), await fed(grid)) == (None, None)


async def test_what_is_opened_is_used(harness: Harness) -> None:
    """Also if a node that found it over comes late to remove it."""
    grid = await harness.grid()
    record = user()
    await opened(grid, record, harness.roomy)
    await harness.advance(harness.roomy)
    assert await grid.queues.declare(QUEUE, BOUNDS, source="of a test", fed="1-1-1")
    assert await grid.queues.remove(QUEUE, unused=harness.roomy) is Removal.USED
    assert await grid.queues.remove(QUEUE) is Removal.DONE


@pytest.mark.parametrize("steps", [1, 2])
async def test_whoever_meets_a_half_removed_one_finishes_that(harness: Harness, steps: int) -> None:
    """It is never opened at the place where it began, with all events again: it is there as a whole, or a new one."""
    grid, other = await harness.grid("n1"), await harness.grid("n2")
    record = user()
    await opened(grid, record, harness.roomy)
    await grid.queues.feed(QUEUE, BOUNDS, after="1-1-1", upto="1-1-9")
    assert not await grid.durables.begin_removal(ORDERS, over=True)
    await harness.advance(harness.roomy)
    assert await grid.durables.begin_removal(ORDERS, over=True)
    if steps > 1:
        assert await grid.queues.remove(QUEUE, unused=harness.roomy) is Removal.DONE

    for start in (None, "1-1-5"):
        result = await other.durables.open(ownership(record), ORDERS, terms(LONG), start=start)
        assert result is NotOpened.REMOVING
    assert [each.name for each in await other.durables.due(PARTITION, limit=10)] == [ORDERS]
    assert await removal(other).finish(ORDERS)
    assert await opened(other, record, LONG, start="1-1-8")
    assert await fed(other) == "1-1-8"
    # Whoever began it goes on late, and harms nothing of the new one.
    assert not await removal(grid).finish(ORDERS)
    assert not await grid.durables.expire(ORDERS)
    assert await fed(other) == "1-1-8"
    assert not await opened(other, record, LONG)


async def test_what_is_consumed_meanwhile_is_kept_as_it_was(harness: Harness) -> None:
    grid = await harness.grid()
    record = user()
    await opened(grid, record, harness.short)
    await grid.queues.feed(QUEUE, BOUNDS, after="1-1-1", upto="1-1-9")
    await harness.advance(harness.short)
    assert await grid.durables.begin_removal(ORDERS, over=True)
    await consume(grid, record)
    assert not await removal(grid).finish(ORDERS)
    assert not await opened(grid, record, LONG)
    assert await fed(grid) == "1-1-9"


async def test_what_somebody_asked_to_remove_is_gone_as_a_whole(harness: Harness) -> None:
    grid = await harness.grid()
    record = user()
    await opened(grid, record, LONG)
    await consume(grid, record)
    assert not await removal(grid).begin_and_remove_queue(ORDERS)
    assert not await opened(grid, record, LONG), "somebody consumes"
    await cancel(grid, record)
    assert await removal(grid).begin_and_remove_queue(ORDERS)
    # Its node dies before it removes the subscription, which a sweep or an opening does then.
    assert await grid.durables.open(ownership(record), ORDERS, terms(LONG), start=None) is NotOpened.REMOVING
    assert await removal(grid).expire(ORDERS)
    assert await opened(grid, record, LONG, start="1-1-7")
    assert await fed(grid) == "1-1-7"
    assert await removal(grid).begin_and_remove_queue(ORDERS)
    assert await grid.durables.remove(ORDERS, by=user().id) is True
    assert await grid.durables.find(ORDERS) is None
    # Of one session there is nothing to be begun, and of none neither.
    alone = terms(LONG)._replace(shared=False)
    assert not await grid.durables.begin_removal(ORDERS, over=False)
    await grid.durables.open(ownership(record), ORDERS, alone, start="")
    assert not await grid.durables.begin_removal(ORDERS, over=False)
    assert await grid.durables.open(ownership(record), ORDERS, alone, start="") == Opened("", created=False)


async def test_a_sweep_that_the_grid_breaks_off_is_finished_by_the_next(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = await harness.grid()
    swept = sweeper(grid)
    record = user()
    await opened(grid, record, harness.short)
    await grid.queues.feed(QUEUE, BOUNDS, after="1-1-1", upto="1-1-9")
    await harness.advance(harness.short)

    async def unavailable(_name: DurableName) -> bool:
        raise GridUnavailable("it is away")

    with monkeypatch.context() as patched:
        patched.setattr(grid.durables, "expire", unavailable)
        await swept.sweep()
    assert await fed(grid) is None
    assert await grid.durables.open(ownership(record), ORDERS, terms(LONG), start="") is NotOpened.REMOVING
    await swept.sweep()
    assert await grid.durables.find(ORDERS) is None
    assert await opened(grid, record, LONG, start="1-1-7")
