"""Data of other programs, and broken data, in a real Redis: skipped and counted, and no topic is silenced (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from gateway.adapters.memory import MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.app.delivery.matching import MatchingQueues
from gateway.app.delivery.replicas import Replicas
from gateway.app.runtime.clock import Clock
from gateway.catalogue import log_events
from gateway.catalogue.metrics import GRID_FOREIGN_DATA
from gateway.core.topics.selection_index import SelectionIndex
from gateway.core.types import EventId, TopicPath, Version
from gateway.ports import TailBatch, TopicValue
from tests.integration.redis.support import (
    N1,
    PARTITION,
    TOPIC,
    Bench,
    Publisher,
    Reader,
    keep_trying,
    until_up,
    values_of,
)
from tests.support.clock import eventually
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P20")

BROKEN = {
    "no-version": (TOPIC, "x"),
    "version-no-number": (TOPIC, "one 1"),
    "version-negative": (TOPIC, "-5 1"),
    "version-huge": (TOPIC, "99999999999999999999999 1"),
    "other-fields": ("temperature", "21.5", "unit", "C"),
    "event-not-utf8": (TOPIC, "7 1", "event", b"\xff"),
    "topic-not-utf8": (b"\xff\xfe", "7 1"),
    "topic-of-none": ("a//b", "7 1"),
    "topic-empty": ("", ""),
    "value-not-utf8": (TOPIC, b"7 \xff\xfe"),
    "many-fields": (TOPIC, "7 1", "b", "c", "d", "e", "f", b"\xff"),
}


async def following(bench: Bench) -> tuple[RedisGrid, Reader, MemoryMetrics]:
    metrics = MemoryMetrics()
    grid = await bench.grid(metrics=metrics)
    reader = Reader(grid)
    grid.tail.follow(PARTITION, await grid.topics.position(PARTITION))
    return grid, reader, metrics


def skipped(metrics: MemoryMetrics) -> float:
    return metrics.count(GRID_FOREIGN_DATA)


@pytest.mark.parametrize("fields", [pytest.param(each, id=name) for name, each in BROKEN.items()])
async def test_a_broken_entry_is_skipped_and_its_stream_goes_on(bench: Bench, fields: tuple[str | bytes, ...]) -> None:
    grid, reader, metrics = await following(bench)
    publisher = Publisher(grid)
    await publisher.publish(1)
    for _ in range(3):
        await bench.server.call("XADD", f"{bench.prefix}:{{t{PARTITION}}}:stream", f"{grid.generation}-*", *fields)
    await publisher.publish(2)
    await eventually(lambda: reader.texts == [b"1", b"2", b"3"], message="the stream goes on")
    assert skipped(metrics) == 3
    told = [facts for event, facts in bench.log.events if event is log_events.GRID_FOREIGN_DATA]
    assert len(told) == 1, "an attacker must not fill the log"
    assert reader.lost == []
    await reader.close()


@pytest.mark.promise("P6", "P20")
@pytest.mark.parametrize("fields", [pytest.param(each, id=name) for name, each in BROKEN.items()])
async def test_nobody_waits_behind_a_broken_entry(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fields: tuple[str | bytes, ...]
) -> None:
    """The end of the stream is where copies of partitions have to come before anybody is sent their values."""
    grid = await bench.grid()
    stream = f"{bench.prefix}:{{t{PARTITION}}}:stream"
    await Publisher(grid).publish(1)
    index: SelectionIndex[str] = SelectionIndex()
    failures: list[object] = []
    replicas = Replicas(
        grid.topics,
        grid.tail,
        queues=MatchingQueues(index, Clock()),
        changed=lambda _partition, _changes: None,
        failed=failures.append,
        lost=lambda partition, bug: failures.append((partition, bug)),
    )

    async def follow() -> None:
        async for item in grid.tail.items():
            assert isinstance(item, TailBatch)
            replicas.take_in(item, lambda: None)

    values = grid.topics.values

    async def values_behind_which_an_entry_comes(number: int) -> AsyncIterator[Sequence[TopicValue]]:
        async for page in values(number):
            yield page
        await bench.server.call("XADD", stream, f"{grid.generation}-*", *fields)

    following = asyncio.create_task(follow())
    try:
        async with time_limit():
            replicas.hold([PARTITION])
            await replicas.complete([PARTITION])
            await bench.server.call("XADD", stream, f"{grid.generation}-*", *fields)
            await replicas.reach(PARTITION, await grid.topics.position(PARTITION))
            monkeypatch.setattr(grid.topics, "values", values_behind_which_an_entry_comes)
            replicas.read_again(PARTITION)
            await replicas.complete([PARTITION])
    finally:
        following.cancel()
        await asyncio.wait([following])
        await replicas.close()
    assert not failures


async def test_entries_with_ids_that_redis_made_up_are_removed_and_the_topic_goes_on(bench: Bench) -> None:
    """They are of no generation: left there, nothing could ever be published behind them."""
    grid, reader, metrics = await following(bench)
    publisher = Publisher(grid)
    await publisher.publish(1)
    for _ in range(3):
        await bench.server.call("XADD", f"{bench.prefix}:{{t{PARTITION}}}:stream", "*", "temperature", "21.5")
    await keep_trying(lambda: skipped(metrics) >= 1, message="they are noticed")
    await until_up(grid)
    await publisher.publish(2)
    await eventually(lambda: reader.texts == [b"1", b"2", b"3"], message="the stream goes on")
    assert grid.generation == 1
    assert reader.lost == []
    assert (await values_of(grid))[TOPIC].version == 3
    await reader.close()


async def test_a_grid_is_adopted_though_another_program_appended_to_its_streams(bench: Bench) -> None:
    await bench.server.call("XADD", f"{bench.prefix}:{{t{PARTITION}}}:stream", "*", "temperature", "21.5")
    grid = await bench.grid()
    assert grid.generation == 1
    (published,) = await Publisher(grid).publish(1)
    assert published.event == f"{PARTITION}-1-1"


@pytest.mark.parametrize(
    "stored", ["x", "", "one 1-1 2", "1 1-1", b"7 1-1 \xff", b"\xff 1-1 2", "99999999999999999999 1-1 2"]
)
async def test_a_broken_value_is_skipped_and_can_be_published_removed_and_restored(
    bench: Bench, stored: str | bytes
) -> None:
    metrics = MemoryMetrics()
    grid = await bench.grid(metrics=metrics)
    broken, removed, restored = (TopicPath(f"prices/{name}") for name in ("broken", "removed", "restored"))
    await Publisher(grid).publish(1)
    for topic in (broken, removed, restored, b"\xff", b"a//b"):
        await bench.server.call("HSET", f"{bench.prefix}:{{t{PARTITION}}}:values", topic, stored)
    assert list(await values_of(grid)) == [TOPIC]
    assert skipped(metrics) == 5
    assert await grid.topics.read([broken, TOPIC]) == [None, (await values_of(grid))[TOPIC]]
    assert [each.topic for each in (await grid.topics.scan(PARTITION, step=None, count=100)).values] == [TOPIC]
    (published,) = await Publisher(grid, session="repairs", topic=broken).publish(1)
    assert published.created is False
    await grid.topics.remove(removed, keep=1000.0)
    restores = await grid.topics.restore([TopicValue(restored, Version(9), EventId(f"{PARTITION}-1-9"), b"1")])
    repaired = await values_of(grid)
    assert repaired[broken].value == b"1"
    assert repaired[removed].value == b""
    # What has the form of an event is compared by it; the rest is older than anything.
    assert restores == (restored in repaired) == 1


async def test_a_broken_message_to_a_node_is_skipped(bench: Bench) -> None:
    """What takes down the reader of one stream would silence all that it reads."""
    grid, reader, metrics = await following(bench)
    await grid.nodes.join(N1, lease=30)
    messages = grid.nodes.claimed_elsewhere(N1)
    first = asyncio.ensure_future(anext(messages))
    await bench.server.call("XADD", f"{bench.prefix}:{{nodes}}:inbox:{N1}", "*", "claimed", b"\xff")
    await bench.server.call("XADD", f"{bench.prefix}:{{nodes}}:inbox:{N1}", "*", "a", "b c")
    await eventually(lambda: skipped(metrics) == 2, message="both are skipped")
    await Publisher(grid).publish(1)
    await eventually(lambda: reader.texts == [b"1"], message="topics go on")
    first.cancel()
    await reader.close()
