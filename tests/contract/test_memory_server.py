"""What only the in-memory grid has: faults to order, and no leaks, because ``gateway serve --dev`` runs on it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.adapters.memory.grid_connection import MAILBOX_LENGTH
from gateway.adapters.memory.topic_table import RECEIPT_LIFE
from gateway.core.types import Epoch, SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    CALL_KEY_MARGIN,
    CALL_KEY_SECONDS,
    GridState,
    GridUnavailable,
    Ownership,
    Published,
    SessionChanges,
)
from tests.contract.examples import (
    claim,
    claimed,
    expire_all,
    ownership,
    publish,
    published,
    refused,
    session,
    topic_of,
)
from tests.contract.following import Follower
from tests.contract.harness import LONG, STREAM_LENGTH, MemoryHarness, node
from tests.support.clock import eventually

N1, N2 = node("n1"), node("n2")

SOON = 0.05
"""A time limit in seconds for calls that are meant to run into it."""


@pytest.fixture
def harness() -> MemoryHarness:
    """The in-memory grid only."""
    return MemoryHarness()


async def test_a_stalled_call_that_was_given_up_is_executed_late(harness: MemoryHarness) -> None:
    """stall: a step whose caller has given up is executed all the same by ``flow``: it was sent, and arrives late."""
    n1 = await harness.grid("n1")
    n2 = MemoryGrid(harness.server, node=N2, timeout=SOON)
    await n2.start()
    record = session()
    await n1.sessions.create(record)
    harness.server.stall()
    with pytest.raises(GridUnavailable):
        await claim(n2, record, N2, token_generation=1, attempt=1)
    overtaking = asyncio.create_task(claim(n1, record, N1, token_generation=1, attempt=2))
    await asyncio.sleep(0)
    harness.server.flow()
    # The late claim came first, and the one with the higher attempt took the session from it.
    assert claimed(await overtaking).previous == N2
    assert refused(await claim(n2, record, N2, token_generation=1, attempt=1)) == ErrorCode.STALE_ATTEMPT
    await n2.close()


async def test_what_waits_for_a_stalled_server_is_answered_in_order(harness: MemoryHarness) -> None:
    """flow: execute what has waited, in the order in which it was asked for."""
    grid = await harness.grid()
    record = session()
    harness.server.stall()
    started = [
        asyncio.create_task(grid.sessions.create(record)),
        asyncio.create_task(grid.sessions.change(ownership(record), SessionChanges(selections=("+a",)))),
        asyncio.create_task(grid.sessions.disconnect(ownership(record))),
    ]
    await asyncio.sleep(0)
    assert not any(each.done() for each in started)
    harness.server.flow()
    await asyncio.gather(*started)
    found = await grid.sessions.find(record.id)
    assert found is not None
    assert (found.selections, found.connected) == (("+a",), False)


async def test_what_waits_is_lost_when_the_server_goes_away_or_the_connection_is_cut(harness: MemoryHarness) -> None:
    """go_away: what waited for a stalled server is lost. cut: the same for one connection."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    assert isinstance(n1, MemoryGrid)
    first, second = session(), session()
    harness.server.stall()
    started = [
        asyncio.create_task(n1.sessions.create(first)),
        asyncio.create_task(n2.sessions.create(second)),
    ]
    await asyncio.sleep(0)
    n1.cut()
    with pytest.raises(GridUnavailable):
        await started[0]
    assert not started[1].done()
    harness.server.go_away()
    with pytest.raises(GridUnavailable):
        await started[1]
    n1.mend()
    assert n1.state is GridState.UNREACHABLE
    harness.server.come_back()
    assert await n1.sessions.find(first.id) is None
    assert await n2.sessions.find(second.id) is None


async def test_a_cut_between_execution_and_answer(harness: MemoryHarness) -> None:
    """GridUnavailable leaves it open whether the step happened."""
    grid = await harness.grid()
    assert isinstance(grid, MemoryGrid)
    record = session()
    creating = asyncio.create_task(grid.sessions.create(record))
    await asyncio.sleep(0)
    grid.cut()
    grid.mend()
    with pytest.raises(GridUnavailable):
        await creating
    assert await grid.sessions.find(record.id) == record


async def test_lost_answers_are_counted(harness: MemoryHarness) -> None:
    """lose_answers: execute the next *calls* calls and lose their answers."""
    grid = await harness.grid()
    owner = ownership(session())
    harness.server.lose_answers(2, publishes=3)
    commands = [publish(owner, number) for number in range(1, 11)]
    for _ in range(2):
        with pytest.raises(GridUnavailable):
            await grid.topics.publish(commands)
    receipts = await published(grid, *commands)
    assert [each.duplicate for each in receipts] == [True] * 3 + [False] * 7


