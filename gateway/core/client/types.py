"""The values that users of the client get to see."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gateway.core.wire.codes import FailoverReason, Numbering


class SessionState(StrEnum):
    """Where a session stands, seen from its client."""

    CONNECTED = "connected"
    """A node serves it on a connection."""
    RECOVERING = "recovering"
    """Its connection is lost; the client is getting it back and holds requests meanwhile."""
    CLOSED = "closed"
    """It has ended; ``Session.closed_reason`` says why."""


@dataclass(frozen=True, slots=True)
class Update:
    """A topic has a value.

    Attributes:
        topic: its path.
        value: the value, as JSON reads into Python: of any of its types, which only the application knows.
        version: grows with every publish to the topic; a stream never yields a lower one than before (P6).
        event_id: identifies the publish in the whole cluster.
        snapshot: True for the current value, which is not the successor of the one before: the first one after
            subscribing, or after a failover.
        removed: True if an administrator has removed the topic; ``value`` is None then. A later update makes it anew.
        folded: how many updates of the topic it took the place of, because the connection or the reader of the stream
            was slow. Unless ``snapshot`` is set, exactly so many came between it and the one before.
        gap: True if events before it are not kept any more that a stream with history was to have (P14).
    """

    topic: str
    value: Any
    version: int
    event_id: str
    snapshot: bool
    removed: bool = False
    folded: int = 0
    gap: bool = False


@dataclass(frozen=True, slots=True)
class CurrentValue:
    """The value that a topic had when it was read.

    Attributes:
        topic: its path.
        value: as of ``Update``.
        version: likewise: an update of the topic is newer if its version is higher.
        event_id: identifies the publish in the whole cluster.
    """

    topic: str
    value: Any
    version: int
    event_id: str


@dataclass(frozen=True, slots=True)
class ValuesPage:
    """A part of the values that topics had when they were read.

    Attributes:
        values: in the order of their paths; there may be none although more follow.
        next: where the next page begins, to be given as ``after``; None if this was the last one.
    """

    values: tuple[CurrentValue, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class SendReceipt:
    """A message is in its queue, exactly once (P5, P15).

    Attributes:
        message_id: identifies it in its queue; 0 if nobody knows any more, as the answer was asked for very late.
    """

    message_id: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """A publish is in the grid, exactly once (P5).

    Attributes:
        event_id: identifies it in the whole cluster.
        version: the topic's version that it made.
    """

    event_id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The session got a connection again, and this is what came of it (P2).

    Attributes:
        outcome: ``reattached`` (nothing was lost), ``handed_over`` (likewise, at another node), or ``failed_over``
            (state from the grid; what was missed is replayed, or current values follow); what nodes of later releases
            say is passed on as it is.
        numbering: what the outcome means: ``kept`` if both sides went on where they were and resent what was missing,
            ``restarted`` if the node had nothing to resend; then ``replayed`` tells what follows.
        reason: after a failover, why the session could not be reattached; else None.
        node: the node that serves the session now.
        gap_seconds: from the moment the client noticed the loss, or left its node on request, to the welcome.
        resent: packets that are sent again, both directions together; after a failover, the requests asked again.
        lost: packets to this client that will never come, their updates being replaced by current values; None if the
            node cannot know.
        conflated: updates replaced by newer ones of their topic before they were sent; None if the node cannot know.
        replayed: whether every update that was missed follows a failover, in order, in place of current values.
        not_replayed: if not, the topic partitions of which current values follow; empty if the node does not tell.
        attempts: connections tried, the successful one included.
        cause: what ended the connection before, for people.
    """

    outcome: str
    numbering: Numbering
    reason: FailoverReason | None
    node: str
    gap_seconds: float
    resent: int
    lost: int | None
    conflated: int | None
    replayed: bool = False
    not_replayed: tuple[int, ...] = ()
    attempts: int
    cause: str


@dataclass(frozen=True, slots=True)
class Notice:
    """The server declares something that the client could not see otherwise (P2).

    Attributes:
        code: which, such as ``grid_lost_writes`` or ``values_reread``; ignore the ones you do not know.
        message: a sentence for people.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ValuesReread(Notice):
    """The node lost its place in the stream of updates: current values come in place of each update between.

    Attributes:
        partitions: numbers of the topic partitions that are concerned, sorted; empty if the node does not tell.
    """

    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectionsWithdrawn(Notice):
    """The session may not select any more what it had selected. Streams of it stay open and get what is left.

    Attributes:
        withdrawn: the selectors that were taken out; of each, a part may be left.
        selections: all selections of the session since then, ``+selector`` and ``-selector`` in order.
    """

    withdrawn: tuple[str, ...] = ()
    selections: tuple[str, ...] = ()
