"""The contract of ``DestinationStore``: everything first, then each change, one of each name, and a bound of all."""

from __future__ import annotations

import pytest

from gateway.core.destinations.destination import MAX_DESTINATIONS, Destination, Origin
from gateway.core.destinations.limits import HistoryLimits, Limits, QueueLimits, ValueLimits, WhenFull
from gateway.core.topics.selectors import parse_selector
from gateway.ports import AllDestinations, Applied, DestinationRemoved, GridUnavailable, TooManyDestinations
from tests.contract import listening
from tests.contract.harness import Harness
from tests.support.clock import eventually

FILE, ADMINISTRATOR = Origin.FILE, Origin.ADMINISTRATOR


def destination(
    selector: str = "log/**",
    limits: Limits = HistoryLimits(),  # noqa: B008 - it cannot be changed
    origin: Origin = ADMINISTRATOR,
    *,
    made: float = 1000.0,
) -> Destination:
    """Make a destination."""
    return Destination(selector=parse_selector(selector), limits=limits, origin=origin, made=made)


class Listener(listening.Listener[Destination, DestinationRemoved]):
    """Follows the destinations of one node."""

    async def _read(self) -> None:
        async for news in self.grid.destinations.follow():
            if isinstance(news, AllDestinations):
                self.hear_all(news.destinations, lost_writes=news.lost_writes)
            else:
                self.hear_changes(news.changes)

    def _hear(self, change: Destination | DestinationRemoved) -> None:
        if isinstance(change, DestinationRemoved):
            self.held.pop(change.name, None)  # unknown if it was never one that this release can read
        else:
            self.held[change.name] = change