async def test_a_cancelled_call_harms_nobody(harness: MemoryHarness) -> None:
    """A caller that is cancelled leaves its step alone."""
    grid = await harness.grid()
    records = [session(), session()]
    harness.server.stall()
    waiting = asyncio.create_task(grid.sessions.create(records[0]))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    harness.server.flow()
    quick = asyncio.create_task(grid.sessions.create(records[1]))
    await asyncio.sleep(0)
    quick.cancel()
    with pytest.raises(asyncio.CancelledError):
        await quick
    assert [await grid.sessions.find(each.id) for each in records] == records
    await grid.close()


async def test_close_waits_for_a_stalled_answer(harness: MemoryHarness) -> None:
    """close: finish what was started and disconnect."""
    grid, other = await harness.grid("n1"), await harness.grid("n2")
    record = session()
    harness.server.stall()
    creating = asyncio.create_task(grid.sessions.create(record))
    await asyncio.sleep(0)
    closing = asyncio.create_task(grid.close())
    await asyncio.sleep(0)
    assert not closing.done()
    harness.server.flow()
    await asyncio.gather(creating, closing)
    assert await other.sessions.find(record.id) == record


async def test_iterators_end_when_the_grid_is_closed(harness: MemoryHarness) -> None:
    """changes, items, claimed_elsewhere: the iterator ends when the grid is closed."""
    grid = await harness.grid()

    async def drain() -> None:
        async for _ in grid.changes():
            pass
        async for _ in grid.tail.items():
            pass
        async for _ in grid.nodes.claimed_elsewhere(N1):
            pass

    waiting = asyncio.create_task(drain())
    await asyncio.sleep(0)
    await grid.close()
    await waiting
    assert harness.server.connections == 0


async def test_a_year_of_sessions_leaves_nothing(harness: MemoryHarness) -> None:
    """It must not leak memory: sessions that came and went, by every way of ending, leave nothing behind."""
    grid = await harness.grid()
    for number in range(300):
        record = session(window=harness.short)
        await grid.sessions.create(record)
        await published(grid, publish(ownership(record), 1, f"prices/{number % 3}"))
        for attempt in (1, 2):
            await grid.sessions.disconnect(ownership(record))
            record = claimed(await claim(grid, record, N1, token_generation=attempt, attempt=attempt)).record
        if number % 2:
            await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)
        else:
            await grid.sessions.disconnect(ownership(record))
        await harness.advance(1)
        await expire_all(grid)
        assert len(await harness.inventory()) < 200, "bounded by what a window holds"
    await harness.advance(harness.short)
    await expire_all(grid)
    await harness.advance(harness.short)
    assert await harness.inventory() == set()


async def test_tombstones_go_without_a_reaper(harness: MemoryHarness) -> None:
    """An ended session is forgotten after one window, whoever looks."""
    grid = await harness.grid()
    for _ in range(500):
        record = session(window=harness.short)
        await grid.sessions.create(record)
        await grid.sessions.end(ownership(record), reason=ErrorCode.SESSION_CLOSED)
        await harness.advance(harness.short)
    kept = [name for partition in harness.server._data.sessions._partitions for name in partition.tombstones]
    assert len(kept) < 128


async def test_receipts_of_sessions_that_are_not_replicated_are_forgotten(harness: MemoryHarness) -> None:
    """RECEIPT_LIFE: seconds […] after which the receipts of a session that the grid does not hold are forgotten."""
    grid = await harness.grid()
    held = session()
    await grid.sessions.create(held)
    (first,) = await published(grid, publish(ownership(held), 1))
    for _ in range(50):
        await published(grid, publish(ownership(session()), 1))
        await harness.advance(RECEIPT_LIFE / 20)
    assert len([name for name in await harness.inventory() if name.startswith("receipts")]) < 25
    # Those of a session in the grid live as long as it does.
    assert await grid.topics.publish([publish(ownership(held), 1)]) == [
        Published(first.version, first.event, duplicate=True)
    ]


