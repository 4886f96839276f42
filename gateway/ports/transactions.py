"""Transactions in the grid: what they hold is executed as a whole or not at all (P16). See ``gateway.ports``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from gateway.core.destinations.limits import HistoryLimits
from gateway.core.types import DeliveryTag, MessageId, RequestNumber, SessionId, TopicPath
from gateway.core.wire.queue_packets import Settlement
from gateway.ports.queues import QueueBounds
from gateway.ports.session_records import Ownership

MOST_TRANSACTIONS: Final = 16
"""Transactions that a session may have open (P20): tasks of one process that each work on their own."""

MOST_STAGED: Final = 1_000
"""Operations of one transaction: a commit of so many keeps the grid busy for some ten milliseconds."""

MOST_STAGED_BYTES: Final = 1024 * 1024
"""Bytes of the operations of all open transactions of a session, ``STAGED_BYTES`` for each included: as much as the
packets that a node keeps for it."""

STAGED_BYTES: Final = 128
"""Bytes counted for each operation besides its paths, value and headers: about what Redis needs for it."""

TRANSACTION_WAIT: Final = 60.0
"""Seconds without a request of it after which a transaction is rolled back: its client is gone, or has forgotten it."""

TRANSACTION_AGE: Final = 600.0
"""Seconds after which it is rolled back in any case: what it settles is held for so long."""

FINISH_SECONDS: Final = 10.0
"""Seconds that a node has for a commit which it began; then any other one finishes it. A commit takes milliseconds."""


class StagedPublish(NamedTuple):
    """A publish, executed with its transaction.

    Attributes:
        topic: which topic.
        value: JSON text.
        most_topics, most_bytes, history: as of ``PublishCommand``; in force when it was staged.
        ttl: as of ``PublishCommand``, from the commit on.
    """

    topic: TopicPath
    value: bytes
    most_topics: int = 0
    most_bytes: int = 0
    history: HistoryLimits | None = None
    ttl: float = 0.0


class StagedSend(NamedTuple):
    """A message, sent with its transaction; see ``SendCommand``.

    Attributes:
        queue: where to.
        value: JSON text.
        headers: JSON text of an object; empty for none.
        bounds: of the queue, when it was staged.
        delay: seconds from the commit until it may be delivered.
        expires: seconds from the commit after which it is not delivered any more; 0 for never.
    """

    queue: TopicPath
    value: bytes
    headers: bytes
    bounds: QueueBounds
    delay: float = 0.0
    expires: float = 0.0


class StagedSettle(NamedTuple):
    """Messages that the session holds, settled with the transaction; until then it goes on holding them.

    Attributes:
        queue: which.
        outcome: what becomes of them.
        messages: tag and id of each.
        delay: with ``RELEASE``, seconds from the commit until they may be delivered again.
    """

    queue: TopicPath
    outcome: Settlement
    messages: tuple[tuple[DeliveryTag, MessageId], ...]
    delay: float = 0.0


Staged: TypeAlias = StagedPublish | StagedSend | StagedSettle
"""What a transaction is made of."""


class TransactionRefused(StrEnum):
    """Why something of a transaction was not done. A commit that is refused has rolled the transaction back."""

    UNKNOWN = "unknown"
    """There is no such transaction: it was never begun, is over, or was rolled back because nobody went on with it, or
    because the grid may have lost a part of it."""
    TRANSACTIONS = "transactions"
    """The session has as many open as it may have."""
    SIZE = "size"
    """The transaction would be too large; what it had before it has still."""
    NOT_HELD = "not_held"
    """The session does not hold a message that the transaction settles, or by another assignment."""
    QUEUE_FULL = "queue_full"
    """A queue has no room for what the transaction sends to it."""
    ABSENT = "absent"
    """A queue to which the transaction sends is no more."""
    TOPICS = "topics"
    """A topic would be one too many."""
    BYTES = "bytes"
    """A partition would hold too many bytes of topics and values."""


class Committed(NamedTuple):
    """All of a transaction has been executed, or certainly will be.

    Attributes:
        operations: how many it had.
        duplicate: True if an earlier command with this request had committed it.
        settled: what of it settled messages; nothing of a duplicate.
    """

    operations: int
    duplicate: bool
    settled: tuple[StagedSettle, ...] = ()


class Reaped(NamedTuple):
    """What a look at the transactions of a partition came to.

    Attributes:
        rolled_back: transactions that nobody went on with.
        finished: those whose commit another node had begun.
        kept: sessions that have any still.
    """

    rolled_back: int = 0
    finished: int = 0
    kept: int = 0


class OpenTransaction(NamedTuple):
    """A transaction that is not over.

    Attributes:
        session: whose.
        number: which of the session's.
        committing: whether its commit has begun.
        operations: how many it has.
        size: bytes of them.
        age: seconds since it was begun.
        idle: seconds since the last request of it.
    """

    session: SessionId
    number: RequestNumber
    committing: bool
    operations: int
    size: int
    age: float
    idle: float


class TransactionStore(Protocol):
    """Transactions of sessions that the grid holds.

    They belong to the session and not to a node: whoever owns the session goes on with them. Every step is fenced by
    that ownership (P3). A commit whose node dies in the middle is finished by the session's next owner, or by whoever
    looks after the partition, and comes to one of two ends: all is executed, once, or nothing is.
    """

    async def begin(
        self, ownership: Ownership, transaction: RequestNumber, *, settled: RequestNumber
    ) -> TransactionRefused | None:
        """Begin a transaction.

        Args:
            ownership: whose.
            transaction: number of the request that asks for it, which is its name from here on.
            settled: as of ``PublishCommand``; what became of commits up to here may be forgotten.

        Raises:
            Fenced, SessionGone: as for a session.
            GridRefused: no memory; nothing was done.
            GridUnavailable: see the module.
        """

    async def stage(
        self, ownership: Ownership, transaction: RequestNumber, request: RequestNumber, operation: Staged
    ) -> TransactionRefused | None:
        """Add an operation, once for each request, in the order of requests.

        One that was refused may be asked for again after later ones were added. It is judged anew, and if it is added
        now, it is executed before them.

        Raises:
            Fenced, SessionGone, GridRefused, GridUnavailable: as above.
        """

    async def commit(
        self, ownership: Ownership, transaction: RequestNumber, request: RequestNumber, *, settled: RequestNumber
    ) -> Committed | TransactionRefused:
        """Execute all of a transaction, or nothing of it, once.

        What is published in several partitions may be seen in one before the other (on a Redis Cluster). The answer
        stays the same for the request until it is settled.

        Raises:
            Fenced, SessionGone: as above.
            GridRefused: no memory; it is still open.
            GridUnavailable: see the module; it will be executed as a whole, if at all.
        """

    async def roll_back(self, ownership: Ownership, transaction: RequestNumber) -> None:
        """Forget a transaction that is open; harmless if it is not.

        Raises:
            Fenced, SessionGone, GridUnavailable: as above.
        """

    async def reap(self, partition: int) -> Reaped:
        """Roll back what nobody goes on with, and finish commits that a node began and left, in a partition.

        Any number of nodes may ask; a bounded part is done by one call.

        Args:
            partition: a session partition, and the topic partition of that number.

        Raises:
            GridUnavailable: see the module.
        """

    async def open(self, partition: int, *, limit: int) -> Sequence[OpenTransaction]:
        """List transactions of the sessions of a partition.

        Args:
            partition: which session partition.
            limit: sessions to look at, at most, those with what is overdue first.

        Raises:
            GridUnavailable: see the module.
        """


def staged_bytes(operation: Staged) -> int:
    """Tell how many bytes an operation counts for."""
    match operation:
        case StagedPublish(topic, value):
            return STAGED_BYTES + len(topic.encode()) + len(value)
        case StagedSend(queue, value, headers):
            return STAGED_BYTES + len(queue.encode()) + len(value) + len(headers)
        case StagedSettle(queue, _, messages):
            return STAGED_BYTES + len(queue.encode()) + SETTLED_BYTES * len(messages)


SETTLED_BYTES: Final = 40
"""Bytes counted for each message that a transaction settles: its tag and id."""
