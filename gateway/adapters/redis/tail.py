"""The streams of the followed partitions and the node's inbox, read by one blocking XREAD: a ``TopicTail``.

The reader waits inside Redis for up to ``BLOCK`` seconds. When interest changes meanwhile, it is woken with CLIENT
UNBLOCK over the link's connection, again and again until it has picked the change up, because the first may come just
before it begins to wait.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from gateway.adapters.redis.batcher import abandon
from gateway.adapters.redis.dialer import Dialer, converse, discard
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.link import LONGEST_BACKOFF, SHORTEST_BACKOFF, Link
from gateway.catalogue import log_events
from gateway.core.types import Epoch, EventId, GridGeneration, NodeRef, SessionId, TopicPath, Version
from gateway.ports import (
    EventLog,
    GridUnavailable,
    Ownership,
    PositionLost,
    StreamPosition,
    TailBatch,
    TailItem,
    TopicValue,
)

BLOCK: Final = 2.0
"""Seconds a read waits for news: one command per node in that time is all that an idle tail costs."""

READ_ENTRIES: Final = 1_000
"""Most entries per stream and read: enough for full speed, and some 2 ms of work for the loop."""

READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of values in one read above which fewer entries are asked for: they are in memory at once, also in Redis."""

FEWEST_ENTRIES: Final = 16
"""Entries per stream and read when values are large; at 64 KiB each, 64 partitions are 64 MiB."""

QUEUED_ITEMS: Final = 64
"""Batches that may wait for the application before the reader pauses; the rest waits in the grid's streams."""

_WAKE_INTERVAL: Final = 0.02
"""Seconds between two tries to wake the reader."""

_PLAIN_FIELDS: Final = 2
"""Fields of an entry that was published; a restored one carries its event besides."""

_KNOWN_TOPICS: Final = 65_536
"""Decoded topic names that are kept; then the memory of them starts anew."""


class _Follow:
    """One partition's reading; a new one for each ``follow``, so that leftovers of an earlier one are told apart."""

    __slots__ = ("generation", "partition", "sequence")

    def __init__(self, partition: int, position: StreamPosition) -> None:
        self.partition = partition
        self.generation: int = position.generation
        self.sequence = position.sequence

    @property
    def after(self) -> str:
        """The id that XREAD reads after."""
        return f"{self.generation}-{self.sequence}"

    def continues_with(self, generation: int, sequence: int) -> bool:
        """Tell whether an entry is the next one. A new generation never is: what came before it may have been lost."""
        if self.generation == 0:
            return sequence == 0
        return generation == self.generation and sequence == self.sequence + 1


class _Inbox:
    """The reading of one node's inbox.

    Attributes:
        key: of the stream.
        after: the id that XREAD reads after.
        messages: for the application.
    """

    __slots__ = ("after", "key", "messages")

    def __init__(self, key: str, after: str) -> None:
        self.key = key
        self.after = after
        self.messages: asyncio.Queue[Ownership] = asyncio.Queue()

    def take_in(self, entries: Sequence[Any]) -> None:
        for number, (_, message) in entries:
            self.after = number.decode()
            session, epoch, owner = message.decode().split(" ")
            self.messages.put_nowait(Ownership(SessionId(session), NodeRef.parse(owner), Epoch(int(epoch))))


