"""The contract of ``NodeDirectory``: leases, takeovers, and telling a former owner."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from gateway.core.types import Epoch, GridGeneration
from gateway.ports import Grid, LeaseLost, LeaseTable, Master, MasterWish, Ownership, TakeoverProgress
from tests.contract.examples import new_id
from tests.contract.harness import LONG, Harness, node
from tests.support.clock import eventually

N1, N2, N3 = node("n1"), node("n2"), node("n3")


# --- leases -----------------------------------------------------------------------------------------------------------


async def test_nodes_with_a_lease_are_alive_and_sorted(harness: Harness) -> None:
    """alive: nodes whose lease holds, sorted; the caller is among them."""
    grid = await harness.grid()
    for each in (N3, N1, N2, node("n1", "another")):
        await grid.nodes.join(each, lease=LONG)
    assert await grid.nodes.renew(N2, lease=LONG) == LeaseTable((node("n1", "another"), N1, N2, N3), ())


async def test_every_node_sees_the_same(harness: Harness) -> None:
    """The nodes of the cluster as one renewal saw them."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    await n2.nodes.join(N2, lease=LONG)
    assert await n1.nodes.renew(N1, lease=LONG) == await n2.nodes.renew(N2, lease=LONG) == LeaseTable((N1, N2), ())


async def test_renewing_extends_the_lease(harness: Harness) -> None:
    """Extend the lease and look around."""
    grid = await harness.grid()
    await grid.nodes.join(N1, lease=harness.roomy)
    await grid.nodes.renew(N1, lease=LONG)
    await harness.advance(harness.roomy)
    assert (await grid.nodes.renew(N1, lease=LONG)).alive == (N1,)


async def test_everybody_who_renews_hears_that_somebody_watches_until_that_is_over(harness: Harness) -> None:
    """watch: seconds for which everybody who renews shall see ``watched``, from now on; 0 leaves it as it is."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    await n2.nodes.join(N2, lease=LONG)
    assert not (await n1.nodes.renew(N1, lease=LONG)).watched
    assert (await n1.nodes.renew(N1, lease=LONG, watch=LONG)).watched
    # A shorter time does not shorten what another node has said.
    assert (await n2.nodes.renew(N2, lease=LONG, watch=harness.short)).watched
    await harness.advance(harness.short)
    assert (await n2.nodes.renew(N2, lease=LONG)).watched


async def test_nobody_is_said_to_watch_for_longer_than_was_told(harness: Harness) -> None:
    """watched: whether a node has said that somebody watches, and that is not over."""
    grid = await harness.grid()
    await grid.nodes.join(N1, lease=LONG)
    await grid.nodes.renew(N1, lease=LONG, watch=harness.short)
    await harness.advance(harness.short)
    assert not (await grid.nodes.renew(N1, lease=LONG)).watched


async def test_a_lease_that_is_not_renewed_expires(harness: Harness) -> None:
    """expired: nodes whose lease ended and whose sessions nobody has finished putting on the clock."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=harness.short)
    await n2.nodes.join(N2, lease=LONG)
    await harness.advance(harness.short)
    for _ in range(2):
        assert await n2.nodes.renew(N2, lease=LONG) == LeaseTable((N2,), (N1,))


@pytest.mark.promise("P17")
async def test_an_expired_lease_cannot_be_renewed(harness: Harness) -> None:
    """LeaseLost: the lease expired and a survivor may have taken over."""
    grid = await harness.grid()
    await grid.nodes.join(N1, lease=harness.short)
    await harness.advance(harness.short)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await grid.nodes.renew(N1, lease=LONG)


async def test_a_lease_that_was_never_taken_or_given_back_cannot_be_renewed(harness: Harness) -> None:
    """LeaseLost: the node's lease is not in the grid any more."""
    grid = await harness.grid()
    with pytest.raises(LeaseLost):
        await grid.nodes.renew(N1, lease=LONG)
    await grid.nodes.join(N1, lease=LONG)
    await grid.nodes.leave(N1)
    with pytest.raises(LeaseLost):
        await grid.nodes.renew(N1, lease=LONG)


