"""The packets of the wire protocol as values (protocol sections 3 to 5).

Link packets belong to one connection: they carry no id and are never resent. Session packets belong to the session:
they are numbered per direction and kept until the peer acknowledged them. Packets know nothing of JSON; the codec
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeAlias

from gateway.core.immutable import immutable
from gateway.core.types import (
    Attempt,
    EventId,
    JsonValue,
    MessageId,
    NodeId,
    PacketId,
    RequestNumber,
    SessionId,
    Version,
)
from gateway.core.wire.codes import ErrorCode, FailoverReason, Numbering, Outcome
from gateway.core.wire.durable_packets import DURABLES, DurablePlace, DurableRequest
from gateway.core.wire.exchange_packets import QUESTIONS, Answered, ExchangeRequest, Question
from gateway.core.wire.publish_packet import TTL
from gateway.core.wire.publish_packet import Publish as Publish  # noqa: PLC0414 - one of the packets
from gateway.core.wire.queue_packets import QUEUES, TEMPORARY, Message, QueueRequest
from gateway.core.wire.topology_packets import Cluster, Topology
from gateway.core.wire.transaction_packets import TRANSACTIONS, TransactionRequest
from gateway.core.wire.value_packets import VALUES, ReadValues, ValuesPart
from gateway.core.wire.will_packets import WILLS, SetWills


@immutable(kw_only=True)
class Limits:
    """What one session may use of a node; announced in the welcome so that clients need not guess.

    Attributes:
        message_bytes: largest WebSocket message the node accepts, in bytes.
        value_bytes: largest JSON text of one published value, in bytes.
        requests: requests that may await their reply at once; a client holds back further ones.
        selections: entries of the session's selection list.
        selection_bytes: of the texts of that list, as the welcome writes them; 0 from a server that does not tell.
        resend_packets: packets each side keeps for resending, unacknowledged.
        resend_bytes: the same bound in bytes of packet bodies.
        questions: that may await their answer at once; 0 from a server that does not tell.
        handlers: selectors of the questions that the session may handle; likewise.
    """

    message_bytes: int
    value_bytes: int
    requests: int
    selections: int
    resend_packets: int
    resend_bytes: int
    selection_bytes: int = 0
    questions: int = 0
    handlers: int = 0


@immutable(kw_only=True)
class Backoff:
    """Advice to a client on pacing its reconnects (full jitter: each delay is uniform between 0 and the current bound).

    Attributes:
        initial: the first bound, in seconds.
        maximum: the bound it doubles up to, in seconds.
        stable_after: seconds a connection must last before the bound falls back to ``initial``.
    """

    initial: float
    maximum: float
    stable_after: float


REPLAY: Final = "replay"
"""The word with which a client says that it holds positions, and understands what comes of them (protocol 10.6)."""

Replayed: TypeAlias = "Literal[True] | Mapping[int, str]"
"""Whether a failover brings every update that was missed; if not of all topic partitions, why not by partition."""


# --- Link packets -------------------------------------------------------------------------------------------------


@immutable(kw_only=True)
class Hello:
    """Client: open a new session (protocol 4.1). Must be the first packet of its connection.

    Attributes:
        principal: who the client says it is; empty if its secret shall tell.
        secret: its proof, or None; never logged, so not part of the representation.
        properties: user-defined properties to start with.
        client: the client's type, such as ``python/0.1.0``; becomes the fixed property ``$client``.
        window: seconds of disconnection the client wishes its session to survive; the node may grant less.
        supports: what of later releases the client understands (protocol 4.1.1); ``FOLLOW`` if it follows the master.
        redirects: times in a row that it was sent to the master, and did not get there.
    """

    principal: str = ""
    secret: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)
    client: str = "unknown"
    window: float | None = None
    supports: frozenset[str] = frozenset()
    redirects: int = 0


@immutable(kw_only=True)
class Resume:
    """Client: go on with a session (protocol 4.2). Must be the first packet of its connection.

    Attributes:
        token: the newest token the client holds; a secret.
        attempt: grows with every resume the client ever sends for this session.
        received: id of the last session packet received from the server; 0 for none.
        oldest: id of the oldest session packet the client can still resend; the next id to be used if none is kept.
        principal: who shows fresh credentials; None if the secret shall tell, or there is none.
        secret: fresh proof, in the place of credentials that have ended or will soon (protocol 5.9); None for none.
        away: milliseconds since the client noticed the loss of its connection, by its own clock; None if it does not
            tell. Nobody relies on it.
        supports: what of later releases the client understands (protocol 4.1.1); ``FOLLOW`` if it follows the master.
        redirects: times in a row that it was sent to the master, and did not get there.
        positions: by topic partition, the event up to which the client has had everything (protocol 10.6); none of
            those for which it cannot tell.
        unfinished: selectors whose snapshots it has not had all of, by the requests that asked for them.
    """

    token: str = field(repr=False)
    attempt: Attempt
    received: PacketId
    oldest: PacketId
    principal: str | None = None
    secret: str | None = field(default=None, repr=False)
    away: int | None = None
    supports: frozenset[str] = frozenset()
    redirects: int = 0
    positions: Mapping[int, EventId] = field(default_factory=dict)
    unfinished: Mapping[RequestNumber, str] = field(default_factory=dict)


@immutable(kw_only=True)
class Welcome:
    """Server: the session is served on this connection (protocol 4.3).

    Attributes:
        session: its id.
        principal: who it belongs to.
        node: the node that serves it; also the route hint to put in the URL of a reconnect.
        token: to resume with; replaces every earlier one; a secret.
        outcome: created, or the rung of the ladder; a name that clients pass on, whether they know it or not.
        numbering: whether packet numbers go on; None if that cannot be told, which no server of today sends.
        reason: on failed_over, why not reattached.
        received: id of the last session packet received from the client; 0 if numbering restarts.
        resent: session packets the server resends now.
        lost: session packets to the client that can not be resent; None if the server can not know.
        conflated: updates that were replaced by newer ones of their topic while the session was away or slow; None if
            the server can not know.
        window: seconds the session survives without a connection.
        ping_interval: seconds of silence after which the server pings.
        ping_timeout: seconds of silence after which either side gives the connection up.
        replicated: whether the session survives the loss of its node.
        limits: what the session may use.
        backoff: advice for reconnects.
        properties: all properties, the server's and the user's.
        selections: the session's selections as ``[+selector, -selector, …]`` in order.
        withdrawn: selectors that were taken out of them at this resume, for lack of permission; None for none.
        supports: what the server understands beyond the first release (protocol 4.3).
        replayed: after a failover, True if every update that the client missed follows, in order; else why not, by the
            topic partitions of which current values follow instead. None if that was not asked for.
        backup: the node that keeps a copy of the session, or is being given one; a route hint as well. None for none.
        mirror: what the node waits for before packets leave, as one of ``MirrorMode``; None if there is no backup.
        following: whether the node is the master, for a client that follows it; None for others.
        cluster: where the nodes of the cluster are; None if none is advertised, or the client did not ask for it.
    """

    session: SessionId
    principal: str
    node: NodeId
    token: str = field(repr=False)
    outcome: Outcome | str
    numbering: Numbering | None
    reason: FailoverReason | None = None
    received: PacketId = PacketId(0)
    resent: int = 0
    lost: int | None = 0
    conflated: int | None = 0
    window: float
    ping_interval: float
    ping_timeout: float
    replicated: bool
    limits: Limits
    backoff: Backoff
    properties: Mapping[str, str]
    selections: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] | None = None
    supports: frozenset[str] = frozenset()
    replayed: Replayed | None = None
    backup: NodeId | None = None
    mirror: str | None = None
    cluster: Cluster | None = None
    following: bool | None = None


@immutable
class Ack:
    """Both: everything up to ``received`` has been received (protocol 5.3)."""

    received: PacketId


@immutable
class Ping:
    """Both: are you there? The server may hand a renewed token along (protocol 4.5).

    Attributes:
        token: a token with a later end of life, replacing the one the client holds; None to keep that.
        backoff: advice that takes the place of the welcome's; None to keep that.
    """

    token: str | None = field(default=None, repr=False)
    backoff: Backoff | None = None


@immutable
class Pong:
    """Both: the answer to a ping; acknowledges as well.

    Attributes:
        received: as in ``Ack``.
    """

    received: PacketId


@immutable
class GoAway:
    """Server: resume elsewhere; all that was in flight has been flushed (protocol 4.6).

    Attributes:
        reason: why, for people.
        delay: seconds within which the client spreads its move at random.
        node: the node to go to, as the route hint of the resume; None for any other.
        backoff: advice that takes the place of the welcome's, should the move not succeed at once; None to keep that.
    """

    reason: str
    delay: float
    node: NodeId | None = None
    backoff: Backoff | None = None


@immutable
class Error:
    """Both: something about the connection went wrong; a close with a code follows.

    Attributes:
        code: which error.
        message: a sentence for people: what was wrong and what to do.
        retry_after: seconds after which trying again makes sense, or None.
        request: the request because of which the connection is closed, or None (protocol 4.8.1).
        node: the master, if that is where the client shall go (protocol 15.4); None for all other errors.
        urls: where clients reach it, of what it advertises; None likewise, and if there are none.
    """

    code: ErrorCode
    message: str
    retry_after: float | None = None
    request: RequestNumber | None = None
    node: NodeId | None = None
    urls: tuple[str, ...] | None = None


@immutable
class Bye:
    """Client: end the session. Server: the session is ended and nothing is left of it (protocol 4.7).

    Attributes:
        reason: why, for people.
    """

    reason: str = ""


# --- Session packets of the client --------------------------------------------------------------------------------


# ``resubmitted`` says that the request was sent before a failover and never answered: it may have been executed.
# A node never refuses such a request as retryable: the client would repeat it under a new number, and so twice.


@immutable
class Subscribe:
    """Select topics: append ``+selector`` to the session's selections and be sent their values."""

    request: RequestNumber
    selector: str
    resubmitted: bool = False


