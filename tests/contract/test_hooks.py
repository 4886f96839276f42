"""The contract of ``HookStore``: leases, cursors, and what is read of the journal by them."""

from __future__ import annotations

import pytest

from gateway.core.hooks.cursor import Cursor, Gap, GapReason, Page, follow
from gateway.core.hooks.hook import HookName
from gateway.core.journal import write_records
from gateway.ports import Appended, Grid, GridUnavailable, HookTaken, JournalBatch
from tests.contract.harness import JOURNAL_LENGTH, LONG, Harness, node

PARTITION = 7
N1, N2 = node("n1"), node("n2")
CRM, AUDIT = HookName("crm"), HookName("audit")


def batch(number: int, *ids: int) -> JournalBatch:
    """Make a batch of events with some numbers."""
    records = [
        {
            "version": 3,
            "id": f"run-{each}",
            "type": "session_opened",
            "at": 1,
            "node": "n1",
            "incarnation": "run",
            "release": "0",
        }
        for each in ids
    ]
    return JournalBatch(PARTITION, number, len(ids), write_records(records))


async def append(grid: Grid, *batches: JournalBatch) -> None:
    """Append one after the other and expect that each is there."""
    for each in batches:
        (result,) = await grid.journal.append([each])
        assert isinstance(result, Appended)


async def read(grid: Grid, term: int = 1, *, name: HookName = CRM, known: bool = False, entries: int = 100) -> Page:
    """Read the stream of these tests."""
    return (await grid.hooks.read(name, term, known=known, entries=entries))[PARTITION]


def found(page: Page) -> list[object]:
    """Tell what is there: numbers of events, and gaps."""
    return [
        each if isinstance(each, Gap) else int(each["id"].rpartition("-")[2])
        for each, _ in follow(page)
        if each is not None
    ]


def after(page: Page, events: int) -> Cursor:
    """Tell the cursor behind so many events."""
    return [behind for what, behind in follow(page) if isinstance(what, dict)][events - 1]


# --- leases -----------------------------------------------------------------------------------------------------------


