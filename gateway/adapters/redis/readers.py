"""Reading the streams that one master serves: by one command that waits inside Redis, or by being told what changed.

On one Redis a single ``XREAD BLOCK`` waits for all streams. On a Redis Cluster no command may name keys of two slots,
not even if one node serves both, so that a single blocking read cannot be had there, and one connection per partition
would be 64. Instead the reader asks to be told of changes (``CLIENT TRACKING``): Redis remembers which streams it has
read and, once, says that one of them has changed; then the reader reads that one, with no command waiting anywhere. It
is one waiting connection per Redis node all the same, a busy stream is told of once per read and not once per entry,
and an idle one costs nothing.
"""

from __future__ import annotations

import asyncio
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from hiredis import PushNotification
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, RedisError, ResponseError, TryAgainError

from gateway.adapters.redis.attachment import Attachment
from gateway.adapters.redis.batcher import abandon
from gateway.adapters.redis.dialer import RESP2, RESP3, Dialer, converse, discard, hear, hear_changes, pack, send
from gateway.adapters.redis.grid_connection import LONGEST_BACKOFF, SHORTEST_BACKOFF, GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.scripts import Command
from gateway.core.wire.errors import GatewayError
from gateway.ports import GridUnavailable

BLOCK: Final = 2.0
"""Seconds a read waits for news: one command per node in that time is all that an idle tail costs."""

READ_ENTRIES: Final = 1_000
"""Most entries per stream and read: enough for full speed, and some 2 ms of work for the loop."""

READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of values in one read above which fewer entries are asked for: they are in memory at once, also in Redis."""

FEWEST_ENTRIES: Final = 16
"""Entries per stream and read when values are large; at 64 KiB each, 64 partitions are 64 MiB."""

_TURN_ENTRIES: Final = 64
"""Entries, of one stream or several, that are handed over in one turn of the loop: some 2 ms of it if each is for a
session of its own, and a turn costs about as much as an entry."""

_WAKE_INTERVAL: Final = 0.02
"""Seconds between two tries to wake a reader that waits inside Redis."""

_WRONG_TYPE: Final = "WRONGTYPE"
"""How an error of Redis begins that says that a key is of another type."""

_WRONG_TYPE_PAUSE: Final = 1.0
"""Seconds for which a key that is no stream is left out of the reads, as one such key refuses the read of all."""

_BEING_MOVED: Final = 0.05
"""Seconds between two reads of a stream whose slot is being moved to another node of the cluster; that takes
milliseconds, if the slot is not huge."""


class Reading(Protocol):
    """One stream that is wanted.

    Attributes:
        key: of the stream.
    """

    key: str

    @property
    def after(self) -> str:
        """The id to read after."""


class Source(Protocol):
    """Says what is wanted, and takes what was read."""

    async def room(self) -> None:
        """Wait while the application has enough to do already."""

    def readings(self, served: Callable[[str], bool]) -> Sequence[Reading]:
        """List what is wanted now of the keys for which *served* says so."""

    def take(self, reading: Any, entries: Sequence[Any]) -> None:
        """Take entries of a stream."""

    def wrong_type(self, reading: Any) -> None:
        """What is there in the place of a stream is of another type; it is not read for a while."""


class Reader(ABC):
    """Reads what one master serves.

    Args:
        number: of the master.
        attached: the masters, and who serves what.
        dialer: opens the connection.
        grid: is told of a grid that does not fit.
        source: what to read, and who takes it.
        timeout: seconds for each step, beyond the time it waits on purpose.

    Attributes:
        heard: when a read last came to its end, in seconds of the loop's clock; infinite while there is none to do.
    """

    protocol = RESP2

    def __init__(
        self, number: int, attached: Attachment, *, dialer: Dialer, grid: GridConnection, source: Source, timeout: float
    ) -> None:
        self._attached = attached
        self._number = number
        self._address = attached.topology.masters[number]
        self._run_id = attached.members[number].server.run_id
        self._dialer = dialer
        self._grid = grid
        self._source = source
        self._timeout = timeout
        self._count = READ_ENTRIES
        self.heard = asyncio.get_running_loop().time()

    @abstractmethod
    def wake(self) -> None:
        """What is wanted has changed."""

    async def run(self) -> None:
        """Read for ever."""
        bound = SHORTEST_BACKOFF
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                connection = await self._dialer.dial(self._address, protocol=self.protocol)
                try:
                    await self._read_by(connection, await self._check(connection))
                finally:
                    await discard(connection)
            except (RedisError, OSError, GridUnavailable):
                # The grid connection reports a grid that is unreachable; here it is enough to come back.
                pass
            if loop.time() - began > LONGEST_BACKOFF:
                bound = SHORTEST_BACKOFF
            await asyncio.sleep(random.uniform(0, bound))  # noqa: S311 - jitter, not a secret
            bound = min(2 * bound, LONGEST_BACKOFF)

    @abstractmethod
    async def _read_by(self, connection: AbstractConnection, client: int) -> None:
        """Read until the connection breaks; *client* is its id there."""

    async def _check(self, connection: AbstractConnection) -> int:
        """Make sure that this is the adopted process; return the connection's id there."""
        async with asyncio.timeout(self._timeout):
            about, client = await converse(connection, [("INFO", "server"), ("CLIENT", "ID")])
        if f"run_id:{self._run_id}\r\n".encode() not in about:
            self._grid.suspect("another Redis process answers")
            raise GridUnavailable("another Redis process answers")
        number: int = client
        return number

    def _readings(self) -> Sequence[Reading]:
        topology = self._attached.topology  # as it is now: slots move
        if not topology.sharded:
            return self._source.readings(lambda _: True)
        return self._source.readings(lambda key: topology.shard(Keys.tag(key)) == self._number)

    async def _take(self, found: Sequence[tuple[Reading, Sequence[Any]]]) -> None:
        """Hand over what one read has brought, and ask for less or more the next time."""
        size = taken = 0
        for reading, entries in found:
            for _, fields in entries:
                size += len(fields[1])  # an entry has one field at least, and its value
            self._source.take(reading, entries)
            taken += len(entries)
            if taken >= _TURN_ENTRIES:
                # Other work of the node goes between two streams.
                taken = 0
                await asyncio.sleep(0)
        if size > READ_BYTES:
            self._count = max(FEWEST_ENTRIES, self._count // 2)
        elif size < READ_BYTES // 4:
            self._count = min(READ_ENTRIES, self._count * 2)


class BlockingReader(Reader):
    """One ``XREAD`` that waits inside Redis for up to ``BLOCK`` seconds, for all streams at once.

    When interest changes meanwhile, it is woken with CLIENT UNBLOCK over the node's connection for commands, again and
    again until it has picked the change up, because the first may come just before it begins to wait.
    """

    def __init__(
        self, number: int, attached: Attachment, *, dialer: Dialer, grid: GridConnection, source: Source, timeout: float
    ) -> None:
        super().__init__(number, attached, dialer=dialer, grid=grid, source=source, timeout=timeout)
        self._wanted = 0
        self._picked = 0
        self._picked_up = asyncio.Event()
        self._changed = asyncio.Event()
        self._interest = asyncio.Event()
        self._blocking: int | None = None  # id of the connection that waits inside Redis
        self._streams: dict[bytes, Reading] = {}
        """What is wanted, as of ``_listed``, by key."""
        self._listed = -1
        self._left_out: dict[bytes, float] = {}
        """Keys that are no streams, and until when they are not read, by the loop's clock."""

    def wake(self) -> None:
        """See ``Reader.wake``."""
        self._wanted += 1
        self._interest.set()
        self._changed.set()

    async def _read_by(self, connection: AbstractConnection, client: int) -> None:
        waker = asyncio.create_task(self._wake(), name="grid-reader-waker")
        reading = asyncio.create_task(self._read_on(connection, client), name="grid-reader-reads")
        try:
            # Neither ends but by an error: without a waker nobody could tell the reader of new interest.
            await asyncio.wait([waker, reading], return_when=asyncio.FIRST_COMPLETED)
            for each in (reading, waker):
                if each.done():
                    each.result()
        finally:
            await abandon([waker, reading])

    async def _read_on(self, connection: AbstractConnection, client: int) -> None:
        while True:
            await self._read(connection, client)

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
                    await self._grid.batcher.batchers[self._number].call(("CLIENT", "UNBLOCK", self._blocking))
                    async with asyncio.timeout(_WAKE_INTERVAL):
                        await self._picked_up.wait()
                except TimeoutError:
                    continue
                except (GatewayError, IndexError):
                    # One command may fail where the connection goes on. If that is gone, so is soon this reader.
                    await asyncio.sleep(_WAKE_INTERVAL)

    async def _read(self, connection: AbstractConnection, client: int) -> None:
        """Read once what is wanted now."""
        await self._source.room()
        self._picked = self._wanted
        self._picked_up.set()
        if self._listed != self._wanted:
            self._listed = self._wanted
            self._streams = {each.key.encode(): each for each in self._readings()}
        streams = self._streams
        if self._left_out:
            streams = await self._without_left_out(streams)
        if not streams:
            self._interest.clear()
            self.heard = math.inf
            await self._interest.wait()
            self.heard = asyncio.get_running_loop().time()
            return
        after = [each.after for each in streams.values()]
        block = round(BLOCK * 1000)
        self._blocking = client
        try:
            async with asyncio.timeout(BLOCK + self._timeout):
                (reply,) = await converse(
                    connection, [("XREAD", "COUNT", self._count, "BLOCK", block, "STREAMS", *streams, *after)]
                )
        except ResponseError as error:
            if not str(error).startswith(_WRONG_TYPE):
                raise
            self._blocking = None
            await self._leave_out(connection, streams)
            return
        finally:
            self._blocking = None
        self.heard = asyncio.get_running_loop().time()
        await self._take([(streams[key], entries) for key, entries in reply or ()])

    async def _leave_out(self, connection: AbstractConnection, streams: Mapping[bytes, Reading]) -> None:
        """Find out which keys are no streams, and read them no more for a while."""
        until = asyncio.get_running_loop().time() + _WRONG_TYPE_PAUSE
        for key, reading in streams.items():
            try:
                async with asyncio.timeout(self._timeout):
                    await converse(connection, [("XREAD", "COUNT", 1, "STREAMS", key, "$")])
            except ResponseError as error:
                if not str(error).startswith(_WRONG_TYPE):
                    raise
                self._left_out[key] = until
                self._source.wrong_type(reading)

    async def _without_left_out(self, streams: dict[bytes, Reading]) -> dict[bytes, Reading]:
        """Leave out what was found to be no stream a moment ago; waits if nothing else is wanted."""
        now = asyncio.get_running_loop().time()
        self._left_out = {key: until for key, until in self._left_out.items() if until > now}
        rest = {key: reading for key, reading in streams.items() if key not in self._left_out}
        if streams and not rest:
            await asyncio.sleep(_WRONG_TYPE_PAUSE)
            self._left_out.clear()
            return streams
        return rest


class _Broken:
    """The connection is of no more use."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class TrackingReader(Reader):
    """Reads streams one by one, those that Redis says have changed."""

    protocol = RESP3

    def __init__(
        self, number: int, attached: Attachment, *, dialer: Dialer, grid: GridConnection, source: Source, timeout: float
    ) -> None:
        super().__init__(number, attached, dialer=dialer, grid=grid, source=source, timeout=timeout)
        self._bell = asyncio.Event()
        self._changed: set[str] = set()
        self._tracked: dict[str, Reading] = {}
        self._replies: asyncio.Queue[Any] = asyncio.Queue()

    def wake(self) -> None:
        """See ``Reader.wake``."""
        self._bell.set()

    async def _read_by(self, connection: AbstractConnection, client: int) -> None:  # noqa: ARG002 - nobody wakes it
        hear_changes(connection)
        async with asyncio.timeout(self._timeout):
            await converse(connection, [("CLIENT", "TRACKING", "ON")])
        # Redis knows of this connection nothing yet.
        self._tracked.clear()
        self._replies = asyncio.Queue()
        listener = asyncio.create_task(self._listen(connection), name="grid-reader-listener")
        try:
            while True:
                await self._read(connection)
        finally:
            await abandon([listener])

    async def _listen(self, connection: AbstractConnection) -> None:
        """Take in what comes: replies, and the names of streams that have changed."""
        try:
            while True:
                try:
                    heard = await hear(connection)
                except ResponseError as error:
                    heard = error
                if not isinstance(heard, PushNotification):
                    self._replies.put_nowait(heard)
                    continue
                kind, keys = heard
                if kind == b"invalidate":
                    # Without names: the whole Redis was emptied.
                    self._changed.update(self._tracked if keys is None else [key.decode() for key in keys])
                    self._bell.set()
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader has to know
            self._replies.put_nowait(_Broken(error))
            self._bell.set()

    async def _read(self, connection: AbstractConnection) -> None:
        """Read once what has changed, or wait until something has."""
        await self._source.room()
        readings = self._readings()
        due = [each for each in readings if each.key in self._changed or self._tracked.get(each.key) is not each]
        self._tracked = {each.key: each for each in readings}
        if not due:
            await self._wait()
            return
        self._changed.difference_update([each.key for each in due])
        commands: list[Command] = [("XREAD", "COUNT", self._count, "STREAMS", each.key, each.after) for each in due]
        async with asyncio.timeout(self._timeout):
            await send(connection, pack(commands))
            replies = [await self._reply() for _ in due]
        self.heard = asyncio.get_running_loop().time()
        count = self._count
        found: list[tuple[Reading, Sequence[Any]]] = []
        for reading, reply in zip(due, replies, strict=True):
            if isinstance(reply, ResponseError) and str(reply).startswith(_WRONG_TYPE):
                # Redis tells when somebody changes it; besides, all are read again after a while of silence.
                self._source.wrong_type(reading)
            elif isinstance(reply, ResponseError):
                self._judge(reply)
                self._changed.add(reading.key)
            elif reply:
                ((_, entries),) = reply.items()
                found.append((reading, entries))
                if len(entries) >= count:
                    self._changed.add(reading.key)
        await self._take(found)
        if any(isinstance(reply, ResponseError) for reply in replies):
            await asyncio.sleep(_BEING_MOVED)

    async def _wait(self) -> None:
        if not self._replies.empty():
            await self._reply()
        self._bell.clear()
        try:
            async with asyncio.timeout(BLOCK):
                await self._bell.wait()
        except TimeoutError:
            self.heard = self.heard if self._tracked else asyncio.get_running_loop().time()
            # Nothing should have been missed. But if anything ever is, nobody stays deaf, and a connection that only
            # seems to be open is found out.
            self._changed.update(self._tracked)

    async def _reply(self) -> Any:
        reply = await self._replies.get()
        if isinstance(reply, _Broken):
            raise GridUnavailable(f"the connection is broken: {reply.error}")
        return reply

    def _judge(self, error: ResponseError) -> None:
        """Return if the stream is to be read again soon, from whoever serves it then.

        Raises:
            redis.ResponseError: this master is not the one to read it from.
        """
        if not isinstance(error, (AskError, TryAgainError)):
            raise error
        self._grid.follow_slots()  # MOVED is an ASK in redis-py