KEEP: Final = "keep"
"""The word with which a server says that it understands ``keep`` of an unsubscribe (protocol 4.3, 6.3)."""

HISTORY: Final = "history"
"""The word with which a server says that it can be asked for the history of topics (protocol 4.3, 6.6)."""

SERVER_SUPPORTS: Final = frozenset(
    {KEEP, HISTORY, VALUES, QUEUES, TEMPORARY, DURABLES, TRANSACTIONS, QUESTIONS, TTL, WILLS}
)
"""What servers of this release understand beyond the first one."""


@immutable
class Unsubscribe:
    """Deselect topics: append ``-selector`` to the session's selections.

    Attributes:
        request: the request's number.
        selector: which topics.
        resubmitted: it was sent before a failover and never answered.
        keep: selectors that stay selected in the same step: ``+selector`` of each is appended after it.
    """

    request: RequestNumber
    selector: str
    resubmitted: bool = False
    keep: tuple[str, ...] = ()


NOW: Final = "now"
"""Where a reading of history begins in partitions of which it names no place: with what will be published."""

EARLIEST: Final = "earliest"
"""Likewise, as it is by default: with the earliest event that is kept."""


@immutable
class ReadHistory:
    """Read what was published to topics behind a place in each of their partitions (protocol 6.6).

    Attributes:
        request: the request's number.
        selector: which topics.
        after: by topic partition, the event up to which all is known.
        earliest: whether all others are read from the earliest event that is kept; if not, from now on.
        limit: most events to be sent; the node may send fewer. 0 for none: only where the partitions are is asked; None
            for as many as the node sends at once.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    selector: str
    after: Mapping[int, EventId] = field(default_factory=dict)
    earliest: bool = True
    limit: int | None = None
    resubmitted: bool = False


@immutable
class SetProperties:
    """Change user-defined properties.

    Attributes:
        request: the request's number.
        changes: value by name; None removes the property.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    changes: Mapping[str, str | None]
    resubmitted: bool = False


