"""The contract of presence: each session once, counts that are exact, and nothing left of a session that has ended."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.core.destinations.presence import count_topic, member_topic, member_value
from gateway.core.topics.topics import topic_partition
from gateway.core.types import SessionId, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    COUNTS_APART,
    Enter,
    Entered,
    Fenced,
    Grid,
    Leave,
    Restored,
    SessionRecord,
    TellMembers,
)
from tests.contract.examples import DEPTH, claim, expire_all, ownership, session
from tests.contract.following import Follower
from tests.contract.harness import LONG, Harness, node

ROOM = TopicPath("rooms/7")
OTHER = TopicPath("rooms/8")
"""Together with the first, as what decides its partition is the same."""
PARTITION = topic_partition(count_topic(ROOM), DEPTH)
MOST_LISTED = 10


def member(window: float = LONG) -> SessionRecord:
    """Make a session that may be a member of rooms."""
    return session(window=window, selections=("+rooms/7/**",), partitions=frozenset({PARTITION}))


def entry(
    record: SessionRecord, *, epoch: int = 1, name: str = "alice", tree: TopicPath = ROOM, most: int = 10
) -> Enter:
    value = member_value(record.id, name, {}, ())
    return Enter(ownership(record, epoch=epoch), tree, value, most)


async def watch(grid: Grid, *, duration: float = LONG) -> int:
    """Have everybody told who wants to know; returns how many steps that took."""
    untold = await grid.presence.watch([PARTITION], duration=duration)
    steps = 0
    for each in untold:
        for tree in await grid.presence.trees(each.partition):
            step: str | None = None
            while True:
                step = await grid.presence.tell_members(TellMembers(tree, step, MOST_LISTED, 0, 0, at_once=2))
                steps += 1
                if step is None:
                    break
        await grid.presence.all_told(each)
    return steps


async def enter(grid: Grid, *entries: Enter) -> list[Entered | Fenced]:
    return await grid.presence.enter(entries)


async def leave(grid: Grid, record: SessionRecord, *, epoch: int = 1, tree: TopicPath = ROOM) -> bool | Fenced:
    (left,) = await grid.presence.leave([Leave(ownership(record, epoch=epoch), tree)])
    return left


async def count(grid: Grid, tree: TopicPath = ROOM) -> tuple[int, int]:
    """Read the count that is told, and of how many there are topics; nobody for a tree that has none."""
    (value,) = await grid.topics.read([count_topic(tree)])
    if value is None or not value.value:
        return 0, 0
    told = json.loads(value.value)
    return told["count"], told["listed"]


async def settled(harness: Harness, grid: Grid, tree: TopicPath = ROOM) -> tuple[int, int]:
    """Read it when all that is due was told."""
    await harness.advance(COUNTS_APART)
    await grid.presence.tell_due(range(64), limit=100)
    return await count(grid, tree)


async def listed(grid: Grid, *records: SessionRecord, tree: TopicPath = ROOM) -> list[str | None]:
    """Read whose members' topics are there."""
    values = await grid.topics.read([member_topic(tree, each.id) for each in records])
    return [json.loads(each.value)["principal"] if each is not None and each.value else None for each in values]


async def members(grid: Grid, tree: TopicPath = ROOM) -> set[SessionId]:
    found: set[SessionId] = set()
    step: str | None = None
    while True:
        page = await grid.presence.members(tree, step=step, count=2)
        found.update(page.sessions)
        step = page.next
        if step is None:
            return found


async def leftovers(harness: Harness) -> set[str]:
    """Name what is kept besides records of what has ended, which go away by themselves."""
    return {
        name
        for name in await harness.inventory()
        if not name.endswith((":ended", ":closed")) and "tombstone" not in name
    }