async def test_a_follower_is_given_everything_and_then_each_change(harness: Harness) -> None:
    """Yield everything, then every change."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    first = destination("log/**", HistoryLimits(count=5, age=2.5))
    second = destination("jobs/ünïcode ✓", QueueLimits(full=WhenFull.DROP_OLDEST, ack_within=3.0), FILE)
    third = destination("log/**", ValueLimits(), FILE, made=1000.25)
    assert await n1.destinations.put(first)
    async with Listener(n2) as listener:
        await listener.holds(first)
        assert await n1.destinations.put(second)
        assert await n1.destinations.put(third)
        await listener.holds(first, second, third)
        assert await n1.destinations.remove(first.name)
        await listener.holds(second, third)
        assert listener.changes == [second, third, DestinationRemoved(first.name)]
        assert listener.everything == [False]
    async with Listener(n1) as again:
        await again.holds(second, third)


async def test_what_says_the_same_is_no_change(harness: Harness) -> None:
    """False if it said the same already; then nothing was written."""
    grid = await harness.grid()
    async with Listener(grid) as listener:
        assert await grid.destinations.put(destination(made=1.0))
        assert not await grid.destinations.put(destination(made=2.0))
        assert await grid.destinations.put(destination(limits=ValueLimits(), made=0.5)), "whenever it was made"
        await listener.holds(destination(limits=ValueLimits(), made=0.5))
        assert len(listener.changes) == 2


async def test_removing_what_is_not_there_is_no_error_and_no_news(harness: Harness) -> None:
    """False if there was none."""
    grid = await harness.grid()
    async with Listener(grid) as listener:
        assert not await grid.destinations.remove(destination().name)
        await grid.destinations.put(destination())
        await listener.holds(destination())
        assert listener.changes == [destination()]


async def test_a_file_replaces_what_the_file_said_before_and_nothing_else(harness: Harness) -> None:
    """Make these all that an origin says, in one step."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    by_hand = destination("a/**")
    same, other, gone = (destination(each, origin=FILE) for each in ("a/**", "b/**", "c/**"))
    await n1.destinations.put(by_hand)
    async with Listener(n2) as listener:
        assert await n1.destinations.apply(FILE, [same, other, gone]) == Applied(3, 0)
        await listener.holds(by_hand, same, other, gone)
        changed, new = destination("b/**", ValueLimits(), FILE), destination("d/**", origin=FILE)
        said = [destination("a/**", origin=FILE, made=2000.0), changed, new]
        assert await n1.destinations.apply(FILE, said) == Applied(2, 1)
        await listener.holds(by_hand, same, changed, new)
        listener.changes.clear()
        assert await n2.destinations.apply(FILE, said) == Applied(0, 0)
        assert await n2.destinations.apply(FILE, []) == Applied(0, 3)
        await listener.holds(by_hand)
        assert len(listener.changes) == 3


@pytest.mark.promise("P20")
async def test_there_is_a_bound_of_all_together(harness: Harness) -> None:
    """MAX_DESTINATIONS of all origins together; TooManyDestinations: nothing was written."""
    grid = await harness.grid()
    by_hand = [destination(f"by/hand/{number}") for number in range(2)]
    file = [destination(f"by/file/{number}", origin=FILE) for number in range(MAX_DESTINATIONS - 2)]
    one_more = destination("one/more", origin=FILE)
    async with Listener(grid) as listener:
        for each in by_hand:
            await grid.destinations.put(each)
        assert await grid.destinations.apply(FILE, file) == Applied(len(file), 0)
        with pytest.raises(TooManyDestinations):
            await grid.destinations.put(destination("one/more"))
        with pytest.raises(TooManyDestinations):
            await grid.destinations.apply(FILE, [*file[1:], one_more, destination("another", origin=FILE)])
        assert await grid.destinations.restore([one_more]) == 0
        await listener.holds(*by_hand, *file)
        # What is there already can be changed, and replaced by as many.
        changed = destination(by_hand[0].selector.text, ValueLimits())
        assert await grid.destinations.put(changed)
        assert await grid.destinations.apply(FILE, [*file[1:], one_more]) == Applied(1, 1)
        await listener.holds(changed, by_hand[1], *file[1:], one_more)


async def test_steps_asked_again_after_their_answers_were_lost(harness: Harness) -> None:
    """Each step is idempotent."""
    grid = await harness.grid()
    one, two = destination("one"), destination("two", origin=FILE)
    await harness.asked_again(grid, lambda: grid.destinations.put(one))
    await harness.asked_again(grid, lambda: grid.destinations.apply(FILE, [two]))
    await harness.asked_again(grid, lambda: grid.destinations.restore([destination("three")]))
    await harness.asked_again(grid, lambda: grid.destinations.remove(one.name))
    async with Listener(grid) as listener:
        await listener.holds(two, destination("three"))


async def test_only_what_is_missing_or_older_is_restored(harness: Harness) -> None:
    """Put back those that a grid […] holds not at all, or as they were made earlier."""
    grid = await harness.grid()
    older, newer = destination("both", made=1.0), destination("both", ValueLimits(), made=2.0)
    kept = destination("kept", made=5.0)
    await grid.destinations.put(older)
    await grid.destinations.put(kept)
    async with Listener(grid) as listener:
        offered = [newer, destination("missing"), destination("kept", ValueLimits(), made=5.0), kept]
        assert await grid.destinations.restore(offered) == 2
        await listener.holds(newer, destination("missing"), kept)
        assert await grid.destinations.restore(offered) == 0
        assert len(listener.changes) == 2


async def test_a_follower_that_was_cut_off_goes_on_where_it_was(harness: Harness) -> None:
    """While the grid is unreachable it waits."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    async with Listener(n2) as listener:
        await n1.destinations.put(destination("before"))
        await listener.holds(destination("before"))
        await harness.cut(n2)
        for attempt in (
            n2.destinations.put(destination("never")),
            n2.destinations.remove(destination("before").name),
            n2.destinations.apply(FILE, []),
            n2.destinations.restore([destination("never")]),
        ):
            with pytest.raises(GridUnavailable):
                await attempt
        await n1.destinations.put(destination("meanwhile"))
        await n1.destinations.remove(destination("before").name)
        await harness.mend(n2)
        await listener.holds(destination("meanwhile"))
        assert True not in listener.everything


async def test_a_follower_that_missed_changes_is_given_everything(harness: Harness) -> None:
    """Everything comes again whenever a change may have been missed."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    many = [destination(f"topic/{number}", origin=FILE) for number in range(600)]
    async with Listener(n2) as listener:
        await n1.destinations.put(destination("before"))
        await listener.holds(destination("before"))
        await harness.cut(n2)
        for said in (many, [], many):  # more changes than are kept
            await n1.destinations.apply(FILE, said)
        await harness.mend(n2)
        await listener.holds(destination("before"), *many)
        assert listener.everything == [False, False]
        await n1.destinations.put(destination("after"))
        await listener.holds(destination("before"), *many, destination("after"))


async def test_an_emptied_grid_is_empty_until_somebody_restores(fragile: Harness) -> None:
    """lost_writes: what is missing here need not have been removed."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    kept = [destination(f"topic/{number}") for number in range(3)]
    async with Listener(n2) as listener:
        await n1.destinations.restore(kept)
        await listener.holds(*kept)
        await fragile.go_away()
        await fragile.come_back(emptied=True)
        await eventually(lambda: listener.everything[-1], message="the loss was told")
        await listener.holds()
        # Numbering has begun anew, and nobody is deaf for it.
        await n1.destinations.restore(kept)
        await n2.destinations.restore(kept)
        await listener.holds(*kept)


async def test_a_grid_that_went_back_is_read_as_it_is_now(fragile: Harness) -> None:
    """Everything the grid holds, also what had been removed since."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    async with Listener(n2) as listener:
        await n1.destinations.put(destination("early"))
        snapshot = await fragile.snapshot()
        await n1.destinations.remove(destination("early").name)
        await n1.destinations.put(destination("late"))
        await listener.holds(destination("late"))
        await fragile.restart(n1, n2, snapshot=snapshot)
        await listener.holds(destination("early"))
        assert listener.everything[-1]