async def test_one_node_has_a_hook_and_terms_rise(harness: Harness) -> None:
    """Take hooks that nobody has, and keep those that the node has."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    first = (await n1.hooks.hold(N1, [CRM, AUDIT], lease=LONG))[CRM]
    assert first.node == N1
    assert (await n2.hooks.hold(N2, [CRM], lease=LONG))[CRM].node == N1
    assert (await n1.hooks.hold(N1, [CRM], lease=LONG))[CRM].term == first.term
    assert {name: each.node for name, each in (await n2.hooks.holders()).items()} == {CRM: N1, AUDIT: N1}
    await n1.hooks.release(N1, [CRM])
    await n1.hooks.release(N2, [AUDIT])
    second = (await n2.hooks.hold(N2, [CRM, AUDIT], lease=LONG))[CRM]
    assert second.node == N2
    assert second.term > first.term
    assert (await n2.hooks.holders())[AUDIT].node == N1
    assert await n1.hooks.hold(N1, [], lease=LONG) == {}


async def test_a_lease_that_is_over_can_be_taken(harness: Harness) -> None:
    """…for *lease* seconds from now."""
    grid = await harness.grid()
    first = (await grid.hooks.hold(N1, [CRM], lease=harness.short))[CRM]
    await harness.advance(2 * harness.short)
    assert await grid.hooks.holders() == {}
    second = (await grid.hooks.hold(N2, [CRM], lease=LONG))[CRM]
    assert (second.node, second.term > first.term) == (N2, True)


# --- cursors ----------------------------------------------------------------------------------------------------------


async def test_a_new_hook_begins_now(harness: Harness) -> None:
    """A stream in which the hook has no cursor yet gives it one: behind all that is there."""
    grid = await harness.grid()
    await append(grid, batch(1, 1, 2))
    assert found(await read(grid)) == []
    await append(grid, batch(2, 3, 4), batch(3, 5))
    page = await read(grid)
    assert found(page) == [3, 4, 5]
    assert page.behind == await grid.hooks.behind(CRM) == 3


async def test_a_hook_that_is_older_than_the_journal_gets_all_of_it(harness: Harness) -> None:
    """Nothing was there that could be before its beginning."""
    grid = await harness.grid()
    page = await read(grid)
    assert (page.incarnation, page.behind, found(page)) == ("", 0, [])
    await append(grid, batch(1, 1))
    assert found(await read(grid)) == [1]


async def test_reading_goes_on_in_the_middle_of_an_entry(harness: Harness) -> None:
    """Move cursors of a hook; what is read is behind them."""
    grid = await harness.grid()
    await read(grid)
    await append(grid, batch(1, 1, 2, 3), batch(2, 4))
    page = await read(grid)
    await grid.hooks.advance(CRM, 1, {PARTITION: after(page, 2)})
    page = await read(grid)
    assert found(page) == [3, 4]
    assert page.behind == await grid.hooks.behind(CRM) == 2
    await grid.hooks.advance(CRM, 1, {PARTITION: after(page, 1)})
    assert found(await read(grid, entries=1)) == [4]
    await grid.hooks.advance(CRM, 1, {PARTITION: after(page, 2)})
    page = await read(grid)
    assert (found(page), page.behind) == ([], 0)


async def test_entries_that_are_read_are_bounded(harness: Harness) -> None:
    """entries: that are read of each stream at most."""
    grid = await harness.grid()
    await read(grid)
    await append(grid, *(batch(number, number) for number in range(1, 5)))
    page = await read(grid, entries=2)
    assert (found(page), page.behind) == ([1, 2], 4)


async def test_hooks_do_not_know_of_each_other(harness: Harness) -> None:
    """A cursor for each."""
    grid = await harness.grid()
    await read(grid)
    await read(grid, name=AUDIT)
    await append(grid, batch(1, 1))
    await grid.hooks.advance(CRM, 1, {PARTITION: after(await read(grid), 1)})
    assert found(await read(grid)) == []
    assert found(await read(grid, name=AUDIT)) == [1]


@pytest.mark.promise("P3")
async def test_nobody_moves_a_cursor_that_a_later_term_has_read(harness: Harness) -> None:
    """…which deliverers of earlier terms cannot move then."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await read(n1)
    await append(n1, batch(1, 1, 2, 3))
    slow = await read(n1, 1)
    await n2.hooks.advance(CRM, 2, {PARTITION: after(await read(n2, 2), 3)})
    with pytest.raises(HookTaken):
        await n1.hooks.advance(CRM, 1, {PARTITION: after(slow, 1)})
    with pytest.raises(HookTaken):
        await read(n1, 1)
    assert found(await read(n2, 2)) == []


async def test_an_advance_whose_answer_was_lost_can_be_asked_for_again(harness: Harness) -> None:
    """Each step is idempotent."""
    grid = await harness.grid()
    await read(grid)
    await append(grid, batch(1, 1, 2))
    cursor = after(await read(grid), 1)
    await harness.asked_again(grid, lambda: grid.hooks.advance(CRM, 1, {PARTITION: cursor}))
    assert found(await read(grid)) == [2]


# --- what is missing --------------------------------------------------------------------------------------------------


async def test_what_the_cap_cuts_before_a_hook_has_passed_it_is_found_and_counted(harness: Harness) -> None:
    """A cursor does not keep what is behind it from being cut by the cap."""
    grid = await harness.grid()
    await read(grid)
    await append(grid, batch(1, 1, 2))
    await grid.hooks.advance(CRM, 1, {PARTITION: after(await read(grid), 1)})
    results = [
        result
        for number in range(2, JOURNAL_LENGTH + 3)
        for result in await grid.journal.append([batch(number, 10 * number, 10 * number + 1)])
    ]
    assert results == [Appended()] * (JOURNAL_LENGTH + 1), "it is not unclaimed: a hook reads it"
    page = await read(grid)
    gap, *rest = found(page)
    assert isinstance(gap, Gap)
    assert (gap.reason, gap.count) == (GapReason.RETENTION, 3), "2, 20 and 21"
    assert rest[:3] == [30, 31, 40]
    assert page.behind == 2 * (JOURNAL_LENGTH + 1) + 1