async def test_members_are_counted_each_once(harness: Harness) -> None:
    grid, other = await harness.grid(), await harness.grid("n2")
    await watch(grid)
    alice, bob = member(), member()
    for record in (alice, bob):
        await grid.sessions.create(record)

    assert await enter(grid, entry(alice)) == [Entered(joined=True, listed=True)]
    assert await count(grid) == (1, 1), "the first is told at once"
    assert await enter(other, entry(bob, name="bob")) == [Entered(joined=True, listed=True)]
    assert await enter(grid, entry(alice)) == [Entered(joined=False, listed=True)]
    assert await settled(harness, grid) == (2, 2)
    assert await listed(grid, alice, bob) == ["alice", "bob"]
    assert await members(grid) == {alice.id, bob.id}
    assert await grid.presence.counts([ROOM, OTHER]) == [2, 0]
    assert await grid.presence.trees(PARTITION) == [ROOM]

    assert await leave(grid, alice) is True
    assert await leave(grid, alice) is False
    assert await settled(harness, grid) == (1, 1)
    assert await listed(grid, alice, bob) == [None, "bob"]
    assert await leave(other, bob) is True
    assert await settled(harness, grid) == (0, 0)
    assert await grid.presence.trees(PARTITION) == []


async def test_entering_again_tells_nobody_anything(harness: Harness) -> None:
    grid = await harness.grid()
    await watch(grid)
    record = member()
    await grid.sessions.create(record)
    await enter(grid, entry(record))
    before = await grid.topics.position(PARTITION)
    await enter(grid, entry(record), entry(record, epoch=2), entry(record, epoch=3))
    assert await grid.topics.position(PARTITION) == before
    await enter(grid, entry(record, epoch=3, name="anne"))
    assert await listed(grid, record) == ["anne"]
    assert (await grid.topics.position(PARTITION)).sequence == before.sequence + 1


async def test_counts_are_told_once_a_second(harness: Harness) -> None:
    grid = await harness.grid()
    await watch(grid)
    records = [member() for _ in range(20)]
    await asyncio.gather(*(grid.sessions.create(each) for each in records))
    before = await grid.topics.position(PARTITION)
    await enter(grid, *(entry(each, most=0) for each in records))
    told = (await grid.topics.position(PARTITION)).sequence - before.sequence
    assert told <= 2, "twenty have come within a second, or a little more"
    assert await settled(harness, grid) == (20, 0)
    assert await grid.presence.tell_due(range(64), limit=100) == 0


async def test_those_beyond_the_bound_are_counted_only(harness: Harness) -> None:
    grid = await harness.grid()
    await watch(grid)
    first, second, third = (member() for _ in range(3))
    for record in (first, second, third):
        await grid.sessions.create(record)
    results = await enter(grid, *(entry(each, most=2) for each in (first, second, third)))
    assert [each.listed for each in results if isinstance(each, Entered)] == [True, True, False]
    assert await settled(harness, grid) == (3, 2)
    assert await listed(grid, first, second, third) == ["alice", "alice", None]
    await leave(grid, first)
    assert await settled(harness, grid) == (2, 1)
    assert await enter(grid, entry(third, most=2)) == [Entered(joined=False, listed=True)]
    assert await settled(harness, grid) == (2, 2)
    assert await leave(grid, third)
    assert await leave(grid, second)
    assert await settled(harness, grid) == (0, 0)


async def test_a_full_partition_lists_nobody_more(harness: Harness) -> None:
    grid = await harness.grid()
    await watch(grid)
    first, second, third = (member() for _ in range(3))
    for record in (first, second, third):
        await grid.sessions.create(record)
    await enter(grid, entry(first))
    assert await enter(grid, entry(second)._replace(most_topics=2)) == [Entered(joined=True, listed=False)]
    assert await enter(grid, entry(third)._replace(most_bytes=300)) == [Entered(joined=True, listed=False)]
    assert await settled(harness, grid) == (3, 1)


@pytest.mark.promise("P7")
async def test_whoever_ends_leaves_all_trees(harness: Harness) -> None:
    grid = await harness.grid()
    await watch(grid)
    ends, stays = member(), member()
    for record in (ends, stays):
        await grid.sessions.create(record)
    await enter(grid, entry(ends), entry(ends, tree=OTHER), entry(stays))
    await grid.sessions.end(ownership(ends), reason=ErrorCode.SESSION_CLOSED)
    assert await settled(harness, grid) == (1, 1)
    assert await settled(harness, grid, OTHER) == (0, 0)
    assert await listed(grid, ends, stays) == [None, "alice"]
    late = await enter(grid, entry(ends))
    assert isinstance(late[0], Fenced), "what arrives late makes nobody a member"
    await grid.sessions.end(ownership(stays), reason=ErrorCode.SESSION_CLOSED)
    assert await settled(harness, grid) == (0, 0)
    assert await leftovers(harness) == set()


