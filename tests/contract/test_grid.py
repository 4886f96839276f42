"""The contract of ``Grid``: its states, its generations, and what happens when it goes away (P10)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest

from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import (
    FIRST_GENERATION,
    Attempt,
    Epoch,
    EventId,
    GridGeneration,
    TokenGeneration,
    TopicPath,
    Version,
)
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    Grid,
    GridChange,
    GridState,
    GridUnavailable,
    JournalBatch,
    LeaseLost,
    Restored,
    SessionChanges,
    SessionEnd,
    TopicValue,
)
from tests.contract.examples import claim, claimed, ownership, publish, published, refused, session, topic_of, values_of
from tests.contract.following import Follower
from tests.contract.harness import LONG, Harness, node
from tests.support.clock import eventually
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P10")

N1, N2 = node("n1"), node("n2")
TOPIC = "prices/ACME"
PARTITION = topic_of(TOPIC)

LIMIT = scaled(4.0)
"""Seconds: twice the default time limit of a grid, because a busy machine may be late."""


async def read_values(grid: Grid) -> None:
    """Read a partition."""
    async for _ in grid.topics.values(PARTITION):
        pass


CALLS: dict[str, Callable[[Grid], Awaitable[object]]] = {
    "create": lambda grid: grid.sessions.create(session()),
    "claim": lambda grid: claim(grid, session(), N1, token_generation=1, attempt=1),
    "change": lambda grid: grid.sessions.change(ownership(session()), SessionChanges()),
    "disconnect": lambda grid: grid.sessions.disconnect(ownership(session())),
    "end": lambda grid: grid.sessions.end(ownership(session()), reason=ErrorCode.SESSION_CLOSED),
    "end_all": lambda grid: grid.sessions.end_all([SessionEnd(ownership(session()), ErrorCode.SESSION_CLOSED)]),
    "restore": lambda grid: grid.sessions.restore([session()], recreate=True),
    "expire": lambda grid: grid.sessions.expire(0, limit=1),
    "find": lambda grid: grid.sessions.find(session().id),
    "owned": lambda grid: grid.sessions.owned(N2, 0),
    "orphan": lambda grid: grid.sessions.orphan(N2, [session().id]),
    "join": lambda grid: grid.nodes.join(N1, lease=LONG),
    "renew": lambda grid: grid.nodes.renew(N1, lease=LONG),
    "leave": lambda grid: grid.nodes.leave(N1),
    "take_over": lambda grid: grid.nodes.take_over(N2, by=N1, within=LONG),
    "finish_takeover": lambda grid: grid.nodes.finish_takeover(N2, by=N1),
    "tell_claimed": lambda grid: grid.nodes.tell_claimed(N2, ownership(session())),
    "append": lambda grid: grid.journal.append([JournalBatch(0, 1, 1, b"{}")]),
    "publish": lambda grid: grid.topics.publish([publish(ownership(session()), 1)]),
    "position": lambda grid: grid.topics.position(PARTITION),
    "values": read_values,
    "restore_values": lambda grid: grid.topics.restore(
        [TopicValue(TopicPath(TOPIC), Version(1), EventId(f"{PARTITION}-1-1"), b"1")]
    ),
}
"""One call of every method that needs the grid."""


async def next_change(changes: AsyncIterator[GridChange]) -> GridChange:
    """Wait for the next change of state."""
    async with time_limit(20):
        return await anext(changes)


def one_topic_of_each_partition() -> list[str]:
    """Choose topics so that each partition has one."""
    found: dict[int, str] = {}
    for number in itertools.count():
        found.setdefault(topic_of(topic := f"t{number}/x"), topic)
        if len(found) == TOPIC_PARTITIONS:
            return list(found.values())
    raise AssertionError


def order(event: str) -> tuple[int, int]:
    """Make event ids of one partition comparable."""
    _, generation, sequence = event.split("-")
    return int(generation), int(sequence)


STARTED_TASKS: Final = frozenset({"grid-link", "grid-look", "grid-tail", "grid-gauges"})
"""What a start of the grid on Redis leaves running; in memory there is nothing."""


# --- start ------------------------------------------------------------------------------------------------------------


async def test_a_new_grid_gets_the_first_generation(harness: Harness) -> None:
    """Connect and adopt the grid. / generation: the generation this connection has adopted."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    assert (n1.state, n1.generation) == (n2.state, n2.generation) == (GridState.UP, FIRST_GENERATION)


