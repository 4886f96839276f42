"""The streams of the followed partitions, and others: a ``TopicTail``. How they are read is in ``readers``.

What is wanted is kept here; while the grid is up, one reader per master brings what that master has of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from sys import getsizeof
from typing import Any, Final, Protocol

from gateway.adapters.redis.batcher import abandon
from gateway.adapters.redis.dialer import Dialer
from gateway.adapters.redis.foreign import LARGEST_VERSION, ForeignData, read_topic, read_version
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.readers import BlockingReader, Reader, Reading, TrackingReader
from gateway.adapters.redis.stream_entries import PLAIN_FIELDS, is_published, read_arrived, read_end
from gateway.catalogue import log_events
from gateway.catalogue.metrics import GRID_TAIL_SILENCE_SECONDS
from gateway.core.types import (
    LARGEST_GENERATION,
    Epoch,
    EventId,
    GridGeneration,
    NodeRef,
    SessionId,
    TopicPath,
    Version,
)
from gateway.core.wire.errors import GatewayError
from gateway.ports import (
    PUBLISHED_HERE,
    Arrived,
    EventLog,
    Metrics,
    Ownership,
    PositionLost,
    StreamPosition,
    TailBatch,
    TailItem,
    TopicValue,
)

QUEUED_ITEMS: Final = 64
"""Batches that may wait for the application before the reader pauses; the rest waits in the grid's streams."""

AFTER_A_BUG: Final = 1.0
"""Seconds until a reader that has met a bug of its own starts again."""

_KNOWN_TOPICS: Final = 65_536
"""Decoded topic names that are kept; then the memory of them starts anew."""

_KNOWN_TOPIC_BYTES: Final = 16 * 1024 * 1024
"""Bytes of those names, likewise: clients choose how long topics are."""


class _Follow:
    """One partition's reading; a new one for each ``follow``, so that leftovers of an earlier one are told apart."""

    __slots__ = ("generation", "is_paused", "key", "partition", "sequence")

    def __init__(self, key: str, partition: int, position: StreamPosition) -> None:
        self.key = key
        self.partition = partition
        self.generation: int = position.grid_generation
        self.sequence = position.sequence
        self.is_paused = False

    @property
    def after(self) -> str:
        """The id that XREAD reads after."""
        return f"{self.generation}-{self.sequence}"

    def continues_with(self, generation: int, sequence: int) -> bool:
        """Tell whether an entry is the next one. A new generation never is: what came before it may have been lost."""
        if self.generation == 0:
            return sequence == 0
        return generation == self.generation and sequence == self.sequence + 1


class OtherReading(Reading, Protocol):
    """A stream of another kind, such as what others tell this node; read by the same commands."""

    def take_in(self, entries: Sequence[Any]) -> None:
        """Take entries of the stream; must not block, nor raise whatever they hold."""

    def lose(self) -> None:
        """What is there is no stream: nothing can be read from where it was."""


class _Inbox:
    """The reading of one node's inbox.

    Args:
        foreign: told of what nobody here can have written.

    Attributes:
        key: of the stream.
        after: the id that XREAD reads after.
        messages: for the application.
    """

    __slots__ = ("_foreign", "after", "key", "messages")

    def __init__(self, key: str, after: str, foreign: ForeignData) -> None:
        self._foreign = foreign
        self.key = key
        self.after = after
        self.messages: asyncio.Queue[Ownership] = asyncio.Queue()

    def take_in(self, entries: Sequence[Any]) -> None:
        """See ``OtherReading``."""
        for number, fields in entries:
            self.after = number.decode()
            try:
                _, ownership_text = fields
                session, epoch, owner = ownership_text.decode().split(" ")
                ownership = Ownership(SessionId(session), NodeRef.parse(owner), Epoch(int(epoch)))
            except ValueError as error:
                self._foreign.skipped(self.key, self.after, error)
            else:
                self.messages.put_nowait(ownership)

    def lose(self) -> None:
        """See ``OtherReading``. What others will tell comes by a new stream; what they told is learnt by fencing."""


