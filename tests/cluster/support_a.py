"""Crowds of watched clients, publishers that count, and the grid read by plain Redis commands.

What the gateway says of itself is no evidence here: sessions, values and logs are read from Redis as they are stored.
Every publisher counts 1, 2, 3, … on topics of its own, which makes every loss, repetition and reordering visible;
``gateway.local.checker`` says how.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Self

import redis.asyncio as redis

from gateway.adapters.redis.keys import Keys
from gateway.client import Receipt, Recovery, Session, UpdateStream, connect
from gateway.client.promises import users
from gateway.core.topics import topic_partition
from gateway.core.types import SessionId, TopicPath
from gateway.local.checker import Tally, TopicWatch, Violation
from gateway.local.stack import Stack
from gateway.settings.grid_url import GridKind, GridPlace, read_grid_url
from tests.support.faults import eventually
from tests.support.redis_cluster import ClusterClient
from tests.support.redis_sentinel import master_address

PREFIX: Final = "gateway"
"""Prefix of all keys, as nodes have it by default."""

TOPIC_DEPTH: Final = 1
"""Leading segments that decide a topic's partition, as nodes have it by default."""

CONNECTING: Final = 30
"""Clients of a crowd that open their sessions at the same time: two busy cores cannot serve more at once anyway."""

ANSWER: Final = 20.0
"""Seconds for one answer of Redis; it is either immediate or will never come."""

CONVERGED: Final = 20.0
"""Seconds until a crowd must hold the grid's values."""

Figures = Callable[[str], None]
"""The fixture ``figures``: what it is told is shown at the end of the run, so that it can be quoted."""


# --- The grid ---------------------------------------------------------------------------------------------------------


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
            selections=tuple(json.loads(stored["selections"])),
            node=stored["owner"].rpartition(":")[0],
            epoch=int(stored["epoch"]),
            connected=stored["connected"] == "1",
        )

    async def values(self) -> dict[str, tuple[int, int]]:
        """Read the value and version of every topic."""
        found: dict[str, tuple[int, int]] = {}
        for key in self._keys.values:
            for topic, stored in (await self._redis.hgetall(key)).items():
                version, _, value = stored.split(" ", 2)
                found[topic] = (int(value), int(version))
        return found

    async def log(self, topic: str) -> list[LogEntry]:
        """Read a topic's entries from its partition's stream, the oldest first."""
        partition = topic_partition(TopicPath(topic), TOPIC_DEPTH)
        entries: list[LogEntry] = []
        for number, fields in await self._redis.xrange(self._keys.stream[partition]):
            if topic in fields:
                version, _, value = fields[topic].partition(" ")
                entries.append(LogEntry(f"{partition}-{number}", int(version), int(value)))
        return entries

    async def nodes(self) -> set[str]:
        """Tell the names of the nodes that hold a lease, lapsed or not."""
        return {name.rpartition(":")[0] for name in await self._redis.zrange(self._keys.leases, 0, -1)}

    async def of_sessions(self) -> list[str]:
        """Tell the keys that only sessions have; there are none once every session has ended (P7)."""
        parts = (":session:", ":receipts:", ":owned", ":ids", ":deadlines")
        return sorted([key async for key in self._redis.scan_iter(f"{PREFIX}:*") if any(part in key for part in parts)])

    async def calls(self) -> Counter[str]:
        """Tell how often each command has run since the start, scripts and what they call alike."""
        stats: dict[str, dict[str, int]] = await self._redis.info("commandstats")
        return Counter({name.removeprefix("cmdstat_"): values["calls"] for name, values in stats.items()})


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


def complaints(stack: Stack) -> Counter[str]:
    """Count what nodes have logged as warnings and errors, by event; what is no event counts as itself."""
    found: Counter[str] = Counter()
    for node in stack.node_names:
        for line in stack.log_of(node).read_text().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                found[line] += 1
            else:
                if event["level"] in {"warning", "error"}:
                    found[event["event"]] += 1
    # The stack's nodes believe every client, let them do everything, and say so.
    del found["development_mode"], found["policy_absent"]
    return found


# --- Clients ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identity:
    """What must not change in a session's life, as its client sees it."""

    id: str
    principal: str
    properties: Mapping[str, str]


class Member:
    """A session of which every update and every recovery is watched.

    Args:
        name: for violations.
        session: just opened.

    Attributes:
        watches: what was seen, by topic.
        recoveries: all there were.
        notices: all there were.
    """

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.session = session
        self.watches: dict[str, TopicWatch] = {}
        self.recoveries: list[Recovery] = []
        self.notices: list[str] = []
        self._tasks = [asyncio.create_task(self._hear_recoveries()), asyncio.create_task(self._hear_notices())]

    @property
    def identity(self) -> Identity:
        """What must not change."""
        return Identity(self.session.id, self.session.principal, users(self.session.properties))

    @property
    def violations(self) -> list[Violation]:
        """What was wrong with the updates."""
        return [violation for watch in self.watches.values() for violation in watch.violations]

    @property
    def tally(self) -> Tally:
        """Counts of the updates of all topics."""
        return sum((watch.tally for watch in self.watches.values()), Tally())

    async def subscribe(self, selector: str) -> None:
        """Subscribe and watch; the selectors of one member must not overlap."""
        self._tasks.append(asyncio.create_task(self._watch(await self.session.subscribe(selector))))

    def last(self) -> dict[str, tuple[int, int]]:
        """Tell the last value and version of every topic it has ever been sent."""
        return {topic: (watch.value, watch.version) for topic, watch in self.watches.items()}

    async def close(self) -> None:
        """Close the session; fails if anything went wrong with it meanwhile."""
        await self.session.close()
        await asyncio.gather(*self._tasks)

    async def _watch(self, stream: UpdateStream) -> None:
        async for update in stream:
            watch = self.watches.get(update.topic)
            if watch is None:
                watch = self.watches[update.topic] = TopicWatch(self.name, update.topic)
            assert type(update.value) is int
            watch.observe(update.value, update.version, snapshot=update.snapshot)

    async def _hear_recoveries(self) -> None:
        async for recovery in self.session.recoveries():
            self.recoveries.append(recovery)

    async def _hear_notices(self) -> None:
        async for notice in self.session.notices():
            self.notices.append(notice.code)