async def test_a_mailbox_that_nobody_reads_is_bounded(harness: MemoryHarness) -> None:
    """tell_claimed: at most once and best effort."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    messages = n1.nodes.claimed_elsewhere(N1)
    ownerships = [ownership(session()) for _ in range(MAILBOX_LENGTH + 10)]
    for each in ownerships:
        await n2.nodes.tell_claimed(N1, each)
    assert [await anext(messages) for _ in range(MAILBOX_LENGTH)] == ownerships[10:]


async def test_opening_a_mailbox_again_ends_the_earlier_one(harness: MemoryHarness) -> None:
    """One listener per node."""
    grid = await harness.grid()
    earlier = grid.nodes.claimed_elsewhere(N1)
    later = grid.nodes.claimed_elsewhere(N1)
    own = ownership(session())
    await grid.nodes.tell_claimed(N1, own)
    assert [each async for each in earlier] == []
    assert await anext(later) == own


async def test_two_grids_share_a_server_and_nothing_else(harness: MemoryHarness) -> None:
    """Several MemoryGrids over one server in one process are several nodes; two servers are two clusters."""
    other = MemoryHarness()
    mine, foreign = await harness.grid(), await other.grid()
    record = session()
    await mine.sessions.create(record)
    assert await foreign.sessions.find(record.id) is None
    await other.close()


async def test_a_snapshot_is_a_copy(harness: MemoryHarness) -> None:
    """snapshot: copy the data as it is now; it can be used more than once."""
    grid = await harness.grid()
    record = session(window=LONG)
    await grid.sessions.create(record)
    snapshot = harness.server.snapshot()
    for _ in range(2):
        await grid.sessions.change(ownership(record), SessionChanges(properties={"later": "yes"}))
        harness.server.come_back(snapshot=snapshot)
        await eventually(lambda: grid.state is GridState.UP)
        assert await grid.sessions.find(record.id) == record


async def test_a_reader_far_behind_catches_up_in_several_batches() -> None:
    """BATCH_ENTRIES: most entries of one batch; after each, other tasks get their turn."""
    server = MemoryGridServer(stream_length=5000)
    grid = MemoryGrid(server, node=N1)
    await grid.start()
    start = await grid.topics.position(topic_of("prices/ACME"))
    owner = ownership(session())
    receipts = await published(grid, *(publish(owner, number) for number in range(1, 2502)))
    async with Follower(grid) as follower:
        follower.follow(topic_of("prices/ACME"), start)
        values = await follower.has(topic_of("prices/ACME"), len(receipts))
        assert [each.event for each in values] == [each.event for each in receipts]
    await grid.close()


async def test_a_stream_over_many_generations_stays_bounded(harness: MemoryHarness) -> None:
    """What is known of generations whose entries are gone is forgotten, and positions in them are lost."""
    grid = await harness.grid()
    partition = topic_of("prices/ACME")
    positions = []
    for generation in range(1, 4 * STREAM_LENGTH):
        await published(grid, publish(ownership(session()), 1), publish(ownership(session()), 1))
        positions.append(await grid.topics.position(partition))
        assert positions[-1].grid_generation == generation
        harness.server.come_back(restarted=True)
        await harness.up(grid)
    stream = harness.server._data.topics._partitions[partition].stream
    assert len(stream._runs) < STREAM_LENGTH
    for index, position in enumerate(positions):
        read = stream.after(position, 1000)
        missing = 2 * (len(positions) - 1 - index)
        if missing > STREAM_LENGTH:
            assert read is None
        else:
            assert read is not None
            assert (len(read[0]), read[1]) == (missing, positions[-1])
            if missing:
                assert stream.after(position, 1) is not None


async def test_a_server_that_never_went_away_can_be_restarted_and_told_to_flow(harness: MemoryHarness) -> None:
    """come_back and flow are harmless out of order: a restart without an outage still breaks every connection."""
    grid = await harness.grid()
    changes = grid.changes()
    harness.server.flow()
    harness.server.come_back(restarted=True)
    assert [(await anext(changes)).state, (await anext(changes)).state] == [GridState.UNREACHABLE, GridState.UP]
    assert grid.generation == 2
    harness.server.stall()
    harness.server.stall()
    await grid.close()


@pytest.mark.promise("P5")
async def test_a_key_and_what_was_done_under_it_live_for_an_hour_after_their_last_use(harness: MemoryHarness) -> None:
    """After 50 minutes, and 15 more, and so on, it is a repetition; other bodies are told so for longer than that."""
    grid, name = await harness.grid("n1"), SessionId("$call-AAAAAAAAAAAAAAAAAAAAAA")
    right = Ownership(name, N1, Epoch(1))
    command = publish(right, 1, "a/x", b"1")._replace(stored=False)
    assert await grid.call_keys.bind(name, b"first") == b"first"
    (first,) = await published(grid, command)
    assert not first.duplicate
    for minutes in (50, 15, 50, 59):
        await harness.advance(minutes * 60.0)
        assert await grid.call_keys.bind(name, b"first") == b"first"
        (again,) = await published(grid, command)
        assert (again.duplicate, again.event) == (True, first.event)
    await harness.advance(CALL_KEY_SECONDS + CALL_KEY_MARGIN / 2)
    assert await grid.call_keys.bind(name, b"second") == b"first"
    await harness.advance(CALL_KEY_SECONDS + CALL_KEY_MARGIN)
    assert await grid.call_keys.bind(name, b"second") == b"second"
