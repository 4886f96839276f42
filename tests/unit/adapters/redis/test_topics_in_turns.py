"""Pages of values that come at the same time are read one in a turn of the loop (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.scripts import Command
from gateway.adapters.redis.topics import RedisTopics
from gateway.core.types import TopicPath

PARTITIONS = 8


class Batcher:
    """A grid that answers everybody at the same time."""

    def __init__(self) -> None:
        self._answers = asyncio.Event()

    def answer(self) -> None:
        self._answers.set()

    async def call_all(self, commands: Sequence[Command]) -> Any:
        await self._answers.wait()
        assert [command[0] for command in commands] == ["HSCAN", "HLEN"]
        return [(b"0", [b"a/1", b'3 1-7 "x"']), 0]


async def test_pages_that_come_together_are_read_one_in_a_turn() -> None:
    batcher = Batcher()
    grid: Any = SimpleNamespace(batcher=batcher, attachment=1, generation=1)
    topics = RedisTopics(grid=grid, keys=Keys("g"), foreign=None, depth=1, writer=None)  # type: ignore[arg-type]
    read: list[int] = []

    async def follow(partition: int) -> None:
        async for page in topics.values(partition):
            assert [each.topic for each in page] == [TopicPath("a/1")]
            read.append(partition)

    reading = asyncio.gather(*map(follow, range(PARTITIONS)))
    await asyncio.sleep(0)
    batcher.answer()
    before = 0
    while not reading.done():
        await asyncio.sleep(0)
        assert len(read) - before <= 1
        before = len(read)
    assert sorted(read) == list(range(PARTITIONS))
