"""Operations of transactions: how they are kept in the grid, and how scripts are told of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import orjson

from gateway.adapters.redis.history import LogWriter
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.scripts import Argument, milliseconds
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.types import DeliveryTag, MessageId, TopicPath
from gateway.ports import (
    ENTRY_BYTES,
    Overflow,
    QueueBounds,
    Settlement,
    Staged,
    StagedPublish,
    StagedSend,
    StagedSettle,
)

TAG_DIGITS: Final = 16
"""Of a tag among the messages that are held, so that they are in order by name."""

OUTCOMES: Final = {Settlement.ACCEPT: "a", Settlement.REJECT: "d", Settlement.RELEASE: "r"}
"""What scripts call settlements."""

_SETTLEMENTS: Final = {word: outcome for outcome, word in OUTCOMES.items()}

_VERSION_DIGITS: Final = 20
"""Bytes counted for the version in an entry of a stream."""


def bounds_text(bounds: QueueBounds) -> str:
    """What a queue may hold as ``queue_send.lua`` takes it."""
    oldest = int(bounds.overflow is Overflow.DROP_OLDEST)
    return (
        f"{bounds.messages} {bounds.size} {oldest} {bounds.deliveries} {milliseconds(bounds.ack_within)} "
        f"{int(bounds.exclusive)} {bounds.dead} {bounds.dead_size} {milliseconds(bounds.dead_age)}"
    )


def _read_bounds(text: str) -> QueueBounds:
    messages, size, oldest, deliveries, within, exclusive, dead, dead_size, age = map(int, text.split())
    overflow = Overflow.DROP_OLDEST if oldest else Overflow.REFUSE
    return QueueBounds(
        messages, size, overflow, deliveries, within / 1000, bool(exclusive), dead, dead_size, age / 1000
    )


def encode_staged(operation: Staged) -> bytes:
    """Write an operation as the grid keeps it: a line of JSON, and the value behind it."""
    match operation:
        case StagedPublish(topic, value, most_topics, most_bytes, history, ttl):
            kept = None if history is None else [history.count, history.age, history.bytes]
            return orjson.dumps(["p", topic, most_topics, most_bytes, kept, *([ttl] if ttl else [])]) + b"\n" + value
        case StagedSend(queue, value, headers, bounds, delay, expires):
            head = ["s", queue, bounds_text(bounds), delay, expires, len(headers)]
            return orjson.dumps(head) + b"\n" + headers + value
        case StagedSettle(queue, outcome, messages, delay):
            return orjson.dumps([OUTCOMES[outcome], queue, delay, messages]) + b"\n"


def decode_staged(stored: bytes) -> Staged:
    """Read what ``encode_staged`` wrote.

    Raises:
        ValueError: it did not write that.
    """
    line, _, value = stored.partition(b"\n")
    kind, *rest = orjson.loads(line)
    if kind == "p":
        topic, most_topics, most_bytes, kept, *ttl = rest
        history = None if kept is None else HistoryLimits(count=kept[0], age=kept[1], bytes=kept[2])
        return StagedPublish(TopicPath(topic), value, most_topics, most_bytes, history, *ttl)
    if kind == "s":
        queue, bounds, delay, expires, headers = rest
        return StagedSend(TopicPath(queue), value[headers:], value[:headers], _read_bounds(bounds), delay, expires)
    queue, delay, messages = rest
    named = tuple((DeliveryTag(tag), MessageId(message)) for tag, message in messages)
    return StagedSettle(TopicPath(queue), _SETTLEMENTS[kind], named, delay)


class _QueueSteps:
    """What a transaction does in one queue.

    Attributes:
        bounds: of the queue, as the last send has them; empty if nothing is sent.
        steps: as ``transaction_parts.lua`` takes them.
        count: of them.
    """

    __slots__ = ("bounds", "count", "steps")

    def __init__(self) -> None:
        self.bounds = ""
        self.steps: list[Argument] = []
        self.count = 0

    def add(self, *step: Argument) -> None:
        """Add a step."""
        self.steps += step
        self.count += 1


class Part:
    """What a transaction does in one topic partition.

    Args:
        partition: which.
    """

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self._publishes: list[Argument] = []
        self._published = 0
        self._appended = 0
        self._kept: dict[TopicPath, tuple[HistoryLimits, int]] = {}
        self._queues: dict[TopicPath, _QueueSteps] = {}

    def add(self, operation: Staged) -> None:
        """Add an operation."""
        match operation:
            case StagedPublish(topic, value, most_topics, most_bytes, history, ttl):
                self._publishes += (topic, value, most_topics, most_bytes, milliseconds(ttl))
                self._published += 1
                self._appended += len(topic.encode()) + len(value) + _VERSION_DIGITS + ENTRY_BYTES
                if history is not None:
                    known = self._kept.get(topic)
                    added = LogWriter.added(value) + (known[1] if known else 0)
                    self._kept[topic] = (history, added)
            case StagedSend(queue, value, headers, bounds, delay, expires):
                steps = self._in(queue)
                steps.bounds = bounds_text(bounds)
                steps.add("s", milliseconds(delay), milliseconds(expires), len(headers), headers + value)
            case StagedSettle(queue, outcome, messages, delay):
                for tag, message in messages:
                    self._in(queue).add(*(OUTCOMES[outcome], milliseconds(delay), f"{tag:0{TAG_DIGITS}}", message, ""))

    def add_queue(self, queue: TopicPath) -> None:
        """Name a queue in which there may be something to undo."""
        self._in(queue)

    def _in(self, queue: TopicPath) -> _QueueSteps:
        return self._queues.setdefault(queue, _QueueSteps())

    def keys(self, keys: Keys, writer: LogWriter) -> list[Argument]:
        """Name the keys of the part as ``transaction_parts.lua`` takes them."""
        number = self.partition
        named: list[Argument] = [keys.values[number], keys.stream[number], keys.sizes[number]]
        named += (keys.endings[number], keys.ends[number])
        named += writer.keys(self.partition, list(self._kept))
        for queue in self._queues:
            named += keys.queue(self.partition, queue)
        return named

    def arguments(self, writer: LogWriter) -> list[Argument]:
        """Say what is to be done, likewise."""
        said: list[Argument] = [self._published, *self._publishes, self._appended]
        said += (*writer.names(self._kept), *writer.arguments(self._kept))
        said.append(len(self._queues))
        for queue, steps in self._queues.items():
            said += (queue, steps.bounds, steps.count, *steps.steps)
        return said


def parts_of(operations: Iterable[Staged], partition: Callable[[TopicPath], int]) -> Sequence[Part]:
    """Sort the operations of a transaction by the partitions in which they are executed, in order."""
    parts: dict[int, Part] = {}
    for operation in operations:
        number = partition(operation.topic if isinstance(operation, StagedPublish) else operation.queue)
        parts.setdefault(number, Part(number)).add(operation)
    return list(parts.values())


def read_record(stored: bytes) -> dict[str, Any]:
    """Read a record of ``transactions.lua``.

    Raises:
        ValueError: it is none.
    """
    state, *numbers, outcome, generation = stored.decode().split(" ")
    turn, request, begun, used, count, size, wait, latest = map(int, numbers)
    return {
        "state": state,
        "turn": turn,
        "request": request,
        "begun": begun,
        "used": used,
        "count": count,
        "size": size,
        "wait": wait,
        "latest": latest,
        "outcome": outcome,
        "generation": int(generation),
    }