async def test_a_node_that_starts_later_adopts_the_same_generation(harness: Harness) -> None:
    """…a grid with *another* run id than the stored one gets the next generation."""
    await harness.grid("n1")
    for name in ("n2", "n3"):
        assert (await harness.grid(name)).generation == FIRST_GENERATION


async def test_start_raises_when_the_grid_is_unreachable_and_goes_on_trying(harness: Harness) -> None:
    """GridUnavailable: it cannot be reached; background work to reach it goes on."""
    grid = await harness.unstarted("n1")
    await harness.go_away()
    with pytest.raises(GridUnavailable):
        await grid.start()
    changes = grid.changes()
    await harness.come_back()
    change = await next_change(changes)
    assert change == GridChange(GridState.UP, FIRST_GENERATION)
    await grid.sessions.create(session())


async def test_a_start_is_made_once_however_often_it_is_asked_for(harness: Harness) -> None:
    """Every further call begins nothing, and tells no more than whether the grid is there."""
    grid = await harness.unstarted("n1")
    before = asyncio.all_tasks()
    await harness.go_away()
    for _ in range(3):
        with pytest.raises(GridUnavailable):
            await grid.start()
    once = asyncio.all_tasks() - before
    changes = grid.changes()
    await harness.come_back()
    assert await next_change(changes) == GridChange(GridState.UP, FIRST_GENERATION)
    await asyncio.gather(grid.start(), grid.start())
    await harness.cut(grid)
    with pytest.raises(GridUnavailable):
        await grid.start()
    await harness.mend(grid)
    # One loss, and one return: nobody else connects, and nothing has been begun a second time.
    assert await next_change(changes) == GridChange(GridState.UNREACHABLE, FIRST_GENERATION)
    assert await next_change(changes) == GridChange(GridState.UP, FIRST_GENERATION)
    names = [task.get_name() for task in asyncio.all_tasks() - before if task.get_name() in STARTED_TASKS]
    assert sorted(names) == sorted({task.get_name() for task in once} & STARTED_TASKS)
    await grid.close()
    with pytest.raises(GridUnavailable):
        await grid.start()


@pytest.mark.parametrize("name", CALLS)
async def test_nothing_is_accepted_before_the_start(harness: Harness, name: str) -> None:
    """state: whether commands are accepted now."""
    grid = await harness.unstarted()
    assert grid.state is GridState.UNREACHABLE
    with pytest.raises(GridUnavailable):
        await CALLS[name](grid)


# --- away and back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
async def test_while_the_grid_is_unreachable_calls_are_refused_at_once(harness: Harness, name: str) -> None:
    """…and for no more than the grid's time limit. Then it raises ``GridUnavailable``."""
    grid = await harness.grid()
    await harness.go_away()
    started = time.monotonic()
    with pytest.raises(GridUnavailable):
        await CALLS[name](grid)
    assert time.monotonic() - started < LIMIT
    await harness.come_back()


async def test_a_grid_that_does_not_answer_is_given_up_in_time(harness: Harness) -> None:
    """Every coroutine may wait for a network round trip, and for no more than the grid's time limit."""
    grid = await harness.grid()
    await harness.stall()
    started = time.monotonic()
    results = await asyncio.gather(*(call(grid) for call in CALLS.values()), return_exceptions=True)
    assert time.monotonic() - started < LIMIT
    assert all(isinstance(each, GridUnavailable) for each in results), results
    await harness.flow()
    await harness.up(grid)
    # A node that may have left writes for no session; reading is enough to see that the grid answers again.
    assert await grid.sessions.find(session().id) is None


async def test_a_cut_is_told_and_loses_nothing(harness: Harness) -> None:
    """Yield each change of state after ``start``, for one listener; none is lost."""
    grid = await harness.grid()
    record = session()
    await grid.sessions.create(record)
    changes = grid.changes()
    for _ in range(3):
        await harness.cut(grid)
        await harness.mend(grid)
    for _ in range(3):
        assert await next_change(changes) == GridChange(GridState.UNREACHABLE, FIRST_GENERATION)
        assert await next_change(changes) == GridChange(GridState.UP, FIRST_GENERATION, lost_writes=False)
    assert await grid.sessions.find(record.id) == record


