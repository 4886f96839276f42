"""The contract of ``SessionStore`` for lists of selections: entries come and go, and their order stays."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from gateway.core.topics.topics import session_partition
from gateway.ports import Claimed, Fenced, Grid, SelectionChanges, SessionChanges, SessionRecord
from tests.contract.examples import claim, ownership, session
from tests.contract.harness import Harness, node


async def change(
    grid: Grid, record: SessionRecord, *, removed: tuple[str, ...] = (), added: tuple[str, ...] = ()
) -> None:
    await grid.sessions.change(ownership(record), SessionChanges(selection_changes=SelectionChanges(removed, added)))


async def stored(grid: Grid, record: SessionRecord) -> tuple[str, ...]:
    found = await grid.sessions.find(record.id)
    assert found is not None
    return found.selections


async def test_entries_come_at_the_end_and_go_from_where_they_are(harness: Harness) -> None:
    grid = await harness.grid()
    record = session(selections=("+b/**", "-b/x", "+a b/ü", "+c"))
    await grid.sessions.create(record)
    await change(grid, record, removed=("b/x",), added=("-z", "+a"))
    assert await stored(grid, record) == ("+b/**", "+a b/ü", "+c", "-z", "+a")
    await change(grid, record, added=("-b/**",))
    assert await stored(grid, record) == ("+a b/ü", "+c", "-z", "+a", "-b/**"), "no selector is in a list twice"
    await change(grid, record, removed=("nowhere", "a b/ü", "c", "z", "a", "b/**"))
    assert await stored(grid, record) == ()
    await change(grid, record, added=("+again",))
    assert await stored(grid, record) == ("+again",)


async def test_a_change_asked_again_because_its_answer_was_lost_changes_nothing(harness: Harness) -> None:
    grid = await harness.grid()
    record = session(selections=("+a", "+b", "+c"))
    await grid.sessions.create(record)
    for _ in range(3):
        await change(grid, record, removed=("b",), added=("-a/**", "+d"))
        assert await stored(grid, record) == ("+a", "+c", "-a/**", "+d")


async def test_the_whole_list_and_its_entries_are_the_same_list(harness: Harness) -> None:
    grid = await harness.grid()
    record = session(selections=("+old",))
    await grid.sessions.create(record)
    await change(grid, record, added=("+a", "+b"))
    await grid.sessions.change(ownership(record), SessionChanges(selections=("+b", "+x")))
    await change(grid, record, removed=("b",), added=("+y",))
    assert await stored(grid, record) == ("+x", "+y")
    assert list(await grid.sessions.restore([replace(record, selections=("+y", "+q"))], recreate=False))
    await change(grid, record, added=("+z",))
    assert await stored(grid, record) == ("+y", "+q", "+z")


async def test_who_claims_a_session_gets_its_list_in_order(harness: Harness) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    order = random.Random(5)
    wanted: list[str] = []
    record = session()
    await n1.sessions.create(record)
    for number in range(60):
        entry = f"{order.choice('+-')}t/{number}/**"
        gone = order.sample(wanted, min(len(wanted), order.choice((0, 0, 1, 2))))
        wanted = [each for each in wanted if each not in gone] + [entry]
        await change(n1, record, removed=tuple(each[1:] for each in gone), added=(entry,))
    taken = await claim(n2, record, node("n2"), token_generation=1, attempt=1)
    assert isinstance(taken, Claimed)
    assert taken.record.selections == tuple(wanted)
    again = await claim(n2, record, node("n2"), token_generation=1, attempt=1)
    assert isinstance(again, Claimed)
    assert again.record.selections == tuple(wanted)
    page = await n2.sessions.page(session_partition(record.id), after=None, limit=1000)
    assert [each.selections for each in page.sessions if each.id == record.id] == [tuple(wanted)]


async def test_a_long_list_is_written_and_read(harness: Harness) -> None:
    """More entries than a script of Redis can pass on in one call."""
    grid = await harness.grid()
    wanted = tuple(f"+t/{number}" for number in range(9000))
    record = session(selections=wanted)
    await grid.sessions.create(record)
    assert await stored(grid, record) == wanted
    await grid.sessions.change(ownership(record), SessionChanges(selections=wanted[::-1]))
    await change(grid, record, removed=tuple(each[1:] for each in wanted[:8999]), added=wanted[:4500])
    assert await stored(grid, record) == (wanted[8999], *wanted[:4500])


async def test_changes_of_entries_happen_in_the_order_in_which_they_were_started(harness: Harness) -> None:
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    await asyncio.gather(
        *(change(grid, record, removed=(str(number - 1),), added=(f"+{number}", "-last")) for number in range(40))
    )
    assert await stored(grid, record) == ("+39", "-last")


@pytest.mark.promise("P3")
async def test_an_entry_of_a_former_owner_is_refused(harness: Harness) -> None:
    """P3: every write for a session carries its epoch and the grid refuses an older one."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session(selections=("+a",))
    await n1.sessions.create(record)
    assert isinstance(await claim(n2, record, node("n2"), token_generation=1, attempt=1), Claimed)
    with pytest.raises(Fenced):
        await change(n1, record, removed=("a",), added=("+b",))
    assert await stored(n2, record) == ("+a",)