async def test_a_node_takes_a_new_lease_after_its_old_one_expired(harness: Harness) -> None:
    """Take a lease of *lease* seconds, also after it expired."""
    grid = await harness.grid()
    await grid.nodes.join(N1, lease=harness.short)
    await harness.advance(harness.short)
    await grid.nodes.join(N1, lease=LONG)
    assert await grid.nodes.renew(N1, lease=LONG) == LeaseTable((N1,), ())


async def test_join_and_renew_asked_again_after_their_answers_were_lost(harness: Harness) -> None:
    """Each step is idempotent."""
    grid = await harness.grid()
    await harness.asked_again(grid, lambda: grid.nodes.join(N1, lease=LONG))
    table = await harness.asked_again(grid, lambda: grid.nodes.renew(N1, lease=LONG))
    assert table == LeaseTable((N1,), ())


async def test_whoever_left_is_not_missed(harness: Harness) -> None:
    """Give the lease back after a drain; nobody needs to take over."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=harness.short)
    await n2.nodes.join(N2, lease=LONG)
    await harness.asked_again(n1, lambda: n1.nodes.leave(N1))
    assert await n2.nodes.renew(N2, lease=LONG) == LeaseTable((N2,), ())
    await harness.advance(harness.short)
    assert await n2.nodes.renew(N2, lease=LONG) == LeaseTable((N2,), ())
    assert not await n2.nodes.take_over(N1, by=N2, within=LONG)
    await n1.nodes.leave(N1)


async def test_a_restarted_node_is_another_one(harness: Harness) -> None:
    """Incarnation: which run of a node it is, so that a restarted node is not mistaken for its old self."""
    grid = await harness.grid()
    second = node("n1", "second")
    await grid.nodes.join(N1, lease=harness.short)
    await harness.advance(harness.short)
    await grid.nodes.join(second, lease=LONG)
    assert await grid.nodes.renew(second, lease=LONG) == LeaseTable((second,), (N1,))
    assert await grid.nodes.take_over(N1, by=second, within=LONG)


async def test_a_lease_is_granted_to_whoever_has_none_and_expires_as_any_other(harness: Harness) -> None:
    """Give a lease to nodes that have none: whoever of them lives renews it; the others are taken over as anybody."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    assert list(await n1.nodes.grant([N1, N2, N3], lease=harness.roomy)) == [N2, N3]
    assert list(await n1.nodes.grant([N1, N2, N3], lease=LONG)) == []
    assert (await n1.nodes.renew(N1, lease=LONG)).alive == (N1, N2, N3)
    assert (await n2.nodes.renew(N2, lease=LONG)).alive == (N1, N2, N3)
    await harness.advance(harness.roomy)
    assert await n1.nodes.renew(N1, lease=LONG) == LeaseTable((N1, N2), (N3,))
    # An expired one is not given another: it is being looked after.
    assert list(await n1.nodes.grant([N3], lease=LONG)) == []
    assert await n1.nodes.take_over(N3, by=N1, within=LONG) is not None


async def test_whoever_was_granted_a_lease_joins_as_ever(harness: Harness) -> None:
    """Whoever of them lives takes one of its own."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    await n1.nodes.grant([N2], lease=harness.short)
    await n2.nodes.join(N2, lease=LONG)
    await harness.advance(harness.short)
    assert (await n1.nodes.renew(N1, lease=LONG)).alive == (N1, N2)


# --- takeover ---------------------------------------------------------------------------------------------------------


async def expired(harness: Harness, *survivors: str) -> list[Grid]:
    """Have n1's lease expire under the eyes of *survivors*."""
    grids = [await harness.grid(name) for name in survivors]
    for name, grid in zip(survivors, grids, strict=True):
        await grid.nodes.join(node(name), lease=LONG)
    await grids[0].nodes.join(N1, lease=harness.short)
    await harness.advance(harness.short)
    return grids


