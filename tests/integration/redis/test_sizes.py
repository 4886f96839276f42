"""What a topic partition holds in a real Redis, in bytes (P20)."""

from __future__ import annotations

from typing import Any

from gateway.adapters.redis import RedisGrid
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import ENTRY_BYTES, VALUE_BYTES, NotStored, Published
from tests.integration.redis.support import PARTITION, TOPIC, Bench, Publisher

MEBIBYTE = 1024**2

ROUNDED = 1.3
"""What Redis needs for as many bytes as are counted, at most: its allocator rounds up by a fifth to a quarter."""


def key_of(bench: Bench, name: str) -> str:
    return f"{bench.prefix}:{{t{PARTITION}}}:{name}"


async def held(bench: Bench) -> int:
    """Bytes of values, as the grid has counted them."""
    return int(await bench.server.call("HGET", key_of(bench, "sizes"), "values"))


async def occupied(bench: Bench, name: str) -> int:
    """Bytes that Redis says a key needs."""
    size: int = await bench.server.call("MEMORY", "USAGE", key_of(bench, name), "SAMPLES", 0)
    return size


async def publish(grid: RedisGrid, numbers: range, value: bytes, topic: TopicPath = TOPIC, **more: Any) -> list[Any]:
    publisher = Publisher(grid, session=f"from-{numbers.start}", topic=topic)
    commands = [publisher.command(number)._replace(value=value, settled=RequestNumber(0), **more) for number in numbers]
    return await grid.topics.publish(commands)


async def test_a_stream_of_any_values_stays_below_its_bound(bench: Bench) -> None:
    grid = await bench.grid(stream_bytes=MEBIBYTE, stream_length=1_000_000)
    request = 1
    for size, count in ((10, 20_000), (500, 6_000), (32 * 1024, 100), (700_000, 4), (10, 20_000)):
        await publish(grid, range(request, request + count), b"x" * size)
        request += count
        bound = MEBIBYTE + MEBIBYTE // 16 + size
        assert await occupied(bench, "stream") < bound * ROUNDED, size
        kept = await bench.server.call("XLEN", key_of(bench, "stream"))
        assert kept * (len(TOPIC) + size + ENTRY_BYTES) > min(MEBIBYTE - MEBIBYTE // 16, size), "and no less than that"
        marks = (await bench.server.call("HGET", key_of(bench, "sizes"), "marks")).count(b";")
        assert marks <= 17


async def test_values_are_counted_for_what_redis_needs(bench: Bench) -> None:
    grid = await bench.grid()
    for number in range(500):
        await publish(grid, range(number + 1, number + 2), b"x" * (number * 7), TopicPath(f"prices/{number}"))
    counted = await held(bench)
    assert counted == sum(len(f"prices/{number}") + 7 * number + VALUE_BYTES for number in range(500))
    assert await occupied(bench, "values") < counted * ROUNDED


async def test_values_that_nobody_counted_are_counted_once(bench: Bench) -> None:
    """An older node made the grid, or somebody deleted the key."""
    grid = await bench.grid()
    for number in range(1, 1501):
        await publish(grid, range(number, number + 1), b"x" * (number % 100), TopicPath(f"prices/{number}"))
    counted = await held(bench)
    await bench.server.call("DEL", key_of(bench, "sizes"))
    full, passed = [
        (await publish(grid, range(number, number + 1), b"x" * 100, TopicPath("prices/1"), most_bytes=most))[0]
        for number, most in ((2001, counted + 98), (2002, counted + 99))
    ]
    assert isinstance(full, NotStored)
    assert isinstance(passed, Published)
    assert await held(bench) == counted + 99


async def test_counting_asks_first_whether_redis_takes_writes(forgetful: Bench) -> None:
    """Else a full Redis would count again with every publish that it refuses."""
    grid = await forgetful.grid()
    await publish(grid, range(1, 2), b"1")
    await forgetful.server.call("DEL", key_of(forgetful, "sizes"))
    await forgetful.server.call("CONFIG", "RESETSTAT")
    await forgetful.server.call("CONFIG", "SET", "maxmemory", "1mb")
    await publish(grid, range(2, 3), b"1")
    facts = await forgetful.server.call("INFO", "commandstats")
    assert "cmdstat_hscan" not in facts
    await forgetful.server.call("CONFIG", "SET", "maxmemory", "0")
    await publish(grid, range(3, 4), b"1")
    assert await held(forgetful) == len(TOPIC) + 1 + VALUE_BYTES
