"""The contract of ``SessionStore``: expire, orphan, restore, and that nothing is left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.types import Attempt, Epoch, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import Fenced, Grid, Restored, SessionChanges, SessionRecord
from tests.contract.examples import (
    claim,
    claimed,
    expire_all,
    ids_in_one_partition,
    orphan_all,
    ownership,
    partition_of,
    publish,
    published,
    refused,
    session,
    topic_of,
)
from tests.contract.harness import LONG, Harness, node
from tests.support.clock import eventually

N1, N2, N3 = node("n1"), node("n2"), node("n3")


async def connected(grid: Grid, record: SessionRecord) -> bool | None:
    """Tell whether a session is connected; None if it is gone."""
    found = await grid.sessions.find(record.id)
    return None if found is None else found.connected


async def expire(harness: Harness, owner: Grid, survivor: Grid) -> None:
    """Have the lease of ``n1`` expire and ``n2`` win the right to take over."""
    await survivor.nodes.join(N2, lease=LONG)
    await owner.nodes.join(N1, lease=harness.short)
    await harness.advance(harness.short)
    assert await survivor.nodes.take_over(N1, by=N2, within=LONG)


# --- expire -----------------------------------------------------------------------------------------------------------


async def test_expire_ends_what_is_due_and_nothing_else(harness: Harness) -> None:
    """End sessions of one session partition whose window is over, re-checked in the atomic step."""
    grid = await harness.grid()
    due, waiting, alive = session(window=harness.short), session(window=LONG), session(window=harness.short)
    for record in (due, waiting, alive):
        await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(due))
    await grid.sessions.disconnect(ownership(waiting))
    await harness.advance(harness.short)
    assert [(each.session, each.owner) for each in await expire_all(grid)] == [(due.id, N1)]
    assert await grid.sessions.find(due.id) is None
    assert await connected(grid, waiting) is False
    assert await connected(grid, alive) is True


@pytest.mark.promise("P7")
async def test_nothing_ends_before_its_window_is_over(harness: Harness) -> None:
    """P7: only an explicit close, an administrator or the end of the window ends a session."""
    grid = await harness.grid()
    record = session(window=harness.roomy)
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    await harness.advance(harness.roomy / 2)
    assert await grid.sessions.expire(partition_of(record), limit=10) == []
    claimed(await claim(grid, record, N1, token_generation=1, attempt=1))


async def test_expire_looks_at_one_partition_only(harness: Harness) -> None:
    """partition: which of the session partitions."""
    grid = await harness.grid()
    record = session(window=harness.short)
    await grid.sessions.create(record)
    await grid.sessions.disconnect(ownership(record))
    await harness.advance(harness.short)
    other = (partition_of(record) + 1) % 64
    assert await grid.sessions.expire(other, limit=10) == []
    assert [each.session for each in await grid.sessions.expire(partition_of(record), limit=10)] == [record.id]


async def test_expire_ends_at_most_the_limit(harness: Harness) -> None:
    """limit: most sessions to end in this call."""
    grid = await harness.grid()
    ids = ids_in_one_partition(5)
    for each in ids:
        await grid.sessions.create(session(session_id=each, window=harness.short, connected=False))
    await harness.advance(harness.short)
    answers = [await grid.sessions.expire(0, limit=2) for _ in range(4)]
    assert [len(answer) for answer in answers] == [2, 2, 1, 0]
    assert {ended.session for answer in answers for ended in answer} == set(ids)


async def test_expire_asked_again_after_its_answer_was_lost(harness: Harness) -> None:
    """Asking again gives the same result as asking once: what is due is ended, whoever got to know it."""
    grid = await harness.grid()
    record = session(window=harness.short, connected=False)
    await grid.sessions.create(record)
    await harness.advance(harness.short)
    await harness.asked_again(grid, lambda: grid.sessions.expire(partition_of(record), limit=10))
    assert await grid.sessions.find(record.id) is None
    assert refused(await claim(grid, record, N1, token_generation=1, attempt=1)) == ErrorCode.SESSION_EXPIRED


@pytest.mark.promise("P7")
async def test_an_expired_session_takes_its_receipts_with_it(harness: Harness) -> None:
    """A reaper removes expired sessions and everything that belongs to them (P7)."""
    grid = await harness.grid()
    topic = "prices/ACME"
    record = session(window=harness.short, partitions=frozenset({topic_of(topic)}))
    await grid.sessions.create(record)
    await published(grid, publish(ownership(record), 1, topic))
    assert any(record.id in name for name in await harness.inventory())
    await grid.sessions.disconnect(ownership(record))
    await harness.advance(harness.short)
    assert [each.session for each in await expire_all(grid)] == [record.id]
    await harness.advance(harness.short)
    await expire_all(grid)
    await nothing_is_left(harness)


async def nothing_is_left(harness: Harness) -> None:
    """Wait until the grid keeps nothing of sessions and nodes."""

    async def empty() -> bool:
        return not await harness.inventory()

    await eventually(empty, message=f"nothing of {sorted(await harness.inventory())} is left")


# --- end, everything of it -------------------------------------------------------------------------------------------


@pytest.mark.promise("P7")
async def test_after_its_end_nothing_of_a_session_is_left(harness: Harness) -> None:
    """End a session and delete everything that belongs to it, its publish receipts included (P7)."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    topics = ("prices/ACME", "rates/EUR", "news/today")
    record = session(
        window=harness.short,
        properties={"team": "fx"},
        selections=("+prices/**",),
        partitions=frozenset(map(topic_of, topics)),
    )
    await n1.sessions.create(record)
    await published(n1, *(publish(ownership(record), number, topic) for number, topic in enumerate(topics, 1)))
    moved = claimed(await claim(n2, record, N2, token_generation=1, attempt=1)).record
    await n2.sessions.disconnect(ownership(moved))
    moved = claimed(await claim(n1, record, N1, token_generation=2, attempt=2)).record
    await published(n1, publish(ownership(moved), 4, topics[0]))
    await n1.sessions.end(ownership(moved), reason=ErrorCode.SESSION_CLOSED)
    # Only the reason is remembered, for one window.
    await harness.advance(harness.short)
    await expire_all(n2)
    await nothing_is_left(harness)


