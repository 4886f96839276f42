"""Which partitions' exchanges a node reads, for which of its sessions; nothing is read for nobody (P11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from gateway.app.session.session import Session
from gateway.ports import ExchangeStore, Given, Over, StreamPosition

Item: TypeAlias = Given | Over


class FollowedPartitions:
    """The partitions whose exchanges are read.

    What is told may come before the answer to the very step that asked for it, over another connection. So it is kept
    for as long as such a step is under way (``expecting``), and looked at again when the session is known.

    Args:
        exchanges: what is read.
    """

    def __init__(self, exchanges: ExchangeStore) -> None:
        self._exchanges = exchanges
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

    def enter(self, session: Session, partition: int, position: StreamPosition) -> list[Item]:
        """Read a partition for a session, behind a position; returns what was told of that already."""
        self._members.setdefault(partition, set()).add(session)
        reads_from = self._read_from.get(partition)
        if reads_from is None or position < reads_from:
            self._read_from[partition] = position
            self._exchanges.follow(partition, position)
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
                self._exchanges.unfollow(partition)

    def lost(self, partition: int) -> list[Session]:
        """A partition is read no more, because it does not go on; returns the sessions for which it was."""
        self._read_from.pop(partition, None)
        self._kept.pop(partition, None)
        return list(self._members.get(partition, ()))
