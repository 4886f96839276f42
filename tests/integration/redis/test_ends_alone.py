"""Sessions end on a real Redis whatever keeps others from it: no memory, a half moved slot, foreign data (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

import pytest
from redis.crc import key_slot

from gateway.adapters.redis import RedisGrid, session_ends, slots
from gateway.adapters.redis.batcher import ScriptFailed
from gateway.adapters.redis.keys import Keys
from gateway.core.topics.topics import session_partition
from gateway.core.types import RequestNumber, SessionId, TopicPath
from gateway.core.wire.codec.will_packets import write_wills
from gateway.core.wire.will_packets import WILLS_PROPERTY, EndKind, Will
from gateway.ports import GridRefused, GridState, LastWills, Ownership, PublishCommand, ReceiptsLeft, SessionRecord
from tests.integration.redis.support import N1, PARTITION, TOPIC, Bench, Publisher, session_record
from tests.integration.redis.test_full import MAXMEMORY, fill
from tests.support.clock import eventually
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import HOST, RedisServer
from tests.support.times import scaled

pytestmark = [pytest.mark.redis, pytest.mark.promise("P7"), pytest.mark.promise("P20")]

LIMIT: Final = 20
"""Sessions that one call of the reaper ends."""


@pytest.fixture
async def small() -> AsyncIterator[Bench]:
    """A server with little memory, that throws nothing away."""
    async with RedisServer(arguments=("--maxmemory", MAXMEMORY, "--maxmemory-policy", "noeviction")) as server:
        bench = Bench(server)
        yield bench
        await bench.close()


class Executor:
    """Publishes a will of each session, as ``WillExecution`` does."""

    def __init__(self, grid: RedisGrid) -> None:
        self.grid = grid
        self.asked = 0

    async def execute(self, left: Sequence[LastWills]) -> Mapping[SessionId, Sequence[ReceiptsLeft]]:
        self.asked += len(left)
        names = [SessionId(f"$will-{each.session}") for each in left]
        first, none = RequestNumber(1), RequestNumber(0)
        commands = [
            PublishCommand(Ownership(name, each.owner, each.epoch), first, none, TOPIC, b'"gone"' * 2000)
            for name, each in zip(names, left, strict=True)
        ]
        results = await self.grid.topics.publish(commands)
        return {
            each.session: [ReceiptsLeft(name, PARTITION)]
            for each, name, result in zip(left, names, results, strict=True)
            if not isinstance(result, GridRefused)
        }


def expired_records(number: int) -> list[SessionRecord]:
    """Make sessions of one partition whose windows are over."""
    ids = (SessionId(f"session-{number}") for number in count())
    mine = (each for each in ids if session_partition(each) == 0)
    return [replace(session_record(next(mine)), connected=False, window=0.0) for _ in range(number)]


async def test_a_full_redis_ends_sessions_whatever_others_wait_for(
    small: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_ends, "ENDING_GRACE_MS", round(scaled(1.0) * 1000))
    grid = await small.grid(stream_bytes=1024 * 1024)
    # More with wills than one call ends, and behind them as many that have left nothing.
    records = expired_records(60)
    wills = {WILLS_PROPERTY: write_wills((Will(TOPIC, b"1", when=(EndKind.EXPIRED,)),)).decode()}
    for number, record in enumerate(records):
        await grid.sessions.create(replace(record, properties=wills if number < 30 else {}))
    topics = await fill(small, grid)
    executor = Executor(grid)

    ended: list[SessionId] = []
    for _ in range(3):
        batch = await grid.sessions.expire(0, limit=LIMIT, execute=executor.execute)
        ended += [each.session for each in batch]

    assert set(ended) == {each.id for each in records[30:]}
    assert executor.asked >= 30
    for topic in topics[: len(topics) // 2]:
        assert await grid.topics.remove(topic, keep=0.001) is not None

    async def all_have_ended() -> bool:
        await grid.sessions.expire(0, limit=LIMIT, execute=executor.execute)
        await asyncio.sleep(scaled(0.05))
        return not [key for key in await small.session_keys() if ":session:" in key]

    await eventually(all_have_ended, deadline=30.0, message="those with wills end when there is room")
    (value,) = await grid.topics.read([TopicPath(TOPIC)])
    assert value is not None, "their wills are published"


async def test_a_session_with_foreign_data_ends_nobody_elses_turn(bench: Bench) -> None:
    grid = await bench.grid()
    spoilt, *others = expired_records(3)
    for record in (spoilt, *others):
        await grid.sessions.create(replace(record, publish_partitions=frozenset({PARTITION})))
    key = Keys(bench.prefix).consuming(PARTITION, spoilt.id)
    await bench.server.call("SET", key, "foreign")

    with pytest.raises(ScriptFailed, match="WRONGTYPE"):
        await grid.sessions.expire(0, limit=LIMIT)

    sessions = {key.rsplit(":", 1)[1] for key in await bench.session_keys() if ":session:" in key}
    assert sessions == {spoilt.id}


async def test_a_session_with_receipts_in_a_half_moved_slot_waits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "HALF_MOVED", scaled(0.3))
    with RedisCluster() as servers:
        bench = Bench(servers)  # type: ignore[arg-type] # whose URL is all that is needed here
        grid = await bench.grid(N1)
        try:
            waiting, *others = expired_records(3)
            await grid.sessions.create(replace(waiting, publish_partitions=frozenset({PARTITION})))
            for record in others:
                await grid.sessions.create(record)
            await Publisher(grid, session=waiting.id).publish(1)
            tag = f"t{PARTITION}"
            source = await asyncio.to_thread(servers.master_of, tag)
            target = next(each for each in await asyncio.to_thread(servers.masters) if each is not source)
            slot = key_slot(tag.encode())
            await target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
            await source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
            await source.call("MIGRATE", HOST, target.port, Keys(bench.prefix).receipts(PARTITION, waiting.id), 0, 5000)

            ended = await grid.sessions.expire(0, limit=LIMIT)

            assert {each.session for each in ended} == {each.id for each in others}
            assert grid.state is GridState.UP
        finally:
            await bench.close()
