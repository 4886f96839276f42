"""The contract of what is due in queues: much at once, in order, and by the newest bounds (P15, P20)."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.ports import Grid, Overflow, QueueBounds, Settlement
from tests.contract.harness import Harness
from tests.contract.queue_users import FREE, JOBS, PARTITION, User, dead, fire_all, state

pytestmark = pytest.mark.promise("P15")

CROWD = 500
"""More messages than one step of the grid looks after when their time is over."""

TINY = 0.0004
"""Seconds that Redis, which counts milliseconds, would round to none."""


async def test_nobody_is_given_what_has_expired_however_much_that_is(harness: Harness) -> None:
    """Found: what one step could not look after any more was given to whoever attached, sent or settled."""
    grid = await harness.grid()
    user, other = User(grid), User(grid)
    await user.send(*["x"] * CROWD, expires=harness.short)
    (kept,) = await user.send("kept")
    await harness.advance(harness.short)

    attached = await user.attach(credit=CROWD)

    assert [each.message for each in attached.held] == [kept]
    (fresh,) = await other.send("fresh", bounds=FREE)
    assert [each.message for each in (await user.attach(credit=CROWD)).held] == [kept, fresh]
    await fire_all(grid)
    found = await state(grid)
    assert (found.ready, found.held, found.dead) == (0, 2, CROWD)
    assert {each.reason for each in await grid.queues.dead(JOBS, count=CROWD)} == {"expired"}


async def test_what_has_expired_takes_nobodys_room(harness: Harness) -> None:
    """As many as the queue may hold have expired: the next ones are taken in."""
    grid = await harness.grid()
    user = User(grid)
    bounds = FREE._replace(messages=CROWD)
    await user.send(*["x"] * CROWD, expires=harness.short, bounds=bounds)
    await harness.advance(harness.short)
    await user.send(*["y"] * CROWD, bounds=bounds)
    assert (await state(grid)).ready == CROWD


async def test_nothing_is_dropped_for_room_that_what_has_expired_has_made(harness: Harness) -> None:
    """More was due than one step looks after, and what expired in it left room for the message that was sent."""
    grid = await harness.grid()
    user, consumer = User(grid), User(grid)
    bounds = FREE._replace(messages=300, overflow=Overflow.DROP_OLDEST)
    await user.send(*["x"] * 50, delay=harness.short / 2, expires=harness.short, bounds=bounds)
    await user.send(*["y"] * 250, delay=harness.short / 2, bounds=bounds)
    await consumer.attach(credit=100, bounds=bounds)
    await harness.advance(harness.short)
    await user.send("z", bounds=bounds)
    await fire_all(grid)
    assert Counter(each.reason for each in await grid.queues.dead(JOBS, count=CROWD)) == {"expired": 50}
    found = await state(grid)
    assert found.ready + found.held == 251


@pytest.mark.promise("P20")
async def test_what_is_held_after_its_time_keeps_nobody_busy(harness: Harness) -> None:
    """It expires when it comes back; until then there is nothing to do."""
    grid = await harness.grid()
    user = User(grid)
    await user.send("x", expires=harness.short)
    await user.attach()
    await harness.advance(harness.short)
    await fire_all(grid)
    assert await grid.queues.fire(PARTITION) == 0


async def test_dead_letters_are_in_the_order_in_which_they_died(harness: Harness) -> None:
    """Found: those of one millisecond came as 1, 10, 11, 2, and the bound kept what was older."""
    grid = await harness.grid()
    user = User(grid)
    sent = await user.send(*map(str, range(30)))
    await user.attach(credit=30)
    await user.settle(Settlement.REJECT, *sent[7:], *sent[:7])
    assert await dead(grid) == [*sent[7:], *sent[:7]]
    await user.send("1", bounds=FREE._replace(dead=5))
    await user.attach(credit=30, bounds=FREE._replace(dead=5))
    (last,) = user.held
    await user.settle(Settlement.REJECT, last)
    assert await dead(grid) == [*sent[3:7], last]


async def test_what_expires_together_dies_in_the_order_in_which_it_was_sent(harness: Harness) -> None:
    grid = await harness.grid()
    user = User(grid)
    late = await user.send(*map(str, range(12)), expires=harness.short + 0.002)
    early = await user.send(*map(str, range(12)), expires=harness.short / 2)
    await harness.advance(harness.short + 0.002)
    await fire_all(grid)
    assert await dead(grid) == [*early, *late]


async def _buried(grid: Grid, bounds: QueueBounds) -> User:
    user = User(grid)
    sent = await user.send(*["x"] * CROWD, bounds=bounds)
    await user.attach(credit=CROWD, bounds=bounds)
    await user.settle(Settlement.REJECT, *sent)
    assert len(await dead(grid)) == CROWD
    return user


@pytest.mark.parametrize("before", [0.0, 3600.0])
async def test_letters_that_are_there_go_by_the_newest_age(harness: Harness, before: float) -> None:
    """Found: each kept the age that was in force when it became one."""
    grid = await harness.grid()
    user = await _buried(grid, FREE._replace(dead_age=before))
    await user.attach(bounds=FREE._replace(dead_age=harness.short))
    await harness.advance(harness.short)
    await fire_all(grid)
    assert await dead(grid) == []
    assert (await state(grid)).dead == 0


@pytest.mark.parametrize("after", [0.0, 3600.0])
async def test_letters_stay_if_they_are_to_be_kept_longer(harness: Harness, after: float) -> None:
    grid = await harness.grid()
    user = await _buried(grid, FREE._replace(dead_age=harness.roomy))
    await user.attach(bounds=FREE._replace(dead_age=after))
    await harness.advance(harness.roomy)
    await fire_all(grid)
    assert len(await dead(grid)) == CROWD
    await user.attach(bounds=FREE._replace(dead_age=harness.short))
    await fire_all(grid)
    assert await dead(grid) == []


async def test_the_age_can_be_told_by_who_declares_the_queue(harness: Harness) -> None:
    """The newest bounds are in force, whoever told them."""
    grid = await harness.grid()
    await _buried(grid, FREE)
    assert await grid.queues.declare(JOBS, FREE._replace(dead_age=harness.short), source="of a test")
    await harness.advance(harness.short)
    await fire_all(grid)
    assert await dead(grid) == []


async def test_the_shortest_times_are_not_none(harness: Harness) -> None:
    """Found: below half a millisecond they were none on Redis, and a message that had to expire never did."""
    grid = await harness.grid()
    user = User(grid)
    bounds = FREE._replace(ack_within=TINY)
    await user.send("1", expires=TINY)
    (kept,) = await user.send("2", bounds=bounds)
    await harness.advance(harness.short)
    assert [each.message for each in (await user.attach(bounds=bounds)).held] == [kept]
    await harness.advance(harness.short)
    assert [each.redelivered for each in (await user.attach(bounds=bounds)).held] == [True]
    assert len(await dead(grid)) == 1
    await user.attach(credit=0, bounds=FREE._replace(dead_age=TINY))
    await harness.advance(harness.short)
    await fire_all(grid)
    assert await dead(grid) == []
