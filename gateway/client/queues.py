"""What a stream keeps: updates that wait for its reader, and which version of each topic it delivered last."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import replace
from typing import Final

import orjson

from gateway.core.client.types import Update

QUEUE_SIZE: Final = 10_000
"""Updates a stream keeps before it conflates: ten seconds of a busy topic."""

QUEUE_BYTES: Final = 64 * 2**20
"""Bytes of JSON text a stream keeps before it conflates, and at most: values of 100,000 topics, 600 bytes each."""

TOPICS_REMEMBERED: Final = 50_000
"""Topics whose version a stream remembers for certain; it never remembers more than twice as many, some 15 MB."""


def size_of(update: Update) -> int:
    """Measure an update, in bytes: its topic, and its value as JSON text."""
    return len(update.topic) + len(orjson.dumps(update.value))


class ConflatingQueue:
    """First in, first out up to its bounds; beyond, the newest update of each topic, until it has been emptied.

    Args:
        size: updates to keep before conflating; at least 1.
        octets: bytes of them, likewise.

    Attributes:
        bytes: size of what waits.
        conflated: updates that others took the place of here.
    """

    __slots__ = ("_folded", "_octets", "_queue", "_size", "bytes", "conflated")

    def __init__(self, size: int, octets: int) -> None:
        self._size = size
        self._octets = octets
        self._queue: deque[tuple[Update, int]] = deque()
        self._folded: OrderedDict[str, tuple[Update, int]] = OrderedDict()
        self.bytes = 0
        self.conflated = 0

    def __len__(self) -> int:
        return len(self._queue) + len(self._folded)

    @property
    def overflows(self) -> bool:
        """Whether more than the bound waits though nothing can be spared any more; one update is always kept."""
        return self.bytes > self._octets and len(self._folded) > 1

    def push(self, update: Update, octets: int) -> None:
        """Add an update of so many bytes at the end, or in the place of an older one of its topic."""
        if self._folded:
            self._fold(update, octets)
        elif len(self._queue) < self._size and self.bytes + octets <= self._octets:
            self._queue.append((update, octets))
            self.bytes += octets
        else:
            self.bytes = 0
            while self._queue:
                self._fold(*self._queue.popleft())
            self._fold(update, octets)

    def pop(self) -> Update:
        """Take the first one out.

        Raises:
            IndexError: the queue is empty.
        """
        update, octets = self._folded.popitem(last=False)[1] if self._folded else self._queue.popleft()
        self.bytes -= octets
        return update

    def clear(self) -> None:
        """Forget what waits."""
        self._queue.clear()
        self._folded.clear()
        self.bytes = 0

    def _fold(self, update: Update, octets: int) -> None:
        if waiting := self._folded.get(update.topic):
            older, freed = waiting
            # As a server does it (protocol 6.4), so that the mark means the same wherever it was made.
            update = replace(
                update, folded=older.folded + 1 + update.folded, snapshot=older.snapshot or update.snapshot
            )
            self.bytes -= freed
            self.conflated += 1
        self._folded[update.topic] = update, octets
        self.bytes += octets


class VersionFilter:
    """Decides which updates of each topic a stream delivers; see ``streams``."""

    __slots__ = ("_epoch", "_older", "_recent")

    def __init__(self) -> None:
        self._epoch = 0
        # Two generations: what is in neither has not been updated for at least TOPICS_REMEMBERED other topics.
        self._recent: dict[str, tuple[int, int]] = {}
        self._older: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def failed_over(self) -> None:
        """Let one snapshot of each topic pass again, also with the version delivered last."""
        self._epoch += 1

    def passes(self, update: Update) -> bool:
        """Tell whether to deliver *update*; if so, it counts as delivered."""
        seen = self._recent.get(update.topic) or self._older.get(update.topic)
        if seen is not None:
            version, epoch = seen
            if update.version < version:
                return False
            if update.version == version and not (update.snapshot and epoch < self._epoch):
                return False
        self._recent[update.topic] = (update.version, self._epoch)
        if len(self._recent) >= TOPICS_REMEMBERED:
            self._older, self._recent = self._recent, {}
        return True
