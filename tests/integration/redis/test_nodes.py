"""Leases: by the Redis clock, over outages, and with exactly one winner of a takeover."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.ports import GridState, LeaseLost
from tests.integration.redis.support import N1, N2, Bench, keep_trying, until_away, until_up
from tests.support.clock import eventually
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P17")

LEASE = scaled(1.0)
"""Seconds of a lease that all steps before a fault fit into, and that ends during the fault."""


async def test_one_of_many_survivors_takes_over(bench: Bench) -> None:
    survivors = [NodeRef(NodeId(f"s{number}"), Incarnation("first")) for number in range(8)]
    grids = await asyncio.gather(*(bench.grid(each) for each in survivors))
    await grids[0].nodes.join(N1, lease=0.05)
    await asyncio.gather(*(grid.nodes.join(node, lease=60) for grid, node in zip(grids, survivors, strict=True)))

    async def expired() -> bool:
        table = await grids[0].nodes.renew(survivors[0], lease=60)
        assert survivors[0] in table.alive
        return table.expired == (N1,)

    await eventually(expired)
    won = await asyncio.gather(
        *(grid.nodes.take_over(N1, by=node, within=60) for grid, node in zip(grids, survivors, strict=True))
    )
    assert won.count(None) == 7
    winner = next(number for number, lease in enumerate(won) if lease is not None)
    loser = (winner + 1) % 8
    await grids[loser].nodes.finish_takeover(N1, by=survivors[loser])
    assert (await grids[loser].nodes.renew(survivors[loser], lease=60)).expired == (N1,), "only the winner finishes"
    await grids[winner].nodes.finish_takeover(N1, by=survivors[winner])
    assert (await grids[loser].nodes.renew(survivors[loser], lease=60)).expired == ()
    with pytest.raises(LeaseLost):
        await grids[0].nodes.renew(N1, lease=60)


async def test_a_restart_of_the_grid_expires_no_lease(harmed: Bench) -> None:
    """Both leases ended while the grid was down; each node gets its full length again, whoever comes first."""
    n1, n2 = await harmed.grid(N1), await harmed.grid(N2)
    await n1.nodes.join(N1, lease=LEASE)
    await n2.nodes.join(N2, lease=LEASE)
    harmed.server.kill()
    await asyncio.gather(until_away(n1), until_away(n2))
    await asyncio.sleep(1.2 * LEASE)  # the time of the outage is what is tested: Redis has no other clock
    await harmed.server.restart()
    await asyncio.gather(until_up(n1), until_up(n2))
    table = await n1.nodes.renew(N1, lease=60)
    assert table.expired == ()
    assert table.alive == (N1, N2)
    await n2.nodes.renew(N2, lease=60)


async def test_a_suspended_redis_expires_no_lease(forgetful: Bench) -> None:
    n1, n2 = await forgetful.grid(N1, timeout=scaled(0.3)), await forgetful.grid(N2, timeout=scaled(0.3))
    await n1.nodes.join(N1, lease=LEASE)
    await n2.nodes.join(N2, lease=LEASE)
    forgetful.server.suspend()
    results = await asyncio.gather(
        n1.nodes.renew(N1, lease=LEASE), n2.nodes.renew(N2, lease=LEASE), return_exceptions=True
    )
    assert {type(each).__name__ for each in results} == {"GridUnavailable"}
    await asyncio.sleep(LEASE)  # the leases end meanwhile
    forgetful.server.resume()
    await asyncio.gather(until_up(n1), until_up(n2))
    assert (await n1.nodes.renew(N1, lease=60)).expired == ()
    assert (await n2.nodes.renew(N2, lease=60)).expired == ()


async def test_a_reconnect_of_one_node_does_not_revive_an_expired_one(bench: Bench) -> None:
    """Others renewed meanwhile, so it was no outage."""
    n1, n2 = await bench.grid(N1), await bench.grid(N2)
    await n1.nodes.join(N1, lease=60)
    await n2.nodes.join(N2, lease=60)
    # With a lease so short that it expires, a reconnect of half its length would be an outage for all.
    await bench.expire(N1)
    assert N1 in (await n2.nodes.renew(N2, lease=60)).expired
    await bench.kill_clients(N2)
    await until_away_or_back(n2)
    assert N1 in (await n2.nodes.renew(N2, lease=60)).expired


async def until_away_or_back(grid: object) -> None:
    await keep_trying(lambda: grid.state is GridState.UP, message="up")  # type: ignore[attr-defined]


async def test_a_takeover_under_way_survives_a_restart_of_the_grid(harmed: Bench) -> None:
    """Some of its sessions are on the clock already, so the node must come back by joining."""
    n1, n2 = await harmed.grid(N1), await harmed.grid(N2)
    await n1.nodes.join(N1, lease=0.05)
    await n2.nodes.join(N2, lease=60)

    async def taken() -> bool:
        return await n2.nodes.take_over(N1, by=N2, within=60) is not None

    await eventually(taken)
    await harmed.server.restart()
    await keep_trying(lambda: n1.generation == n2.generation == 2, message="adopted")
    await asyncio.gather(until_up(n1), until_up(n2))
    with pytest.raises(LeaseLost):
        await n1.nodes.renew(N1, lease=60)
    await n1.nodes.join(N1, lease=60)
    # A finished takeover of a node that is back removes nothing.
    await n2.nodes.finish_takeover(N1, by=N2)
    assert (await n1.nodes.renew(N1, lease=60)).alive == (N1, N2)


async def test_the_right_to_take_over_passes_on_when_its_time_is_over(bench: Bench) -> None:
    n1, n2 = await bench.grid(N1), await bench.grid(N2)
    for grid, node in ((n1, N1), (n2, N2)):
        await grid.nodes.join(node, lease=60)
    gone = NodeRef(NodeId("gone"), Incarnation("1"))
    await n1.nodes.join(gone, lease=0.01)

    async def first() -> bool:
        return await n1.nodes.take_over(gone, by=N1, within=0.1) is not None

    await eventually(first)

    async def second() -> bool:
        return await n2.nodes.take_over(gone, by=N2, within=60) is not None

    await eventually(second)
    assert not await n1.nodes.take_over(gone, by=N1, within=60)
    assert await n2.nodes.take_over(gone, by=N2, within=60), "asking again is harmless"
    await n1.nodes.finish_takeover(gone, by=N1)
    assert not await n1.nodes.take_over(gone, by=N1, within=60)
    await n2.nodes.finish_takeover(gone, by=N2)
    assert not await n2.nodes.take_over(gone, by=N2, within=60)