async def test_a_cut_of_one_node_is_not_felt_by_others(harness: Harness) -> None:
    """A connection of one node to the grid."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    await harness.cut(n1)
    assert n2.state is GridState.UP
    await n2.sessions.create(session())
    await harness.mend(n1)


async def test_a_restart_gets_the_next_generation(fragile: Harness) -> None:
    """lost_writes: True if it came back as something that may have forgotten writes: restarted, promoted, emptied."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    record = session(properties={"a": "1"})
    await n1.sessions.create(record)
    (before,) = await published(n1, publish(ownership(record), 1, TOPIC))
    listeners = [n1.changes(), n2.changes()]
    for generation in (2, 3):
        await fragile.go_away()
        await fragile.come_back(restarted=True)
        for changes, grid in zip(listeners, (n1, n2), strict=True):
            assert (await next_change(changes)).state is GridState.UNREACHABLE
            back = await next_change(changes)
            assert (back.state, back.grid_generation, back.lost_writes) == (GridState.UP, generation, True)
            assert grid.generation == generation
    assert await n2.sessions.find(record.id) == record
    kept = (await values_of(n2, PARTITION))[TOPIC]
    assert kept.event == before.event
    assert kept.version > before.version
    # A newcomer finds the generation and does not raise it.
    assert (await fragile.grid("n3")).generation == 3


@pytest.mark.promise("P6")
async def test_a_newcomer_never_takes_a_number_that_was_in_force_already(fragile: Harness) -> None:
    """Grows whenever the grid may have lost writes: no two states of the grid share a number.

    The grid comes back from before generation 2 while nobody who knows of that can reach it. Whoever is new there must
    not make a second generation 2: what clients have seen in the first would go back (P6).
    """
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    snapshot = await fragile.snapshot()
    await fragile.restart(n1, n2)
    assert n1.generation == n2.generation == 2
    assert n2.lost_writes_ago() is not None
    for grid in (n1, n2):
        await fragile.cut(grid)
    await fragile.restart(snapshot=snapshot)
    newcomer = await fragile.grid("n3")
    assert newcomer.generation > 2
    for grid in (n1, n2):
        await fragile.mend(grid)
        await fragile.up(grid)
        assert grid.generation == newcomer.generation


@pytest.mark.promise("P7")
async def test_a_newcomer_knows_how_long_ago_the_grid_lost_writes(fragile: Harness) -> None:
    """What is unknown to the grid shortly after may still be restored by the node that has it (P7)."""
    n1 = await fragile.grid("n1")
    assert n1.lost_writes_ago() is None, "a new grid has lost nothing"
    await fragile.restart(n1)
    newcomer = await fragile.grid("n2")
    ago = newcomer.lost_writes_ago()
    assert ago is not None
    assert 0 <= ago < scaled(60.0)


@pytest.mark.promise("P6")
async def test_after_the_grid_was_emptied_everything_still_grows(fragile: Harness) -> None:
    """P6: versions never go back, not even when the grid lost data. / Event ids: ordered within a partition."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    owner = ownership(session())
    receipts = await published(n1, *(publish(owner, number, TOPIC) for number in range(1, 6)))
    seen = [(each.version, order(each.event)) for each in receipts]
    for step in range(2):
        await fragile.go_away()
        await fragile.come_back(emptied=True)
        assert await values_of(n1, PARTITION) == {}
        writer = (n1, n2)[step]
        (receipt,) = await published(writer, publish(ownership(session()), 1, TOPIC))
        assert n1.generation == n2.generation == step + 2
        seen.append((receipt.version, order(receipt.event)))
    versions, events = [each for each, _ in seen], [each for _, each in seen]
    assert versions == sorted(set(versions))
    assert events == sorted(set(events))


async def test_an_emptied_grid_ends_every_position(fragile: Harness) -> None:
    """PositionLost: trimmed past it, or the grid changed. / P10: no node stays deaf."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    owner = ownership(session())
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        await published(n1, publish(owner, 1, TOPIC))
        await follower.has(PARTITION, 1)
        await fragile.go_away()
        await fragile.come_back(emptied=True)
        await published(n1, publish(ownership(session()), 1, TOPIC, b"after"))
        await follower.has_lost(PARTITION)
        assert len(follower.values[PARTITION]) == 1
        follower.lost.clear()
        await follower.follow_from_here(PARTITION)
        assert (await values_of(n2, PARTITION))[TOPIC].value == b"after"
        await published(n1, publish(ownership(session()), 1, TOPIC, b"more"))
        assert (await follower.has(PARTITION, 2))[1].value == b"more"