@immutable
class Authenticate:
    """Show fresh credentials, in the place of those that will end (protocol 5.9).

    Attributes:
        request: the request's number.
        secret: the proof; never logged.
        principal: who shows it; must be the session's. Empty if the secret shall tell.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    secret: str = field(repr=False)
    principal: str = ""
    resubmitted: bool = False


@immutable
class Malformed:
    """What the codec makes of a request whose number it could read but nothing else: it gets a reply, not a close.

    Attributes:
        request: the request's number.
        message: what was wrong.
        code: of the reply.
    """

    request: RequestNumber
    message: str
    code: ErrorCode = ErrorCode.BAD_REQUEST


# --- Session packets of the server --------------------------------------------------------------------------------


@immutable
class Update:
    """A topic has a value.

    Attributes:
        topic: its path.
        version: grows per topic.
        event: id of the publish that set the value.
        value: the value itself.
        snapshot: True for a full value that is not the successor of the one sent before.
        removed: True if the topic was removed; ``value`` is None then.
        folded: how many updates of the topic, owed to the session since the one sent before, it took the place of.
    """

    topic: str
    version: Version
    event: EventId
    value: JsonValue
    snapshot: bool = False
    removed: bool = False
    folded: int = 0


@immutable(kw_only=True)
class HistoryPart:
    """A part of the history of some topics, in the order of each partition (protocol 6.6).

    Attributes:
        events: what was published.
        positions: by partition, up to which event nothing is missing in it that was published to these topics.
        complete: whether that is all there was when the request was executed.
        gap: whether something before the first of the events, or before now if there are none, is not kept any more.
        missing: topics of which it is, some of them, for people.
    """

    events: tuple[Update, ...] = ()
    positions: Mapping[int, EventId] = field(default_factory=dict)
    complete: bool = True
    gap: bool = False
    missing: tuple[str, ...] = ()


@immutable(kw_only=True)
class Reply:
    """The answer to one request.

    Attributes:
        request: its number.
        version: of the value, for a publish.
        event: id of the event, for a publish.
        sent: id of the message, for a send; 0 if the node does not know it any more.
        queue: path of the queue, for a declaration.
        durable: where a durable subscription goes on, for its opening.
        error: the error code if it was refused.
        message: with an error, a sentence for people.
        retry_after: with a retryable error, seconds after which to try again.
        history: for a reading of history.
        values: for a reading of values.
    """

    request: RequestNumber
    version: Version | None = None
    event: EventId | None = None
    history: HistoryPart | None = None
    values: ValuesPart | None = None
    sent: MessageId | None = None
    queue: str | None = None
    durable: DurablePlace | None = None
    error: ErrorCode | None = None
    message: str = ""
    retry_after: float | None = None


class NoticeCode(StrEnum):
    """What a notice declares."""

    GRID_LOST_WRITES = "grid_lost_writes"
    """The grid came back with less than it had: recently acknowledged publishes may be gone."""
    SLOWED_DOWN = "slowed_down"
    """The client sends faster than a limit allows, so that less of it is read; the message names the limit."""
    VALUES_REREAD = "values_reread"
    """The node lost its place in the stream of updates and sends current values instead of each update between."""
    CREDENTIALS_EXPIRING = "credentials_expiring"
    """The session's credentials end soon; the connection is closed then, unless fresh ones are shown."""
    ADMINISTRATOR = "administrator"
    """A message of an administrator, for people."""
    PERMISSIONS_WITHDRAWN = "permissions_withdrawn"
    """The session may not select any more what it had selected, or may not consume; nothing of it follows."""
    WITHHELD = "withheld"
    """Stands in for an update of a topic that the session may not select any more."""
    SNAPSHOTS_COMPLETE = "snapshots_complete"
    """All current values have been sent that were due; from here the client knows where it is in some partitions."""
    UNMIRRORED = "unmirrored"
    """Packets leave without waiting for the backup any more: it did not answer in time."""


