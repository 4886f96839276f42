"""Events that cross between clusters, in the grid: implements ``gateway.ports.OriginStore``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.batcher import fresh
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.history import LogWriter
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.partition_reading import position_of
from gateway.adapters.redis.scripts import Argument, Command
from gateway.adapters.redis.stream_entries import NOTHING, is_published, read_arrived, read_entry, read_path
from gateway.adapters.redis.topic_steps import PUBLISH_BYTES, PUBLISH_COUNT
from gateway.adapters.redis.topics import FORGET_COUNT, RESTORED_REMOVAL_MS
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.topics import topic_partition
from gateway.core.topics.versions import place_of
from gateway.core.types import LARGEST_GENERATION, EventId, TopicPath, Version
from gateway.core.wire.errors import GatewayError
from gateway.core.zones.routes import Arrival, ClusterId
from gateway.core.zones.stamps import Mark, Origin, Stamp, StreamPlace
from gateway.ports import (
    MOST_LINKS,
    MOST_ORIGINS,
    Arrived,
    ForwardedEvent,
    GridRefused,
    LeavingEvent,
    NotTaken,
    PositionLost,
    StreamPosition,
    TailBatch,
    Taken,
    TakeResult,
    TopicValue,
    check_stamps,
)

STAMPED_TOGETHER: Final = 500
"""Events that one step stamps at most; Redis needs a few milliseconds for them."""


class _Step:
    """Events that one step takes, of one partition and one link, with the same limits.

    Attributes:
        first: of them.
        partition: of all of them.
        places: which of the caller's events they are.
        kept: of topics with history, how much they keep, and what is added.
        size: bytes of their values.
    """

    __slots__ = ("events", "first", "kept", "partition", "places", "size")

    def __init__(self, first: ForwardedEvent, partition: int) -> None:
        self.first = first
        self.partition = partition
        self.places: list[int] = []
        self.events: list[ForwardedEvent] = []
        self.kept: dict[TopicPath, tuple[HistoryLimits, int]] = {}
        self.size = 0

    def takes(self, event: ForwardedEvent) -> bool:
        """Tell whether another event of the partition can be added."""
        first = self.first
        return (
            len(self.places) < PUBLISH_COUNT
            and self.size < PUBLISH_BYTES
            and (event.link, event.term, event.most_topics, event.most_bytes)
            == (first.link, first.term, first.most_topics, first.most_bytes)
        )


class RedisOrigins:
    """What crosses between clusters.

    Args:
        grid: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        foreign: told of what is not the gateway's.
        depth: leading path segments that decide a topic's partition.
        writer: for topics with history.
    """

    def __init__(
        self, *, grid: GridConnection, keys: Keys, foreign: ForeignData, depth: int, writer: LogWriter
    ) -> None:
        self._grid = grid
        self._keys = keys
        self._foreign = foreign
        self._depth = depth
        self._writer = writer

    async def stamp(self, partition: int, events: Sequence[LeavingEvent], *, cluster: ClusterId) -> list[Mark | None]:
        """See ``OriginStore.stamp``."""
        keys, marks = self._keys, list[Mark | None]()
        for start in range(0, len(events), STAMPED_TOGETHER):
            chosen = events[start : start + STAMPED_TOGETHER]
            reply = await self._grid.batcher.call(
                scripts.ZONE_STAMP(
                    *(keys.stream[partition], keys.origins[partition]),
                    *(self._grid.clock.argument(), self._grid.generation, cluster),
                    *(part for each in chosen for part in (each.topic, each.version, _place(each.event))),
                )
            )
            self._see_to([reply])
            marks += [_mark(each) for each in reply]
        return marks

    async def note_times(self) -> None:
        """See ``OriginStore.note_times``."""
        keys, clock, generation = self._keys, self._grid.clock.argument(), self._grid.generation
        commands = [
            scripts.ZONE_TIMES(stream, origins, clock, generation)
            for stream, origins in zip(keys.stream, keys.origins, strict=True)
        ]
        replies = await self._grid.batcher.submit(commands)
        self._see_to(replies)
        for reply in replies:
            if isinstance(reply, Exception):
                raise fresh(reply)

    async def apply(self, events: Sequence[ForwardedEvent], *, cluster: ClusterId) -> list[TakeResult]:
        """See ``OriginStore.apply``."""
        if not events:
            return []
        check_stamps(events)
        steps = self._steps(events)
        kept = [topic for step in steps for topic in step.kept]
        try:
            replies = await self._grid.batcher.submit([self._command(each, cluster) for each in steps], gated=True)
            self._see_to(replies)
        except BaseException:
            self._writer.forget(kept)
            raise
        results: dict[int, TakeResult] = {}
        for step, reply in zip(steps, replies, strict=True):
            if isinstance(reply, GridRefused):
                # The first thing that a step writes is what Redis refuses, so it has done nothing.
                self._writer.forget(step.kept)
                results.update(dict.fromkeys(step.places, reply))
            elif type(reply) is not list:
                self._writer.forget(kept)
                raise fresh(reply)
            else:
                if step.kept and not all(type(each) is list for each in reply):
                    self._writer.forget(step.kept)
                results.update(zip(step.places, (_result(each, step.partition) for each in reply), strict=True))
        return [results[place] for place in range(len(events))]

    async def read_after(self, partition: int, position: StreamPosition, limit: int) -> TailBatch | PositionLost | None:
        """See ``OriginStore.read_after``."""
        key = self._keys.stream[partition]
        found = await self._entries_after(key, position, limit)
        if found is None:
            return None
        entries, goes_on = found
        if not entries:
            return PositionLost(partition)
        values: list[TopicValue] = []
        arrived: dict[int, Arrived | None] = {}
        end = position
        for number, fields in entries:
            place = position_of(number)
            if goes_on and place.grid_generation > end.grid_generation and place.sequence == 0:
                # The marker that opens a generation: all that the grid has of those before lies before it.
                end = place
                continue
            if place != (end.grid_generation, end.sequence + 1):
                if not goes_on or end == position:
                    return PositionLost(partition)
                break
            goes_on, end = True, place
            try:
                value = read_entry(partition, number, fields)
                if not is_published(number, fields):
                    arrived[len(values)] = read_arrived(fields)
                values.append(value)
            except (ValueError, IndexError, GatewayError) as error:
                self._foreign.skipped(key, number.decode(), error)
        return TailBatch(partition, tuple(values), end, arrived)

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _entries_after(
        self, key: str, position: StreamPosition, limit: int
    ) -> tuple[list[tuple[bytes, list[bytes]]], bool] | None:
        """Read entries behind a position.

        Returns:
            The entries, none if the stream has neither the position nor anything behind it, and whether it has the
            position itself: where that is, nothing behind it has been cut off. None if nothing follows yet.
        """
        first = f"{position.grid_generation}-{position.sequence}"
        # What another program appended behind looks like the beginning of a generation.
        ask: Command = ("XRANGE", key, first, LARGEST_GENERATION, "COUNT", limit + 1)
        entries = await self._grid.batcher.call(ask)
        if not entries:
            # Nothing follows, unless what is there now is another stream.
            if await self._grid.batcher.call(scripts.TOPIC_POSITION(key)) == first.encode():
                return None
            # Or something has come between the two looks.
            entries = await self._grid.batcher.call(ask)
        if entries and entries[0][0] == first.encode():
            return (entries[1:], True) if len(entries) > 1 else None
        return entries[:limit], False

    def _steps(self, events: Sequence[ForwardedEvent]) -> list[_Step]:
        """Sort events by partition, so that those in one stay in order."""
        steps: list[_Step] = []
        newest: dict[int, _Step] = {}
        for place, event in enumerate(events):
            partition = topic_partition(event.topic, self._depth)
            step = newest.get(partition)
            if step is None or not step.takes(event):
                step = newest[partition] = _Step(event, partition)
                steps.append(step)
            step.places.append(place)
            step.events.append(event)
            step.size += len(event.value)
            if event.history is not None:
                known = step.kept.get(event.topic)
                added = self._writer.added(event.value)
                step.kept[event.topic] = (event.history, added if known is None else known[1] + added)
        return steps

    def _command(self, step: _Step, cluster: ClusterId) -> Command:
        keys, partition, first = self._keys, step.partition, step.first
        logs: list[Argument] = []
        told: list[Argument] = []
        script = scripts.ZONE_PUBLISH
        if step.kept:
            script = scripts.ZONE_RECORD
            logs = self._writer.keys(partition, list(step.kept))
            told = [*self._writer.names(step.kept), *self._writer.tell(step.kept), *self._writer.bounds()]
        return script.across(
            1,
            *(keys.values[partition], keys.stream[partition], keys.removed[partition], keys.sizes[partition]),
            keys.origins[partition],
            *logs,
            self._grid.clock.argument(),
            *(self._grid.generation, self._grid.stream_length, self._grid.stream_bytes),
            *(first.most_topics, first.most_bytes, RESTORED_REMOVAL_MS),
            *(first.link, first.term, MOST_LINKS, MOST_ORIGINS, FORGET_COUNT, cluster, len(step.events)),
            *(part for each in step.events for part in _arguments(each)),
            *told,
            more=len(logs),
        )

    def _see_to(self, replies: Sequence[Any]) -> None:
        """Have the grid adopted again if it is not what was adopted.

        Raises:
            GridUnavailable: it is not.
        """
        if b"emptied" in replies:
            raise self._grid.stale(emptied=True)
        if b"stale" in replies or b"generation" in replies:
            raise self._grid.stale()


def _arguments(event: ForwardedEvent) -> tuple[Argument, ...]:
    stamp = event.stamp
    return (
        event.topic,
        event.value,
        event.origin.cluster,
        event.origin.version,
        *((NOTHING, NOTHING) if stamp is None else (stamp.time, stamp.cluster)),
        event.arrival.value,
        ",".join(event.path) or NOTHING,
        int(event.repeated),
        int(event.history is not None),
    )


def _place(event: EventId) -> str:
    generation, sequence = place_of(event)
    return f"{generation}-{sequence}"


def _result(reply: Any, partition: int) -> TakeResult:
    if isinstance(reply, bytes):
        return NotTaken(reply.decode())
    version, place, created = reply
    return Taken(Version(int(version)), EventId(f"{partition}-{place.decode()}"), created == b"1")


def _mark(reply: bytes) -> Mark | None:
    if not reply:
        return None
    place, time, cluster, origin, version, arrival, path = reply.decode().split(" ")
    generation, sequence = map(int, place.split("-"))
    return Mark(
        StreamPlace(generation, sequence),
        Stamp(int(time), ClusterId(cluster)),
        Origin(ClusterId(origin), Version(int(version))),
        Arrival(arrival),
        read_path(path),
    )