@pytest.mark.promise("P17")
async def test_exactly_one_of_many_takes_over(harness: Harness) -> None:
    """Win the right to put the sessions of *expired* on the clock. Exactly one caller gets the lease."""
    names = ("n2", "n3", "n4")
    grids = await expired(harness, *names)
    won = await asyncio.gather(
        *(grid.nodes.take_over(N1, by=node(name), within=LONG) for name, grid in zip(names, grids, strict=True))
    )
    assert won.count(None) == 2


@pytest.mark.promise("P17")
async def test_the_winner_who_asks_again_has_won_again(harness: Harness) -> None:
    """Asking again with the same arguments gives the same result as asking once."""
    n2, n3 = await expired(harness, "n2", "n3")
    assert await harness.asked_again(n2, lambda: n2.nodes.take_over(N1, by=N2, within=LONG))
    assert not await n3.nodes.take_over(N1, by=N3, within=LONG)
    assert await n2.nodes.take_over(N1, by=N2, within=LONG)


@pytest.mark.promise("P17")
async def test_nobody_takes_over_from_the_living(harness: Harness) -> None:
    """None, as everybody gets if the node has come back."""
    grid = await harness.grid("n2")
    await grid.nodes.join(N1, lease=LONG)
    assert not await grid.nodes.take_over(N1, by=N2, within=LONG)
    assert not await grid.nodes.take_over(N3, by=N2, within=LONG), "nobody knows n3"


@pytest.mark.promise("P17")
async def test_the_next_one_takes_over_from_a_winner_who_did_not_finish(harness: Harness) -> None:
    """…if it has not called ``finish_takeover`` within *within* seconds, the next caller may win."""
    n2, n3 = await expired(harness, "n2", "n3")
    assert await n2.nodes.take_over(N1, by=N2, within=harness.short)
    await harness.advance(harness.short)
    assert await n3.nodes.take_over(N1, by=N3, within=LONG)
    assert not await n2.nodes.take_over(N1, by=N2, within=LONG)


@pytest.mark.promise("P17")
async def test_a_winner_who_was_replaced_cannot_finish(harness: Harness) -> None:
    """finish_takeover: every session of *expired* is on the clock: the one who has the right says so."""
    n2, n3 = await expired(harness, "n2", "n3")
    assert await n2.nodes.take_over(N1, by=N2, within=harness.short)
    await harness.advance(harness.short)
    assert await n3.nodes.take_over(N1, by=N3, within=LONG)
    await n2.nodes.finish_takeover(N1, by=N2)
    assert (await n3.nodes.renew(N3, lease=LONG)).expired == (N1,)
    await n3.nodes.finish_takeover(N1, by=N3)
    assert (await n3.nodes.renew(N3, lease=LONG)).expired == ()


@pytest.mark.promise("P17")
async def test_a_finished_takeover_is_listed_no_more(harness: Harness) -> None:
    """Declare that every session of *expired* is on the clock; it will not be listed as expired again."""
    n2, n3 = await expired(harness, "n2", "n3")
    assert await n2.nodes.take_over(N1, by=N2, within=LONG)
    assert (await n3.nodes.renew(N3, lease=LONG)).expired == (N1,), "not before it is finished"
    await harness.asked_again(n2, lambda: n2.nodes.finish_takeover(N1, by=N2))
    assert await n3.nodes.renew(N3, lease=LONG) == LeaseTable((N2, N3), ())
    assert not await n3.nodes.take_over(N1, by=N3, within=LONG)
    with pytest.raises(LeaseLost):
        await n2.nodes.renew(N1, lease=LONG)


@pytest.mark.promise("P17")
async def test_a_node_that_comes_back_ends_the_takeover(harness: Harness) -> None:
    """None, as everybody gets if the node has come back."""
    n2, n3 = await expired(harness, "n2", "n3")
    assert await n2.nodes.take_over(N1, by=N2, within=LONG)
    await n3.nodes.join(N1, lease=LONG)
    assert not await n2.nodes.take_over(N1, by=N2, within=LONG)
    await n2.nodes.finish_takeover(N1, by=N2)
    assert await n2.nodes.renew(N2, lease=LONG) == LeaseTable((N1, N2, N3), ())
    assert await n3.nodes.renew(N1, lease=LONG) == LeaseTable((N1, N2, N3), ())


