"""What only a real Redis can do to the journal: run short of memory, lose a stream alone, hold what is not ours."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

import pytest

from gateway.adapters.redis import journal as module
from gateway.adapters.redis.keys import Keys
from gateway.core.journal import JOURNAL_PARTITIONS
from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.local.proxy import FaultProxy, Way
from gateway.ports import Appended, GridRefused, GridState, JournalBatch, SessionChanges
from tests.integration.redis.support import Bench, ownership_of, session_record
from tests.support.times import scaled

SLOW: Final = 512 * 1024
"""Bytes that pass in a second: a storm's megabyte takes two, which is twice the time limit, and a batch an eighth."""


def batch(number: int, *, partition: int = 3, size: int = 2) -> JournalBatch:
    return JournalBatch(partition, number, 1, b"x" * size)


async def test_a_full_redis_refuses_the_journal_and_keeps_sessions_alive(forgetful: Bench) -> None:
    """Not the other way round: nobody needs the journal to live."""
    grid = await forgetful.grid()
    await grid.journal.append([batch(1)])
    await forgetful.server.call("CONFIG", "SET", "maxmemory", "1mb")
    try:
        (refused,) = await grid.journal.append([batch(2, size=1000)])
        assert isinstance(refused, GridRefused)
        assert grid.state is GridState.UP
        await grid.nodes.join(NodeRef(NodeId("n1"), Incarnation("first")), lease=60)
    finally:
        await forgetful.server.call("CONFIG", "SET", "maxmemory", "0")
    assert await grid.journal.append([batch(2)]) == [Appended()], "nothing of it was done before"


async def test_a_stream_that_was_deleted_alone_begins_another_incarnation(bench: Bench) -> None:
    """Evicted, or by hand: what was committed before says nothing of what comes now."""
    grid = await bench.grid()
    keys = Keys(bench.prefix)
    await grid.journal.append([batch(1)])
    before = await bench.server.call("HGET", keys.journal_state[3], "incarnation")
    await bench.server.call("HSET", keys.journal_state[3], "committed", "9-9")
    await bench.server.call("DEL", keys.journal[3])
    assert await grid.journal.append([batch(2)]) == [Appended()]
    state = await bench.server.call("HGETALL", keys.journal_state[3])
    assert state[b"incarnation"] != before
    assert b"committed" not in state


async def test_nodes_that_are_no_more_are_forgotten(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keys(bench.prefix)
    old = await bench.grid(NodeRef(NodeId("n1"), Incarnation("old")))
    await old.journal.append([batch(1)])
    monkeypatch.setattr(module, "PRODUCER_LIFE_MS", -1)
    new = await bench.grid(NodeRef(NodeId("n1"), Incarnation("new")))
    await new.journal.append([batch(1)])
    state = await bench.server.call("HGETALL", keys.journal_state[3])
    assert {name for name in state if name.startswith(b"producer:")} == {b"producer:new"}


async def test_a_key_that_is_not_ours_harms_its_own_partition_alone(bench: Bench) -> None:
    """One in the place of the stream itself gives way to it, see ``test_foreign_records``."""
    grid = await bench.grid()
    await bench.server.call("SET", Keys(bench.prefix).journal_state[3], "not a hash")
    wrong, right = await grid.journal.append([batch(1), batch(1, partition=4)])
    assert isinstance(wrong, Exception)
    assert right == Appended()
    assert grid.state is GridState.UP


async def test_a_cap_that_was_lowered_is_reached_step_by_step(bench: Bench) -> None:
    keys = Keys(bench.prefix)
    roomy = await bench.grid(journal_length=1000)
    for number in range(1, 61):
        await roomy.journal.append([batch(number)])
    tight = await bench.grid(NodeRef(NodeId("n2"), Incarnation("two")), journal_length=10)
    cut = []
    for number in range(1, 6):
        (appended,) = await tight.journal.append([batch(number)])
        assert isinstance(appended, Appended)
        cut.append(appended.cut_unclaimed)
    assert cut == [module.CUT_MOST] * 3 + [6, 1]
    assert await bench.server.call("XLEN", keys.journal[3]) == 10


async def test_a_storm_of_events_on_a_slow_link_leaves_the_grid_to_the_sessions(bench: Bench) -> None:
    """Off the hot path: nobody is away because the journal is long, and the journal gets on all the same."""
    server = urlsplit(bench.server.url)
    assert server.hostname is not None
    assert server.port is not None
    async with FaultProxy(server.hostname, server.port) as proxy:
        grid = await bench.grid(url=f"redis://127.0.0.1:{proxy.port}/0", timeout=scaled(1.0))
        record = session_record()
        await grid.sessions.create(record)
        proxy.limit(SLOW, Way.UP)
        storm = [batch(1, partition=partition, size=64 * 1024) for partition in range(JOURNAL_PARTITIONS)]
        appending = asyncio.ensure_future(grid.journal.append(storm))
        changes = 0
        while not appending.done():
            await grid.sessions.change(ownership_of(record), SessionChanges(properties={"changes": str(changes)}))
            changes += 1
        assert await appending == [Appended()] * JOURNAL_PARTITIONS
        assert changes > 1, "they passed between the batches"
        proxy.limit(None)
