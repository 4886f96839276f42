"""What a topic partition holds in a real Redis, in bytes (P20)."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.adapters.redis import RedisGrid
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import ENTRY_BYTES, VALUE_BYTES, NotStored, Published
from tests.integration.redis.support import N2, PARTITION, TOPIC, Bench, Publisher
from tests.support.clock import eventually

pytestmark = pytest.mark.promise("P20")

MEBIBYTE = 1024**2

ROUNDED = 1.3
"""What Redis needs for as many bytes as are counted, at most: its allocator rounds up by a fifth to a quarter."""


def key_of(bench: Bench, name: str) -> str:
    return f"{bench.prefix}:{{t{PARTITION}}}:{name}"


async def held(bench: Bench) -> int:
    """Bytes of values, as the grid has counted them."""
    return int((await bench.server.call("HGET", key_of(bench, "values"), ""))[-15:])


async def commands_of(bench: Bench) -> dict[str, int]:
    """How often Redis executed each command since its counters were reset, within scripts too."""
    facts: dict[str, Any] = await bench.server.call("INFO", "commandstats")
    return {name.removeprefix("cmdstat_"): each["calls"] for name, each in facts.items()}


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


async def test_what_is_counted_anew_need_not_be_asked_for_again(bench: Bench) -> None:
    """Somebody deleted the key, as the runbook says, and the number has drifted: the next block has it counted."""
    grid = await bench.grid(stream_bytes=MEBIBYTE)
    await publish(grid, range(1, 2), b"x" * 1000)
    counted = await held(bench)
    await bench.server.call("HSET", key_of(bench, "values"), "", "0.0000000000000007")
    await bench.server.call("DEL", key_of(bench, "sizes"))
    for number in range(2, 202):
        await publish(grid, range(number, number + 1), b"x" * 1000)
    await publish(grid, range(202, 203), b"x" * 1001)
    assert await held(bench) == counted + 1


async def test_a_refused_publish_has_values_counted_once(forgetful: Bench) -> None:
    """P20: else whoever is refused could have Redis count again and again."""
    grid = await forgetful.grid()
    await publish(grid, range(1, 2), b"1")
    await forgetful.server.call("HSET", key_of(forgetful, "values"), "", "0")
    await forgetful.server.call("CONFIG", "RESETSTAT")
    for number in range(2, 7):
        (refused,) = await publish(grid, range(number, number + 1), b"12", most_bytes=1)
        assert isinstance(refused, NotStored)
    assert (await commands_of(forgetful))["hscan"] == 1


async def test_sizes_of_the_version_before_are_taken_over(bench: Bench) -> None:
    """It kept both sizes in a key of their own, which publishes of its nodes go on to change while they live."""
    grid = await bench.grid(stream_bytes=MEBIBYTE)
    (published,) = await publish(grid, range(1, 2), b"x" * 1000)
    counted = await held(bench)
    await bench.server.call("HDEL", key_of(bench, "values"), "")
    await bench.server.call("HSET", key_of(bench, "sizes"), "values", 7, "block", 60_000, "marks", f"1-1 {MEBIBYTE};")
    (again,) = await publish(grid, range(2, 3), b"x" * 6_000)
    assert again.version == published.version + 1
    assert await held(bench) == counted + 5_000
    marks = (await bench.server.call("HGET", key_of(bench, "sizes"), "marks")).decode()
    assert marks.startswith("1-2 ")
    assert marks.count(";") == 1


async def test_older_nodes_read_the_version_where_the_bytes_are(bench: Bench) -> None:
    """Their scripts take what the empty topic has for a number, add one, and write it without a fraction."""
    grid = await bench.grid()
    await publish(grid, range(1, 2), b"x" * 100_000)
    await grid.topics.remove(TOPIC, keep=0.0)
    removed = await bench.server.call("ZSCORE", key_of(bench, "removed"), TOPIC)

    async def is_over() -> bool:
        seconds, microseconds = await bench.server.call("TIME")
        return int(seconds) * 1000 + int(microseconds) / 1000 > float(removed) + 1

    # Two steps may be executed within the millisecond for which it is remembered.
    await eventually(is_over)
    await publish(grid, range(2, 3), b"x" * 1_000, TopicPath("prices/OTHER"))
    await grid.topics.remove(TopicPath("prices/OTHER"), keep=1000.0)
    stored = (await bench.server.call("HGET", key_of(bench, "values"), "")).decode()
    older = "return string.format('%.0f', math.max(tonumber(redis.call('HGET', KEYS[1], '') or '0'), 0) + 1)"
    read = await bench.server.call("EVAL", older, 1, key_of(bench, "values"))
    assert stored.startswith("2.0")
    assert read == b"3"


async def test_sizes_cost_a_publish_no_command(forgetful: Bench) -> None:
    """Each costs Redis a tenth of a publish."""
    grid = await forgetful.grid()
    await publish(grid, range(1, 2), b"1")
    await forgetful.server.call("CONFIG", "RESETSTAT")
    publisher = Publisher(grid, session="from-1")
    for number in range(2, 12):
        command = publisher.command(number, settled=0)._replace(value=b"x" * number, most_bytes=MEBIBYTE)
        (published,) = await grid.topics.publish([command])
        assert isinstance(published, Published)
    commands = await commands_of(forgetful)
    needed = {"lindex", "hmget", "xadd", "hset", "rpush", "pexpire", "evalsha"}
    assert {name: commands[name] for name in needed} == dict.fromkeys(needed, 10)
    assert not commands.keys() & {"hget", "hincrby", "hscan", "hlen"}


async def test_what_is_sent_for_a_stream_is_told_now_and_then_and_whole(forgetful: Bench) -> None:
    """P20: of a 256th of the bound, by each node for itself; topics count as bytes, whatever they are written in."""
    nodes = [await forgetful.grid(stream_bytes=MEBIBYTE), await forgetful.grid(N2, stream_bytes=MEBIBYTE)]
    topic = TopicPath(f"prices/{chr(0x1F600) * 50}")
    await forgetful.server.call("CONFIG", "RESETSTAT")
    for number in range(1, 101):
        for node, grid in enumerate(nodes):
            await publish(grid, range(1000 * node + number, 1000 * node + number + 1), b"x" * 100, topic)
    appended = 2 * 100 * (len(topic.encode()) + 100 + ENTRY_BYTES)
    marks = (await forgetful.server.call("HGET", key_of(forgetful, "sizes"), "marks") or b"").decode()
    told = int(await forgetful.server.call("HGET", key_of(forgetful, "sizes"), "block"))
    told += sum(int(each.split()[1]) for each in marks.split(";") if each)
    assert told >= appended - 2 * MEBIBYTE // 256
    assert (await commands_of(forgetful))["hincrby"] <= 2 * told // (MEBIBYTE // 256)


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