@pytest.mark.promise("P17")
async def test_the_right_of_a_winner_ends_with_its_lease(harness: Harness) -> None:
    """The next one may win if that caller holds no lease itself any more."""
    n2, n3 = await expired(harness, "n2", "n3")
    await n2.nodes.join(N2, lease=harness.short)
    assert await n2.nodes.take_over(N1, by=N2, within=LONG)
    await harness.advance(harness.short)
    assert await n3.nodes.take_over(N1, by=N3, within=LONG)
    assert not await n2.nodes.take_over(N1, by=N2, within=LONG)


def progress(stage: str, step: int, sessions: int = 0) -> TakeoverProgress:
    return TakeoverProgress(stage=stage, step=step, sessions=sessions, generation=GridGeneration(2))


@pytest.mark.promise("P17")
async def test_the_next_winner_hears_how_far_the_takeover_has_come(harness: Harness) -> None:
    """Keep how far a takeover has come, and the right to it for *within* seconds more."""
    n2, n3 = await expired(harness, "n2", "n3")
    won = await n2.nodes.take_over(N1, by=N2, within=LONG)
    assert won is not None
    assert won.progress == TakeoverProgress()
    assert not await n3.nodes.keep_takeover(N1, by=N3, within=LONG, progress=progress("sessions", 1))
    kept = progress("sessions", 7, sessions=3)
    assert await harness.asked_again(n2, lambda: n2.nodes.keep_takeover(N1, by=N2, within=harness.short, progress=kept))
    again = await n2.nodes.take_over(N1, by=N2, within=harness.short)
    assert again is not None
    assert again.progress == kept
    await harness.advance(harness.short)
    next_one = await n3.nodes.take_over(N1, by=N3, within=LONG)
    assert next_one is not None
    assert next_one.progress == kept
    assert not await n2.nodes.keep_takeover(N1, by=N2, within=LONG, progress=progress("sessions", 8))
    (listed,) = await n2.nodes.takeovers()
    assert (listed.expired, listed.by, listed.progress) == (N1, N3, kept)
    assert 0 < listed.left <= LONG


@pytest.mark.promise("P17")
async def test_a_node_that_comes_back_leaves_nothing_to_go_on_with(harness: Harness) -> None:
    """False, and nothing is kept, if the node has come back."""
    n2, n3 = await expired(harness, "n2", "n3")
    assert await n2.nodes.take_over(N1, by=N2, within=LONG)
    assert await n2.nodes.keep_takeover(N1, by=N2, within=LONG, progress=progress("sessions", 7))
    await n3.nodes.join(N1, lease=harness.short)
    assert not await n2.nodes.keep_takeover(N1, by=N2, within=LONG, progress=progress("sessions", 8))
    assert await n2.nodes.takeovers() == []
    await harness.advance(harness.short)
    won = await n3.nodes.take_over(N1, by=N3, within=LONG)
    assert won is not None
    assert won.progress == TakeoverProgress()


