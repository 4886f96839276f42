"""Publishes that are one step of the grid: which of them go together, and what the step is told of them."""

from __future__ import annotations

from typing import Final

from gateway.adapters.redis.history import LogWriter
from gateway.adapters.redis.scripts import Argument
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.types import TopicPath
from gateway.ports import ENTRY_BYTES, PublishCommand

PUBLISH_COUNT: Final = 100
"""Publishes in one step of the grid: most of what they have in common is paid for by ten, and Redis, which does nothing
else meanwhile, needs less than a millisecond for a hundred."""

PUBLISH_BYTES: Final = 64 * 1024
"""Bytes of values in one step of the grid above which no further one is added, for the same reason."""

ENDING_BYTES: Final = 64
"""Bytes counted besides for an entry whose value ends: its own id, when it ends, and two names."""

_UTF_8_BYTES: Final = 4
"""Of a character, at most."""


class Part:
    """Publishes of one session in one partition, to be executed one after the other.

    Attributes:
        command: the first of them.
        partition: of all of them.
        places: which of the caller's commands they are.
        publishes: request, topic and value of each, as the script takes them.
        last: request of the last of them.
        size: bytes of their values.
        appended: bytes of the entries of the stream that they become, at most.
        kept: of those that have history, as all of them have or none: how much their topics keep, and what they add.
    """

    __slots__ = ("appended", "command", "kept", "last", "partition", "places", "publishes", "size")

    def __init__(self, command: PublishCommand, partition: int) -> None:
        self.command = command
        self.partition = partition
        self.places: list[int] = []
        self.publishes: list[Argument] = []
        self.last = command.request
        self.size = 0
        self.appended = 0
        self.kept: dict[TopicPath, tuple[HistoryLimits, int]] = {}

    def add(self, place: int, command: PublishCommand) -> None:
        """Add the next publish, which is the caller's command number *place*."""
        topic, size = command.topic, len(command.value)
        self.places.append(place)
        self.publishes += (command.request, topic, command.value)
        self.last = command.request
        self.size += size
        self.appended += size + ENTRY_BYTES + (len(topic) if topic.isascii() else _UTF_8_BYTES * len(topic))
        if command.ttl:
            self.appended += ENDING_BYTES
        if command.history is not None:
            known = self.kept.get(topic)
            added = LogWriter.added(command.value)
            self.kept[topic] = (command.history, added if known is None else known[1] + added)

    def takes(self, command: PublishCommand) -> bool:
        """Tell whether a publish in the same partition can be added."""
        return self.size < PUBLISH_BYTES and len(self.places) < PUBLISH_COUNT and have_in_common(self.command, command)


class Step:
    """Publishes that are one step of the grid: of one session.

    Attributes:
        parts: those in each partition.
        count: of publishes.
        size: bytes of their values.
    """

    __slots__ = ("count", "parts", "size")

    def __init__(self, part: Part) -> None:
        self.parts = [part]
        self.count = len(part.places)
        self.size = part.size

    def takes(self, part: Part) -> bool:
        """Tell whether publishes in one more partition can be added."""
        return (
            self.size + part.size <= PUBLISH_BYTES
            and self.count + len(part.places) <= PUBLISH_COUNT
            and have_in_common(self.parts[0].command, part.command)
        )

    def add(self, part: Part) -> None:
        """Add them."""
        self.parts.append(part)
        self.count += len(part.places)
        self.size += part.size


def have_in_common(first: PublishCommand, other: PublishCommand) -> bool:
    """Tell whether two publishes have in common what a step says once."""
    return (
        other.settled == first.settled
        and (other.ownership is first.ownership or other.ownership == first.ownership)
        and other.stored is first.stored
        and other.most_topics == first.most_topics
        and other.most_bytes == first.most_bytes
        and other.ttl == first.ttl
        and (other.history is None) is (first.history is None)
    )
