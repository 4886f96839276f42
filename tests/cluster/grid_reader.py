"""The grid as it is stored, read by plain Redis commands: what the gateway says of itself is no evidence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import redis.asyncio as redis

from gateway.adapters.redis.keys import Keys
from gateway.app.operations.system_publisher import NAME_PREFIX
from gateway.core.client.promises import users
from gateway.core.topics.topics import SYSTEM_SIGN, topic_partition
from gateway.core.types import SessionId, TopicPath
from gateway.settings.grid_url import GridKind, GridPlace, read_grid_url
from tests.support.redis_cluster import ClusterClient
from tests.support.redis_sentinel import master_address
from tests.support.times import PATIENCE, scaled

PREFIX: Final = "gateway"
"""Prefix of all keys, as nodes have it by default."""

TOPIC_DEPTH: Final = 1
"""Leading segments that decide a topic's partition, as nodes have it by default."""

ANSWER: Final = scaled(PATIENCE)
"""Seconds for one answer of Redis; it is either immediate or will never come."""

_READERS: Final[dict[str, tuple[str | int, ...]]] = {
    "string": ("GET",),
    "hash": ("HGETALL",),
    "list": ("LRANGE", 0, -1),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "stream": ("XRANGE", "-", "+"),
}
"""How to read all of a key, by its type: the command, and what follows the key."""

_PAGE: Final = 1000
"""Keys asked for at a time."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """What the grid holds of a session.

    Attributes:
        principal: whose it is.
        properties: user-defined ones.
        selections: as on the wire.
        node: the name of its owner.
        epoch: how often it has been claimed, plus one.
        connected: whether a client is connected.
    """

    principal: str
    properties: Mapping[str, str]
    selections: tuple[str, ...]
    node: str
    epoch: int
    connected: bool


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One publish in the log of a topic.

    Attributes:
        event: its event id, as receipts and updates tell it.
        version: of the topic.
        value: the count.
    """

    event: str
    version: int
    value: int


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """What the grid holds of a queue.

    Attributes:
        messages: values as JSON text, by id; also of dead letters.
        ready: ids of those that wait.
        delayed: likewise, of those that wait for their time.
        held: session and id of those that somebody holds.
        dead: why each dead letter is one, by id.
        consumers: how many messages each session is said to hold.
    """

    messages: Mapping[int, str]
    ready: list[int]
    delayed: list[int]
    held: list[tuple[str, int]]
    dead: Mapping[int, str]
    consumers: Mapping[str, int]

    def place_of(self, message: int) -> str:
        """Tell in words where a message is."""
        holders = [holder for holder, held in self.held if held == message]
        if holders:
            return f"held by {', '.join(holders)}"
        where = {"ready": self.ready, "delayed": self.delayed, "dead": self.dead}
        return next((place for place, messages in where.items() if message in messages), "nowhere")


def _selections(stored: Mapping[str, str]) -> tuple[str, ...]:
    """Put the entries of a stored list in the order of their ranks."""
    entries = {name[2:]: value for name, value in stored.items() if name.startswith("s:")}
    return tuple(entries[each][0] + each for each in sorted(entries, key=lambda each: int(entries[each][1:])))


