"""Histories in a real Redis: what they cost, what they take, and what becomes of strange things in their place."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.adapters.redis import RedisGrid
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.types import EventId, TopicPath
from gateway.ports import EVENT_BYTES, HistoryQuestion, Published
from tests.integration.redis.support import PARTITION, TOPIC, Bench, Publisher

pytestmark = pytest.mark.promise("P14")

MEBIBYTE = 1024**2
LIMITS = HistoryLimits(count=100_000, age=3600.0, bytes=MEBIBYTE)

ROUNDED = 1.3
"""What Redis needs for as many bytes as are counted, at most: its allocator rounds up by a fifth to a quarter."""


def key_of(bench: Bench, name: str) -> str:
    return f"{bench.prefix}:{{t{PARTITION}}}:{name}"


async def publish(
    grid: RedisGrid, numbers: range, value: bytes = b"1", topic: TopicPath = TOPIC, limits: HistoryLimits = LIMITS
) -> list[EventId]:
    publisher = Publisher(grid, session=f"from-{numbers.start}-{topic}", topic=topic)
    commands = [publisher.command(number)._replace(value=value, history=limits) for number in numbers]
    results = await grid.topics.publish(commands)
    assert all(isinstance(each, Published) for each in results), results
    return [each.event for each in results if isinstance(each, Published)]


async def commands_of(bench: Bench) -> dict[str, int]:
    facts: dict[str, Any] = await bench.server.call("INFO", "commandstats")
    return {name.removeprefix("cmdstat_"): each["calls"] for name, each in facts.items()}


async def total(bench: Bench) -> int:
    """Bytes of complete blocks, as the grid has counted them."""
    return int((await bench.server.call("HGET", key_of(bench, "log-marks"), "")).split()[0])


async def test_a_history_costs_a_publish_one_command(forgetful: Bench) -> None:
    """Now and then a node tells what it has added; what one step publishes to a topic costs one together."""
    grid = await forgetful.grid()
    publisher = Publisher(grid)
    await grid.topics.publish([publisher.command(1)._replace(history=LIMITS)])
    await forgetful.server.call("CONFIG", "RESETSTAT")
    for number in range(2, 12):
        await grid.topics.publish([publisher.command(number, settled=0)._replace(history=LIMITS)])
    commands = await commands_of(forgetful)
    assert (commands["xadd"], commands["hset"]) == (20, 10)
    assert not commands.keys() & {"hincrby", "hget", "xtrim", "hlen", "time"}
    await forgetful.server.call("CONFIG", "RESETSTAT")
    await grid.topics.publish([publisher.command(number)._replace(history=LIMITS) for number in range(12, 42)])
    commands = await commands_of(forgetful)
    assert (commands["evalsha"], commands["xadd"]) == (1, 31)
    assert "hincrby" not in commands
    for number in range(42, 142):
        await grid.topics.publish([publisher.command(number)._replace(history=LIMITS)])
    assert 1 <= (await commands_of(forgetful))["hincrby"] <= 3


async def test_marks_of_an_older_version_are_read(bench: Bench) -> None:
    """They have no sum of all blocks in front; nodes of that version read those that have it as well."""
    grid = await bench.grid(history_bytes=8 * MEBIBYTE)
    limits = HistoryLimits(count=400, age=3600.0, bytes=MEBIBYTE)
    await publish(grid, range(1, 2_001), limits=limits)
    marks, counted = key_of(bench, "log-marks"), await total(bench)
    told, _, blocks = (await bench.server.call("HGET", marks, TOPIC)).partition(b";")
    events, size = (int(each) for each in told.removeprefix(b"=").split())
    assert size == counted
    read = [each.split() for each in blocks.split(b";")[:-1]]
    assert events == sum(int(each[1]) for each in read)
    assert size == sum(int(each[2]) for each in read)
    await bench.server.call("HSET", marks, TOPIC, blocks)
    await publish(grid, range(2_001, 4_001), limits=limits)
    after = await bench.server.call("HGET", marks, TOPIC)
    assert after.startswith(b"=")
    assert 400 <= int(after[1 : after.index(b" ")]) < 400 * 33 / 32 + 4096 / EVENT_BYTES
    assert await total(bench) == int(after[: after.index(b";")].split()[1])


@pytest.mark.promise("P20")
async def test_a_history_of_any_values_takes_what_is_counted(bench: Bench) -> None:
    grid = await bench.grid(history_bytes=8 * MEBIBYTE)
    request = 1
    for size, count in ((10, 20_000), (500, 6_000), (32 * 1024, 100), (10, 20_000)):
        await publish(grid, range(request, request + count), b"x" * size)
        request += count
        bound = MEBIBYTE + MEBIBYTE // 32 + 4096 + 100 * (size + EVENT_BYTES)
        taken = await bench.server.call("MEMORY", "USAGE", key_of(bench, f"log:{TOPIC}"), "SAMPLES", 0)
        assert taken < bound * ROUNDED, size
        marks = (await bench.server.call("HGET", key_of(bench, "log-marks"), TOPIC)).count(b";")
        assert marks <= 64
        assert await total(bench) > MEBIBYTE * 3 // 4 or size == 10


async def test_what_is_counted_is_what_is_there(bench: Bench) -> None:
    """Cut, swept and dropped: the bytes of all histories are those of the marks that are left."""
    grid = await bench.grid()
    topics = [TopicPath(f"prices/{number}") for number in range(5)]
    small = HistoryLimits(count=100, age=3600.0, bytes=20_000)
    for topic in topics:
        await publish(grid, range(1, 1001), b"x" * 200, topic, small)
    marks = await bench.server.call("HMGET", key_of(bench, "log-marks"), *topics)
    held = sum(int(each.split()[2]) for text in marks for each in text.decode().split(";")[1:-1])
    assert await total(bench) == held > 5 * 15_000
    assert await grid.history.sweep(PARTITION, [(topic, None) for topic in topics]) > 0
    assert await total(bench) == 0
    assert {each for each in await bench.keys() if "log" in each} == {f"{{t{PARTITION}}}:log-marks"}


@pytest.mark.parametrize("kind", ["log", "logs", "log-marks"])
async def test_keys_that_were_deleted_or_replaced_do_no_harm(bench: Bench, kind: str) -> None:
    """Every publish is executed once; readers are told of what is gone; nothing grows without end."""
    grid = await bench.grid()
    limits = HistoryLimits(count=100, age=3600.0, bytes=20_000)
    events = await publish(grid, range(1, 201), b"x" * 100, limits=limits)
    key = key_of(bench, f"log:{TOPIC}" if kind == "log" else kind)
    await bench.server.call("DEL", key)
    events += await publish(grid, range(1001, 1002), b"x" * 100, limits=limits)
    if kind != "log-marks":
        await bench.server.call("DEL", key)
        await bench.server.call(*(("SET", key, "x") if kind == "logs" else ("XADD", key, "99999999-0", "a", "b")))
    events += await publish(grid, range(2001, 4001), b"x" * 100, limits=limits)
    assert len(events) == len(set(events)) == 2201
    (page,) = await grid.history.read(PARTITION, [HistoryQuestion(TOPIC, None, 10_000)])
    assert page.events[-1].event == events[-1]
    assert 50 <= len(page.events) < 1000
    (page,) = await grid.history.read(PARTITION, [HistoryQuestion(TOPIC, events[0], 1)])
    assert page.has_gap


async def test_foreign_entries_of_a_log_are_skipped(bench: Bench) -> None:
    grid = await bench.grid()
    await publish(grid, range(1, 3))
    await bench.server.call("XADD", key_of(bench, f"log:{TOPIC}"), "*", "strange", "entry")
    (page,) = await grid.history.read(PARTITION, [HistoryQuestion(TOPIC, None, 10)])
    assert len(page.events) == 2
    assert not page.has_gap


@pytest.mark.promise("P20")
@pytest.mark.parametrize("more", [0, 1])
async def test_events_behind_many_foreign_entries_are_read(bench: Bench, more: int) -> None:
    """Found: a page with nothing but foreign entries was taken for the last one."""
    grid = await bench.grid()
    before = await publish(grid, range(1, 3))
    await publish(grid, range(3, 63), topic=TopicPath("prices/other"))
    for number in range(3, 43):
        await bench.server.call(
            "XADD", key_of(bench, f"log:{TOPIC}"), f"{grid.generation}-{number}", "strange", "entry"
        )
    after = await publish(grid, range(63, 63 + more))
    (page,) = await grid.history.read(PARTITION, [HistoryQuestion(TOPIC, before[-1], 10)])
    assert [each.event for each in page.events] == after
    assert not page.has_gap
    assert page.is_last
