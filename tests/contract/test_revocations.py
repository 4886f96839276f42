"""The contract of ``RevocationStore``: everything first, then each change, and nothing lost that a node still knows."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.policy.revocations import Revocation, RevocationKind, name_of
from gateway.ports import AllRevocations, GridUnavailable, Unblocked
from tests.contract import listening
from tests.contract.harness import Harness
from tests.support.clock import eventually

MANY = 1_100
"""More than any page, and more changes than are kept."""


def revocation(
    value: str = "alice",
    kind: RevocationKind = RevocationKind.PRINCIPAL,
    *,
    made: float = 1000.0,
    until: float | None = None,
    reason: str = "",
) -> Revocation:
    """Make a revocation."""
    return Revocation(kind=kind, value=value, reason=reason, made=made, until=until)


class Listener(listening.Listener[Revocation, Unblocked]):
    """Follows the revocations of one node."""

    async def _read(self) -> None:
        async for news in self.grid.revocations.follow():
            if isinstance(news, AllRevocations):
                self.hear_all(news.revocations, lost_writes=news.lost_writes)
            else:
                self.hear_changes(news.changes)

    def _hear(self, change: Revocation | Unblocked) -> None:
        if isinstance(change, Unblocked):
            del self.held[change.name]
        else:
            self.held[change.name] = change


async def test_a_follower_is_given_everything_and_then_each_change(harness: Harness) -> None:
    """Yield everything, then every change."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    first = revocation("alice", reason="left the company: see ticket 4711")
    second = revocation("0123-abc", RevocationKind.SESSION, until=2000.25)
    third = revocation("alice", RevocationKind.CREDENTIAL)
    await n1.revocations.add(first)
    async with Listener(n2) as listener:
        await listener.holds(first)
        await n1.revocations.add(second)
        await n1.revocations.add(third)
        await listener.holds(first, second, third)
        await n1.revocations.unblock(first.name)
        await listener.holds(second, third)
        assert listener.changes == [second, third, Unblocked(first.name)]
        assert listener.everything == [False]


async def test_values_may_hold_anything(harness: Harness) -> None:
    """Names are compared exactly, whatever stands in them."""
    grid = await harness.grid()
    odd = [
        revocation(value, kind, reason=reason)
        for kind in RevocationKind
        for value, reason in (("a:b c", "- 1 2"), ("ünïcode ✓", "é ✓"), ("-", " two  blanks "), ("a" * 256, "x" * 200))
    ]
    async with Listener(grid) as listener:
        for each in odd:
            await grid.revocations.add(each)
        await listener.holds(*odd)
    async with Listener(grid) as again:
        await again.holds(*odd)


async def test_a_node_hears_of_what_it_revoked_itself(harness: Harness) -> None:
    """What a call has written is with every follower."""
    grid = await harness.grid()
    async with Listener(grid) as listener:
        await grid.revocations.add(revocation())
        await listener.holds(revocation())


async def test_the_later_of_two_of_the_same_is_in_the_place_of_the_first(harness: Harness) -> None:
    """Write a revocation, in the place of an earlier one of the same name."""
    grid = await harness.grid()
    async with Listener(grid) as listener:
        await grid.revocations.add(revocation(made=1000.0))
        await grid.revocations.add(revocation(made=999.0, until=5000.0, reason="for a day"))
        await listener.holds(revocation(made=999.0, until=5000.0, reason="for a day"))


async def test_lifting_what_is_not_there_is_no_error_and_no_news(harness: Harness) -> None:
    """Delete a revocation; one that is not there is no error."""
    grid = await harness.grid()
    async with Listener(grid) as listener:
        await grid.revocations.unblock(name_of(RevocationKind.SESSION, "nobody"))
        await grid.revocations.add(revocation())
        await listener.holds(revocation())
        assert listener.changes == [revocation()]


async def test_steps_asked_again_after_their_answers_were_lost(harness: Harness) -> None:
    """Each step is idempotent."""
    grid = await harness.grid()
    one, two = revocation("one"), revocation("two", until=10.0)
    await harness.asked_again(grid, lambda: grid.revocations.add(one))
    await harness.asked_again(grid, lambda: grid.revocations.add(two))
    await harness.asked_again(grid, lambda: grid.revocations.unblock(one.name))
    await harness.asked_again(grid, lambda: grid.revocations.forget([two]))
    assert await harness.asked_again(grid, lambda: grid.revocations.restore([one])) == 0
    async with Listener(grid) as listener:
        await listener.holds(one)


async def test_what_is_restored_is_missing_or_was_made_later(harness: Harness) -> None:
    """Put back those that a grid […] holds not at all, or as they were made earlier."""
    grid = await harness.grid()
    older, newer = revocation("both", made=1.0, reason="older"), revocation("both", made=2.0, reason="newer")
    kept = revocation("kept", made=5.0, reason="kept")
    await grid.revocations.add(older)
    await grid.revocations.add(kept)
    async with Listener(grid) as listener:
        offered = [newer, revocation("missing"), revocation("kept", made=5.0, reason="not this"), kept]
        assert await grid.revocations.restore(offered) == 2
        await listener.holds(newer, revocation("missing"), kept)
        assert await grid.revocations.restore(offered) == 0
        assert len(listener.changes) == 2


