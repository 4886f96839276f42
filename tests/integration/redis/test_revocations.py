"""Revocations on a Redis that runs full, is emptied under the nodes' feet, or is tampered with."""

from __future__ import annotations

import pytest

from gateway.core.policy.revocations import Revocation, RevocationKind
from gateway.ports import GridState, GridUnavailable
from tests.contract.test_revocations import Listener
from tests.integration.redis.support import N2, Bench
from tests.support.clock import eventually


def revocation(value: str) -> Revocation:
    return Revocation(kind=RevocationKind.PRINCIPAL, value=value, made=1000.0)


@pytest.mark.promise("P8")
async def test_a_full_redis_revokes_all_the_same(forgetful: Bench) -> None:
    """Whoever must be out must be out, though clients can publish nothing any more."""
    n1, n2 = await forgetful.grid(), await forgetful.grid(N2)
    async with Listener(n2) as listener:
        await forgetful.server.call("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(Exception, match="used memory"):
            await forgetful.server.call("SET", "anything", "else")
        await n1.revocations.add(revocation("alice"))
        await listener.holds(revocation("alice"))
        await n1.revocations.unblock(revocation("alice").name)
        await listener.holds()


async def test_an_emptied_redis_that_runs_on_accepts_nothing_before_it_is_adopted(forgetful: Bench) -> None:
    """Its revisions have begun anew: what it acknowledged now, readers would take for what they have read."""
    n1, n2 = await forgetful.grid(), await forgetful.grid(N2)
    kept = [revocation(f"user-{number}") for number in range(3)]
    async with Listener(n1) as here, Listener(n2) as there:
        for each in kept:
            await n1.revocations.add(each)
        await here.holds(*kept)
        await there.holds(*kept)
        generation = n1.generation
        await forgetful.server.call("FLUSHALL")

        with pytest.raises(GridUnavailable):
            await n1.revocations.add(revocation("new"))

        await eventually(lambda: n1.state is GridState.UP and n1.generation > generation, message="adopted anew")
        await eventually(lambda: here.everything[-1], message="the loss is told")
        await n1.revocations.add(revocation("new"))
        assert await n1.revocations.restore(kept) == len(kept)
        await here.holds(*kept, revocation("new"))
        # The other node asks for something, and finds out as well.
        with pytest.raises(GridUnavailable):
            await n2.revocations.restore(kept)
        await eventually(lambda: there.everything[-1], message="the loss is told there, too")
        await there.holds(*kept, revocation("new"))


async def test_a_stream_that_somebody_deleted_makes_nobody_deaf(forgetful: Bench) -> None:
    """Revisions are counted beside the generation, and go on."""
    n1, n2 = await forgetful.grid(), await forgetful.grid(N2)
    async with Listener(n2) as listener:
        for number in range(3):
            await n1.revocations.add(revocation(f"user-{number}"))
        await listener.holds(*(revocation(f"user-{number}") for number in range(3)))
        await forgetful.server.call("DEL", f"{forgetful.prefix}:{{nodes}}:revisions")
        await n1.revocations.add(revocation("after"))
        await listener.holds(*(revocation(f"user-{number}") for number in range(3)), revocation("after"))


async def test_changes_are_trimmed_and_revocations_are_not(bench: Bench) -> None:
    grid = await bench.grid()
    many = [revocation(f"user-{number}") for number in range(3000)]
    assert await grid.revocations.restore(many) == len(many)
    length = await bench.server.call("XLEN", f"{bench.prefix}:{{nodes}}:revisions")
    assert 1000 <= length <= 1200
    async with Listener(grid) as listener:
        await listener.holds(*many)