Enter = Callable[[Member, int], Awaitable[None]]
"""Makes a new member of a crowd, of which the number is given from 0, what the test wants."""


@asynccontextmanager
async def crowd(url: str, count: int, enter: Enter | None = None, *, role: str = "user") -> AsyncIterator[list[Member]]:
    """Open sessions, and close all of them at the end.

    Args:
        url: where.
        count: how many.
        enter: called for each once it is open.
        role: the principals are called ``<role>-<number>``.
    """
    members: list[Member] = []
    turn = asyncio.Semaphore(CONNECTING)

    async def open_one(number: int) -> None:
        async with turn:
            name = f"{role}-{number}"
            member = Member(name, await connect(url, principal=name, properties={"seat": str(number)}))
            members.append(member)
            if enter is not None:
                await enter(member, number)

    try:
        async with asyncio.TaskGroup() as opening:
            for number in range(count):
                opening.create_task(open_one(number))
        members.sort(key=lambda member: int(member.session.properties["seat"]))
        yield members
    finally:
        ends = await asyncio.gather(*(member.close() for member in members), return_exceptions=True)
        if failures := [end for end in ends if isinstance(end, BaseException)]:
            raise BaseExceptionGroup(f"{len(failures)} of {len(members)} members met an error", failures)


async def converged(members: Iterable[Member], grid: GridReader, expected: Callable[[Member], set[str]]) -> None:
    """Wait until every member has seen exactly the topics that it should, and of each the value that the grid holds.

    Nothing may be published meanwhile.
    """
    values = await grid.values()
    wanted = {member: {topic: values[topic] for topic in expected(member)} for member in members}

    def behind() -> list[str]:
        return [member.name for member, last in wanted.items() if member.last() != last]

    try:
        await eventually(lambda: not behind(), "everybody holds the grid's values", within=CONVERGED)
    except AssertionError:
        first = next(member for member in wanted if member.last() != wanted[member])
        differing = {
            topic: (first.last().get(topic), wanted[first].get(topic))
            for topic in first.last().keys() | wanted[first].keys()
            if first.last().get(topic) != wanted[first].get(topic)
        }
        raise AssertionError(
            f"{len(behind())} of {len(wanted)} do not hold the grid's values; {first.name} at {first.session.node}, "
            f"{first.session.state}, {len(first.recoveries)} recoveries, (has, grid) by topic: {differing}"
        ) from None


# --- Publishers -------------------------------------------------------------------------------------------------------


@dataclass
class Counting:
    """Publishes 1, 2, 3, … on a topic that nobody else publishes to.

    Attributes:
        session: that publishes.
        topic: where.
        asked: the last value that was published.
        receipts: by value.
        slowest: the longest wait for a receipt, in seconds.
    """

    session: Session
    topic: str
    asked: int = 0
    receipts: dict[int, Receipt] = field(default_factory=dict)
    slowest: float = 0.0

    async def publish(self) -> None:
        """Publish the next value and wait for its receipt."""
        self.asked += 1
        value = self.asked
        loop = asyncio.get_running_loop()
        started = loop.time()
        self.receipts[value] = await self.session.publish(self.topic, value)
        self.slowest = max(self.slowest, loop.time() - started)

    async def pour(self, upto: int, *, in_flight: int) -> None:
        """Publish up to a value, without waiting for the receipts of more than some."""
        room = asyncio.Semaphore(in_flight)

        async def one() -> None:
            try:
                await self.publish()
            finally:
                room.release()

        async with asyncio.TaskGroup() as publishes:
            for _ in range(upto - self.asked):
                await room.acquire()
                publishes.create_task(one())

    def judge(self, log: Sequence[LogEntry]) -> None:
        """Check that the log holds every value exactly once, in order, each as its receipt says (P5)."""
        times = Counter(entry.value for entry in log)
        every = range(1, self.asked + 1)
        missing = [value for value in every if value not in times]
        repeated = [value for value, count in times.items() if count > 1]
        assert not missing, f"{self.topic}: {len(missing)} of {self.asked} missing, first {missing[:5]}"
        assert not repeated, f"{self.topic}: {len(repeated)} of {self.asked} repeated, first {repeated[:5]}"
        disorder = [after.value for before, after in pairwise(log) if after.value != before.value + 1]
        assert not disorder, f"{self.topic}: out of order at {disorder[:5]}"
        assert len(log) == self.asked, f"{self.topic}: holds values that nobody published"
        unlike = [
            (entry, self.receipts.get(entry.value))
            for entry in log
            if self.receipts.get(entry.value) != Receipt(entry.event, entry.version)
        ]
        assert not unlike, f"{self.topic}: {len(unlike)} receipts are not of the entry, first {unlike[0]}"


def gaps(recoveries: Iterable[Recovery]) -> str:
    """Describe how long sessions were without a connection."""
    seconds = sorted(recovery.gap_seconds for recovery in recoveries)
    return f"p50 {statistics.median(seconds):.3f} s, max {seconds[-1]:.3f} s"
