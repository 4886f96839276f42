"""Histories of topics: implements ``gateway.ports.HistoryStore``. Publishes write them, in ``topics``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.foreign import ForeignData, check_text, read_topic, read_version
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.scripts import Argument, Command
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.topics import topic_partition
from gateway.core.topics.versions import place_of
from gateway.core.types import EventId, TopicPath
from gateway.core.wire.errors import GatewayError
from gateway.ports import EVENT_BYTES, MOST_HISTORIES, HistoryPage, HistoryQuestion, KeptTopics, TopicValue

EVENT_UNIT: Final = 2**32
"""What one event adds to what the grid counts of a log, besides its bytes; as in ``scripts/logs.lua``."""

TOLD_BYTES: Final = 4096
"""Bytes that a node adds to a history until it tells the grid: as many make a block in ``scripts/logs.lua``. By so much
may a history be larger for each node."""

_TOLD_ARGUMENTS: Final = 4
"""What is told of a history: its number, what was added, and how many events and bytes it keeps."""

_UNTOLD_TOPICS: Final = 65_536
"""Topics of which it is known what was told: some 10 MB. Beyond, all are told anew."""

READ_BYTES: Final = 128 * 1024
"""Bytes of values of one history above which a reading of it is ended."""

USUAL_EVENTS: Final = 4.0
"""Events that an entry is taken to have before its topic was read: between one and a hundred."""

LEAST_ENTRIES: Final = 2
"""Entries that are read at least: a history of a single one is known to be read to its end."""

SWEPT_ENTRIES: Final = 1_000
"""Entries of a log that one step of a sweep looks at: Redis needs some milliseconds for them."""

EVENTS_PER_TURN: Final = 500
"""Events that are read from an answer before others have their turn."""

_LARGEST_CURSOR: Final = 2**64 - 1
"""Redis refuses a cursor that does not fit an unsigned number of 64 bits."""

_SHOWN_BYTES: Final = 100
"""Of a name that is no topic, in the log."""

Place = tuple[int, int]
"""Of an event in its partition: generation and sequence."""


class LogWriter:
    """What scripts that write to logs are told; see ``scripts/logs.lua``.

    Args:
        grid: tells the time.
        keys: names of all keys.
        history_bytes: most bytes of all histories of a partition.
    """

    def __init__(self, grid: GridConnection, keys: Keys, history_bytes: int) -> None:
        self._grid = grid
        self._keys = keys
        self._history_bytes = history_bytes
        self._untold: dict[TopicPath, tuple[HistoryLimits, int]] = {}
        """By topic: what was said of how much it keeps, and what was added since that the grid was not told of."""

    def keys(self, partition: int, topics: Sequence[TopicPath]) -> list[Argument]:
        """Name the keys of the logs of one partition."""
        log = self._keys.log
        return [
            self._keys.logs[partition],
            self._keys.log_marks[partition],
            *(log(partition, topic) for topic in topics),
        ]

    @staticmethod
    def arguments(told: Mapping[TopicPath, tuple[HistoryLimits, int]]) -> list[Argument]:
        """Say of each topic of one partition what is added to it (see ``added``), and how much it keeps."""
        said: list[Argument] = [len(told), len(told)]
        for number, (limits, added) in enumerate(told.values(), 1):
            said += (number, added, limits.count, limits.bytes)
        return said

    @staticmethod
    def names(told: Collection[TopicPath]) -> list[Argument]:
        """Name these topics, where scripts do not know them by what is published."""
        return [len(told), *told]

    def tell(self, kept: Mapping[TopicPath, tuple[HistoryLimits, int]]) -> list[Argument]:
        """Say the same of what is published; most of what is added is told later, together with more.

        What is sent again is counted again: then a history keeps less for once. It is told at once of a topic of which
        nothing was told before, or not since its limits have changed, as there may be no history yet.
        """
        if len(self._untold) > _UNTOLD_TOPICS:
            self._untold.clear()
        told: list[Argument] = []
        for number, (topic, (limits, more)) in enumerate(kept.items(), 1):
            known, untold = self._untold.get(topic, (None, 0))
            added = untold + more
            tells = known is not limits or added % EVENT_UNIT >= TOLD_BYTES
            self._untold[topic] = (limits, 0 if tells else added)
            if tells:
                told += (number, added, limits.count, limits.bytes)
        return [len(kept), len(told) // _TOLD_ARGUMENTS, *told]

    def forget(self, topics: Iterable[TopicPath]) -> None:
        """The grid may not have taken what it was told of topics: tell it anew that they have history."""
        for topic in topics:
            self._untold.pop(topic, None)

    def bounds(self) -> tuple[Argument, ...]:
        """Say what comes last: the time of the grid, as far as it is known here, and the bounds of a partition."""
        return (round(self._grid.clock.estimate() or 0), MOST_HISTORIES, self._history_bytes)

    @staticmethod
    def added(value: bytes) -> int:
        """Count an event as the grid counts it."""
        return EVENT_UNIT + len(value) + EVENT_BYTES


class RedisHistory:
    """Histories in the grid.

    Args:
        grid: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        writer: for what is restored.
        foreign: told of what is not the gateway's.
        depth: leading path segments that decide a topic's partition.
    """

    def __init__(
        self, *, grid: GridConnection, keys: Keys, writer: LogWriter, foreign: ForeignData, depth: int
    ) -> None:
        self._grid = grid
        self._batcher = grid.batcher
        self._keys = keys
        self._writer = writer
        self._foreign = foreign
        self._depth = depth
        self._per_entry: dict[TopicPath, float] = {}
        """By topic: how much of what is read at once an entry had when its history was read last, in events."""

    async def read(self, partition: int, questions: Sequence[HistoryQuestion]) -> list[HistoryPage]:
        """See ``HistoryStore.read``."""
        ranges = [self._range(partition, each) for each in questions]
        replies = await self._batcher.call_all(ranges)
        pages: list[HistoryPage | None] = [None] * len(questions)
        empty: list[int] = []
        read = 0
        for number, (asked, entries) in enumerate(zip(questions, replies, strict=True)):
            if entries:
                pages[number] = await self._first_page(partition, asked, entries, ranges[number])
                read += len(entries)
                if read > EVENTS_PER_TURN:
                    read = 0
                    await asyncio.sleep(0)
            else:
                empty.append(number)
        newest = await self._newest(partition, [questions[number] for number in empty])
        for number, has_gap in zip(empty, newest, strict=True):
            pages[number] = HistoryPage((), has_gap=has_gap, is_last=True)
        return [page for page in pages if page is not None]

    async def topics(self, partition: int, *, step: str | None, count: int) -> KeptTopics:
        """See ``HistoryStore.topics``."""
        if step is not None and not (step.isascii() and step.isdigit() and int(step) <= _LARGEST_CURSOR):
            raise ValueError("this is no cursor of a hash")
        key = self._keys.logs[partition]
        cursor, found = await self._batcher.call(("HSCAN", key, step or "0", "COUNT", count))
        named: list[TopicPath] = []
        for name in found[::2]:
            try:
                named.append(read_topic(name))
            except (ValueError, GatewayError) as error:
                self._foreign.skipped(key, repr(name[:_SHOWN_BYTES]), error)
        return KeptTopics(named, None if cursor == b"0" else cursor.decode())

    async def sweep(self, partition: int, topics: Sequence[tuple[TopicPath, HistoryLimits | None]]) -> int:
        """See ``HistoryStore.sweep``."""
        keys, swept = self._keys, 0
        names = (keys.values[partition], keys.logs[partition], keys.log_marks[partition])
        left = list(topics)
        while left:
            clock = self._grid.clock.argument()
            commands: list[Command] = []
            for topic, limits in left:
                life = 0 if limits is None else max(1, round(limits.age * 1000))
                commands.append(
                    scripts.LOG_SWEEP(*names, keys.log(partition, topic), clock, topic, life, SWEPT_ENTRIES)
                )
            replies = await self._batcher.call_all(commands)
            swept += sum(cut for cut, _ in replies)
            left = [each for each, (_, has_more) in zip(left, replies, strict=True) if has_more]
        return swept

    async def restore(self, topic: TopicPath, events: Sequence[TopicValue], limits: HistoryLimits) -> int:
        """See ``HistoryStore.restore``."""
        if not events:
            return 0
        partition = topic_partition(topic, self._depth)
        told: list[Argument] = []
        for each in events:
            told += (each.event.partition("-")[2], each.version, each.value)
        added = sum(self._writer.added(each.value) for each in events)
        reply = await self._batcher.call(
            scripts.LOG_RESTORE(
                self._keys.stream[partition],
                *self._writer.keys(partition, [topic]),
                *(self._grid.generation, topic, len(events), *told),
                *self._writer.arguments({topic: (limits, added)}),
                *self._writer.bounds(),
            )
        )
        if reply == b"stale":
            raise self._grid.stale()
        written: int = reply
        return written

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _first_page(
        self, partition: int, asked: HistoryQuestion, entries: Sequence[Any], read: Command
    ) -> HistoryPage:
        """Make a page of what was read, or of what is behind it where nothing of it is the gateway's."""
        *command, _, last, name, count = read
        while True:
            page = self._page(partition, asked, entries, may_be_more=len(entries) == count)
            if page.events or len(entries) != count:
                return page
            entries = await self._batcher.call((*command, f"({entries[-1][0].decode()}", last, name, count))
            if not entries:
                return HistoryPage((), has_gap=False, is_last=True)

    def _range(self, partition: int, asked: HistoryQuestion) -> Command:
        first = "-" if asked.after is None else "({}-{}".format(*place_of(asked.after))
        count = max(
            LEAST_ENTRIES, min(asked.limit, round(asked.limit / self._per_entry.get(asked.topic, USUAL_EVENTS)))
        )
        return ("XRANGE", self._keys.log(partition, asked.topic), first, "+", "COUNT", count)

    async def _newest(self, partition: int, questions: Sequence[HistoryQuestion]) -> list[bool]:
        """Tell for each topic whose log has nothing after a place whether there was something.

        What is published meanwhile is in the log and in the value, so both are asked for, the value first.
        """
        if not questions:
            return []
        commands: list[Command] = []
        for asked in questions:
            commands += (
                ("HGET", self._keys.values[partition], asked.topic),
                self._range(partition, asked._replace(limit=1)),
            )
        replies = await self._batcher.call_all(commands)
        gaps: list[bool] = []
        for asked, stored, entries in zip(questions, replies[::2], replies[1::2], strict=True):
            if asked.after is None or entries or not stored:
                gaps.append(False)
                continue
            _, event, _ = stored.split(b" ", 2)
            gaps.append(_place(event) > place_of(asked.after))
        return gaps

    def _page(
        self, partition: int, asked: HistoryQuestion, entries: Sequence[Any], *, may_be_more: bool
    ) -> HistoryPage:
        after = (0, 0) if asked.after is None else place_of(asked.after)
        events: list[TopicValue] = []
        has_gap = False
        size = looked = 0
        for number, fields in entries:
            if len(events) >= asked.limit or size >= READ_BYTES:
                may_be_more = True
                break
            looked += 1
            try:
                generation, last = _place(number)
                before = _place(fields[0].split(b" ")[1])
                pairs = [(last, fields[1])]
                if len(fields) > 2:  # noqa: PLR2004 - events before the last one of this step
                    pairs = [(int(fields[at]), fields[at + 1]) for at in range(2, len(fields), 2)] + pairs
                read = [_event(partition, asked.topic, generation, *pair) for pair in pairs]
            except (ValueError, IndexError) as error:
                self._foreign.skipped(self._keys.log(partition, asked.topic), number.decode(), error)
                continue
            if not events:
                has_gap = before > after
            elif before > place_of(events[-1].event):
                # A hole between two of them: what follows is another page.
                return HistoryPage(events, has_gap=has_gap and asked.after is not None, is_last=False)
            is_whole = place_of(read[0].event) > after
            events += read if is_whole else [each for each in read if place_of(each.event) > after]
            size += sum([len(each.value) for each in read])
        if len(self._per_entry) > _UNTOLD_TOPICS:
            self._per_entry.clear()
        # Of large values, fewer entries will do the next time.
        self._per_entry[asked.topic] = max(1.0, len(events) / looked, asked.limit * size / READ_BYTES / looked)
        return HistoryPage(events, has_gap and asked.after is not None, is_last=not (may_be_more and events))


def _place(number: bytes) -> Place:
    generation, _, sequence = number.partition(b"-")
    return int(generation), int(sequence)


def _event(partition: int, topic: TopicPath, generation: int, sequence: int, stored: bytes) -> TopicValue:
    version, _, value = stored.partition(b" ")
    return TopicValue(topic, read_version(version), EventId(f"{partition}-{generation}-{sequence}"), check_text(value))
