"""Values, versions and streams of topics: implements ``gateway.ports.TopicStore``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from sys import getsizeof
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.batcher import fresh
from gateway.adapters.redis.foreign import ForeignData, check_text, read_topic, read_version
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.history import LogWriter
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.adapters.redis.scripts import Argument, Command, milliseconds
from gateway.adapters.redis.stream_entries import read_entry
from gateway.adapters.redis.topic_steps import Part, Step
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.remembered import Remembered
from gateway.core.topics.topics import TOPIC_PARTITIONS, topic_partition
from gateway.core.topics.versions import least_version
from gateway.core.types import EventId, GridGeneration, RequestNumber, SessionId, TopicPath, Version
from gateway.core.wire.errors import GatewayError
from gateway.ports import (
    NEVER,
    Fenced,
    GridRefused,
    GridUnavailable,
    NotCreated,
    NotStored,
    PublishCommand,
    Published,
    PublishResult,
    StreamPosition,
    TopicPage,
    TopicValue,
)

VALUES_PAGE: Final = 500
"""Values that one step of a read asks for; Redis serves them in about a millisecond, during which others wait."""

RECEIPT_LIFE_MS: Final = 3_600_000
"""Milliseconds for which receipts of a session that the grid does not hold outlive its last publish, or the last time
that this was repeated. Only its node asks for them, to repeat what had no answer, and it does so within seconds; or
whoever has its Idempotency-Key."""

STORED_RECEIPT_LIFE_MS: Final = 8 * 24 * 3_600_000
"""Milliseconds for which all other receipts outlive it: the longest window of a session, after which nobody can ask for
one again, and a day. The end of the session deletes them; but a publish that was on its way for longer than that is
remembered, or a master that was promoted without the deletion, leaves some that nobody would look for."""

FORGET_COUNT: Final = 10
"""Removals that one removal forgets at most: ten times what it adds, so that none are left behind for long."""

RESTORED_REMOVAL_MS: Final = 7 * 24 * 3_600_000
"""Milliseconds for which a removal is remembered that was written again: the longest window of a session."""

TOLD_PER_STREAM: Final = 256
"""How often a node tells what it has appended to a stream until that holds as much as it may: so small a part of the
bound may be untold by each node. By default 32 KiB: of publishes of 100 bytes one in 190 tells something."""

_LARGEST_CURSOR: Final = 2**64 - 1
"""Redis refuses a cursor that does not fit an unsigned number of 64 bits."""

_SHOWN_BYTES: Final = 100
"""Of a name that is no topic, in the log."""

_CACHED: Final = 65_536
"""Sessions whose hash is kept ready: some 10 MB, for the ones that publish most."""

_CACHED_BYTES: Final = 10 * 1024 * 1024
"""Bytes of topics whose partition is kept ready: some 60,000 usual ones."""


_NOT_CREATED: Final = (b"-", b"+")
"""In the place of an event id: nothing was written, as was found before, or now."""

_TOO_MANY_BYTES: Final = 1
"""In the place of a version: why nothing was written. 0 if the topic was not to be created."""


class RedisTopics:
    """Topics in the grid.

    Args:
        grid: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        foreign: told of values that are not the gateway's.
        depth: leading path segments that decide a topic's partition.
        writer: for topics with history.
    """

    def __init__(
        self, *, grid: GridConnection, keys: Keys, foreign: ForeignData, depth: int, writer: LogWriter
    ) -> None:
        self._grid = grid
        self._writer = writer
        self._batcher = grid.batcher
        self._keys = keys
        self._depth = depth
        self._partitions: Remembered[TopicPath, int] = Remembered(_CACHED_BYTES, lambda topic, _: getsizeof(topic))
        self._foreign = foreign
        self._short = lru_cache(_CACHED)(short_hash)
        # The newest request of each session and partition that is on its way to the grid: the next one names it as its
        # predecessor, so that a request which Redis refused cannot be overtaken and then look like an executed one.
        self._on_the_way: dict[tuple[int, SessionId], RequestNumber] = {}
        # Held by whoever reads a page of values, until others have had their turn: it takes most of a millisecond.
        self._reading = asyncio.Lock()
        # Bytes sent for each stream that the grid has not been told of.
        self._untold = [0] * TOPIC_PARTITIONS

    async def publish(self, commands: Sequence[PublishCommand]) -> list[PublishResult]:
        """See ``TopicStore.publish``."""
        if not commands:
            return []
        parts = self._parts(commands)
        steps = self._steps(parts)
        try:
            replies = await self._batcher.submit([self._publish(each) for each in steps], gated=True)
            self._see_to(replies)
        except BaseException:
            self._tell_anew(parts)
            raise
        finally:
            self._arrived(parts)
        ordered: dict[int, PublishResult] = {}
        refused: GridRefused | None = None
        for step, reply in zip(steps, replies, strict=True):
            if isinstance(reply, GridRefused):
                # The first thing that a step writes is what Redis refuses, so it has done nothing.
                refused = reply
                self._tell_anew(step.parts)
                ordered.update((place, reply) for part in step.parts for place in part.places)
                continue
            if type(reply) is not list:
                raise fresh(reply)
            for part, answer in zip(step.parts, reply, strict=True):
                if answer == b"broken" and refused is not None:
                    # What it was to follow has been refused: it was not executed either.
                    ordered.update(dict.fromkeys(part.places, refused))
                else:
                    ordered.update(zip(part.places, self._published(answer, part), strict=True))
        return [ordered[place] for place in range(len(commands))]

    async def position(self, partition: int) -> StreamPosition:
        """See ``TopicStore.position``."""
        reply = await self._batcher.call(scripts.TOPIC_POSITION(self._keys.stream[partition]))
        generation, _, sequence = reply.partition(b"-")
        position = StreamPosition(GridGeneration(int(generation)), int(sequence))
        if position.grid_generation != self._grid.generation:
            raise self._grid.stale()
        return position

    async def between(self, partition: int, after: StreamPosition, upto: StreamPosition) -> Sequence[TopicValue] | None:
        """See ``TopicStore.between``."""
        generation = upto.grid_generation
        count = upto.sequence - after.sequence
        if after.grid_generation != generation or generation != self._grid.generation:
            return None
        if count <= 0:
            return ()
        first, last = f"{generation}-{after.sequence + 1}", f"{generation}-{upto.sequence}"
        # Numbers rise by one, so that as many entries as lie between the two are all of them.
        entries = await self._batcher.call(("XRANGE", self._keys.stream[partition], first, last, "COUNT", count))
        if len(entries) != count:
            return None
        values: list[TopicValue] = []
        async with self._reading:
            for start in range(0, count, VALUES_PAGE):
                if start:
                    await asyncio.sleep(0)
                page = entries[start : start + VALUES_PAGE]
                values += [each for entry in page if (each := self._entry(partition, *entry)) is not None]
        return values

    def _entry(self, partition: int, number: bytes, fields: list[bytes]) -> TopicValue | None:
        """Read an entry of a stream; None if it is not the gateway's."""
        try:
            return read_entry(partition, number, fields)
        except (ValueError, IndexError, GatewayError) as error:
            self._foreign.skipped(self._keys.stream[partition], number.decode(), error)
            return None

    async def values(self, partition: int) -> AsyncIterator[Sequence[TopicValue]]:
        """See ``TopicStore.values``."""
        attachment = self._grid.attachment
        cursor: bytes | None = b"0"
        while cursor is not None:
            cursor, found, endings = await self._scan(partition, cursor, VALUES_PAGE)
            if self._grid.attachment != attachment:
                raise GridUnavailable("the grid was unreachable while values were read")
            if found:
                async with self._reading:
                    # When a node has lost its place in all streams, a page of each partition comes at the same time.
                    page = self._stored_values(partition, found, endings)
                    await asyncio.sleep(0)
                if page:
                    yield page
            if cursor == b"0":
                cursor = None

    async def scan(self, partition: int, *, step: str | None, count: int) -> TopicPage:
        """See ``TopicStore.scan``."""
        if step is not None and not (step.isascii() and step.isdigit() and int(step) <= _LARGEST_CURSOR):
            raise ValueError("this is no cursor of a hash")
        cursor, found, endings = await self._scan(partition, step or "0", count)
        return TopicPage(self._stored_values(partition, found, endings), None if cursor == b"0" else cursor.decode())

    async def _scan(
        self, partition: int, cursor: Argument, count: int
    ) -> tuple[bytes, list[bytes], Sequence[bytes | None]]:
        """Read some values of a hash: where to go on, fields and values, and what is noted of the end of each."""
        keys = self._keys
        (following, found), ending = await self._batcher.call_all(
            [("HSCAN", keys.values[partition], cursor, "COUNT", count), ("HLEN", keys.endings[partition])]
        )
        if not ending or not found:
            return following, found, ()
        return following, found, await self._batcher.call(("HMGET", keys.endings[partition], *found[::2]))

    async def read(self, topics: Sequence[TopicPath]) -> list[TopicValue | None]:
        """See ``TopicStore.read``."""
        places = [self._partition(topic) for topic in topics]
        commands: list[Command] = []
        for partition, topic in zip(places, topics, strict=True):
            commands += (("HGET", each[partition], topic) for each in (self._keys.values, self._keys.endings))
        replies = await self._batcher.call_all(commands)
        least = least_version(self._grid.generation)
        return [
            None if stored is None else self._stored_value(partition, topic.encode(), stored, ending, least)
            for partition, topic, stored, ending in zip(places, topics, replies[::2], replies[1::2], strict=True)
        ]

    async def remove(self, topic: TopicPath, *, keep: float, history: HistoryLimits | None = None) -> Published | None:
        """See ``TopicStore.remove``."""
        partition = self._partition(topic)
        logs, told = self._of_log(partition, topic, history)
        reply = await self._batcher.call(
            scripts.TOPIC_REMOVE.across(
                1,
                *self._of_values(partition, removes=True),
                *logs,
                *self._of_removal(topic, keep),
                *told,
                more=len(logs),
            ),
            gated=True,
        )
        if isinstance(reply, bytes):
            self._see_to([reply])
            return None
        version, event, before = reply
        return Published(Version(version), EventId(f"{partition}-{event.decode()}"), duplicate=before == b"1")

    async def due(self, partitions: Sequence[int], *, limit: int) -> Sequence[TopicPath]:
        """See ``TopicStore.due``."""
        keys, clock = [self._keys.ends[each] for each in partitions], self._grid.clock.argument()
        due = scripts.TOPIC_DUE.across
        if self._batcher.undivided:
            replies = await self._batcher.call_all([due(len(keys), *keys, clock, limit)])
        else:
            replies = await self._batcher.call_all([due(1, key, clock, limit) for key in keys])
        found: list[TopicPath] = []
        for name in chain.from_iterable(replies):
            try:
                found.append(read_topic(name))
            except (ValueError, GatewayError) as error:
                self._foreign.skipped("ends", repr(name[:_SHOWN_BYTES]), error)
                await self._batcher.call_all([("ZREM", key, name) for key in keys])
        return found

    async def end(self, topics: Sequence[tuple[TopicPath, HistoryLimits | None]], *, keep: float) -> int:
        """See ``TopicStore.end``."""
        commands: list[Command] = []
        for topic, history in topics:
            partition = self._partition(topic)
            logs, told = self._of_log(partition, topic, history)
            commands.append(
                scripts.TOPIC_END.across(
                    1,
                    *self._of_values(partition, removes=True),
                    *logs,
                    self._grid.clock.argument(),
                    *self._of_removal(topic, keep),
                    *told,
                    more=len(logs),
                )
            )
        replies = await self._batcher.call_all(commands, gated=True)
        self._see_to(replies)
        return sum(replies)

    async def restore(self, values: Sequence[TopicValue]) -> int:
        """See ``TopicStore.restore``."""
        generation, length = self._grid.generation, self._grid.stream_length
        commands: list[Command] = []
        for each in values:
            partition = self._partition(each.topic)
            event = each.event.partition("-")[2]
            commands.append(
                scripts.TOPIC_RESTORE(
                    *self._of_values(partition),
                    *(each.topic, each.value, each.version, event, generation, length, RESTORED_REMOVAL_MS),
                    *(self._grid.stream_bytes, each.ends),
                )
            )
        replies = await self._batcher.call_all(commands)
        self._see_to(replies)
        return sum(replies)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _of_values(self, partition: int, *, removes: bool = False) -> tuple[Argument, ...]:
        """Name the keys of steps that write single values, or remove them."""
        keys = self._keys
        return (
            *(keys.values[partition], keys.stream[partition], keys.removed[partition], keys.sizes[partition]),
            *((keys.origins[partition],) if removes else ()),
            *(keys.endings[partition], keys.ends[partition]),
        )

    def _of_removal(self, topic: TopicPath, keep: float) -> tuple[Argument, ...]:
        """Say what ``removals.lua`` is told of a removal, that is remembered for so many seconds."""
        grid = self._grid
        return (
            *(topic, grid.generation, grid.stream_length, max(1, round(keep * 1000)), FORGET_COUNT),
            grid.stream_bytes,
        )

    def _of_log(
        self, partition: int, topic: TopicPath, history: HistoryLimits | None
    ) -> tuple[list[Argument], list[Argument]]:
        """Name the keys of the log of a topic that gets a removal, and say what the step is told of it."""
        if history is None:
            return [], []
        told = self._writer.arguments({topic: (history, self._writer.added(b""))})
        return self._writer.keys(partition, [topic]), [*told, *self._writer.bounds()]

    def _partition(self, topic: TopicPath) -> int:
        known = self._partitions.get(topic)
        return self._partitions.put(topic, topic_partition(topic, self._depth)) if known is None else known

    def _parts(self, commands: Sequence[PublishCommand]) -> list[Part]:
        """Sort publishes by partition, so that those in one stay in order."""
        parts: list[Part] = []
        newest: dict[int, Part] = {}
        partition_of = self._partition
        for place, command in enumerate(commands):
            partition = partition_of(command.topic)
            part = newest.get(partition)
            if part is None or not part.takes(command):
                part = newest[partition] = Part(command, partition)
                parts.append(part)
            part.add(place, command)
        return parts

    def _steps(self, parts: Sequence[Part]) -> list[Step]:
        """Join parts into steps: where no Redis Cluster forbids it, one step is for several partitions."""
        if not self._batcher.undivided:
            return [Step(part) for part in parts]
        steps: list[Step] = []
        for part in parts:
            if steps and steps[-1].takes(part):
                steps[-1].add(part)
            else:
                steps.append(Step(part))
        return steps

    def _publish(self, step: Step) -> Command:
        first = step.parts[0].command
        session, ttl = first.ownership.session, milliseconds(first.ttl)
        keys: list[Argument] = []
        publishes: list[Argument] = []
        values, stream, closed, receipts = self._keys.values, self._keys.stream, self._keys.closed, self._keys.receipts
        sizes = self._keys.sizes
        more = 0
        for part in step.parts:
            partition = part.partition
            keys += (values[partition], stream[partition], receipts(partition, session), closed[partition])
            keys.append(sizes[partition])
            if ttl:
                keys += (self._keys.endings[partition], self._keys.ends[partition])
            if part.kept:
                logs = self._writer.keys(partition, list(part.kept))
                keys += logs
                more += len(logs)
            place = (partition, session)
            previous = self._on_the_way.get(place, 0)
            self._on_the_way[place] = part.last
            # A request that is sent again is its own predecessor, and the one after it has not been sent yet.
            previous = previous if previous < part.command.request else 0
            publishes += (previous, self._told(partition, part.appended), len(part.places))
            publishes += part.publishes
            if part.kept:
                publishes += self._writer.tell(part.kept)
        script = scripts.TOPIC_PUBLISH_ENDING if ttl else scripts.TOPIC_PUBLISH
        if more:
            script = scripts.TOPIC_RECORD_ENDING if ttl else scripts.TOPIC_RECORD
            publishes += self._writer.bounds()
        return script.across(
            len(step.parts),
            *keys,
            *((self._grid.clock.argument(), ttl) if ttl else ()),
            first.ownership.epoch,
            first.settled,
            self._grid.generation,
            self._grid.stream_length,
            self._short(session),
            STORED_RECEIPT_LIFE_MS if first.stored else RECEIPT_LIFE_MS,
            first.most_topics,
            first.most_bytes,
            self._grid.stream_bytes,
            *publishes,
            more=more,
        )

    def _told(self, partition: int, appended: int) -> int:
        """Count what is sent for a stream; returns what the grid is to be told of it with that, mostly nothing.

        A publish that is sent again, or is refused then, was counted nevertheless: the stream keeps less for once.
        """
        bound = self._grid.stream_bytes
        if not bound:
            return 0
        untold = self._untold[partition] + appended
        tell = untold * TOLD_PER_STREAM >= bound
        self._untold[partition] = 0 if tell else untold
        return untold if tell else 0

    def _arrived(self, parts: Sequence[Part]) -> None:
        for part in parts:
            place = (part.partition, part.command.ownership.session)
            if self._on_the_way.get(place) == part.last:
                del self._on_the_way[place]

    def _tell_anew(self, parts: Sequence[Part]) -> None:
        """What the grid was told of histories may not have been taken."""
        for part in parts:
            self._writer.forget(part.kept)

    def _published(self, reply: Any, part: Part) -> list[PublishResult]:
        if type(reply) is list:
            receipts = _receipts(reply, part.partition)
            if part.kept and not all(isinstance(each, Published) for each in receipts):
                self._tell_anew([part])
            return receipts
        if reply == b"fenced":
            ownership = part.command.ownership
            why = f"session {ownership.session} has a newer owner than epoch {ownership.epoch}"
            return [Fenced(why) for _ in part.places]
        raise GridUnavailable("an earlier request of the session did not reach the grid")

    def _see_to(self, replies: Sequence[Any]) -> None:
        """Have the grid adopted again if it is not what was adopted.

        Raises:
            GridUnavailable: it is not.
        """
        if b"emptied" in replies:
            # Somebody deleted keys under the running process: what is left must not pass for the same grid.
            raise self._grid.stale(emptied=True)
        if b"stale" in replies:
            raise self._grid.stale()

    def _stored_values(self, partition: int, found: list[bytes], endings: Sequence[bytes | None]) -> list[TopicValue]:
        """Read fields and values of a hash; what belongs to no topic, or is not the gateway's, is left out."""
        least = least_version(self._grid.generation)
        rows = zip(found[::2], found[1::2], endings or repeat(None, len(found) // 2), strict=True)
        read = [self._stored_value(partition, topic, stored, ending, least) for topic, stored, ending in rows if topic]
        return [each for each in read if each is not None]

    def _stored_value(
        self, partition: int, topic: bytes, stored: bytes, ending: bytes | None, least: Version
    ) -> TopicValue | None:
        try:
            return _stored_value(partition, topic, stored, ending, least)
        except (ValueError, GatewayError) as error:
            self._foreign.skipped(self._keys.values[partition], repr(topic[:_SHOWN_BYTES]), error)
            return None


def _receipts(reply: list[Any], partition: int) -> list[PublishResult]:
    """Read the answers to publishes in one partition; events of one step are numbered there without a hole."""
    first: bytes = reply[0]
    generation, _, text = first.partition(b"-")
    prefix = f"{partition}-{generation.decode()}-"
    number = int(text) if text else 0
    receipts: list[PublishResult] = []
    for answer in reply[1:]:
        if type(answer) is int:
            name = EventId(f"{prefix}{number}")
            receipts.append(Published(Version(abs(answer)), name, duplicate=False, created=answer < 0))
            number += 1
        elif answer[1] in _NOT_CREATED:
            refusal = NotStored if answer[0] == _TOO_MANY_BYTES else NotCreated
            receipts.append(refusal(duplicate=answer[1] == b"-"))
        else:
            version, event = answer
            name = EventId(f"{partition}-{event.decode()}" if event else "")
            receipts.append(Published(version, name, duplicate=True))
    return receipts


def _stored_value(partition: int, topic: bytes, stored: bytes, ending: bytes | None, least: Version) -> TopicValue:
    version, event, value = stored.split(b" ", 2)
    shown = max(read_version(version), least)
    ends = NEVER
    if ending is not None:
        at, _, ended = ending.partition(b" ")
        # What was noted of an earlier value says nothing of this one.
        ends = int(at) if ended == event and value else NEVER
    return TopicValue(read_topic(topic), shown, EventId(f"{partition}-{event.decode()}"), check_text(value), ends)