async def test_a_position_that_the_grid_has_forgotten_is_lost(fragile: Harness) -> None:
    """PositionLost: […] the grid changed: it came back from before the position, and goes on differently."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    owner = ownership(session())
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        await published(n1, *(publish(owner, number, TOPIC) for number in range(1, 4)))
        snapshot = await fragile.snapshot()
        await published(n1, *(publish(owner, number, TOPIC) for number in range(4, 7)))
        await follower.has(PARTITION, 6)
        await fragile.go_away()
        await fragile.come_back(snapshot=snapshot)
        await published(n1, *(publish(owner, number, TOPIC) for number in range(4, 14)))
        await follower.has_lost(PARTITION)
        assert len(follower.values[PARTITION]) == 6


async def test_nodes_that_saw_different_runs_end_up_in_a_generation_of_their_own(fragile: Harness) -> None:
    """Grows by one whenever the grid may have lost writes: no two states of the grid share a number.

    n1 was cut off while the grid restarted under n2's eyes; then n2 was, while it came back from before that restart
    under n1's eyes. Both runs would be generation 2 for one of them.
    """
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    snapshot = await fragile.snapshot()
    listeners = [n1.changes(), n2.changes()]
    await fragile.cut(n1)
    await fragile.restart(n2)
    (before,) = await published(n2, publish(ownership(session()), 1, TOPIC))
    await fragile.cut(n2)
    await fragile.restart(snapshot=snapshot)
    await fragile.mend(n1)
    await fragile.mend(n2)
    (after,) = await published(n2, publish(ownership(session()), 1, TOPIC))
    assert order(after.event) > order(before.event)
    assert after.version > before.version

    async def agreed() -> bool:
        # A node that asks for anything learns that it is behind; nobody stays idle for longer than between renewals.
        with contextlib.suppress(GridUnavailable):
            await n1.topics.position(PARTITION)
        return n1.generation == n2.generation

    await eventually(agreed)
    await fragile.up(n1)
    for changes, grid in zip(listeners, (n1, n2), strict=True):
        last = GridChange(GridState.UNREACHABLE, FIRST_GENERATION)
        while last.grid_generation != grid.generation or last.state is not GridState.UP:
            last = await next_change(changes)
        assert last.lost_writes


async def test_a_reader_comes_through_a_restart_without_a_hole(fragile: Harness) -> None:
    """…yields ``PositionLost``, never a batch with a hole: what was missed is declared, or it was not missed."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    owner = ownership(session())
    async with Follower(n2) as follower:
        await follower.follow_from_here(PARTITION)
        await published(n1, *(publish(owner, number, TOPIC) for number in range(1, 6)))
        await follower.has(PARTITION, 5)
        await fragile.cut(n2)
        missed = await published(n1, *(publish(owner, number, TOPIC) for number in range(6, 11)))
        await fragile.mend(n2)
        await fragile.go_away()
        await fragile.come_back(restarted=True)
        last = (await published(n1, publish(owner, 11, TOPIC)))[0]
        await eventually(lambda: last.event in follower.events(PARTITION) or PARTITION in follower.lost)
        if PARTITION not in follower.lost:
            assert follower.events(PARTITION)[5:] == [each.event for each in (*missed, last)]
        else:
            events = [order(each) for each in follower.events(PARTITION)]
            assert events == list(dict.fromkeys(events)), "no duplicate"
            assert [order(each.event) for each in missed][: len(events) - 5] == events[5:], "no hole"


