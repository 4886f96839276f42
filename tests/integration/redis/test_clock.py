"""The clock of Redis is set under living nodes: windows and leases go on as before (P7, P17)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from gateway.adapters.redis import RedisGrid, scripts
from gateway.adapters.redis.write_gate import boot_clock
from gateway.catalogue.log_events import GRID_CLOCK_STEPPED
from gateway.core.topics.topics import SESSION_PARTITIONS, topic_partition
from gateway.core.types import Attempt, Epoch, NodeRef, RequestNumber, SessionId, TokenGeneration, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    Claimed,
    Fenced,
    GridUnavailable,
    LeaseLost,
    LeaseTable,
    Master,
    MasterWish,
    Ownership,
    QueueBounds,
    SendCommand,
    Sent,
    SessionChanges,
    SessionRecord,
)
from tests.integration.redis.support import N1, N2, PARTITION, Bench, Publisher, ownership_of, session_record
from tests.support.clock import eventually
from tests.support.redis_clock import ClockedRedis

pytestmark = pytest.mark.promise("P7", "P17")

WINDOW: Final = 60.0
LEASE: Final = 10.0
QUEUE: Final = TopicPath("jobs/a")

STEP: Final = 90
"""Seconds by which the clock is set: longer than the window and the lease."""


class Node:
    """A grid of one node, whose own clock can stand still."""

    def __init__(self, bench: Bench, ref: NodeRef) -> None:
        self.ref = ref
        self.behind = 0.0
        self.grid: RedisGrid = bench.unstarted(ref, clock=lambda: boot_clock() - self.behind)

    @property
    def shift(self) -> float:
        """Seconds by which it takes the clock of Redis to be ahead."""
        return self.grid._connection.clock.shift / 1000

    async def join(self) -> None:
        await self.grid.start()
        await self.grid.nodes.join(self.ref, lease=LEASE)
        await self.renew()
        await self.renew()

    async def renew(self) -> LeaseTable:
        return await self.grid.nodes.renew(self.ref, lease=LEASE)

    async def expired(self) -> list[SessionId]:
        return [
            each.session
            for partition in range(SESSION_PARTITIONS)
            for each in await self.grid.sessions.expire(partition, limit=100)
        ]


@pytest.fixture
async def redis() -> AsyncIterator[ClockedRedis]:
    async with ClockedRedis() as server:
        yield server


@pytest.fixture
async def clocked(redis: ClockedRedis) -> AsyncIterator[Bench]:
    bench = Bench(redis)
    yield bench
    await bench.close()


@pytest.mark.parametrize("step", [STEP, -STEP])
async def test_a_step_of_the_clock_ends_nothing(redis: ClockedRedis, clocked: Bench, step: int) -> None:
    n1, n2 = Node(clocked, N1), Node(clocked, N2)
    await n1.join()
    await n2.join()
    away = session_record(window=WINDOW)
    await n1.grid.sessions.create(away)
    await n1.grid.sessions.disconnect(ownership_of(away))
    redis.set_clock(step)
    # Before anybody has found out.
    assert await n2.expired() == []
    assert await n2.grid.nodes.take_over(N1, by=N2, within=LEASE) is None
    # Each finds out when it renews; one of them records it.
    for node in (n1, n2, n1, n2):
        table = await node.renew()
        assert (table.alive, table.expired) == ((N1, N2), ())
    assert n1.shift == n2.shift == pytest.approx(step, abs=1)
    assert len(clocked.log.of(GRID_CLOCK_STEPPED)) == 1
    assert await n2.expired() == []
    back = await n2.grid.sessions.claim(away.id, by=N2, token_generation=TokenGeneration(1), attempt=Attempt(1))
    assert isinstance(back, Claimed)
    # A window that begins now has its length as well: one of none is over at once, another is not.
    none, long = session_record(window=0.0), session_record(window=WINDOW)
    for each in (none, long):
        await n1.grid.sessions.create(each)
        await n1.grid.sessions.disconnect(ownership_of(each))
    assert await n2.expired() == [none.id]
    # It is set right again.
    redis.set_clock(0)
    for node in (n2, n1):
        assert (await node.renew()).expired == ()
    assert n1.shift == n2.shift == pytest.approx(0, abs=1)
    assert await n2.expired() == []


@pytest.mark.promise("P5")
async def test_a_publish_that_was_under_way_is_not_executed_again_once_its_session_has_ended(
    redis: ClockedRedis, clocked: Bench
) -> None:
    """P5: a node was suspended, its session went elsewhere and ended; what kept its publish out went with the clock."""
    n1, n2 = Node(clocked, N1), Node(clocked, N2)
    await n1.join()
    await n2.join()
    record = session_record(window=1.0)
    await n1.grid.sessions.create(record)
    await n1.grid.sessions.change(ownership_of(record), SessionChanges(publish_partitions=frozenset({PARTITION})))
    publisher = Publisher(n1.grid, session=record.id)
    await publisher.publish(1)
    await n2.grid.sessions.end(ownership_of(record), reason=ErrorCode.SESSION_CLOSED)
    for step in (0, STEP):
        redis.set_clock(step)
        (late,) = await n1.grid.topics.publish([publisher.command(1)])
        assert isinstance(late, Fenced)


async def test_a_node_whose_own_clock_stood_still_sets_nobodys(clocked: Bench) -> None:
    """P17: a false suspicion changes nothing. A machine that was suspended finds the clock of Redis ahead."""
    n1, n2 = Node(clocked, N1), Node(clocked, N2)
    await n1.join()
    await n2.join()
    n1.behind = STEP
    # As if n1 had joined, and n2 had found that the clock fits, after as long as n1's stood still.
    with pytest.raises(LeaseLost):
        await _expire_and_renew(clocked, n1)
    assert n1.shift == n2.shift == 0
    assert clocked.log.of(GRID_CLOCK_STEPPED) == []
    await n1.grid.nodes.join(N1, lease=LEASE)
    assert (await n2.renew()).alive == (N1, N2)
    assert (await n1.renew()).alive == (N1, N2)


async def _expire_and_renew(bench: Bench, node: Node) -> None:
    """The lease of a node is over, by the right time, and was taken over; it wakes up and renews it."""
    await bench.server.call("ZREM", f"{bench.prefix}:{{nodes}}:leases", str(node.ref))
    await node.renew()


async def test_a_newcomer_goes_by_the_time_of_the_grid(redis: ClockedRedis, clocked: Bench) -> None:
    """Also in a grid whose clock was set before it came."""
    n1, newcomer = Node(clocked, N1), Node(clocked, N2)
    await n1.join()
    redis.set_clock(STEP)
    await n1.renew()
    await newcomer.join()
    table = await newcomer.renew()
    assert (table.alive, table.expired) == ((N1, N2), ())
    assert newcomer.shift == n1.shift == pytest.approx(STEP, abs=1)


@pytest.mark.parametrize("step", [STEP, -STEP])
async def test_a_newcomer_that_has_not_seen_it_contradicts_nobody(
    redis: ClockedRedis, clocked: Bench, step: int
) -> None:
    """P7: found by chaos. The clock was set right; a node began before another found out, and took it for right."""
    n1, newcomer = Node(clocked, N1), Node(clocked, N2)
    await n1.join()
    away = session_record(window=WINDOW)
    await n1.grid.sessions.create(away)
    await n1.grid.sessions.disconnect(ownership_of(away))
    redis.set_clock(step)
    await newcomer.join()
    # A time before the last renewal shows that the clock was set back; of one long after it, it knows nothing else.
    assert newcomer.shift == (0 if step > 0 else pytest.approx(step, abs=1))
    for node in (n1, newcomer, n1):
        await _renewed(node)
    table = await _renewed(newcomer)
    assert (table.alive, table.expired) == ((N1, N2), ())
    assert n1.shift == newcomer.shift == pytest.approx(step, abs=1)
    assert len(clocked.log.of(GRID_CLOCK_STEPPED)) == 1
    assert await n1.expired() == await newcomer.expired() == []


async def _away(node: Node) -> SessionRecord:
    """Have a session of a node whose window has begun."""
    record = session_record(window=WINDOW)
    await node.grid.sessions.create(record)
    await node.grid.sessions.disconnect(ownership_of(record))
    return record


async def test_a_newcomer_ends_nothing_by_a_clock_that_others_have_yet_to_find_set(
    redis: ClockedRedis, clocked: Bench
) -> None:
    """P7, P17: found by chaos. It reached the grid between the setting and the next renewal of another node."""
    n1, newcomer = Node(clocked, N1), Node(clocked, N2)
    await n1.join()
    assert (await n1.grid.nodes.renew(N1, lease=LEASE, wish=MasterWish.TAKE)).master == Master(N1, 1)
    away = await _away(n1)
    redis.set_clock(STEP)
    await newcomer.grid.start()
    await newcomer.grid.nodes.join(N2, lease=LEASE)
    assert newcomer.grid.nodes.time_in_doubt()
    table = await newcomer.grid.nodes.renew(N2, lease=LEASE, wish=MasterWish.TAKE)
    assert table.master == Master(N1, 1)
    assert await newcomer.expired() == []
    assert await newcomer.grid.nodes.take_over(N1, by=N2, within=LEASE) is None
    for node in (n1, newcomer, n1, newcomer):
        table = await _renewed(node)
    assert (table.alive, table.expired) == ((N1, N2), ())
    assert not newcomer.grid.nodes.time_in_doubt(), "it goes by what another one knew"
    assert await newcomer.expired() == []
    back = await newcomer.grid.sessions.claim(away.id, by=N2, token_generation=TokenGeneration(1), attempt=Attempt(1))
    assert isinstance(back, Claimed)


@pytest.mark.promise("P15")
async def test_a_newcomer_fires_no_timer_of_a_queue_by_such_a_clock(redis: ClockedRedis, clocked: Bench) -> None:
    """Neither when it looks for what is due, nor on the way when it sends."""
    n1, newcomer = Node(clocked, N1), Node(clocked, N2)
    await n1.join()

    async def send(node: Node, number: int, *, expires: float) -> None:
        numbered = RequestNumber(number), RequestNumber(0)
        sender = Ownership(SessionId("sender"), N1, Epoch(1))
        (sent,) = await node.grid.queues.send(
            [SendCommand(sender, *numbered, QUEUE, b"1", b"", QueueBounds(), expires=expires)]
        )
        assert isinstance(sent, Sent)

    await send(n1, 1, expires=WINDOW)
    redis.set_clock(STEP)
    await newcomer.grid.start()
    await newcomer.grid.nodes.join(N2, lease=LEASE)
    assert await newcomer.grid.queues.fire(topic_partition(QUEUE, 1)) == 0
    await send(newcomer, 2, expires=0.0)
    assert await newcomer.grid.queues.dead(QUEUE, count=10) == []


async def test_a_newcomer_that_nobody_contradicts_within_a_lease_ends_what_is_over(
    redis: ClockedRedis, clocked: Bench
) -> None:
    """All nodes were down for longer than a window."""
    n1, newcomer = Node(clocked, N1), Node(clocked, N2)
    await n1.join()
    away = await _away(n1)
    await n1.grid.close()
    redis.set_clock(STEP)
    newcomer.behind = 0.0
    await newcomer.join()
    assert await newcomer.expired() == []
    newcomer.behind = -LEASE
    redis.set_clock(STEP + round(LEASE))
    await _renewed(newcomer)
    assert not newcomer.grid.nodes.time_in_doubt()
    assert await newcomer.expired() == [away.id]
    assert await newcomer.grid.nodes.take_over(N1, by=N2, within=LEASE) is not None


async def test_a_newcomer_finds_by_itself_that_the_clock_was_set_back(redis: ClockedRedis, clocked: Bench) -> None:
    """The time of the grid is that of the last renewal at least: a window that begins now does not end too early."""
    n1, newcomer = Node(clocked, N1), Node(clocked, N2)
    await n1.join()
    redis.set_clock(-STEP)
    await newcomer.grid.start()
    await newcomer.grid.nodes.join(N2, lease=LEASE)
    assert not newcomer.grid.nodes.time_in_doubt()
    await _away(newcomer)
    for node in (n1, newcomer, n1, newcomer):
        table = await node.renew()
        assert (table.alive, table.expired) == ((N1, N2), ())
    assert await n1.expired() == await newcomer.expired() == []
    assert n1.shift == newcomer.shift == pytest.approx(-STEP, abs=2)
    assert len(clocked.log.of(GRID_CLOCK_STEPPED)) == 1


async def _renewed(node: Node) -> LeaseTable:
    """Renew a lease; one that was taken by a time that has turned out to be wrong may have to be taken once more."""
    try:
        return await node.renew()
    except LeaseLost:
        await node.grid.nodes.join(node.ref, lease=LEASE)
        return await node.renew()


async def test_an_emptied_grid_is_told_what_its_clock_was_set_by(redis: ClockedRedis, clocked: Bench) -> None:
    n1 = Node(clocked, N1)
    await n1.join()
    redis.set_clock(STEP)
    await n1.renew()
    await redis.call("FLUSHALL")
    with pytest.raises(GridUnavailable, match="emptied"):
        await n1.renew()
    await eventually(lambda: n1.grid.generation == 2, message="adopted again")
    with pytest.raises(LeaseLost):
        await n1.renew()
    shift = await redis.call("HGET", f"{clocked.prefix}:{{nodes}}:grid", "shift")
    assert int(shift) / 1000 == pytest.approx(STEP, abs=1)
    assert len(clocked.log.of(GRID_CLOCK_STEPPED)) == 1, "the clock was set once"


@pytest.mark.parametrize("is_executed", [True, False], ids=["executed", "not executed"])
async def test_a_step_is_told_of_though_the_answer_to_its_record_was_lost(
    redis: ClockedRedis, clocked: Bench, monkeypatch: pytest.MonkeyPatch, is_executed: bool
) -> None:
    """All others find it recorded, and take it for told."""
    n1, n2 = Node(clocked, N1), Node(clocked, N2)
    await n1.join()
    await n2.join()
    batcher = n1.grid._connection.batcher
    call = batcher.call

    async def lose(command: Any, **how: Any) -> Any:
        if command[1] != scripts.CLOCK_SET.sha.encode():
            return await call(command, **how)
        if is_executed:
            await call(command, **how)
        raise GridUnavailable("no answer in time")

    monkeypatch.setattr(batcher, "call", lose)
    redis.set_clock(STEP)
    with pytest.raises(GridUnavailable):
        await n1.renew()
    monkeypatch.undo()
    await n2.renew()
    await n1.renew()
    await n1.renew()
    assert [round(float(str(each["shift_seconds"]))) for each in clocked.log.of(GRID_CLOCK_STEPPED)] == [STEP]
    assert (round(n1.shift), round(n2.shift)) == (STEP, STEP)