@pytest.mark.promise("P7")
async def test_a_publish_that_arrives_after_the_end_leaves_nothing(harness: Harness) -> None:
    """P7: when it ends, nothing of it is left in the grid; a delayed publish neither runs nor leaves a receipt."""
    grid = await harness.grid()
    topic = "prices/ACME"
    record = session(window=harness.short, partitions=frozenset({topic_of(topic)}))
    await grid.sessions.create(record)
    await published(grid, publish(ownership(record), 1, topic))
    await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)
    for request in (1, 2):
        (result,) = await grid.topics.publish([publish(ownership(record), request, topic)])
        assert isinstance(result, Fenced)
    await harness.advance(harness.short)
    await expire_all(grid)
    await nothing_is_left(harness)


async def test_nodes_that_left_leave_nothing(harness: Harness) -> None:
    """leave: give the lease back. / finish_takeover: it will not be listed as expired again."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session(window=harness.short)
    await n1.sessions.create(record)
    await expire(harness, n1, n2)
    await n2.nodes.tell_claimed(N2, ownership(record))
    await orphan_all(n2, N1)
    await n2.nodes.finish_takeover(N1, by=N2)
    await n2.nodes.leave(N2)
    await harness.advance(harness.short)
    assert [each.session for each in await expire_all(n2)] == [record.id]
    await harness.advance(harness.short)
    await expire_all(n2)
    await nothing_is_left(harness)


# --- owned ------------------------------------------------------------------------------------------------------------


async def test_owned_lists_the_connected_sessions_of_one_node(harness: Harness) -> None:
    """List the connected sessions of one node in one session partition, as the grid knows them."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    ids = ids_in_one_partition(6)
    kept, ended, absent, moved = (session(session_id=each) for each in ids[:4])
    others = session(session_id=ids[4], owner=N2), session(session_id=ids[5], owner=node("n1", "first more"))
    for record in (kept, ended, absent, moved, *others):
        await n1.sessions.create(record)
    await n1.sessions.end(ownership(ended), reason=ErrorCode.SESSION_CLOSED)
    await n1.sessions.disconnect(ownership(absent))
    claimed(await claim(n2, moved, N2, token_generation=1, attempt=1))

    partition = partition_of(kept)
    assert list(await n2.sessions.owned(N1, partition)) == [kept.id]
    assert sorted(await n1.sessions.owned(N2, partition)) == sorted([moved.id, others[0].id])
    assert list(await n1.sessions.owned(N1, partition + 1)) == []
    # Whoever comes back is listed again.
    claimed(await claim(n1, absent, N1, token_generation=1, attempt=1))
    assert sorted(await n1.sessions.owned(N1, partition)) == sorted([kept.id, absent.id])


