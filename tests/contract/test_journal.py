"""The contract of ``JournalStore``, and of what takeovers tell the journal."""

from __future__ import annotations

import asyncio

import pytest

from gateway.ports import Appended, ExpiredLease, Grid, GridUnavailable, JournalBatch
from tests.contract.examples import orphan_all, session
from tests.contract.harness import JOURNAL_LENGTH, LONG, Harness, node

PARTITION = 7
N1, N2 = node("n1"), node("n2")


def batch(number: int, *, partition: int = PARTITION, count: int = 1, text: str = "") -> JournalBatch:
    """Make a batch that can be told from others."""
    return JournalBatch(partition, number, count, (text or f"batch {number}").encode())


async def append(grid: Grid, *batches: JournalBatch) -> list[Appended]:
    """Append one after the other and expect that each is there."""
    results = [result for each in batches for result in await grid.journal.append([each])]
    assert all(isinstance(each, Appended) for each in results), results
    return [each for each in results if isinstance(each, Appended)]


async def texts(harness: Harness, partition: int = PARTITION) -> list[str]:
    """Tell which batches are there, in order."""
    return [events.decode() for _, _, events in (await harness.journal(partition)).entries]


# --- append -----------------------------------------------------------------------------------------------------------


async def test_batches_are_kept_in_order_with_their_counts(harness: Harness) -> None:
    """Whoever appends to a partition waits for the answer before the next one there."""
    grid = await harness.grid()
    await append(grid, batch(1, count=3, text="ä\nb\nc"), batch(2, count=2), batch(3))
    entries = (await harness.journal(PARTITION)).entries
    assert [(count, events) for _, count, events in entries] == [
        (3, "ä\nb\nc".encode()),
        (2, b"batch 2"),
        (1, b"batch 3"),
    ]
    ids = [each for each, _, _ in entries]
    assert ids == sorted(set(ids))


async def test_ids_begin_with_the_generation_of_the_grid(harness: Harness) -> None:
    """An entry's id is ``<grid generation>-<sequence>``."""
    grid = await harness.grid()
    await append(grid, batch(1), batch(2))
    assert {generation for (generation, _), _, _ in (await harness.journal(PARTITION)).entries} == {grid.generation}


async def test_one_call_appends_to_several_partitions(harness: Harness) -> None:
    """One for each partition at most."""
    grid = await harness.grid()
    results = await grid.journal.append([batch(1, partition=each, text=f"{each}") for each in range(16)])
    assert results == [Appended()] * 16
    assert [await texts(harness, each) for each in range(16)] == [[f"{each}"] for each in range(16)]
    assert await grid.journal.append([]) == []


async def test_a_batch_is_appended_once_however_often_it_is_asked_for(harness: Harness) -> None:
    """A batch whose number is not above the last one is there already, and is not appended again."""
    grid = await harness.grid()
    await append(grid, batch(1), batch(3))
    assert await append(grid, batch(3), batch(1), batch(2)) == [Appended(duplicate=True)] * 3
    assert await texts(harness) == ["batch 1", "batch 3"]


async def test_a_batch_whose_answer_was_lost_can_be_asked_for_again(harness: Harness) -> None:
    """GridUnavailable: of each it is unknown whether it was appended; ask again with the same batches."""
    grid = await harness.grid()
    await harness.asked_again(grid, lambda: grid.journal.append([batch(1)]))
    await append(grid, batch(1), batch(2))
    assert await texts(harness) == ["batch 1", "batch 2"]


async def test_numbers_are_those_of_each_node_incarnation(harness: Harness) -> None:
    """…the last one that *this node incarnation* appended *in the partition*."""
    grids = [await harness.grid(name, run) for name, run in (("n1", "a"), ("n2", "b"), ("n1", "c"))]
    for number, grid in enumerate(grids):
        await append(grid, batch(1, text=f"{number}"), batch(1, partition=3, text=f"{number}"))
    assert await texts(harness) == await texts(harness, 3) == ["0", "1", "2"]


# --- the cap ----------------------------------------------------------------------------------------------------------


async def test_what_the_cap_cuts_while_nobody_reads_is_counted_apart(harness: Harness) -> None:
    """cut_unclaimed: events that it cut while no reader had ever committed anything."""
    grid = await harness.grid()
    await append(grid, *(batch(number, count=number) for number in range(1, JOURNAL_LENGTH + 1)))
    assert (await harness.journal(PARTITION)).unclaimed == 0
    cut = await append(grid, batch(JOURNAL_LENGTH + 1), batch(JOURNAL_LENGTH + 2))
    assert cut == [Appended(cut_unclaimed=1), Appended(cut_unclaimed=2)]
    held = await harness.journal(PARTITION)
    assert (len(held.entries), held.lost, held.unclaimed) == (JOURNAL_LENGTH, 0, 3)