class GridReader:
    """Reads the grid behind the gateway's back.

    Args:
        url: of the Redis.
    """

    def __init__(self, url: str) -> None:
        self._keys = Keys(PREFIX)
        # Its methods are typed for all that any command can answer; here it is known.
        self._redis: Any = _reader_of(read_grid_url(url))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._redis.aclose()

    async def call(self, *command: str | int) -> Any:
        """Send one command."""
        return await self._redis.execute_command(*command)

    async def session(self, session: str) -> StoredSession | None:
        """Read a session; None if there is none."""
        stored = await self._redis.hgetall(self._keys.session(SessionId(session)))
        if not stored:
            return None
        return StoredSession(
            principal=stored["principal"],
            properties=users(json.loads(stored["properties"])),
            selections=_selections(stored),
            node=stored["owner"].rpartition(":")[0],
            epoch=int(stored["epoch"]),
            connected=stored["connected"] == "1",
        )

    async def values(self) -> dict[str, tuple[int, int]]:
        """Read the value and version of every topic of clients."""
        found: dict[str, tuple[int, int]] = {}
        for key in self._keys.values:
            for topic, stored in (await self._redis.hgetall(key)).items():
                if not _is_of_clients(topic):
                    continue
                version, _, value = stored.split(" ", 2)
                found[topic] = (int(value), int(version))
        return found

    async def log(self, topic: str) -> list[LogEntry]:
        """Read a topic's entries from its partition's stream, the oldest first."""
        return (await self._logs(topic_partition(TopicPath(topic), TOPIC_DEPTH))).get(topic, [])

    async def logs(self, *roots: str) -> dict[str, list[LogEntry]]:
        """Read the entries of topics, each partition once, the oldest first.

        Args:
            roots: first segments; of all topics if there are none.
        """
        partitions = {topic_partition(TopicPath(root), TOPIC_DEPTH) for root in roots} or range(len(self._keys.stream))
        found: dict[str, list[LogEntry]] = {}
        for partition in partitions:
            found |= await self._logs(partition)
        return {topic: log for topic, log in found.items() if not roots or topic.partition("/")[0] in roots}

    async def _logs(self, partition: int) -> dict[str, list[LogEntry]]:
        """Read a partition's stream; a value that was restored is told by the event of its publish."""
        found: dict[str, list[LogEntry]] = {}
        for number, fields in await self._redis.xrange(self._keys.stream[partition]):
            event = f"{partition}-{fields.pop('event', number)}"
            for topic, stored in fields.items():
                if _is_of_clients(topic):
                    version, _, value = stored.partition(" ")
                    found.setdefault(topic, []).append(LogEntry(event, int(version), int(value)))
        return found

    async def queue(self, queue: str) -> StoredQueue:
        """Read a queue, all of it at one moment."""
        path = TopicPath(queue)
        names = self._keys.queue(topic_partition(path, TOPIC_DEPTH), path)[:9]
        _, messages, ready, timers, held, consumers, _, dead, notes = names
        server = await self._redis.server_of(messages) if isinstance(self._redis, ClusterClient) else self._redis
        async with server.pipeline(transaction=True) as step:
            for name in (messages, notes, consumers):
                step.hgetall(name)
            for name in (ready, timers, held, dead):
                step.zrange(name, 0, -1)
            found = await step.execute()
        texts = {int(message): stored.split(" ", 3) for message, stored in found[0].items()}
        return StoredQueue(
            messages={message: text[int(length) :] for message, (_, _, length, text) in texts.items()},
            ready=[int(each) for each in found[3]],
            delayed=[int(each[1:]) for each in found[4] if each[0] == "r"],
            held=[(each.split(" ")[0], int(each.split(" ")[2])) for each in found[5]],
            dead={int(each): found[1][each].split(" ", 1)[1] for each in found[6]},
            consumers={session: int(stored.split(" ")[2]) for session, stored in found[2].items()},
        )

    async def nodes(self) -> set[str]:
        """Tell the names of the nodes that hold a lease, expired or not."""
        return {name.rpartition(":")[0] for name in await self._redis.zrange(self._keys.leases, 0, -1)}

    async def of_sessions(self) -> list[str]:
        """Tell the keys that only sessions have; there are none once every session has ended (P7)."""
        parts = (":session:", ":receipts:", ":owned", ":ids", ":deadlines", ":consuming:")
        found = [key async for key in self._redis.scan_iter(f"{PREFIX}:*") if any(part in key for part in parts)]
        # Nodes publish, too, what they leave to their next run; those receipts go away by themselves.
        return sorted(key for key in found if f":receipts:{NAME_PREFIX}" not in key)

    async def calls(self) -> Counter[str]:
        """Tell how often each command has run since the start, scripts and what they call alike."""
        stats: dict[str, dict[str, int]] = await self._redis.info("commandstats")
        return Counter({name.removeprefix("cmdstat_"): values["calls"] for name, values in stats.items()})


def _is_of_clients(topic: str) -> bool:
    """Tell topics from what nodes tell of themselves, and from what partitions hold of themselves, without a name."""
    return bool(topic) and not topic.startswith(SYSTEM_SIGN)


def _reader_of(place: GridPlace) -> Any:
    """Make redis-py's client of a grid."""
    options: dict[str, Any] = {"decode_responses": True, "socket_timeout": ANSWER}
    match place.kind:
        case GridKind.SINGLE:
            return redis.Redis.from_url(place.url, **options)
        case GridKind.SENTINEL:
            host, port = master_address([(each.host, each.port) for each in place.hosts], place.master)
            return redis.Redis(host=host, port=port, **options)
        case GridKind.CLUSTER:
            return ClusterClient([(each.host, each.port) for each in place.hosts], **options)


async def dump(url: str) -> dict[str, str]:
    """Read every key of a Redis.

    Returns:
        The content by key, as text in which every name and value can be found.
    """
    found: dict[str, str] = {}
    async with GridReader(url) as grid:
        cursor = "0"
        while True:
            cursor, keys = await grid.call("SCAN", cursor, "COUNT", _PAGE)
            for key in keys:
                kind = await grid.call("TYPE", key)
                if kind == "none":
                    continue  # it went away since
                command, *arguments = _READERS[kind]
                found[key] = str(await grid.call(str(command), key, *arguments))
            if str(cursor) == "0":
                return found