@pytest.mark.promise("P7")
async def test_members_stay_until_their_window_is_over(harness: Harness) -> None:
    grid = await harness.grid()
    await watch(grid)
    record = member(window=harness.short)
    await grid.sessions.create(record)
    await enter(grid, entry(record))
    await grid.sessions.disconnect(ownership(record))
    assert await count(grid) == (1, 1)
    await harness.advance(harness.short)
    assert [each.session for each in await expire_all(grid)] == [record.id]
    assert await settled(harness, grid) == (0, 0)
    assert await leftovers(harness) == set()


@pytest.mark.promise("P3")
async def test_an_owner_that_another_has_followed_changes_nothing(harness: Harness) -> None:
    grid, other = await harness.grid(), await harness.grid("n2")
    await watch(grid)
    record = member()
    await grid.sessions.create(record)
    await enter(grid, entry(record))
    await claim(other, record, node("n2"), token_generation=1, attempt=1)
    assert await enter(other, entry(record, epoch=2)) == [Entered(joined=False, listed=True)]
    assert isinstance(await leave(grid, record), Fenced)
    assert await settled(harness, grid) == (1, 1)
    assert await leave(other, record, epoch=2) is True
    (late,) = await enter(grid, entry(record))
    assert isinstance(late, Fenced), "a step of the old owner that was under way"
    assert await settled(harness, grid) == (0, 0)


@pytest.mark.parametrize("watched", [True, False])
async def test_asked_again_is_the_same(harness: Harness, watched: bool) -> None:
    grid = await harness.grid()
    if watched:
        await watch(grid)
    record, before = member(), member()
    for each in (record, before):
        await grid.sessions.create(each)
    await enter(grid, entry(before))  # from here on the node knows whether somebody watches
    again = await harness.asked_again(grid, lambda: enter(grid, entry(record)))
    assert again == [Entered(joined=False, listed=watched)]
    assert await members(grid) == {record.id, before.id}
    assert await harness.asked_again(grid, lambda: leave(grid, record)) is False
    assert await leave(grid, before) is True
    assert await settled(harness, grid) == (0, 0)


async def test_what_is_told_is_in_the_stream(harness: Harness) -> None:
    grid = await harness.grid()
    await watch(grid)
    record = member()
    await grid.sessions.create(record)
    async with Follower(grid) as follower:
        await follower.follow_from_here(PARTITION)
        await enter(grid, entry(record))
        await leave(grid, record)
        await settled(harness, grid)
        told = await follower.has(PARTITION, 4)
    one, all_of_them = member_topic(ROOM, record.id), count_topic(ROOM)
    assert [(each.topic, bool(each.value)) for each in told] == [
        *((one, True), (all_of_them, True)),
        *((one, False), (all_of_them, False)),
    ]
    assert told[0].version < told[2].version


async def test_after_a_loss_members_enter_again(fragile: Harness) -> None:
    grid = await fragile.grid()
    await watch(grid)
    record, other = member(), member()
    for each in (record, other):
        await grid.sessions.create(each)
    snapshot = await fragile.snapshot()
    await enter(grid, entry(record), entry(other))
    await fragile.restart(grid, snapshot=snapshot)
    await fragile.up(grid)
    assert await count(grid) == (0, 0), "the grid has gone back"
    assert await grid.sessions.restore([record, other], recreate=True) == [Restored.WRITTEN] * 2
    entered = await enter(grid, entry(record), entry(other))
    assert entered == [Entered(joined=True, listed=True)] * 2
    assert await settled(fragile, grid) == (2, 2)