@immutable
class Notice:
    """The server declares something a client could not see otherwise (P2).

    Attributes:
        code: one of ``NoticeCode``; clients ignore the ones they do not know.
        message: a sentence for people.
        withdrawn: selectors that were taken out of the session's selections; None if this is not about them.
        selections: the session's selections after that, as in the welcome; None likewise.
        partitions: topic partitions that are concerned, sorted; None if this is not about some of them.
        positions: of each of them, the event up to which the session has been sent everything; None likewise.
        request: the subscribe that this is about; None if it is about none.
        queues: that the session may not consume from any more; None if this is not about them.
    """

    code: str
    message: str
    withdrawn: tuple[str, ...] | None = None
    selections: tuple[str, ...] | None = None
    partitions: tuple[int, ...] | None = None
    positions: Mapping[int, EventId] | None = None
    request: RequestNumber | None = None
    queues: tuple[str, ...] | None = None


ClientRequest: TypeAlias = (
    Subscribe
    | Unsubscribe
    | Publish
    | ReadHistory
    | ReadValues
    | SetProperties
    | Authenticate
    | QueueRequest
    | DurableRequest
    | TransactionRequest
    | ExchangeRequest
    | SetWills
    | Malformed
)
SessionBody: TypeAlias = ClientRequest | Update | Message | Question | Answered | Reply | Notice
LinkPacket: TypeAlias = Hello | Resume | Welcome | Ack | Ping | Pong | GoAway | Topology | Error | Bye


class SessionPacket(NamedTuple):
    """A numbered packet as received.

    Attributes:
        id: its number in its direction.
        received: the acknowledgement it carries, or None.
        body: what it says.
    """

    id: PacketId
    received: PacketId | None
    body: SessionBody


Packet: TypeAlias = LinkPacket | SessionPacket