async def test_owners_are_listed_once_each_and_only_while_they_have_connected_sessions(harness: Harness) -> None:
    """List the nodes that have connected sessions in one session partition, as the grid knows them."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    ids = ids_in_one_partition(5)
    # Names that begin with another one's.
    longer, run = node("n1x"), node("n1", "first0")
    owners = [N1, N1, N2, longer, run]
    records = [session(session_id=each, owner=owner) for each, owner in zip(ids, owners, strict=True)]
    for record in records:
        await n1.sessions.create(record)
    partition = partition_of(records[0])
    assert sorted(await n2.sessions.owners(partition)) == sorted({N1, N2, longer, run})
    assert list(await n2.sessions.owners(partition + 1)) == []
    await n1.sessions.disconnect(ownership(records[0]))
    await n1.sessions.disconnect(ownership(records[2]))
    assert sorted(await n2.sessions.owners(partition)) == sorted({N1, longer, run})
    await n1.sessions.end(ownership(records[1]), reason=ErrorCode.SESSION_CLOSED)
    assert sorted(await n2.sessions.owners(partition)) == sorted({longer, run})


# --- orphan -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P7", "P17")
async def test_orphan_puts_the_sessions_of_an_expired_node_on_the_clock(harness: Harness) -> None:
    """Put connected sessions of an expired node on the clock, in one session partition."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    records = [session(window=harness.short) for _ in range(5)]
    for record in records:
        await n1.sessions.create(record)
    await expire(harness, n1, n2)
    assert await expire_all(n2) == []
    await orphan_all(n2, N1)
    assert [await connected(n2, record) for record in records] == [False] * 5
    await harness.advance(harness.short)
    assert {(each.session, each.owner) for each in await expire_all(n2)} == {(record.id, N1) for record in records}


async def test_orphan_touches_only_what_the_expired_node_still_owns(harness: Harness) -> None:
    """Only sessions that *expired* still owns are touched: one claimed meanwhile is left alone."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    left, moved, elsewhere = session(), session(), session(owner=N2)
    other_run = session(owner=node("n1", "second"))
    similar_name = session(owner=node("n1", "first more"))
    for record in (left, moved, elsewhere, other_run, similar_name):
        await n1.sessions.create(record)
    claimed(await claim(n2, moved, N2, token_generation=1, attempt=1))
    await expire(harness, n1, n2)
    await orphan_all(n2, N1)
    states = [await connected(n2, record) for record in (left, moved, elsewhere, other_run, similar_name)]
    assert states == [False, True, True, True, True]


async def test_orphan_leaves_windows_that_run_already(harness: Harness) -> None:
    """Put *connected* sessions on the clock: whoever was disconnected before gets no second window."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session(window=harness.short)
    await n1.sessions.create(record)
    await n1.sessions.disconnect(ownership(record))
    await expire(harness, n1, n2)
    await orphan_all(n2, N1)
    assert [each.session for each in await expire_all(n2)] == [record.id]


async def test_orphan_touches_only_what_is_named(harness: Harness) -> None:
    """Sessions: of it, as ``owned`` has listed them."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    records = [session(session_id=each) for each in ids_in_one_partition(5)]
    for record in records:
        await n1.sessions.create(record)
    await expire(harness, n1, n2)
    assert await n2.sessions.orphan(N1, []) == []
    assert await n2.sessions.orphan(N1, [each.id for each in records[:2]]) == [records[0].epoch] * 2
    assert [await connected(n2, record) for record in records] == [False] * 2 + [True] * 3
    assert sorted(await n2.sessions.owned(N1, 0)) == sorted(each.id for each in records[2:])


@pytest.mark.promise("P7")
async def test_orphan_asked_again_answers_the_same_and_does_not_lengthen_windows(harness: Harness) -> None:
    """Asked again for the same sessions because an answer was lost, it answers the same."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record, moved, ended = session(window=harness.short), session(), session()
    for each in (record, moved, ended):
        await n1.sessions.create(each)
    claimed(await claim(n2, moved, N2, token_generation=1, attempt=1))
    await n1.sessions.end(ownership(ended), reason=ErrorCode.SESSION_CLOSED)
    await expire(harness, n1, n2)
    asked = [record.id, moved.id, ended.id]
    assert await harness.asked_again(n2, lambda: n2.sessions.orphan(N1, asked)) == [record.epoch, None, None]
    await harness.advance(harness.short)
    await n2.sessions.orphan(N1, asked)
    assert [each.session for each in await expire_all(n2)] == [record.id]


