"""Queues in the grid: each message is in one place, and is settled once (P15). See ``gateway.ports`` for the rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from gateway.core.types import DeliveryTag, Epoch, MessageId, RequestNumber, SessionId, TopicPath
from gateway.core.wire.queue_packets import (
    Settlement,
)
from gateway.ports.errors import Fenced, GridRefused
from gateway.ports.session_records import Ownership
from gateway.ports.topics import StreamPosition

MESSAGE_BYTES: Final = 256
"""Bytes counted for each message besides its record: about what Redis needs for its id and place."""

_TIME_DIGITS: Final = 13
"""Of milliseconds since 1970, until the year 2286."""

MOST_CREDIT: Final = 1_000
"""Messages that a consumer may hold: what one step of the grid may give back, some milliseconds of it."""


def message_bytes(headers: bytes, value: bytes, *, expires: bool) -> int:
    """Tell for how many bytes a message counts: its record and ``MESSAGE_BYTES``.

    The record says, before headers and value, when it was sent and when it expires, if it does, in milliseconds, and
    how long the headers are: 18 bytes, or 30 and some.
    """
    times = _TIME_DIGITS + (_TIME_DIGITS if expires else 1)
    return times + len(str(len(headers))) + len("   ") + len(headers) + len(value) + MESSAGE_BYTES


class Overflow(StrEnum):
    """What becomes of a message for which its queue has no room."""

    REFUSE = "refuse"
    """It is refused."""
    DROP_OLDEST = "drop_oldest"
    """The oldest that is ready becomes a dead letter in its place; if none is ready, it is refused."""


class QueueBounds(NamedTuple):
    """What a queue may hold and how it behaves; the newest that the grid was told is in force (P20).

    Attributes:
        messages: most messages that are not settled, dead letters aside; at least 1.
        size: most bytes of them, as ``message_bytes`` counts each.
        overflow: what happens beyond.
        deliveries: failed deliveries after which a message becomes a dead letter; 0 for never.
        ack_within: seconds after which a message that is held is taken back; 0 for never.
        exclusive: one consumer at a time is given messages, the next one when it leaves.
        dead: most dead letters kept; the oldest go, at last.
        dead_size: most bytes of them, likewise.
        dead_age: seconds after which one of them goes; 0 for never.
    """

    messages: int = 100_000
    size: int = 64 * 1024**2
    overflow: Overflow = Overflow.REFUSE
    deliveries: int = 0
    ack_within: float = 0.0
    exclusive: bool = False
    dead: int = 1_000
    dead_size: int = 16 * 1024**2
    dead_age: float = 0.0


class SendCommand(NamedTuple):
    """One message of one session's request.

    Attributes:
        ownership: for whom; an epoch older than one that has sent or published in this partition is refused.
        request: the request's number, the identity of the send within its session.
        settled: as of ``PublishCommand``.
        queue: where to.
        value: JSON text.
        headers: JSON text of an object; empty for none.
        bounds: of the queue.
        delay: seconds until it may be delivered.
        expires: seconds after which it is not delivered any more, and becomes a dead letter; 0 for never.
        stored: as of ``PublishCommand``.
    """

    ownership: Ownership
    request: RequestNumber
    settled: RequestNumber
    queue: TopicPath
    value: bytes
    headers: bytes
    bounds: QueueBounds
    delay: float = 0.0
    expires: float = 0.0
    stored: bool = True


class Sent(NamedTuple):
    """A message is in its queue.

    Attributes:
        message: its id; 0 if it was sent before and its receipt is settled.
        duplicate: True if an earlier command with this request had been executed; nothing was written now.
    """

    message: MessageId
    duplicate: bool


class QueueFull(NamedTuple):
    """The queue, or its partition, has no room; remembered, so that a command with this request has the same answer.

    Attributes:
        duplicate: as of ``Sent``.
    """

    duplicate: bool


class NotDeclared(NamedTuple):
    """There is no such queue, or no more, of the kind that has to be declared; nothing is remembered of the command.

    What was sent before the queue was removed is remembered.

    Attributes:
        queue: which.
    """

    queue: TopicPath


SendResult: TypeAlias = "Sent | QueueFull | NotDeclared | Fenced | GridRefused"
"""What became of a send. ``GridRefused`` is certain: nothing was done for it."""


class Assignment(NamedTuple):
    """A message that a consumer holds.

    Attributes:
        tag: of this assignment.
        message: its id.
        deliveries: how often it has been delivered before, for certain, and failed.
        redelivered: whether somebody may have received it before.
    """

    tag: DeliveryTag
    message: MessageId
    deliveries: int
    redelivered: bool


class Attached(NamedTuple):
    """A session consumes.

    Attributes:
        position: in the deliveries of the queue's partition; what is assigned from now on comes behind it.
        held: all that it holds, in order of assignment; those assigned by this very step included.
        newest: tag of the last assignment before this step, so that those above it are new.
    """

    position: StreamPosition
    held: tuple[Assignment, ...]
    newest: DeliveryTag


class AttachRefused(StrEnum):
    """Why a session may not consume."""

    CONSUMERS = "consumers"
    """The queue has as many consumers as it may have."""
    QUEUES = "queues"
    """The partition has as many queues as it may have."""
    ABSENT = "none"
    """It is of the kind that has to be declared, and was not, or was removed."""


class Fed(NamedTuple):
    """Where the queue of a shared subscription is.

    Attributes:
        position: up to where events have become messages.
        ready: messages that wait for a consumer.
        source: what it is for, as it was declared.
    """

    position: str
    ready: int
    source: str


class Removal(StrEnum):
    """What became of the removal of a queue."""

    DONE = "done"
    ABSENT = "absent"
    USED = "used"
    """Somebody consumes from it, or did so lately; nothing was done."""


class SettleStep(NamedTuple):
    """Messages that are settled together.

    Attributes:
        request: the client's request, whose outcome is remembered; 0 if the node settles by itself.
        outcome: what becomes of them.
        messages: tag and id of each.
        delay: with ``RELEASE``, seconds until they may be delivered again.
    """

    request: RequestNumber
    outcome: Settlement
    messages: tuple[tuple[DeliveryTag, MessageId], ...]
    delay: float = 0.0


class SettleCommand(NamedTuple):
    """What a consumer settles in one queue, in order.

    Attributes:
        ownership: of the session that holds the messages.
        settled: as of ``PublishCommand``.
        queue: which.
        seen: the client has received everything up to this assignment.
        steps: at most ``SETTLE_MOST`` messages in all.
    """

    ownership: Ownership
    settled: RequestNumber
    queue: TopicPath
    seen: DeliveryTag
    steps: tuple[SettleStep, ...]


SETTLE_MOST: Final = 1_000
"""Messages in one settlement: a few milliseconds of the grid."""


class SettleResult(NamedTuple):
    """What became of a ``SettleStep``.

    Attributes:
        not_held: ids of those that the session did not hold by these assignments; nothing was done for them.
        duplicate: True if the request had been executed before; *not_held* is empty then.
        complete: whether it settled all of them, now or before.
    """

    not_held: tuple[MessageId, ...]
    duplicate: bool
    complete: bool


class Message(NamedTuple):
    """What was sent.

    Attributes:
        id: its id.
        sent: when, in milliseconds since 1970 by the time of the grid.
        headers: JSON text of an object; empty for none.
        value: JSON text.
    """

    id: MessageId
    sent: int
    headers: bytes
    value: bytes


class Assigned(NamedTuple):
    """Messages were assigned to one consumer.

    Attributes:
        partition: whose deliveries told it.
        position: of what told it.
        queue: which.
        session: who holds them.
        epoch: of the session when it attached last.
        messages: in order.
    """

    partition: int
    position: StreamPosition
    queue: TopicPath
    session: SessionId
    epoch: Epoch
    messages: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class DeliveriesLost:
    """The deliveries of a partition do not continue from where the reader was, and are not followed any more.

    Whoever reads attaches its consumers in that partition again, which tells what they hold.

    Attributes:
        partition: which topic partition.
    """

    partition: int


DeliveryItem: TypeAlias = Assigned | DeliveriesLost


class QueueState(NamedTuple):
    """How a queue is.

    Attributes:
        ready: messages that wait for a consumer.
        delayed: those that wait for their time.
        held: those that consumers hold.
        dead: dead letters.
        size: bytes of messages, dead letters aside, as ``message_bytes`` counts each.
        consumers: how many.
        oldest: when the oldest message that is ready was sent, in milliseconds since 1970; None if there is none.
        sent: messages that were put into it since it is there. It is not there any more when it is empty and nobody
            consumes, and begins anew when there is something again.
    """

    ready: int = 0
    delayed: int = 0
    held: int = 0
    dead: int = 0
    size: int = 0
    consumers: int = 0
    oldest: int | None = None
    sent: int = 0


class DeadLetter(NamedTuple):
    """A message that nobody is given any more.

    Attributes:
        message: what was sent.
        reason: why: ``rejected``, ``deliveries``, ``expired`` or ``overflow``.
        deliveries: how often it was delivered and failed.
        since: when it became one, in milliseconds since 1970 by the time of the grid.
    """

    message: Message
    reason: str
    deliveries: int
    since: int


class QueueStore(Protocol):
    """Queues in the grid.

    A message is *ready*, *delayed*, *held* by one consumer, or *dead*, and in one of these only (P15). A consumer is a
    session that attached to the queue: it has a credit, and holds so many messages at most. Whoever has credit left and
    was served least recently is given the oldest that is ready, in the very step that makes both true. Where one step
    sets thousands free for others, it gives some of them, and ``fire`` gives the rest.
    """

    async def send(self, commands: Sequence[SendCommand]) -> list[SendResult]:
        """Put messages into their queues, in order; one answer per command.

        Each is one atomic step: refuse a duplicate, number the message, store it, assign it. Commands of one session
        must come in the order of their request numbers, publishes included; then each is executed exactly once.

        Raises:
            GridUnavailable: of the commands per queue a prefix has been executed; send all of them again.
        """

    async def attach(
        self, ownership: Ownership, queue: TopicPath, *, credit: int, bounds: QueueBounds, most_consumers: int
    ) -> Attached | AttachRefused:
        """Let a session consume, or go on at the node that owns it now, or with another credit.

        Args:
            ownership: whose; from now on no other node may settle for it by an older epoch (P3).
            queue: which; it need not exist.
            credit: messages that it may hold, at most ``MOST_CREDIT``; with 0 it is given nothing more.
            bounds: of the queue.
            most_consumers: a further consumer is refused if there are so many.

        Raises:
            Fenced: a newer owner has attached it, or the session has ended.
            GridRefused: no memory; nothing was done.
            GridUnavailable: see the module.
        """

    async def read(self, queue: TopicPath, messages: Sequence[MessageId]) -> list[Message | None]:
        """Read messages; None for those that are not there any more.

        Raises:
            GridUnavailable: see the module.
        """

    async def settle(self, command: SettleCommand) -> list[SettleResult]:
        """Settle what a consumer holds, one answer per step; it is given more for it in the same step.

        A session that does not consume holds nothing. What it settled before is answered as it was then.

        Raises:
            Fenced: a newer owner has attached it, or the session has ended.
            GridRefused: the grid refuses to write; nothing was done.
            GridUnavailable: see the module.
        """

    async def leave(self, ownership: Ownership, queue: TopicPath, *, seen: DeliveryTag) -> None:
        """Let a session consume no more; what it holds goes back to its place.

        What the client has received counts as a failed delivery, the rest does not. Harmless if it does not consume.

        Args:
            ownership: whose.
            queue: which.
            seen: the client has received everything up to this assignment.

        Raises:
            Fenced: a newer owner has attached it.
            GridUnavailable: see the module.
        """

    async def fire(self, partition: int) -> int:
        """Do what is due in the queues of a partition: delays, expiry, messages that are held too long.

        Any number of nodes may ask; a bounded part is done by one call.

        Returns:
            How many queues were looked at.

        Raises:
            GridUnavailable: see the module.
        """

    async def declare(
        self,
        queue: TopicPath,
        bounds: QueueBounds,
        *,
        owner: Ownership | None = None,
        most: int = 1,
        source: str = "",
        fed: str = "",
    ) -> bool:
        """Make a queue that is there until it is removed, though nobody consumes and nothing is in it.

        Queues whose path begins with ``$`` are there only so: no message is sent to another one, and nobody consumes.

        Args:
            queue: which; asked again, nothing changes but the bounds.
            bounds: of it.
            owner: the session whose end removes it; None for one that is for a shared subscription.
            most: so many queues in this partition the owner may have, or consume from.
            source: for what that is.
            fed: position up to which events are not to become messages.

        Returns:
            False if its partition, or its owner there, has as many queues as it may have.

        Raises:
            Fenced: the session has ended.
            GridRefused: no memory; nothing was done.
            GridUnavailable: see the module.
        """

    async def feed(
        self,
        queue: TopicPath,
        bounds: QueueBounds,
        *,
        after: str | None = None,
        upto: str = "",
        events: Sequence[tuple[bytes, bytes]] = (),
    ) -> Fed | None:
        """Make messages of the next events of a shared subscription, once however many nodes do so, or look.

        Args:
            queue: of the subscription.
            bounds: of it.
            after: the position behind which the events are; if the queue is not there any more, nothing is done. None
                to look only.
            upto: the position that it is moved to.
            events: headers and value of each, in order.

        Returns:
            Where it is then; None if there is no such queue.

        Raises:
            GridRefused: no memory; nothing was done.
            GridUnavailable: see the module.
        """

    async def remove(self, queue: TopicPath, *, force: bool = False, unused: float = 0.0) -> Removal:
        """Remove the queue of a shared subscription with all that is in it.

        Args:
            queue: which.
            force: also if somebody consumes.
            unused: seconds since when nobody has consumed from it or declared it, unless *force* is given.

        Raises:
            GridUnavailable: see the module.
        """

    async def last_use(self, queue: TopicPath) -> int | None:
        """Tell when the queue of a shared subscription was used last, in milliseconds since 1970.

        That is when its last consumer left by the time of the grid, or when it was declared after that; None if
        somebody consumes, or there is no such queue.

        Raises:
            GridUnavailable: see the module.
        """

    async def look(self, queue: TopicPath) -> QueueState | None:
        """Tell how a queue is; None if nothing was ever sent to it, or it is empty and nobody consumes.

        Raises:
            GridUnavailable: see the module.
        """

    async def consumers(self, queue: TopicPath) -> Sequence[SessionId]:
        """Name the sessions that consume from a queue, in no order.

        Raises:
            GridUnavailable: see the module.
        """

    async def dismiss(self, queue: TopicPath, session: SessionId) -> bool:
        """Let a session consume no more that the grid holds nothing else of, as a part of it has gone back.

        What it holds goes back to its place, as when a session ends. A queue that it had declared for its life ends.

        Returns:
            Whether it consumed.

        Raises:
            GridUnavailable: see the module.
        """

    async def names(self, partition: int, *, after: TopicPath | None, count: int) -> Sequence[TopicPath]:
        """Name some queues of a topic partition in the order of their names; fewer than *count* if these are the last.

        Args:
            partition: which.
            after: behind which to begin; None for the first.
            count: most to name.

        Raises:
            GridUnavailable: see the module.
        """

    async def dead(self, queue: TopicPath, *, count: int, skip: int = 0) -> Sequence[DeadLetter]:
        """Read the oldest dead letters of a queue, in the order in which they became such.

        Args:
            queue: which.
            count: most to read.
            skip: so many of the oldest are left out.

        Raises:
            GridUnavailable: see the module.
        """

    async def revive(self, queue: TopicPath, messages: Sequence[MessageId], *, drop: bool = False) -> int:
        """Put dead letters back to their places in the queue, as if they had never failed, or drop them for good.

        What is put back does not expire any more.

        Args:
            queue: which.
            messages: which of its dead letters, at most ``SETTLE_MOST``; others are left alone.
            drop: forget them instead.

        Returns:
            How many there were.

        Raises:
            GridUnavailable: see the module.
        """

    def follow(self, partition: int, position: StreamPosition) -> None:
        """Read what is assigned in a partition from after *position* on, instead of what was followed of it before."""

    def unfollow(self, partition: int) -> None:
        """Stop reading it; what is under way may still come."""

    def deliveries(self) -> AsyncIterator[DeliveryItem]:
        """Yield what is assigned in the followed partitions, for ever, for one listener.

        It tells of consumers of all nodes. What does not continue contiguously from its position yields
        ``DeliveriesLost``, never a hole.
        """
