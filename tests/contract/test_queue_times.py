"""The contract of what is due in queues: much at once, in order, and by the newest bounds (P15, P20)."""

from __future__ import annotations

import pytest

from gateway.ports import Grid, MessageId
from tests.contract.harness import Harness
from tests.contract.queue_users import FREE, JOBS, PARTITION, User, state

pytestmark = pytest.mark.promise("P15")

CROWD = 500
"""More messages than one step of the grid looks after when their time is over."""


async def fire_all(grid: Grid) -> None:
    """Do all that is due."""
    for _ in range(CROWD):
        if not await grid.queues.fire(PARTITION):
            return
    pytest.fail("there is always something due")


async def dead(grid: Grid) -> list[MessageId]:
    """Name the dead letters, the oldest first."""
    return [each.message.id for each in await grid.queues.dead(JOBS, count=2 * CROWD)]


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