@pytest.mark.promise("P17")
async def test_sessions_of_a_node_that_came_back_are_its_own_again(harness: Harness) -> None:
    """A survivor that is late with a takeover does not orphan what the node has verified since."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record, fresh = session(), session()
    await n1.sessions.create(record)
    await expire(harness, n1, n2)
    await n1.nodes.join(N1, lease=LONG)
    assert await n1.sessions.restore([record], recreate=False) == [Restored.WRITTEN]
    await n1.sessions.create(fresh)
    await orphan_all(n2, N1)
    assert [await connected(n2, each) for each in (record, fresh)] == [True, True]


# --- restore ----------------------------------------------------------------------------------------------------------


async def test_restore_recreates_what_the_grid_lost(harness: Harness) -> None:
    """Else the record is written over what is there / write sessions that the grid does not hold."""
    grid = await harness.grid()
    record = replace(
        session(properties={"a": "1"}, selections=("+a", "-b"), partitions=frozenset({5})),
        epoch=Epoch(4),
        token_generation=TokenGeneration(9),
        confirmed=TokenGeneration(8),
        attempt=Attempt(7),
    )
    assert await grid.sessions.restore([record], recreate=True) == [Restored.WRITTEN]
    assert await grid.sessions.find(record.id) == record
    # It is a session like any other.
    assert refused(await claim(grid, record, N2, token_generation=9, attempt=7)) == ErrorCode.STALE_ATTEMPT
    assert claimed(await claim(grid, record, N2, token_generation=9, attempt=8)).previous == N1


async def test_restore_without_recreating_leaves_ended_sessions_dead(harness: Harness) -> None:
    """GONE if the grid […] does not hold it and *recreate* is False."""
    grid = await harness.grid()
    record = session()
    assert await grid.sessions.restore([record], recreate=False) == [Restored.GONE]
    assert await grid.sessions.find(record.id) is None


@pytest.mark.parametrize("recreate", [True, False])
@pytest.mark.parametrize("reason", [ErrorCode.SESSION_CLOSED, ErrorCode.SESSION_EXPIRED])
async def test_restore_does_not_raise_the_dead(harness: Harness, *, recreate: bool, reason: ErrorCode) -> None:
    """GONE if the grid remembers that it was closed or expired."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    await grid.sessions.end(ownership(record), reason=reason)
    assert await grid.sessions.restore([record], recreate=recreate) == [Restored.GONE]
    assert await grid.sessions.find(record.id) is None
    assert refused(await claim(grid, record, N1, token_generation=1, attempt=1)) == reason


@pytest.mark.parametrize("recreate", [True, False])
@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"epoch": 3, "owner": N2}, Restored.FENCED),
        ({"epoch": 3, "owner": N1}, Restored.FENCED),
        ({"epoch": 2, "owner": N2}, Restored.FENCED),
        ({"epoch": 2, "owner": node("n1", "second")}, Restored.FENCED),
        ({"epoch": 2, "owner": N1}, Restored.WRITTEN),
        ({"epoch": 1, "owner": N2}, Restored.WRITTEN),
        ({"epoch": 1, "owner": N1}, Restored.WRITTEN),
        # The client was served by n1 alone, twice, while that was cut off from the grid, and then by n2.
        ({"epoch": 1, "owner": N2, "attempt": 3}, Restored.FENCED),
        ({"epoch": 1, "owner": N2, "attempt": 2}, Restored.WRITTEN),
    ],
    ids=[
        "higher epoch of another",
        "higher epoch of the same",
        "same epoch of another",
        "same epoch of another run",
        "same epoch of the same",
        "lower epoch of another",
        "lower epoch of the same",
        "lower epoch and later attempt of another",
        "lower epoch and same attempt of another",
    ],
)
async def test_restore_over_what_the_grid_holds(
    harness: Harness, *, recreate: bool, stored: dict[str, object], expected: Restored
) -> None:
    """FENCED if the grid holds it with a later attempt or a higher epoch, or with the same epoch and another owner."""
    grid = await harness.grid()
    mine = session(epoch=2, properties={"from": "node"}, attempt=2)
    held = replace(mine, **{"properties": {"from": "grid"}, "attempt": Attempt(1), **stored})  # type: ignore[arg-type]
    await grid.sessions.create(held)
    assert await grid.sessions.restore([mine], recreate=recreate) == [expected]
    assert await grid.sessions.find(mine.id) == (mine if expected is Restored.WRITTEN else held)