class RedisTail:
    """Reads streams, over a connection of its own.

    Args:
        dialer: opens the connection.
        link: for waking the reader, and to be told of a grid that does not fit.
        keys: names of all keys.
        timeout: seconds for each step, beyond the time it blocks on purpose.
        log: where bugs are told.
    """

    def __init__(self, *, dialer: Dialer, link: Link, keys: Keys, timeout: float, log: EventLog) -> None:
        self._dialer = dialer
        self._link = link
        self._keys = keys
        self._timeout = timeout
        self._log = log
        self._follows: dict[int, _Follow] = {}
        self._inboxes: dict[str, _Inbox] = {}
        self._read_inboxes: dict[str, str] = {}  # where each was left, as nothing is told twice
        self._queue: deque[tuple[_Follow, TailItem]] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._wanted = 0
        self._picked = 0
        self._picked_up = asyncio.Event()
        self._changed = asyncio.Event()
        self._interest = asyncio.Event()
        self._blocking: int | None = None  # id of the connection that waits inside Redis
        self._tasks: list[asyncio.Task[None]] = []
        self._names: dict[bytes, TopicPath] = {}
        self._count = READ_ENTRIES
        link.when_writes_are_lost(self._lose_all)

    # --- for the application ------------------------------------------------------------------------------------------

    def follow(self, partition: int, position: StreamPosition) -> None:
        """See ``TopicTail.follow``."""
        self._follows[partition] = _Follow(partition, position)
        self._change()

    def unfollow(self, partition: int) -> None:
        """See ``TopicTail.unfollow``."""
        if self._follows.pop(partition, None) is not None:
            self._change()

    async def items(self) -> AsyncIterator[TailItem]:
        """See ``TopicTail.items``."""
        while True:
            while self._queue:
                follow, item = self._queue.popleft()
                if len(self._queue) < QUEUED_ITEMS:
                    self._room.set()
                # Of a partition that was unfollowed, or followed anew from another position, nothing old comes.
                current = self._follows.get(follow.partition)
                if current is follow or (current is None and isinstance(item, PositionLost)):
                    yield item
            self._news.clear()
            await self._news.wait()

    def inbox(self, key: str) -> AsyncIterator[Ownership]:
        """Read an inbox from now on; yields what comes until the iterator is closed."""
        inbox = self._inboxes[key] = _Inbox(key, self._read_inboxes.get(key, "0-0"))
        self._change()
        return self._messages(inbox)

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to read whatever is or will be followed, now or as soon as the grid is there."""
        self._tasks = [
            asyncio.create_task(self._run(), name="grid-tail"),
            asyncio.create_task(self._wake(), name="grid-tail-waker"),
        ]

    async def close(self) -> None:
        """Stop to read."""
        await abandon(self._tasks)
        self._tasks = []

    # --- interest -----------------------------------------------------------------------------------------------------

    async def _messages(self, inbox: _Inbox) -> AsyncIterator[Ownership]:
        try:
            while True:
                yield await inbox.messages.get()
        finally:
            self._read_inboxes[inbox.key] = inbox.after
            if self._inboxes.get(inbox.key) is inbox:
                del self._inboxes[inbox.key]

    def _change(self) -> None:
        self._wanted += 1
        self._interest.set()
        self._changed.set()

    def _lose_all(self) -> None:
        """The grid may have lost writes: no position means anything any more."""
        for follow in list(self._follows.values()):
            self._lose(follow)

    def _lose(self, follow: _Follow) -> None:
        del self._follows[follow.partition]
        self._put(follow, PositionLost(follow.partition))
        self._change()

    def _put(self, follow: _Follow, item: TailItem) -> None:
        self._queue.append((follow, item))
        if len(self._queue) >= QUEUED_ITEMS:
            self._room.clear()
        self._news.set()

    async def _wake(self) -> None:
        """Wake the reader until it knows what is wanted now."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._picked < self._wanted:
                self._picked_up.clear()
                if self._blocking is None:
                    await self._picked_up.wait()
                    continue
                try:
                    await self._link.batcher.call(("CLIENT", "UNBLOCK", self._blocking))
                    async with asyncio.timeout(_WAKE_INTERVAL):
                        await self._picked_up.wait()
                except TimeoutError:
                    continue
                except GridUnavailable:
                    await self._link.wait_until_up()
                except Exception as error:  # noqa: BLE001 - without waking, news of interest come late but they come
                    self._log.emit(log_events.BACKGROUND_TASK_FAILED, task="grid-tail-waker", error=error)
                    await asyncio.sleep(BLOCK)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        bound = SHORTEST_BACKOFF
        while True:
            await self._link.wait_until_up()
            try:
                connection = await self._dialer.dial()
                try:
                    client = await self._check(connection)
                    bound = SHORTEST_BACKOFF
                    while True:
                        await self._read(connection, client)
                finally:
                    await discard(connection)
            except (RedisError, OSError, GridUnavailable):
                # The link tells the world if the grid is away; here it is enough to come back.
                pass
            except Exception as error:  # noqa: BLE001 - the reader must outlive its own bugs
                self._log.emit(log_events.BACKGROUND_TASK_FAILED, task="grid-tail", error=error)
            await asyncio.sleep(random.uniform(0, bound))  # noqa: S311 - jitter, not a secret
            bound = min(2 * bound, LONGEST_BACKOFF)

    async def _check(self, connection: AbstractConnection) -> int:
        """Make sure that this is the adopted grid; return the connection's id there."""
        async with asyncio.timeout(self._timeout):
            about, client = await converse(connection, [("INFO", "server"), ("CLIENT", "ID")])
        if f"run_id:{self._link.run_id}\r\n".encode() not in about:
            self._link.suspect("another Redis process answers")
            raise GridUnavailable("another Redis process answers")
        number: int = client
        return number

    async def _read(self, connection: AbstractConnection, client: int) -> None:
        """Read once what is wanted now."""
        await self._room.wait()
        self._picked = self._wanted
        self._picked_up.set()
        readings: list[_Follow | _Inbox] = [*self._follows.values(), *self._inboxes.values()]
        if not readings:
            self._interest.clear()
            await self._interest.wait()
            return
        keys = [self._keys.stream[each.partition] if isinstance(each, _Follow) else each.key for each in readings]
        after = [each.after for each in readings]
        block = round(BLOCK * 1000)
        self._blocking = client
        try:
            async with asyncio.timeout(BLOCK + self._timeout):
                (reply,) = await converse(
                    connection, [("XREAD", "COUNT", self._count, "BLOCK", block, "STREAMS", *keys, *after)]
                )
        finally:
            self._blocking = None
        by_key = {key.encode(): each for key, each in zip(keys, readings, strict=True)}
        size = 0
        for key, entries in reply or ():
            reading = by_key[key]
            size += sum([len(fields[1]) for _, fields in entries])
            if isinstance(reading, _Inbox):
                reading.take_in(entries)
            elif self._follows.get(reading.partition) is reading:
                self._take_in(reading, entries)
            # Other work of the node goes between two streams.
            await asyncio.sleep(0)
        if size > READ_BYTES:
            self._count = max(FEWEST_ENTRIES, self._count // 2)
        elif size < READ_BYTES // 4:
            self._count = min(READ_ENTRIES, self._count * 2)

    def _take_in(self, follow: _Follow, entries: Sequence[Any]) -> None:
        """Queue entries if they continue the position without a hole, else declare it lost."""
        generation, first = _numbers(entries[0][0])
        end, last = _numbers(entries[-1][0])
        # Ids only rise. So if as many entries as there are numbers lie between two numbers of one generation, none of
        # them is missing, and it is enough to look at the first and the last.
        whole = generation == end and last - first + 1 == len(entries)
        if not whole or not follow.continues_with(generation, first):
            if end > self._link.generation:
                self._link.suspect(f"a stream is of generation {end} already")
            self._lose(follow)
            return
        follow.generation, follow.sequence = generation, last
        if first == 0:  # the marker that opens a generation
            entries = entries[1:]
        if entries:
            position = StreamPosition(GridGeneration(generation), last)
            self._put(follow, TailBatch(follow.partition, self._values(follow.partition, entries), position))

    def _values(self, partition: int, entries: Sequence[Any]) -> tuple[TopicValue, ...]:
        """Read entries; the hottest loop of a node that only delivers."""
        names = self._names
        if len(names) > _KNOWN_TOPICS:
            names.clear()
        prefix = f"{partition}-"
        values: list[TopicValue] = []
        for number, fields in entries:
            raw = fields[0]
            topic = names.get(raw)
            if topic is None:
                topic = names[raw] = TopicPath(raw.decode())
            version, _, value = fields[1].partition(b" ")
            event = number if len(fields) == _PLAIN_FIELDS else fields[3]
            values.append(TopicValue(topic, Version(int(version)), EventId(prefix + event.decode()), value))
        return tuple(values)


def _numbers(entry: bytes) -> tuple[int, int]:
    generation, _, sequence = entry.partition(b"-")
    return int(generation), int(sequence)
