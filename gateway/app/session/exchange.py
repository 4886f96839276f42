"""What a node keeps of a session that asks and handles questions; the questions themselves are in the grid."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from gateway.core.types import Epoch, RequestNumber
from gateway.ports import Handling, HeldQuestion, StreamPosition


class Told(NamedTuple):
    """What the grid was told last of what a session handles in a partition.

    Attributes:
        epoch: by which it was told.
        handling: what.
    """

    epoch: Epoch
    handling: Handling


class Handler:
    """What a session handles in one partition.

    Args:
        partition: which.

    Attributes:
        partition: as given.
        told: what the grid was told; None if nobody knows.
        position: in the exchanges of the partition, up to which all that the session was given is known.
        known: what it was given and has not answered, by tag.
        pending: what of it has yet to be taken, and sent to the client.
        taking: some of it is being taken.
        waking: it will be looked at again in a moment.
    """

    __slots__ = ("known", "partition", "pending", "position", "taking", "told", "waking")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.told: Told | None = None
        self.position: StreamPosition | None = None
        self.known: dict[int, HeldQuestion] = {}
        self.pending: deque[HeldQuestion] = deque()
        self.taking = self.waking = False

    def give(self, held: HeldQuestion) -> None:
        """Take in what the session was given; what is known already is left alone."""
        if held.tag not in self.known:
            self.known[held.tag] = held
            self.pending.append(held)


class Asked:
    """A question of which the client does not know the end.

    Args:
        partition: of its path.
        position: in the exchanges of the partition, behind which its end is told.
        since: when it was asked, on the monotonic clock.
        deadline: when its time is over, likewise.
        replied: the client has the reply to its request, which comes before the answer (protocol 18.5).

    Attributes:
        partition: as given.
        position: as given.
        since: as given.
        deadline: as given.
        replied: as given.
        over: it has ended, which could not be told before the reply.
        packet: by which packet at the latest the client knows how it ended; None while it has not.
    """

    __slots__ = ("deadline", "over", "packet", "partition", "position", "replied", "since")

    def __init__(
        self, partition: int, position: StreamPosition, since: float, deadline: float, *, replied: bool = False
    ) -> None:
        self.partition = partition
        self.position = position
        self.since = since
        self.deadline = deadline
        self.replied = replied
        self.over = False
        self.packet: int | None = None

    def may_be_told(self) -> bool:
        """Tell whether the client may be told how it ended; if not, this is remembered until it may."""
        self.over = self.over or not self.replied
        return self.replied


class Exchange:
    """All that a session asks and handles.

    Attributes:
        handlers: by partition.
        asked: by the number of the request.
        ended: of which it is to be read how they ended, by partition.
        reading: partitions in which that is being done.
        registering: held while the grid is told what the session handles.
    """

    __slots__ = ("asked", "ended", "handlers", "reading", "registering")

    def __init__(self) -> None:
        self.handlers: dict[int, Handler] = {}
        self.asked: dict[RequestNumber, Asked] = {}
        self.ended: dict[int, list[RequestNumber]] = {}
        self.reading: set[int] = set()
        self.registering = asyncio.Lock()