async def test_restore_takes_a_connected_session_off_the_clock(harness: Harness) -> None:
    """Written […]: off the clock if it is connected."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    record = session(window=harness.short)
    await n1.sessions.create(record)
    await expire(harness, n1, n2)
    await orphan_all(n2, N1)
    assert await n1.sessions.restore([record], recreate=False) == [Restored.WRITTEN]
    await harness.advance(harness.short)
    assert await expire_all(n2) == []
    assert await connected(n2, record) is True


async def test_restore_starts_the_window_of_a_disconnected_session(harness: Harness) -> None:
    """…its window started if it is not [connected]."""
    grid = await harness.grid()
    record = session(window=harness.short, connected=False)
    assert await grid.sessions.restore([record], recreate=True) == [Restored.WRITTEN]
    assert await connected(grid, record) is False
    await harness.advance(harness.short)
    assert [each.session for each in await expire_all(grid)] == [record.id]


async def test_a_restored_session_is_orphaned_like_any_other(harness: Harness) -> None:
    """Write sessions […] into a grid: everything that belongs to them, what the takeover needs included."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    recreated, taken = session(), session(epoch=2)
    await n2.sessions.create(replace(taken, owner=N2, epoch=Epoch(1)))
    await n1.sessions.restore([recreated, taken], recreate=True)
    await expire(harness, n1, n2)
    await orphan_all(n2, N2)
    await orphan_all(n2, N1)
    assert [await connected(n2, each) for each in (recreated, taken)] == [False, False]


async def test_restore_answers_record_by_record(harness: Harness) -> None:
    """Write sessions that this node serves […]; one result per record."""
    grid = await harness.grid()
    lost, lower, taken = session(), session(epoch=2), session()
    await grid.sessions.create(replace(lower, epoch=Epoch(1)))
    await grid.sessions.create(replace(taken, epoch=Epoch(2), owner=N3))
    closed = session()
    await grid.sessions.create(closed)
    await grid.sessions.end(ownership(closed), reason=ErrorCode.SESSION_CLOSED)
    records = [lost, taken, lower, closed]
    expected = [Restored.WRITTEN, Restored.FENCED, Restored.WRITTEN, Restored.GONE]
    assert await grid.sessions.restore(records, recreate=True) == expected
    assert await grid.sessions.restore([], recreate=True) == []


async def test_restore_asked_again_after_its_answer_was_lost(harness: Harness) -> None:
    """GridUnavailable: some records may have been written; asking again does no harm."""
    grid = await harness.grid()
    records = [session() for _ in range(3)]
    again = await harness.asked_again(grid, lambda: grid.sessions.restore(records, recreate=True))
    assert again == [Restored.WRITTEN] * 3
    assert [await grid.sessions.find(each.id) for each in records] == records


@pytest.mark.promise("P3")
async def test_whoever_claims_after_a_restore_goes_on_from_there(harness: Harness) -> None:
    """P3 over a rollback: the epoch of the restored record counts, and the former owner in the grid is fenced."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    mine = session(owner=N2, epoch=5, attempt=4)
    old = replace(mine, owner=N1, epoch=Epoch(4), attempt=Attempt(3))
    await n1.sessions.create(old)
    await n2.sessions.restore([mine], recreate=False)
    with pytest.raises(Fenced):
        await n1.sessions.change(ownership(old), SessionChanges(properties={"late": "yes"}))
    assert claimed(await claim(n1, mine, N1, token_generation=1, attempt=5)).record.epoch == 6
