"""What a node keeps of a session that consumes from a queue; what the session holds is in the grid."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from gateway.core.topics.selectors import Selector
from gateway.core.types import DeliveryTag, MessageId, TopicPath
from gateway.core.wire.queue_packets import (
    AckMode,
)
from gateway.ports import Assignment, Message, QueueBounds, StreamPosition

MILLISECONDS: Final = 1000
"""In a second."""


class Terms(NamedTuple):
    """By which a session consumes.

    Attributes:
        mode: how messages are settled.
        credit: messages that it may hold.
        bounds: of the queue.
    """

    mode: AckMode
    credit: int
    bounds: QueueBounds


class Consumer:
    """One session's consuming from one queue.

    Args:
        queue: which.
        partition: of the queue.
        terms: by which it does.
        position: in the deliveries of the partition, up to which all that was assigned is known.
        selector: of the topics of its shared subscription; None if it consumes from another queue.

    Attributes:
        queue: as given.
        partition: as given.
        terms: as given.
        position: as given.
        held: all that the session holds, by assignment.
        times: of what was read of it, when it was sent, in milliseconds since 1970.
        pending: assignments of which the messages have yet to be read.
        ready: messages that were read, and wait for room.
        unseen: assignments that the client has not acknowledged, in order, and by which packet at the latest it has.
        settling: what is to be accepted for the client.
        seen: the newest assignment that the client has received.
        reading: messages are being read.
        accepting: messages are being accepted for the client.
        waking: it will be looked at again in a moment.
        selector: as given.
        is_withdrawn: the session may not consume any more, and the grid is about to be told.
        asking: held while the grid is asked to change whether, and by which terms, the session consumes.
    """

    __slots__ = (
        "accepting",
        "asking",
        "held",
        "is_withdrawn",
        "partition",
        "pending",
        "position",
        "queue",
        "reading",
        "ready",
        "seen",
        "selector",
        "settling",
        "terms",
        "times",
        "unseen",
        "waking",
    )

    def __init__(
        self,
        queue: TopicPath,
        partition: int,
        terms: Terms,
        position: StreamPosition,
        selector: Selector | None = None,
    ) -> None:
        self.queue = queue
        self.partition = partition
        self.terms = terms
        self.position = position
        self.selector = selector
        self.held: dict[DeliveryTag, MessageId] = {}
        self.times: dict[DeliveryTag, int] = {}
        self.pending: deque[Assignment] = deque()
        self.ready: deque[tuple[Assignment, Message]] = deque()
        self.unseen: deque[tuple[int, DeliveryTag]] = deque()
        self.settling: list[DeliveryTag] = []
        self.seen = DeliveryTag(0)
        self.reading = self.accepting = self.waking = self.is_withdrawn = False
        self.asking = asyncio.Lock()

    def assign(self, messages: tuple[Assignment, ...]) -> None:
        """Take in what the session was given; what is known already is left alone."""
        for each in messages:
            if each.tag not in self.held:
                self.held[each.tag] = each.message
                self.pending.append(each)

    def sent(self, packet: int, tag: DeliveryTag) -> None:
        """Note by which packet at the latest the client has a message."""
        self.unseen.append((packet, tag))

    def acknowledged(self, upto: float) -> bool:
        """Note what the client has acknowledged; tells whether something is to be accepted for it."""
        unseen = self.unseen
        while unseen and unseen[0][0] <= upto:
            _, tag = unseen.popleft()
            self.seen = max(self.seen, tag)
            if self.terms.mode is AckMode.AUTO and tag in self.held:
                self.settling.append(tag)
        return bool(self.settling)

    def forget(self, tags: list[DeliveryTag]) -> None:
        """The session does not hold these any more."""
        for tag in tags:
            self.held.pop(tag, None)
            self.times.pop(tag, None)

    def age(self, tag: DeliveryTag, now: float) -> int | None:
        """Tell how many milliseconds ago a message was sent that the session holds; None if it was not read here."""
        sent = self.times.get(tag)
        return None if sent is None else round(now * MILLISECONDS) - sent
