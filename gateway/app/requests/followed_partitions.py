"""Which partitions a node reads what is told in, for which of its sessions; nothing is read for nobody (P11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from gateway.app.session.session import Session
from gateway.ports import StreamPosition


class Told(Protocol):
    """What is told in a partition, such as an assignment of messages or the end of a question."""

    @property
    def partition(self) -> int:
        """Which."""

    @property
    def position(self) -> StreamPosition:
        """Of the entry that told it."""


class Source(Protocol):
    """Where it is read."""

    def follow(self, partition: int, position: StreamPosition) -> None:
        """Read a partition from behind a position on, instead of what was read of it before."""

    def unfollow(self, partition: int) -> None:
        """Read it no more."""


Item = TypeVar("Item", bound=Told)


class FollowedPartitions(Generic[Item]):
    """The partitions that are read.

    What is told may come before the answer to the very step that asked for it, over another connection. So it is kept
    for as long as such a step is under way (``expecting``), and looked at again when the session is known. Of two such
    steps, the answer to the later one may be looked at first: then the other one's begins before what is read
    (``reads_from``).

    Args:
        source: where they are read.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._members: dict[int, set[Session]] = {}
        self._read_from: dict[int, StreamPosition] = {}
        self._expecting: dict[int, int] = {}
        self._kept: dict[int, list[Item]] = {}

    @contextmanager
    def expecting(self, partition: int) -> Iterator[None]:
        """Keep what is told of a partition while a step is under way whose session is not known yet."""
        self._expecting[partition] = self._expecting.get(partition, 0) + 1
        try:
            yield
        finally:
            self._expecting[partition] -= 1
            if not self._expecting[partition]:
                del self._expecting[partition]
                self._kept.pop(partition, None)

    def note(self, item: Item) -> None:
        """Something was told."""
        if item.partition in self._expecting:
            self._kept.setdefault(item.partition, []).append(item)

    def reads_from(self, partition: int, position: StreamPosition) -> bool:
        """Tell whether a partition is read from behind a position on, or would be if somebody entered."""
        begin = self._read_from.get(partition)
        return begin is None or begin <= position

    def enter(self, session: Session, partition: int, position: StreamPosition) -> list[Item]:
        """Read a partition for a session, behind a position; returns what was told of that already.

        If it is read from a later position only, it is read again from this one: what was told comes twice.
        """
        self._members.setdefault(partition, set()).add(session)
        if partition not in self._read_from or not self.reads_from(partition, position):
            self._read_from[partition] = position
            self._source.follow(partition, position)
        return [each for each in self._kept.get(partition, ()) if each.position > position]

    def leave(self, session: Session, partition: int) -> None:
        """Read it for the session no more."""
        members = self._members.get(partition)
        if members is None or session not in members:
            return
        members.discard(session)
        if not members:
            del self._members[partition]
            if self._read_from.pop(partition, None) is not None:
                self._source.unfollow(partition)

    def lost(self, partition: int) -> list[Session]:
        """A partition is read no more, because it does not go on; returns the sessions for which it was."""
        self._read_from.pop(partition, None)
        self._kept.pop(partition, None)
        return list(self._members.get(partition, ()))