@pytest.mark.promise("P17")
async def test_what_is_transient_is_cleaned_up_once_the_time_has_come(harness: Harness) -> None:
    """``clean``: exactly one caller gets it. None for the others, and before the time."""
    n2, n3 = await expired(harness, "n2", "n3")
    assert await n2.nodes.take_over(N1, by=N2, within=LONG)
    assert await n2.nodes.clean(N1, by=N2, within=LONG) is None, "it is not taken over yet"
    assert await n2.nodes.keep_takeover(N1, by=N2, within=LONG, progress=progress("done", 0))
    await n2.nodes.finish_takeover(N1, by=N2, clean_after=harness.roomy)
    assert await n3.nodes.renew(N3, lease=LONG) == LeaseTable((N2, N3), ())
    assert [each.node for each in await n3.nodes.lost()] == [N1]
    for grid, by in ((n2, N2), (n3, N3)):
        assert await grid.nodes.clean(N1, by=by, within=LONG) is None, "it is too early"
    (waiting,) = await n3.nodes.takeovers()
    assert (waiting.expired, waiting.by) == (N1, None)
    await harness.advance(harness.roomy)
    assert await n3.nodes.clean(N1, by=N3, within=LONG) == TakeoverProgress()
    assert await n3.nodes.clean(N1, by=N3, within=LONG) == TakeoverProgress(), "asking again is harmless"
    assert await n2.nodes.clean(N1, by=N2, within=LONG) is None
    kept = progress("topics", 2)
    assert await n3.nodes.keep_takeover(N1, by=N3, within=harness.short, progress=kept)
    await harness.advance(harness.short)
    assert await n2.nodes.clean(N1, by=N2, within=LONG) == kept
    await n3.nodes.finish_takeover(N1, by=N3)
    assert [each.by for each in await n3.nodes.takeovers()] == [N2], "whoever was replaced cannot finish"
    await harness.asked_again(n2, lambda: n2.nodes.finish_takeover(N1, by=N2))
    assert await n3.nodes.takeovers() == []
    assert await n3.nodes.clean(N1, by=N3, within=LONG) is None


@pytest.mark.promise("P17")
async def test_nothing_is_cleaned_up_of_a_node_that_is_back(harness: Harness) -> None:
    """None if the node has come back."""
    n2, n3 = await expired(harness, "n2", "n3")
    assert await n2.nodes.take_over(N1, by=N2, within=LONG)
    await n2.nodes.finish_takeover(N1, by=N2, clean_after=harness.short)
    await n3.nodes.join(N1, lease=LONG)
    await harness.advance(harness.short)
    assert await n2.nodes.clean(N1, by=N2, within=LONG) is None
    assert await n2.nodes.takeovers() == []


@pytest.mark.promise("P17")
async def test_leases_are_looked_at(harness: Harness) -> None:
    """Seconds until each of them ends, zero or less if it has; None of a node that has none."""
    n2, _ = await expired(harness, "n2", "n3")
    ended, holds, none = await n2.nodes.look(N1, N2, node("n9"))
    assert ended is not None
    assert ended <= 0
    assert holds is not None
    assert 0 < holds <= LONG
    assert none is None


# --- telling a former owner -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def listening(grid: Grid) -> AsyncIterator[list[Ownership]]:
    """Collect what n1 is told."""
    told: list[Ownership] = []
    messages = grid.nodes.claimed_elsewhere(N1)

    async def collect() -> None:
        async for each in messages:
            told.append(each)  # noqa: PERF401 - seen one by one, while more come

    task = asyncio.create_task(collect())
    yield told
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_former_owner_is_told(harness: Harness) -> None:
    """Tell a living former owner that a session was claimed from it. / Delivered by ``claimed_elsewhere``."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    await n2.nodes.join(N2, lease=LONG)
    ownerships = [Ownership(new_id(), N1, Epoch(number)) for number in range(1, 6)]
    async with listening(n1) as told:
        for each in ownerships:
            await n2.nodes.tell_claimed(N1, each)
            await n2.nodes.tell_claimed(N2, each)
        await eventually(lambda: len(told) >= len(ownerships))
        assert told == ownerships


async def test_a_former_owner_is_told_of_many_claims_at_once(harness: Harness) -> None:
    """tell_claimed: sessions were claimed from it. / In order."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    ownerships = [Ownership(new_id(), N1, Epoch(number)) for number in range(1, 301)]
    async with listening(n1) as told:
        await n2.nodes.tell_claimed(N1, *ownerships)
        await n2.nodes.tell_claimed(N1)
        await eventually(lambda: len(told) >= len(ownerships))
        assert told == ownerships


