"""The histories of one topic partition of an in-memory grid. They are cut exactly, which Redis does in blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.versions import place_of
from gateway.core.types import TopicPath
from gateway.ports import EVENT_BYTES, MOST_HISTORIES, HistoryPage, HistoryQuestion, KeptTopics, TopicValue

NOTHING: Final = (0, 0)
"""A place before every event."""


class _Entry(NamedTuple):
    """One event.

    Attributes:
        value: the publish.
        at: when, by the grid's clock in seconds.
        before: the place of the topic's event before it.
    """

    value: TopicValue
    at: float
    before: tuple[int, int]

    @property
    def size(self) -> int:
        """Bytes, as they are counted."""
        return len(self.value.value) + EVENT_BYTES


@dataclass(slots=True)
class _Log:
    """The history of one topic.

    Attributes:
        entries: the oldest first.
        size: bytes of them.
    """

    entries: deque[_Entry] = field(default_factory=deque)
    size: int = 0


class Histories:
    """The histories of one topic partition.

    Args:
        most_bytes: of all of them together; 0 for no limit.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._logs: dict[TopicPath, _Log] = {}
        self._edge = NOTHING
        self._size = 0

    def takes(self, topic: TopicPath) -> bool:
        """Tell whether there is room for one more event of a topic."""
        return topic in self._logs or len(self._logs) < MOST_HISTORIES

    def take(self, topics: Collection[TopicPath]) -> bool:
        """Tell whether there is room for events of all these topics."""
        return len(self._logs) + sum(topic not in self._logs for topic in topics) <= MOST_HISTORIES

    def append(self, value: TopicValue, before: TopicValue | None, limits: HistoryLimits, now: float) -> None:
        """Keep one more event.

        Args:
            value: the publish.
            before: what was published to its topic before it; None if nothing is known of that.
            limits: how much the topic keeps.
            now: the grid's clock.
        """
        log = self._logs.get(value.topic)
        place = self._edge if log is None or not log.entries else place_of(log.entries[-1].value.event)
        self._append(value, place if before is None else place_of(before.event), limits, now)

    def _append(self, value: TopicValue, before: tuple[int, int], limits: HistoryLimits, now: float) -> None:
        log = self._logs.setdefault(value.topic, _Log())
        entry = _Entry(value, now, before)
        log.entries.append(entry)
        log.size += entry.size
        self._size += entry.size
        while len(log.entries) > 1 and (
            len(log.entries) > limits.count or log.size > limits.bytes or 0 < self._most_bytes < self._size
        ):
            self._cut(log)

    def _cut(self, log: _Log) -> None:
        size = log.entries.popleft().size
        log.size -= size
        self._size -= size

    def read(self, asked: HistoryQuestion, newest: TopicValue | None) -> HistoryPage:
        """See ``HistoryStore.read``; *newest* is what is current."""
        after = NOTHING if asked.after is None else place_of(asked.after)
        log = self._logs.get(asked.topic)
        entries = [each for each in log.entries if place_of(each.value.event) > after] if log is not None else []
        if not entries:
            missed = asked.after is not None and newest is not None and place_of(newest.event) > after
            return HistoryPage((), has_gap=missed, is_last=True)
        events = [entries[0].value]
        for each in entries[1 : asked.limit]:
            if each.before > place_of(events[-1].event):
                break
            events.append(each.value)
        has_gap = asked.after is not None and entries[0].before > after
        return HistoryPage(events, has_gap=has_gap, is_last=len(events) == len(entries))

    def topics(self, step: str | None, count: int) -> KeptTopics:
        """See ``HistoryStore.topics``; a step is the last topic before it."""
        named = sorted(topic for topic in self._logs if step is None or topic > step)
        return KeptTopics(named[:count], named[count - 1] if len(named) > count else None)

    def sweep(self, topic: TopicPath, limits: HistoryLimits | None, *, known: bool, now: float) -> int:
        """Cut what is too old of one history, or all of it; *known* tells whether the topic is still there."""
        log = self._logs.get(topic)
        if log is None:
            return 0
        if limits is None or not known:
            return self.drop(topic, known=known)
        cut = 0
        while log.entries and log.entries[0].at < now - limits.age:
            self._cut(log)
            cut += 1
        return cut

    def drop(self, topic: TopicPath, *, known: bool) -> int:
        """Drop a history; of a topic that is not there any more its last event is remembered, with that of others."""
        log = self._logs.pop(topic, None)
        if log is None:
            return 0
        self._size -= log.size
        if not known and log.entries:
            self._edge = max(self._edge, place_of(log.entries[-1].value.event))
        return len(log.entries)

    def restore(self, topic: TopicPath, events: Sequence[TopicValue], limits: HistoryLimits, now: float) -> int:
        """See ``HistoryStore.restore``."""
        written = 0
        for each in events:
            log = self._logs.get(topic)
            last = log.entries[-1].value if log is not None and log.entries else None
            if last is not None and place_of(each.event) <= place_of(last.event):
                continue
            if not self.takes(topic):
                break
            generation, sequence = place_of(each.event)
            follows = last is not None and each.version == last.version + 1
            before = place_of(last.event) if last is not None and follows else (generation, sequence - 1)
            self._append(each, before, limits, now)
            written += 1
        return written