async def test_nothing_is_told_while_nobody_watches_and_all_of_it_then(harness: Harness) -> None:
    grid, other = await harness.grid(), await harness.grid("n2")
    records = [member() for _ in range(7)]
    for each in records:
        await grid.sessions.create(each)
    before = await grid.topics.position(PARTITION)
    entered = await enter(grid, *(entry(each, name=f"p{place}") for place, each in enumerate(records)))
    assert entered == [Entered(joined=True, listed=False)] * 7
    assert await enter(grid, entry(records[0], name="anne")) == [Entered(joined=False, listed=False)]
    assert await leave(grid, records[6]) is True
    assert await grid.topics.position(PARTITION) == before
    assert await members(grid) == {each.id for each in records[:6]}
    assert await grid.presence.counts([ROOM]) == [6]

    assert await watch(other) > 0
    assert await count(grid) == (6, 6)
    assert await listed(grid, *records) == ["anne", "p1", "p2", "p3", "p4", "p5", None]
    told = await grid.topics.position(PARTITION)
    assert told.sequence == before.sequence + 7, "each once, and how many they are"
    assert await watch(grid) == 0, "it is known that all is told"
    assert await grid.topics.position(PARTITION) == told
    assert await leave(grid, records[0]) is True
    assert await settled(harness, grid) == (5, 5)


async def test_what_is_told_is_right_also_when_nobody_watches_any_more(harness: Harness) -> None:
    grid = await harness.grid()
    stays, changes, leaves, comes = (member() for _ in range(4))
    for each in (stays, changes, leaves, comes):
        await grid.sessions.create(each)
    await watch(grid, duration=harness.short)
    await enter(grid, entry(stays), entry(changes), entry(leaves))
    await settled(harness, grid)
    await harness.advance(harness.short)
    assert await enter(grid, entry(changes, name="anne")) == [Entered(joined=False, listed=True)]
    assert await count(grid) == (3, 3), "as it is"
    assert await leave(grid, leaves) is True
    assert await count(grid) == (0, 0), "not told, as it would be wrong"
    assert await listed(grid, stays, changes, leaves) == ["alice", "anne", None]
    assert await enter(grid, entry(comes)) == [Entered(joined=True, listed=False)]
    await watch(grid)
    assert await settled(harness, grid) == (3, 3)
    assert await listed(grid, stays, changes, comes) == ["alice", "anne", "alice"]


async def test_whoever_dies_while_it_tells_is_followed_by_another(harness: Harness) -> None:
    grid, other = await harness.grid(), await harness.grid("n2")
    records = [member() for _ in range(5)]
    for each in records:
        await grid.sessions.create(each)
    await enter(grid, *(entry(each) for each in records))
    (untold,) = await grid.presence.watch([PARTITION], duration=LONG)
    await grid.presence.tell_members(TellMembers(ROOM, None, MOST_LISTED, 0, 0, at_once=1))
    assert await watch(other) > 0
    assert await count(grid) == (5, 5)
    await grid.presence.all_told(untold)
    assert await watch(grid) == 0


async def test_who_comes_late_to_say_that_all_is_told_is_not_heard(harness: Harness) -> None:
    grid, other = await harness.grid(), await harness.grid("n2")
    record = member()
    await grid.sessions.create(record)
    (untold,) = await grid.presence.watch([PARTITION], duration=harness.short)
    await harness.advance(harness.short)
    await enter(grid, entry(record))
    await other.presence.watch([PARTITION], duration=LONG)
    await grid.presence.all_told(untold)
    assert await watch(other) == 1
    assert await count(grid) == (1, 1)


async def test_no_more_are_listed_than_may_be_when_somebody_watches(harness: Harness) -> None:
    grid = await harness.grid()
    records = [member() for _ in range(MOST_LISTED + 3)]
    for each in records:
        await grid.sessions.create(each)
    await enter(grid, *(entry(each) for each in records))
    await watch(grid)
    assert await count(grid) == (MOST_LISTED + 3, MOST_LISTED)


@pytest.mark.promise("P7")
async def test_nothing_stays_of_a_tree_that_nobody_watched(harness: Harness) -> None:
    grid = await harness.grid()
    record = member()
    await grid.sessions.create(record)
    await enter(grid, entry(record))
    await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)
    assert await grid.presence.trees(PARTITION) == []
    assert await leftovers(harness) == set()