class RedisTail:
    """Reads streams, over connections of its own.

    Args:
        dialer: opens the connections.
        grid: tells which masters there are, and is told of a grid that does not fit.
        keys: names of all keys.
        timeout: seconds for each step, beyond the time it blocks on purpose.
        foreign: told of what is not the gateway's.
        metrics: where it is told how long nothing was heard; None of one that need not hear anything.
        log: where bugs are told.
    """

    def __init__(
        self,
        *,
        dialer: Dialer,
        grid: GridConnection,
        keys: Keys,
        timeout: float,
        foreign: ForeignData,
        metrics: Metrics | None,
        log: EventLog,
    ) -> None:
        self._dialer = dialer
        self._grid = grid
        self._keys = keys
        self._timeout = timeout
        self._log = log
        self._follows: dict[int, _Follow] = {}
        self._others: dict[str, OtherReading] = {}
        self._read_inboxes: dict[str, str] = {}  # where each was left, as nothing is told twice
        self._queue: deque[tuple[_Follow, TailItem]] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._readers: list[Reader] = []
        self._task: asyncio.Task[None] | None = None
        self._names: dict[bytes, TopicPath] = {}
        self._name_bytes = 0
        grid.when_writes_are_lost(self._lose_all)
        self._foreign = foreign
        if metrics is not None:
            metrics.watch(GRID_TAIL_SILENCE_SECONDS, self._silence)

    # --- for the application ------------------------------------------------------------------------------------------

    def follow(self, partition: int, position: StreamPosition) -> None:
        """See ``TopicTail.follow``."""
        self._follows[partition] = _Follow(self._keys.stream[partition], partition, position)
        self._change()

    def unfollow(self, partition: int) -> None:
        """See ``TopicTail.unfollow``."""
        if self._follows.pop(partition, None) is not None:
            self._change()

    def pause(self, partition: int) -> None:
        """See ``TopicTail.pause``."""
        self._set_paused(partition, is_paused=True)

    def resume(self, partition: int) -> None:
        """See ``TopicTail.resume``."""
        self._set_paused(partition, is_paused=False)

    def _set_paused(self, partition: int, *, is_paused: bool) -> None:
        follow = self._follows.get(partition)
        if follow is not None and follow.is_paused is not is_paused:
            follow.is_paused = is_paused
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
        inbox = _Inbox(key, self._read_inboxes.get(key, "0-0"), self._foreign)
        self.attach(inbox)
        return self._messages(inbox)

    def attach(self, reading: OtherReading) -> None:
        """Read a stream of another kind too, in the place of an earlier reading of it."""
        self._others[reading.key] = reading
        self._change()

    def detach(self, reading: OtherReading) -> None:
        """Do so no more."""
        if self._others.get(reading.key) is reading:
            del self._others[reading.key]
            self._change()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to read whatever is or will be followed, now or as soon as the grid is there; once is enough."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="grid-tail")

    async def close(self) -> None:
        """Stop to read."""
        if self._task is not None:
            await abandon([self._task])
            self._task = None

    # --- interest -----------------------------------------------------------------------------------------------------

    async def _messages(self, inbox: _Inbox) -> AsyncIterator[Ownership]:
        try:
            while True:
                yield await inbox.messages.get()
        finally:
            self._read_inboxes[inbox.key] = inbox.after
            self.detach(inbox)

    def _silence(self) -> float:
        """Tell for how many seconds nothing was heard of the master that has been silent for longest."""
        now = asyncio.get_running_loop().time()
        return max(0.0, *(now - reader.heard for reader in self._readers)) if self._readers else 0.0

    def _change(self) -> None:
        for reader in self._readers:
            reader.wake()

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

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Have a reader for each master, as long as they are adopted."""
        kinds: dict[bool, type[BlockingReader | TrackingReader]] = {False: BlockingReader, True: TrackingReader}
        while True:
            attached = await self._grid.attached()
            attached.when_slots_move(self._change)
            self._readers = [
                kinds[attached.topology.sharded](
                    number, attached, dialer=self._dialer, grid=self._grid, source=self, timeout=self._timeout
                )
                for number in range(len(attached.members))
            ]
            tasks = [asyncio.create_task(self._watched(each), name="grid-reader") for each in self._readers]
            try:
                await attached.over.wait()
            finally:
                self._readers = []
                await abandon(tasks)

    async def _watched(self, reader: Reader) -> None:
        while True:
            try:
                await reader.run()
            except Exception as error:  # noqa: BLE001 - the reader must outlive its own bugs
                self._log.emit(log_events.BACKGROUND_TASK_FAILED, task="grid-tail", error=error)
            await asyncio.sleep(AFTER_A_BUG)

    async def room(self) -> None:
        """See ``Source.room``."""
        await self._room.wait()

    def readings(self, served: Callable[[str], bool]) -> list[Reading]:
        """See ``Source.readings``."""
        follows = [each for each in self._follows.values() if not each.is_paused]
        wanted: list[Reading] = [*follows, *self._others.values()]
        return [each for each in wanted if served(each.key)]

    def take(self, reading: Any, entries: Sequence[Any]) -> None:
        """See ``Source.take``."""
        if not isinstance(reading, _Follow):
            current = self._others.get(reading.key)
            if current is not None and current is reading:
                current.take_in(entries)
        elif self._follows.get(reading.partition) is reading:
            self._take_in(reading, entries)

    def wrong_type(self, reading: Any) -> None:
        """See ``Source.wrong_type``."""
        self._foreign.wrong_type(reading.key)
        if isinstance(reading, _Follow):
            # Adoption deletes what is there, and declares the loss.
            self._grid.suspect(f"another program has replaced {reading.key}")
        else:
            reading.lose()

    def _take_in(self, follow: _Follow, entries: Sequence[Any]) -> None:
        """Queue entries if they continue the position without a hole, else declare it lost."""
        if _numbers(entries[-1][0])[0] > LARGEST_GENERATION:
            entries = self._without_foreign(follow, entries)
            if not entries:
                return
        generation, first = _numbers(entries[0][0])
        end, last = _numbers(entries[-1][0]) if len(entries) > 1 else (generation, first)
        # Ids only rise. So if as many entries as there are numbers lie between two numbers of one generation, none of
        # them is missing, and it is enough to look at the first and the last.
        whole = generation == end and last - first + 1 == len(entries)
        if not whole or not follow.continues_with(generation, first):
            if end > self._grid.generation:
                self._grid.suspect(f"a stream is of generation {end} already")
            self._lose(follow)
            return
        follow.generation, follow.sequence = generation, last
        if first == 0:  # the marker that opens a generation
            entries = entries[1:]
        arrived: dict[int, Arrived | None] = {}
        # Also if nothing of it is a publish of the gateway: others wait for this place.
        values = self._values(follow, entries, arrived)
        position = StreamPosition(GridGeneration(generation), last)
        self._put(follow, TailBatch(follow.partition, values, position, arrived or PUBLISHED_HERE))

    def _without_foreign(self, follow: _Follow, entries: Sequence[Any]) -> Sequence[Any]:
        """Leave out what has ids that Redis made up for another program, and have it deleted: nothing can follow it."""
        own = [each for each in entries if _numbers(each[0])[0] <= LARGEST_GENERATION]
        for number, _ in entries[len(own) :]:
            self._foreign.skipped(follow.key, number.decode(), "its id is not one that the gateway gives")
        self._grid.suspect(f"another program writes to {follow.key}")
        return own

    def _values(
        self, follow: _Follow, entries: Sequence[Any], arrived: dict[int, Arrived | None]
    ) -> tuple[TopicValue, ...]:
        """Read entries, and into *arrived* how they came; the hottest loop of a node that only delivers."""
        names = self._names
        if len(names) > _KNOWN_TOPICS or self._name_bytes > _KNOWN_TOPIC_BYTES:
            names.clear()
            self._name_bytes = 0
        prefix = f"{follow.partition}-"
        values: list[TopicValue] = []
        append = values.append
        for number, fields in entries:
            try:
                raw = fields[0]
                topic = names.get(raw)
                if topic is None:
                    topic = names[raw] = read_topic(raw)
                    self._name_bytes += len(raw) + getsizeof(topic)
                text, _, value = fields[1].partition(b" ")
                # As read_version and check_text do it: two calls here would be a fifth of what an entry costs.
                version = int(text)
                if not 0 < version < LARGEST_VERSION:
                    read_version(text)
                if not value.isascii():
                    value.decode()
                event = number
                if len(fields) != PLAIN_FIELDS:
                    event = fields[3]
                    _numbers(event)
                    if not is_published(number, fields):
                        arrived[len(values)] = read_arrived(fields)
                    if ends := read_end(fields):
                        append(TopicValue(topic, Version(version), EventId(prefix + event.decode()), value, ends))
                        continue
                # Nor do the names of its types cost anything this way.
                append(TopicValue(topic, version, prefix + event.decode(), value))  # type: ignore[arg-type]
            except (ValueError, IndexError, GatewayError) as error:
                self._foreign.skipped(follow.key, number.decode(), error)
        return tuple(values)


class LazyTail(RedisTail):
    """A tail that has no connection before the first partition is followed: only nodes with links need one."""

    def follow(self, partition: int, position: StreamPosition) -> None:
        """See ``TopicTail.follow``."""
        super().follow(partition, position)
        self.start()


def _numbers(entry: bytes) -> tuple[int, int]:
    generation, _, sequence = entry.partition(b"-")
    return int(generation), int(sequence)
