"""Short words for the tests of ``RedisGrid``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final
from uuid import uuid4

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.core.topics.topics import TOPIC_PARTITIONS, topic_partition
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, RequestNumber, SessionId, TopicPath
from gateway.ports import (
    Fenced,
    GridChange,
    GridState,
    GridUnavailable,
    Ownership,
    PositionLost,
    PublishCommand,
    Published,
    PublishResult,
    SessionRecord,
    TailBatch,
    TopicValue,
)
from tests.support.clock import eventually
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.times import scaled

N1: Final = NodeRef(NodeId("n1"), Incarnation("first"))
N2: Final = NodeRef(NodeId("n2"), Incarnation("first"))

TOPIC: Final = TopicPath("prices/ACME")
PARTITION: Final = topic_partition(TOPIC, 1)


class Bench:
    """A server, and any number of grids on it that share a prefix."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.prefix = unique_prefix()
        self.log = MemoryEventLog()
        self._grids: list[RedisGrid] = []

    def unstarted(self, node: NodeRef = N1, **options: Any) -> RedisGrid:
        defaults: dict[str, Any] = {"url": self.server.url, "prefix": self.prefix, "metrics": MemoryMetrics()}
        defaults |= {"timeout": scaled(3.0), "stream_length": 10_000}
        grid = RedisGrid(node=node, log=self.log, **defaults | options)
        self._grids.append(grid)
        return grid

    async def grid(self, node: NodeRef = N1, **options: Any) -> RedisGrid:
        grid = self.unstarted(node, **options)
        await grid.start()
        return grid

    async def close(self) -> None:
        await asyncio.gather(*(grid.close() for grid in self._grids))

    async def keys(self) -> set[str]:
        """Names of all keys, without the prefix."""
        return {key.removeprefix(f"{self.prefix}:") for key in await self.server.keys(self.prefix)}

    async def session_keys(self) -> set[str]:
        """Names of the keys that are there for sessions, without the records of ended ones."""
        lasting = ("grid", "renewed", "opened", "values", "sizes", "stream", "ended", "closed")
        return {key for key in await self.keys() if key.rsplit(":", 1)[-1] not in lasting}

    async def expire(self, node: NodeRef) -> None:
        """Move the end of a node's lease into the past, instead of waiting for it."""
        await self.server.call("ZADD", f"{self.prefix}:{{nodes}}:leases", "XX", 1, f"{node.node}:{node.incarnation}")

    async def clients(self, node: NodeRef = N1, *, reader: bool = False) -> list[int]:
        """Ids of the connections of a node at the server: its reader's, or its others."""
        lines = (await self.server.call("CLIENT", "LIST")).decode().splitlines()
        facts = [dict(part.split("=", 1) for part in line.split(" ") if "=" in part) for line in lines]
        return [
            int(each["id"])
            for each in facts
            if each["name"] == f"gateway-{node.node}" and (each["cmd"] == "xread") == reader
        ]

    async def kill_clients(self, node: NodeRef = N1, *, reader: bool = False) -> int:
        """CLIENT KILL; returns how many were cut."""
        cut = 0
        for number in await self.clients(node, reader=reader):
            cut += await self.server.call("CLIENT", "KILL", "ID", number)
        return cut


@asynccontextmanager
async def changes_of(grid: RedisGrid) -> AsyncIterator[list[GridChange]]:
    """Collect the changes of a grid."""
    seen: list[GridChange] = []

    async def collect() -> None:
        async for change in grid.changes():
            seen.append(change)  # noqa: PERF401 - each is to be seen as it comes

    task = asyncio.create_task(collect())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Reader:
    """Collects what a tail brings."""

    def __init__(self, grid: RedisGrid) -> None:
        self.values: list[TopicValue] = []
        self.lost: list[int] = []
        self._task = asyncio.create_task(self._collect(grid))

    async def _collect(self, grid: RedisGrid) -> None:
        async for item in grid.tail.items():
            if isinstance(item, TailBatch):
                self.values += item.values
            else:
                assert isinstance(item, PositionLost)
                self.lost.append(item.partition)

    @property
    def texts(self) -> list[bytes]:
        return [each.value for each in self.values]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def session_record(number: str | None = None, **parts: Any) -> SessionRecord:
    arguments: dict[str, Any] = {
        "id": SessionId(number or uuid4().hex),
        "principal": "alice",
        "properties": {"team": "fx"},
        "selections": ("+prices/**",),
        "window": 60.0,
        "owner": N1,
    }
    return SessionRecord(**arguments | parts)


def ownership_of(record: SessionRecord) -> Ownership:
    return Ownership(record.id, record.owner, record.epoch)


class Publisher:
    """A session that publishes numbered values and sends again what was not acknowledged, as the application does."""

    def __init__(
        self, grid: RedisGrid, *, session: str = "publisher", epoch: int = 1, topic: TopicPath = TOPIC
    ) -> None:
        self.grid = grid
        self.ownership = Ownership(SessionId(session), N1, Epoch(epoch))
        self.topic = topic
        self.settled = 0
        self.sent_again = 0
        self.duplicates = 0
        self._numbers = count(1)

    def command(self, request: int, *, settled: int | None = None) -> PublishCommand:
        return PublishCommand(
            self.ownership,
            RequestNumber(request),
            RequestNumber(self.settled if settled is None else settled),
            self.topic,
            b"%d" % request,
        )

    async def publish(self, amount: int) -> list[Published]:
        """Publish the next *amount* values, however often the grid fails meanwhile."""
        commands = [self.command(next(self._numbers)) for _ in range(amount)]
        while True:
            try:
                results = await self.grid.topics.publish(commands)
            except GridUnavailable:
                self.sent_again += 1
                await until_up(self.grid)
                continue
            break
        published = [each for each in results if isinstance(each, Published)]
        assert len(published) == len(commands), "a publisher was fenced"
        self.duplicates += sum(each.duplicate for each in published)
        self.settled += amount
        return published


async def until_up(grid: RedisGrid) -> None:
    await eventually(lambda: grid.state is GridState.UP, message="the grid is up")


async def until_away(grid: RedisGrid) -> None:
    await eventually(lambda: grid.state is GridState.UNREACHABLE, message="the grid is unreachable")


async def stream_of(bench: Bench, partition: int = PARTITION) -> list[tuple[str, bytes]]:
    """Read a whole stream: entry ids and values, without markers."""
    entries = await bench.server.call("XRANGE", f"{bench.prefix}:{{t{partition}}}:stream", "-", "+")
    found = []
    for number, fields in entries:
        ((topic, body), *_) = fields.items()
        if topic:
            found.append((number.decode(), body.partition(b" ")[2]))
    return found


async def values_of(
    grid: RedisGrid, partitions: Iterable[int] = range(TOPIC_PARTITIONS)
) -> dict[TopicPath, TopicValue]:
    """Read all values."""
    found = {}
    for partition in partitions:
        async for page in grid.topics.values(partition):
            for each in page:
                found[each.topic] = each
    return found


async def keep_trying(condition: Callable[[], bool], *, message: str) -> None:
    await eventually(condition, message=message)


def is_fenced(result: PublishResult) -> bool:
    return isinstance(result, Fenced)
