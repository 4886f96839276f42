"""What older nodes have written of queues, and go on to write while nodes are replaced, is read as it was meant."""

from __future__ import annotations

import pytest

from gateway.ports import QueueFull, Settlement
from tests.contract.queue_users import FREE, JOBS, User, dead, fire_all
from tests.integration.redis.support import Bench

pytestmark = pytest.mark.promise("P15")


async def test_dead_letters_without_a_fraction_stay_in_their_places(bench: Bench) -> None:
    """Their timers say when they were to go by the age of then; the bounds of now count."""
    user = User(await bench.grid())
    bounds = FREE._replace(dead_age=3600.0)
    sent = await user.send(*"abcd", bounds=bounds)
    await user.attach(bounds=bounds)
    await user.settle(Settlement.REJECT, *sent[:3])
    letters = next(each for each in await bench.server.keys(bench.prefix) if each.endswith(f"dead:{JOBS}"))
    since = [each.since for each in await user.grid.queues.dead(JOBS, count=3)]
    for letter in sent[:3]:
        await bench.server.call("ZADD", letters, "XX", str(since[0]), str(letter))
    await user.settle(Settlement.REJECT, sent[3])
    assert await dead(user.grid) == sent
    assert all(isinstance(each.since, int) for each in await user.grid.queues.dead(JOBS, count=9))
    long_ago = since[0] - 1_000_000
    await bench.server.call("ZADD", letters, "XX", str(long_ago), str(sent[0]))
    await user.attach(bounds=FREE._replace(dead_age=900.0))
    await fire_all(user.grid)
    assert await dead(user.grid) == sent[1:]


@pytest.mark.promise("P5")
async def test_a_refusal_that_an_older_node_noted_is_known(bench: Bench) -> None:
    user = User(await bench.grid())
    await user.send("1")
    receipts = next(each for each in await bench.server.keys(bench.prefix) if "receipts" in each)
    await bench.server.call("RPUSH", receipts, "1 2 0 - 0")
    assert await user.grid.queues.send([user.command("x", 2)]) == [QueueFull(duplicate=True)]