async def test_a_grid_from_an_older_state_is_repaired_by_those_who_know_better(fragile: Harness) -> None:
    """P10: when the grid is back older than before, nodes restore their live sessions and re-read values."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    kept, moved, ended = session(), session(), session()
    for record in (kept, moved, ended):
        await n1.sessions.create(record)
    await published(n1, *(publish(ownership(kept), number, TOPIC, b"old") for number in (1, 2)))
    snapshot = await fragile.snapshot()
    # What the snapshot does not know: a claim, a new session, a publish, an end.
    mine = claimed(await claim(n2, moved, N2, token_generation=1, attempt=1)).record
    fresh = session(owner=N2)
    await n2.sessions.create(fresh)
    (newest,) = await published(n1, publish(ownership(kept), 3, TOPIC, b"new"))
    value = (await values_of(n1, PARTITION))[TOPIC]
    await n1.sessions.end(ownership(ended), reason=ErrorCode.SESSION_CLOSED)

    await fragile.go_away()
    await fragile.come_back(snapshot=snapshot)
    assert n1.generation == n2.generation == 2
    assert await n2.sessions.find(moved.id) == moved, "the grid has forgotten the claim"

    assert await n2.sessions.restore([mine, fresh], recreate=True) == [Restored.WRITTEN] * 2
    assert await n1.sessions.restore([kept, moved], recreate=True) == [Restored.WRITTEN, Restored.FENCED]
    assert await n1.sessions.find(moved.id) == mine
    assert await n1.sessions.find(fresh.id) == fresh
    # The value that only nodes remember goes back, unless something newer is there.
    rolled_back = (await values_of(n1, PARTITION))[TOPIC]
    assert rolled_back.event != value.event
    assert rolled_back.version > value.version, "nobody knows who has seen what the grid has lost"
    assert await n2.topics.restore([value]) == 1
    restored = (await values_of(n1, PARTITION))[TOPIC]
    assert restored == value._replace(version=restored.version)
    assert restored.version > rolled_back.version + 1, "it is later, and no successor"
    (after,) = await published(n1, publish(ownership(kept), 4, TOPIC, b"newer"))
    assert after.version > newest.version
    assert order(after.event) > order(newest.event)
    assert await n2.topics.restore([value]) == 0


async def test_a_publish_of_another_generation_never_falls_behind(fragile: Harness) -> None:
    """Version floor: values restored into a later generation do not pull versions back."""
    grid = await fragile.grid()
    owner = ownership(session())
    (first,) = await published(grid, publish(owner, 1, TOPIC))
    old = (await values_of(grid, PARTITION))[TOPIC]
    await fragile.go_away()
    await fragile.come_back(emptied=True)
    (second,) = await published(grid, publish(owner, 2, TOPIC))
    assert second.version > first.version
    assert await grid.topics.restore([old]) == 0
    other = old._replace(topic=TopicPath("prices/OTHER"))
    assert await grid.topics.restore([other]) == 1
    (third,) = await published(grid, publish(owner, 3, "prices/OTHER"))
    assert third.version > other.version


@pytest.mark.promise("P6")
async def test_nobody_publishes_in_a_generation_before_the_one_in_force(harness: Harness) -> None:
    """P6: whoever has not adopted the generation yet is refused by each partition, and adopts it.

    The generation is raised while the processes are the same: nothing but the answers can tell n2 of it, unless the
    grid itself does, as the one in memory.
    """
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    owners = [ownership(session()), ownership(session())]
    topics = one_topic_of_each_partition()
    for grid, owner in zip((n1, n2), owners, strict=True):
        await published(grid, *(publish(owner, number, topic) for number, topic in enumerate(topics, 1)))
    before = n1.generation
    n1.heard_of(GridGeneration(before + 1))
    await harness.up(n1)
    first = len(topics) + 1
    newest = await published(n1, *(publish(owners[0], number, topic) for number, topic in enumerate(topics, first)))
    assert n1.generation > before
    assert {order(each.event)[0] for each in newest} == {n1.generation}

    has_heard = n2.generation == n1.generation
    # All at once: each partition has to refuse by itself, and not because another one did before.
    behind = await asyncio.gather(
        *(n2.topics.publish([publish(owners[1], number, topic)]) for number, topic in enumerate(topics, first)),
        n2.topics.remove(TopicPath(topics[0]), keep=LONG),
        return_exceptions=True,
    )
    assert has_heard or all(isinstance(each, GridUnavailable) for each in behind), behind
    await harness.up(n2)
    assert n2.generation == n1.generation
    last = first + len(topics)
    after = await published(n2, *(publish(owners[1], number, topic) for number, topic in enumerate(topics, last)))
    assert {order(each.event)[0] for each in after} == {n1.generation}
    for ours, theirs in zip(after, newest, strict=True):
        assert ours.version > theirs.version
        assert has_heard or ours.version == theirs.version + 1, "nothing was executed in between"


@pytest.mark.promise("P6")
async def test_no_value_is_shown_below_what_was_seen_in_a_generation_before(fragile: Harness) -> None:
    """P6: a node that never knew a topic shows it above all versions that others have shown before the loss."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    owner = ownership(session())
    await published(n1, publish(owner, 1, TOPIC, b"old"), publish(owner, 2, "prices/quiet", b"quiet"))
    snapshot = await fragile.snapshot()
    lost = [(await published(n1, publish(owner, request, TOPIC, b"lost")))[0] for request in (3, 4, 5)]
    await fragile.go_away()
    await fragile.come_back(snapshot=snapshot)

    page = await n2.topics.scan(PARTITION, step=None, count=10)
    (read,) = await n2.topics.read([TopicPath(TOPIC)])
    assert read is not None
    shown = await values_of(n2, PARTITION)
    assert {each.topic: each for each in page.values} == shown
    assert shown[TOPIC] == read
    assert read.value == b"old"
    assert all(each.version > lost[-1].version for each in shown.values())
    (after,) = await published(n2, publish(ownership(session()), 1, TOPIC, b"new"))
    assert after.version == read.version + 1, "what is published now is the successor of what is shown"


