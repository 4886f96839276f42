"""What an in-memory grid keeps of a queue."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gateway.core.types import Epoch, GridGeneration, SessionId, TopicPath
from gateway.ports import Assigned, Message, MessageId, QueueBounds, QueueState, StreamPosition

DELIVERIES_LENGTH: Final = 10_000
"""Entries of a partition's deliveries that are kept, as on Redis."""

_ORIGIN: Final = StreamPosition(GridGeneration(0), 0)
"""The end of deliveries that never had an entry."""


@dataclass(slots=True)
class StoredMessage:
    """A message.

    Attributes:
        message: what was sent.
        size: bytes that it counts for.
        expires: when it is not delivered any more, by the grid's clock in seconds; None for never.
        failed: deliveries that failed for certain.
        given: somebody may have received it before.
        ready_at: when it may be delivered; None if it is not delayed.
        reason: why it is a dead letter; empty if it is none.
        since: when it became one.
        place: among all that ever became one.
    """

    message: Message
    size: int
    expires: float | None
    failed: int = 0
    given: bool = False
    ready_at: float | None = None
    reason: str = ""
    since: float = 0.0
    place: int = 0


@dataclass(slots=True)
class QueueConsumer:
    """A session that consumes.

    Attributes:
        epoch: of its owner when it attached.
        credit: messages that it may hold.
        joined: tag that was the newest when it came.
        served: place in the line of those who have credit.
        seen: newest assignment that its client has received.
        held: what it holds, by tag: the message, and when it is taken back.
    """

    epoch: Epoch
    credit: int
    joined: int
    served: int
    seen: int = 0
    held: dict[int, tuple[MessageId, float | None]] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """How many more it may hold."""
        return self.credit - len(self.held)


@dataclass(slots=True)
class StoredQueue:
    """One queue.

    Attributes:
        bounds: newest ones told.
        messages: all that are not gone, by id.
        ready: ids of those that wait for a consumer.
        consumers: by session.
        turn: newest tag.
        holder: the consumer that an exclusive queue serves.
        owner: the session for whose life it was declared.
        fed: where the shared subscription is that it was declared for, and for what it is.
        sent: messages that were ever put into it.
        buried: how many messages ever became dead letters.
        used: when that subscription was opened, or its last consumer left.
        unfinished: whether there is more to assign than one step does.
    """

    bounds: QueueBounds
    messages: dict[MessageId, StoredMessage] = field(default_factory=dict)
    ready: set[MessageId] = field(default_factory=set)
    consumers: dict[SessionId, QueueConsumer] = field(default_factory=dict)
    turn: int = 0
    holder: SessionId | None = None
    owner: SessionId | None = None
    fed: tuple[str, str] | None = None
    sent: int = 0
    buried: int = 0
    used: float = 0.0
    unfinished: bool = False

    @property
    def is_declared(self) -> bool:
        """Whether it is there though it is empty."""
        return self.owner is not None or self.fed is not None

    def is_held(self, message: MessageId) -> bool:
        """Tell whether somebody holds a message."""
        stored = self.messages[message]
        return not stored.reason and stored.ready_at is None and message not in self.ready

    def dead(self) -> list[StoredMessage]:
        """List its dead letters, the oldest first."""
        return sorted((each for each in self.messages.values() if each.reason), key=lambda each: each.place)

    def living(self) -> list[StoredMessage]:
        """List all other messages."""
        return [each for each in self.messages.values() if not each.reason]

    def state(self) -> QueueState:
        """Tell how it is."""
        living = self.living()
        held = sum(len(each.held) for each in self.consumers.values())
        return QueueState(
            ready=len(self.ready),
            delayed=len(living) - len(self.ready) - held,
            held=held,
            dead=len(self.messages) - len(living),
            size=sum(each.size for each in living),
            consumers=len(self.consumers),
            oldest=self.messages[min(self.ready)].message.sent if self.ready else None,
            sent=self.sent,
        )


@dataclass(slots=True)
class QueuePartition:
    """One topic partition.

    Attributes:
        queues: by name.
        newest: the newest id of a message.
        entries: the deliveries.
        end: position of the last entry.
    """

    queues: dict[TopicPath, StoredQueue] = field(default_factory=dict)
    newest: int = 0
    entries: deque[Assigned] = field(default_factory=lambda: deque(maxlen=DELIVERIES_LENGTH))
    end: StreamPosition = _ORIGIN