async def test_a_journal_that_was_lost_is_read_from_its_beginning_behind_a_gap(fragile: Harness) -> None:
    """If it is *known*, before all that is there, as its cursor was lost."""
    grid = await fragile.grid()
    await read(grid)
    await append(grid, batch(1, 1))
    await grid.hooks.advance(CRM, 1, {PARTITION: after(await read(grid), 1)})
    await fragile.go_away()
    await fragile.come_back(emptied=True)
    await fragile.up(grid)
    await append(grid, batch(2, 2, 3))
    gap, *rest = found(await read(grid, known=True))
    assert isinstance(gap, Gap)
    assert (gap.reason, gap.count, rest) == (GapReason.JOURNAL_LOST, None, [2, 3])


async def test_a_grid_that_may_have_lost_writes_is_told_and_nothing_is_left_out(fragile: Harness) -> None:
    """Positions of a grid that was rolled back are read on from."""
    grid = await fragile.grid()
    await read(grid)
    await append(grid, batch(1, 1), batch(2, 2))
    snapshot = await fragile.snapshot()
    await append(grid, batch(3, 3))
    await grid.hooks.advance(CRM, 1, {PARTITION: after(await read(grid), 3)})
    await fragile.restart(grid, snapshot=snapshot)
    await append(grid, batch(4, 4))
    events = found(await read(grid))
    assert [each for each in events if isinstance(each, int)] == [1, 2, 4], "again, rather than never"
    await grid.hooks.advance(CRM, 1, {PARTITION: after(await read(grid), 2)})
    gap, rest = found(await read(grid))
    assert isinstance(gap, Gap)
    assert (gap.reason, rest) == (GapReason.GRID_LOST_WRITES, 4)


# --- what is said, and the end ----------------------------------------------------------------------------------------


async def test_what_is_said_of_hooks_is_kept(harness: Harness) -> None:
    """Keep what is said of a hook, in the place of what was said before."""
    grid = await harness.grid()
    assert await grid.hooks.told() == {}
    await grid.hooks.tell(CRM, b"1")
    await grid.hooks.tell(CRM, b"2")
    assert await grid.hooks.told() == {CRM: b"2"}


async def test_another_attempt_can_be_asked_for(harness: Harness) -> None:
    """Ask the node that delivers for a hook to try at once."""
    grid = await harness.grid()
    assert not await grid.hooks.ask_again(CRM)
    await grid.hooks.tell(CRM, b"1")
    assert await grid.hooks.ask_again(CRM)
    assert set(await grid.hooks.asked()) == {CRM}
    assert await grid.hooks.told() == {CRM: b"1"}
    await grid.hooks.answered(CRM)
    assert set(await grid.hooks.asked()) == set()


async def test_a_hook_that_nobody_has_can_be_forgotten_with_its_cursors(harness: Harness) -> None:
    """Forget a hook, and free its cursors, unless somebody has it."""
    grid = await harness.grid()
    await grid.hooks.hold(N1, [CRM], lease=LONG)
    await read(grid)
    await grid.hooks.tell(CRM, b"1")
    await append(grid, batch(1, 1))
    assert not await grid.hooks.forget(CRM)
    assert await grid.hooks.behind(CRM) == 1
    await grid.hooks.release(N1, [CRM])
    assert await grid.hooks.forget(CRM)
    assert await grid.hooks.forget(CRM), "asked again"
    assert (await grid.hooks.behind(CRM), await grid.hooks.told()) == (None, {})
    with pytest.raises(HookTaken):
        await grid.hooks.advance(CRM, 1, {PARTITION: Cursor("x")})
    assert found(await read(grid)) == [], "as a new one"


async def test_a_cut_off_node_is_told(harness: Harness) -> None:
    """GridUnavailable: see the module."""
    grid = await harness.grid()
    await harness.cut(grid)
    for call in (
        grid.hooks.hold(N1, [CRM], lease=LONG),
        grid.hooks.holders(),
        grid.hooks.read(CRM, 1, known=False, entries=1),
        grid.hooks.told(),
    ):
        with pytest.raises(GridUnavailable):
            await call
    await harness.mend(grid)