async def test_only_what_is_exactly_as_given_is_forgotten(harness: Harness) -> None:
    """Delete revocations that are over, each only if it is exactly as given."""
    grid = await harness.grid()
    over, anew = revocation("anew", until=10.0), revocation("anew", until=10.0, made=1001.0)
    await grid.revocations.add(over)
    await grid.revocations.add(revocation("gone", until=10.0))
    await grid.revocations.add(anew)
    async with Listener(grid) as listener:
        await grid.revocations.forget([over, revocation("gone", until=10.0), revocation("never", until=10.0)])
        await listener.holds(anew)


async def test_more_than_a_page_is_read_whole(harness: Harness) -> None:
    """Everything the grid holds, each name once."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    many = [revocation(f"user-{number}") for number in range(MANY)]
    assert await n1.revocations.restore(many) == MANY
    async with Listener(n2) as listener:
        await listener.holds(*many)
        await n1.revocations.forget(many[1:])
        await listener.holds(many[0])


@pytest.mark.promise("P8")
async def test_changes_while_everything_is_read_are_not_missed(harness: Harness) -> None:
    """Everything, then every change: whatever happens between the pages."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    many = [revocation(f"user-{number:04}") for number in range(MANY)]
    await n1.revocations.restore(many)

    async def change() -> None:
        for number in range(0, MANY, 20):
            await n1.revocations.unblock(many[number].name)
            await n1.revocations.add(revocation(f"new-{number:04}"))

    changing = asyncio.create_task(change())
    async with Listener(n2) as listener:
        await changing
        await listener.holds(
            *(each for number, each in enumerate(many) if number % 20),
            *(revocation(f"new-{number:04}") for number in range(0, MANY, 20)),
        )


async def test_a_follower_that_was_cut_off_goes_on_where_it_was(harness: Harness) -> None:
    """While the grid is unreachable it waits."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    async with Listener(n2) as listener:
        await n1.revocations.add(revocation("before"))
        await listener.holds(revocation("before"))
        await harness.cut(n2)
        await n1.revocations.add(revocation("meanwhile"))
        await n1.revocations.unblock(revocation("before").name)
        await harness.mend(n2)
        await listener.holds(revocation("meanwhile"))
        assert True not in listener.everything


@pytest.mark.promise("P8")
async def test_a_follower_that_missed_changes_is_given_everything(harness: Harness) -> None:
    """Everything comes again whenever a change may have been missed."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    async with Listener(n2) as listener:
        await n1.revocations.add(revocation("before"))
        await listener.holds(revocation("before"))
        await harness.cut(n2)
        many = [revocation(f"user-{number}") for number in range(MANY)]
        await n1.revocations.restore(many)
        await n1.revocations.unblock(revocation("before").name)
        await harness.mend(n2)
        await listener.holds(*many)
        assert listener.everything == [False, False]
        await n1.revocations.add(revocation("after"))
        await listener.holds(*many, revocation("after"))


async def test_nothing_can_be_revoked_while_the_grid_is_unreachable(harness: Harness) -> None:
    """GridUnavailable: see the module."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    async with Listener(n2) as listener:
        await harness.cut(n1)
        for attempt in (
            n1.revocations.add(revocation()),
            n1.revocations.unblock(revocation().name),
            n1.revocations.restore([revocation()]),
            n1.revocations.forget([revocation()]),
        ):
            with pytest.raises(GridUnavailable):
                await attempt
        await harness.mend(n1)
        assert not listener.held
        await n1.revocations.add(revocation("later"))
        await listener.holds(revocation("later"))


@pytest.mark.promise("P8")
async def test_a_restarted_grid_is_read_again(fragile: Harness) -> None:
    """After each time that the grid may have lost writes."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    async with Listener(n2) as listener:
        await n1.revocations.add(revocation("before"))
        await listener.holds(revocation("before"))
        await fragile.restart(n1, n2)
        await eventually(lambda: listener.everything == [False, True], message="all was read again")
        await listener.holds(revocation("before"))
        await n1.revocations.add(revocation("after"))
        await listener.holds(revocation("before"), revocation("after"))


async def test_an_emptied_grid_is_empty_until_somebody_restores(fragile: Harness) -> None:
    """lost_writes: what is missing here need not have been unblocked."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    kept = [revocation(f"user-{number}") for number in range(3)]
    async with Listener(n2) as listener:
        await n1.revocations.restore(kept)
        await listener.holds(*kept)
        await fragile.go_away()
        await fragile.come_back(emptied=True)
        await eventually(lambda: listener.everything[-1], message="the loss was told")
        await listener.holds()
        # Numbering has begun anew, and nobody is deaf for it.
        await n1.revocations.restore(kept)
        await n2.revocations.restore(kept)
        await listener.holds(*kept)


async def test_a_grid_that_went_back_is_read_as_it_is_now(fragile: Harness) -> None:
    """Everything the grid holds, also what had been unblocked since."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    async with Listener(n2) as listener:
        await n1.revocations.add(revocation("early"))
        snapshot = await fragile.snapshot()
        await n1.revocations.unblock(revocation("early").name)
        await n1.revocations.add(revocation("late"))
        await listener.holds(revocation("late"))
        await fragile.restart(n1, n2, snapshot=snapshot)
        await listener.holds(revocation("early"))
        assert listener.everything[-1]
        assert await n2.revocations.restore([revocation("late")]) == 1
        await listener.holds(revocation("early"), revocation("late"))