async def test_what_the_cap_cuts_before_the_reader_had_it_is_counted(harness: Harness) -> None:
    """cut_unread: events that the cap cut before the reader of the journal had them, to make room."""
    grid = await harness.grid()
    await append(grid, *(batch(number, count=10) for number in range(1, JOURNAL_LENGTH + 1)))
    second = (await harness.journal(PARTITION)).entries[1][0]
    await harness.commit_journal(PARTITION, second)
    following = [batch(JOURNAL_LENGTH + each) for each in range(1, 5)]
    assert await append(grid, *following) == [Appended(), Appended(), Appended(cut_unread=10), Appended(cut_unread=10)]
    held = await harness.journal(PARTITION)
    assert (len(held.entries), held.lost, held.unclaimed) == (JOURNAL_LENGTH, 20, 0)


# --- the grid unreachable, back, and not what it was ------------------------------------------------------------------


async def test_a_grid_that_was_emptied_begins_another_incarnation(fragile: Harness) -> None:
    """A partition that came back with nothing begins a new incarnation."""
    grid = await fragile.grid()
    await append(grid, batch(1), batch(2))
    before = await fragile.journal(PARTITION)
    await fragile.go_away()
    await fragile.come_back(emptied=True)
    await append(grid, batch(3))
    after = await fragile.journal(PARTITION)
    assert [events for _, _, events in after.entries] == [b"batch 3"]
    assert after.incarnation != before.incarnation
    assert after.entries[0][0] > before.entries[-1][0]


async def test_ids_stand_for_no_other_entry_after_a_rollback(fragile: Harness) -> None:
    """…also when the grid came back with less than it had."""
    grid = await fragile.grid()
    await append(grid, batch(1), batch(2))
    snapshot = await fragile.snapshot()
    await append(grid, batch(3), batch(4))
    before = await fragile.journal(PARTITION)
    await fragile.restart(grid, snapshot=snapshot)
    await append(grid, batch(5), batch(6))
    after = await fragile.journal(PARTITION)
    assert [events.decode() for _, _, events in after.entries] == ["batch 1", "batch 2", "batch 5", "batch 6"]
    assert after.incarnation == before.incarnation
    assert after.entries[2][0] > before.entries[-1][0]


async def test_a_restart_that_loses_nothing_keeps_the_incarnation(fragile: Harness) -> None:
    """Numbers and incarnation are in the grid like the rest."""
    grid = await fragile.grid()
    await append(grid, batch(1))
    before = await fragile.journal(PARTITION)
    await fragile.restart(grid)
    assert await append(grid, batch(1), batch(2)) == [Appended(duplicate=True), Appended()]
    after = await fragile.journal(PARTITION)
    assert after.incarnation == before.incarnation
    assert after.entries[0] == before.entries[0]


async def test_nodes_append_side_by_side_without_losing_anything(harness: Harness) -> None:
    """Appending a batch is one atomic step."""
    grids = [await harness.grid(f"n{number}", f"run-{number}") for number in range(3)]
    await asyncio.gather(
        *(append(grid, batch(1, text=f"a{n}"), batch(2, text=f"b{n}")) for n, grid in enumerate(grids))
    )
    found = await texts(harness)
    assert sorted(found) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert all(found.index(f"a{number}") < found.index(f"b{number}") for number in range(3))


async def test_a_cut_off_node_is_told(harness: Harness) -> None:
    """GridUnavailable: ask again with the same batches."""
    grid = await harness.grid()
    await harness.cut(grid)
    with pytest.raises(GridUnavailable):
        await grid.journal.append([batch(1)])
    await harness.mend(grid)
    await append(grid, batch(1))
    assert await texts(harness) == ["batch 1"]


# --- takeovers --------------------------------------------------------------------------------------------------------


async def test_a_takeover_tells_when_the_node_last_lived_and_whose_sessions_it_put_on_the_clock(
    harness: Harness,
) -> None:
    """The expired lease; those that were put on the clock now, with the epoch of the expired node's claim."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    records = [session() for _ in range(3)]
    for record in records:
        await n1.sessions.create(record)
    away = session()
    await n1.sessions.create(away)
    await n2.sessions.claim(away.id, by=N2, token_generation=away.token_generation, attempt=type(away.attempt)(1))
    await n2.nodes.join(N2, lease=LONG)
    await n1.nodes.join(N1, lease=harness.short)
    await harness.advance(2 * harness.short)
    lease = await n2.nodes.take_over(N1, by=N2, within=LONG)
    assert isinstance(lease, ExpiredLease)
    assert lease.length == pytest.approx(harness.short)
    assert lease.ago >= harness.short * 0.9
    orphaned = await orphan_all(n2, N1)
    assert sorted(orphaned) == sorted((record.id, record.epoch) for record in records)
    assert await orphan_all(n2, N1) == []