async def test_telling_a_node_that_is_not_there_is_no_error(harness: Harness) -> None:
    """At most once and best effort: fencing does not depend on it."""
    grid = await harness.grid("n2")
    await grid.nodes.tell_claimed(N1, Ownership(new_id(), N1, Epoch(1)))
    assert not await harness.inventory()


async def test_telling_goes_on_after_the_grid_was_unreachable(harness: Harness) -> None:
    """claimed_elsewhere: goes on by itself when the grid was unreachable."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    async with listening(n1) as told:
        await n2.nodes.tell_claimed(N1, Ownership(new_id(), N1, Epoch(1)))
        await eventually(lambda: len(told) == 1)
        await harness.go_away()
        await harness.come_back()
        after = Ownership(new_id(), N1, Epoch(2))

        async def arrived() -> bool:
            await n2.nodes.tell_claimed(N1, after)
            return after in told

        await eventually(arrived)
        assert len(told) == len(set(told)) or told[1:] == [after] * (len(told) - 1), "nothing old comes again"


async def test_a_cluster_has_one_id(harness: Harness) -> None:
    one, two = await harness.grid("n1"), await harness.grid("n2")
    assert await one.nodes.cluster("first") == "first"
    assert await two.nodes.cluster("second") == "first"
    assert await harness.asked_again(one, lambda: one.nodes.cluster("third")) == "first"


async def test_a_grid_that_lost_everything_gets_its_id_back(fragile: Harness) -> None:
    one = await fragile.grid("n1")
    assert await one.nodes.cluster("known") == "known"
    await fragile.go_away()
    await fragile.come_back(emptied=True)
    await fragile.up(one)
    assert await one.nodes.cluster("known") == "known"
    two = await fragile.grid("n2")
    assert await two.nodes.cluster("random") == "known"


# --- The master -------------------------------------------------------------------------------------------------------


async def test_the_first_that_asks_is_the_master_and_stays_it(harness: Harness) -> None:
    """There is one master at most. Whoever has the role keeps it for as long as its lease holds, unless it yields."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    await n2.nodes.join(N2, lease=LONG)

    assert (await n1.nodes.renew(N1, lease=LONG)).master is None, "nobody has asked"
    assert (await n2.nodes.renew(N2, lease=LONG, wish=MasterWish.TAKE)).master == Master(N2, 1)
    for wish in MasterWish:
        assert (await n1.nodes.renew(N1, lease=LONG, wish=wish)).master == Master(N2, 1)
    assert (await n2.nodes.renew(N2, lease=LONG)).master == Master(N2, 1), "who keeps it need not ask again"


async def test_a_master_that_yields_is_followed_by_another_of_a_higher_term(harness: Harness) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n1.nodes.join(N1, lease=LONG)
    await n2.nodes.join(N2, lease=LONG)
    await n1.nodes.renew(N1, lease=LONG, wish=MasterWish.TAKE)

    assert (await n1.nodes.renew(N1, lease=LONG, wish=MasterWish.YIELD)).master is None
    assert (await n2.nodes.renew(N2, lease=LONG)).master is None
    assert (await n2.nodes.renew(N2, lease=LONG, wish=MasterWish.TAKE)).master == Master(N2, 2)
    assert (await n1.nodes.renew(N1, lease=LONG, wish=MasterWish.TAKE)).master == Master(N2, 2)


async def test_a_master_that_leaves_or_expires_is_none_any_more(harness: Harness) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await n2.nodes.join(N2, lease=LONG)
    for number, is_gone in enumerate((True, False)):
        await n1.nodes.join(N1, lease=LONG)
        taken = await n1.nodes.renew(N1, lease=LONG if is_gone else harness.short, wish=MasterWish.TAKE)
        assert taken.master == Master(N1, 1 + 2 * number)
        if is_gone:
            await n1.nodes.leave(N1)
        else:
            await harness.advance(harness.short)
        assert (await n2.nodes.renew(N2, lease=LONG, wish=MasterWish.TAKE)).master == Master(N2, 2 + 2 * number)
        await n2.nodes.renew(N2, lease=LONG, wish=MasterWish.YIELD)