async def test_an_emptied_grid_knows_no_lease_and_no_session(fragile: Harness) -> None:
    """LeaseLost: the node's lease is not in the grid any more. / SESSION_UNKNOWN."""
    grid = await fragile.grid()
    await grid.nodes.join(N1, lease=LONG)
    record = session()
    await grid.sessions.create(record)
    await fragile.go_away()
    await fragile.come_back(emptied=True)
    with pytest.raises(LeaseLost):
        await grid.nodes.renew(N1, lease=LONG)
    await grid.nodes.join(N1, lease=LONG)
    assert refused(await claim(grid, record, N1, token_generation=1, attempt=1)) == ErrorCode.SESSION_UNKNOWN
    assert await fragile.inventory()
    await grid.nodes.leave(N1)
    assert not await fragile.inventory()


@pytest.mark.parametrize("restarted", [True, False])
async def test_an_outage_expires_no_lease(fragile: Harness, *, restarted: bool) -> None:
    """P10: connected clients stay connected: while the grid was unreachable nobody could renew a lease."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    await n1.nodes.join(N1, lease=fragile.roomy)
    await n2.nodes.join(N2, lease=fragile.roomy)
    await fragile.go_away()
    await fragile.advance(fragile.roomy)
    await fragile.come_back(restarted=restarted)
    table = await n1.nodes.renew(N1, lease=LONG)
    assert (table.alive, table.expired) == ((N1, N2), ())
    assert (await n2.nodes.renew(N2, lease=LONG)).alive == (N1, N2)


@pytest.mark.promise("P7")
async def test_windows_go_on_over_a_restart(fragile: Harness) -> None:
    """P7: only the end of the window ends a session."""
    grid = await fragile.grid()
    short, long = session(window=fragile.short), session(window=LONG)
    for record in (short, long):
        await grid.sessions.create(record)
        await grid.sessions.disconnect(ownership(record))
    await fragile.go_away()
    await fragile.come_back(restarted=True)
    await fragile.advance(fragile.short)
    assert refused(await claim(grid, short, N1, token_generation=1, attempt=1)) == ErrorCode.SESSION_EXPIRED
    claimed(await claim(grid, long, N1, token_generation=1, attempt=1))


async def test_a_rolled_back_session_accepts_the_token_of_its_owner(fragile: Harness) -> None:
    """A generation above the stored one is proof that the grid was rolled back; counting goes on from it."""
    n1, n2 = await fragile.grid("n1"), await fragile.grid("n2")
    record = session()
    await n1.sessions.create(record)
    snapshot = await fragile.snapshot()
    claimed(await claim(n1, record, N1, token_generation=1, attempt=1))
    claimed(await claim(n1, record, N1, token_generation=2, attempt=2))
    await fragile.go_away()
    await fragile.come_back(snapshot=snapshot)
    back = claimed(await claim(n2, record, N2, token_generation=3, attempt=3)).record
    assert (back.owner, back.attempt, back.epoch) == (N2, Attempt(3), Epoch(2))
    assert (back.token_generation, back.confirmed) == (TokenGeneration(4), TokenGeneration(3))


# --- close ------------------------------------------------------------------------------------------------------------


async def test_close_finishes_what_was_started(harness: Harness) -> None:
    """Finish what was started and disconnect."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    records = [session() for _ in range(50)]
    started = [asyncio.create_task(n1.sessions.create(record)) for record in records]
    await asyncio.sleep(0)
    await n1.close()
    await asyncio.gather(*started)
    assert [await n2.sessions.find(record.id) for record in records] == records
    assert n1.state is GridState.UNREACHABLE
    with pytest.raises(GridUnavailable):
        await n1.sessions.find(records[0].id)
    await n1.close()
