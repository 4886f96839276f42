"""The one registry of close codes, error codes and outcomes; the reference page is generated from it.

The range of a close code *is* the client's behaviour, so that a client that does not know a code still does the
right thing (protocol section 8).

A new close code, error code or outcome also goes to ``clients/javascript/src/codes.js`` and to the tables of
``docs/reference/protocol.md``, and ``python -m scripts.reference docs/reference`` writes the reference page anew. Tests
compare all of them with this module (``tests/clients/test_javascript.py``, ``tests/docs``). A close code that is
declared here is counted and told in the journal by its name. An error code is declared twice, as member of
``ErrorCode`` and in ``ERRORS``. What else a new outcome touches is told in ``gateway.app.connections.ladder``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Reconnect(Enum):
    """What a client does after a connection was closed."""

    AT_ONCE = "resume with full jitter, starting from the shortest backoff"
    LATER = "resume, starting from the advised or the longest backoff"
    NEVER = "do not come back with this session"


@dataclass(frozen=True, slots=True)
class CloseCode:
    """A WebSocket close code of this protocol.

    Attributes:
        code: the number on the wire; its range decides ``reconnect``.
        name: as in logs and metrics.
        meaning: one sentence for people.
    """

    code: int
    name: str
    meaning: str

    @property
    def reconnect(self) -> Reconnect:
        """What the client does, told by the range alone."""
        return reconnect_for(self.code)


AT_ONCE_RANGE: Final = range(4000, 4100)
LATER_RANGE: Final = range(4100, 4200)
NEVER_RANGE: Final = range(4200, 4300)
_STANDARD_NEVER: Final = frozenset({1000, 1002, 1003, 1007, 1008, 1009, 1010})


def reconnect_for(code: int | None) -> Reconnect:
    """Tell what to do after a close.

    Args:
        code: the close code, or None when the connection ended without one (a lost transport).

    Returns:
        The behaviour by range. Standard codes that say "you erred" or "done" are NEVER; everything else that is not
        ours (1001, 1006, 1011 to 1015, unknown) is treated like a lost transport, so AT_ONCE.
    """
    if code is None:
        return Reconnect.AT_ONCE
    if code in LATER_RANGE:
        return Reconnect.LATER
    if code in NEVER_RANGE or code in _STANDARD_NEVER:
        return Reconnect.NEVER
    return Reconnect.AT_ONCE


NORMAL = CloseCode(1000, "normal", "The session was ended on purpose with bye.")
MESSAGE_TOO_BIG = CloseCode(1009, "message_too_big", "A message was larger than limits.message_bytes.")

GOING_AWAY = CloseCode(4000, "going_away", "The node drains; the session goes on at another node.")
SLOW_CONSUMER = CloseCode(4001, "slow_consumer", "The client read too slowly and its queue reached its bound.")
PING_TIMEOUT = CloseCode(4002, "ping_timeout", "The peer was silent for longer than the announced timeout.")
OUT_OF_ORDER = CloseCode(4003, "out_of_order", "A packet id was skipped; resuming resynchronises both sides.")
FENCED = CloseCode(4004, "fenced", "Another node owns this session now.")
INTERNAL_ERROR = CloseCode(4005, "internal_error", "The node failed on this connection; the session is kept.")
CREDENTIALS_EXPIRED = CloseCode(4006, "credentials_expired", "The session's credentials ended; resume with fresh ones.")
NOT_MASTER = CloseCode(4007, "not_master", "The client follows the master, which is the node of the error before.")

GRID_UNAVAILABLE = CloseCode(4100, "grid_unavailable", "The session cannot be served while the grid is unreachable.")
TRY_LATER = CloseCode(
    4101,
    "try_later",
    "The node does not know yet whether the session exists, or more clients come than are accepted or verified.",
)
HANDSHAKE_TIMEOUT = CloseCode(4102, "handshake_timeout", "No hello or resume came in time.")
STALE_ATTEMPT = CloseCode(4103, "stale_attempt", "A later resume attempt of this session was already served.")
AUTHENTICATION_UNAVAILABLE = CloseCode(4104, "authentication_unavailable", "The credentials cannot be verified now.")
LIMIT_EXCEEDED = CloseCode(
    4105, "limit_exceeded", "A limit was reached; the error packet before says which and how long."
)

PROTOCOL_ERROR = CloseCode(4200, "protocol_error", "The peer sent something the protocol does not allow.")
UNAUTHENTICATED = CloseCode(4201, "unauthenticated", "The principal and secret were not accepted.")
REFUSED = CloseCode(4202, "refused", "The session cannot be resumed; the error packet before says why.")
SUPERSEDED = CloseCode(4203, "superseded", "The session goes on over a newer connection.")
SESSION_EXPIRED = CloseCode(4204, "session_expired", "The session's window ended.")
SESSION_CLOSED = CloseCode(4205, "session_closed", "The session was closed by an administrator.")
REVOKED = CloseCode(4206, "revoked", "The session, its principal or the credential it was opened with was revoked.")
FORBIDDEN = CloseCode(4207, "forbidden", "The hello asks for something that the principal may not do.")

CLOSE_CODES: Final[tuple[CloseCode, ...]] = tuple(
    each for each in list(globals().values()) if isinstance(each, CloseCode)
)
"""All of them, in the order in which they are declared."""


class Outcome(StrEnum):
    """How a connection got its session: ``created``, or a rung of the recovery ladder."""

    CREATED = "created"
    REATTACHED = "reattached"
    HANDED_OVER = "handed_over"
    MIRRORED = "mirrored"
    FAILED_OVER = "failed_over"
    REFUSED = "refused"


RECOVERED: Final[tuple[Outcome, ...]] = tuple(
    each for each in Outcome if each not in {Outcome.CREATED, Outcome.REFUSED}
)
"""Outcomes of resumes by which a session goes on, in the order of the ladder."""


class Numbering(StrEnum):
    """Whether packet numbers go on over a welcome; what clients act by, whatever the outcome is called (4.3.1)."""

    KEPT = "kept"
    """Both sides go on where they are, and resend what the other misses."""
    RESTARTED = "restarted"
    """Both sides begin at 1."""


class ClusterMode(StrEnum):
    """Which nodes of a cluster serve clients."""

    ACTIVE = "active"
    """All of them."""
    REPLICATION = "replication"
    """The master alone."""


class MirrorMode(StrEnum):
    """What a node waits for that keeps copies of its sessions at another node, its backup."""

    ASYNC = "async"
    """Nothing: what leaves for a client has left for the backup, too."""
    SYNC = "sync"
    """The backup has it before a client does; should the backup be silent for too long, as ``ASYNC``, and told."""
    STRICT = "strict"
    """The backup has it before a client does, however long that takes."""


class NotReplayed(StrEnum):
    """Why a failover sends current values of a topic partition, and not every update that was missed (10.6)."""

    UNNAMED = "unnamed"
    """The client has named no position of it."""
    GENERATION = "generation"
    """The grid may have lost writes since."""
    GAP = "gap"
    """The grid keeps no more of what was missed, or not all of it."""
    TOO_MANY = "too_many"
    """More would have to be looked at, or sent, than a node does for one client."""
    BEHIND = "behind"
    """The node has not come as far in time as the client may be, or cannot tell."""


class FailoverReason(StrEnum):
    """Why a resume was served by failover and not by reattaching."""

    OTHER_NODE = "other_node"
    """The session came to a node, or an incarnation of it, that does not hold its buffers."""
    GAP = "gap"
    """The same node had the session, but packets of the gap were no longer in a resend buffer."""


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """One error code of replies and error packets.

    Attributes:
        code: as on the wire.
        retryable: True if the same request, sent again later, can succeed.
        meaning: one sentence for people.
    """

    code: ErrorCode
    retryable: bool
    meaning: str


class ErrorCode(StrEnum):
    """What went wrong, in replies and error packets."""

    GRID_UNAVAILABLE = "grid_unavailable"
    DRAINING = "draining"
    RATE_LIMITED = "rate_limited"
    BAD_REQUEST = "bad_request"
    BAD_SELECTOR = "bad_selector"
    BAD_TOPIC = "bad_topic"
    BAD_PROPERTIES = "bad_properties"
    BAD_VALUE = "bad_value"
    VALUE_TOO_LARGE = "value_too_large"
    TOO_MANY_SELECTIONS = "too_many_selections"
    TOO_MANY_TOPICS = "too_many_topics"
    TOO_MANY_BYTES = "too_many_bytes"
    TOO_MANY_SESSIONS = "too_many_sessions"
    NO_SUCH_QUEUE = "no_such_queue"
    QUEUE_FULL = "queue_full"
    NOT_HELD = "not_held"
    TOO_MANY_CONSUMERS = "too_many_consumers"
    NO_SUCH_DURABLE = "no_such_durable"
    DURABLE_IN_USE = "durable_in_use"
    DURABLE_DIFFERS = "durable_differs"
    TOO_MANY_DURABLES = "too_many_durables"
    NO_SUCH_TRANSACTION = "no_such_transaction"
    TOO_MANY_TRANSACTIONS = "too_many_transactions"
    TRANSACTION_TOO_LARGE = "transaction_too_large"
    NO_HANDLER = "no_handler"
    HANDLERS_BUSY = "handlers_busy"
    TOO_MANY_HANDLERS = "too_many_handlers"
    TOO_MANY_QUESTIONS = "too_many_questions"
    QUESTION_OVER = "question_over"
    QUESTION_TIMEOUT = "question_timeout"
    HANDLER_LOST = "handler_lost"
    HANDLER_FAILED = "handler_failed"
    ANSWER_LOST = "answer_lost"
    FORBIDDEN = "forbidden"
    INTERNAL = "internal"
    # Of the handshake: the ladder's rung 5 says why.
    UNAUTHENTICATED = "unauthenticated"
    TOKEN_INVALID = "token_invalid"  # noqa: S105 - a code, not a secret
    TOKEN_EXPIRED = "token_expired"  # noqa: S105
    TOKEN_KEY_RETIRED = "token_key_retired"  # noqa: S105
    TOKEN_SUPERSEDED = "token_superseded"  # noqa: S105
    STALE_ATTEMPT = "stale_attempt"
    SESSION_UNKNOWN = "session_unknown"
    SESSION_EXPIRED = "session_expired"
    SESSION_CLOSED = "session_closed"
    REVOKED = "revoked"
    NOT_REPLICATED = "not_replicated"
    CREDENTIALS_EXPIRED = "credentials_expired"
    AUTHENTICATION_UNAVAILABLE = "authentication_unavailable"
    TRY_LATER = "try_later"
    NOT_MASTER = "not_master"
    # Of the connection.
    PROTOCOL_ERROR = "protocol_error"
    UNKNOWN_PACKET_TYPE = "unknown_packet_type"
    MESSAGE_TOO_BIG = "message_too_big"
    HANDSHAKE_TIMEOUT = "handshake_timeout"


ERRORS: Final[dict[ErrorCode, ErrorSpec]] = {
    spec.code: spec
    for spec in (
        ErrorSpec(ErrorCode.GRID_UNAVAILABLE, True, "The grid is unreachable; nothing was done. Try again."),
        ErrorSpec(ErrorCode.DRAINING, True, "The node drains; ask again after the move to another node."),
        ErrorSpec(ErrorCode.RATE_LIMITED, True, "More requests than the limit allows; slow down."),
        ErrorSpec(ErrorCode.BAD_REQUEST, False, "A field of the request is missing or of the wrong type."),
        ErrorSpec(ErrorCode.BAD_SELECTOR, False, "The selector breaks the rules of protocol section 6."),
        ErrorSpec(ErrorCode.BAD_TOPIC, False, "The topic path breaks the rules of protocol section 6."),
        ErrorSpec(ErrorCode.BAD_PROPERTIES, False, "Properties are strings by name; names with $ are the server's."),
        ErrorSpec(ErrorCode.BAD_VALUE, False, "The value is no JSON that can be passed on."),
        ErrorSpec(ErrorCode.VALUE_TOO_LARGE, False, "The value is larger than limits.value_bytes."),
        ErrorSpec(
            ErrorCode.TOO_MANY_SELECTIONS,
            False,
            "The session, its principal or all hold too many, or too many bytes, already.",
        ),
        ErrorSpec(ErrorCode.TOO_MANY_TOPICS, False, "The topic is new, and no more may be created; nothing was done."),
        ErrorSpec(
            ErrorCode.TOO_MANY_BYTES,
            False,
            "What would be stored grows beyond what may be held there; nothing was done.",
        ),
        ErrorSpec(
            ErrorCode.TOO_MANY_SESSIONS, True, "The principal holds as many sessions, or bytes of them, as it may."
        ),
        ErrorSpec(ErrorCode.NO_SUCH_QUEUE, False, "Nobody has declared a queue of this path."),
        ErrorSpec(ErrorCode.QUEUE_FULL, False, "The queue has no room for the message; it was not sent."),
        ErrorSpec(ErrorCode.NOT_HELD, False, "The session does not hold all of the messages; the others are settled."),
        ErrorSpec(ErrorCode.TOO_MANY_CONSUMERS, False, "The queue or the session has as many consumers as it may."),
        ErrorSpec(ErrorCode.NO_SUCH_DURABLE, False, "The principal has no durable subscription of this name."),
        ErrorSpec(ErrorCode.DURABLE_IN_USE, False, "Another session uses the durable subscription."),
        ErrorSpec(ErrorCode.DURABLE_DIFFERS, False, "The durable subscription of this name is for another selector."),
        ErrorSpec(ErrorCode.TOO_MANY_DURABLES, False, "There are as many durable subscriptions as there may be."),
        ErrorSpec(
            ErrorCode.NO_SUCH_TRANSACTION,
            False,
            "The transaction is not open: it was never begun, is over, or was rolled back as nobody went on with it.",
        ),
        ErrorSpec(ErrorCode.TOO_MANY_TRANSACTIONS, False, "The session has as many transactions open as it may."),
        ErrorSpec(
            ErrorCode.TRANSACTION_TOO_LARGE,
            False,
            "The transaction, or all open ones of the session, would be too large; nothing was added.",
        ),
        ErrorSpec(ErrorCode.NO_HANDLER, False, "Nobody who is there handles questions of this path; it was not put."),
        ErrorSpec(
            ErrorCode.HANDLERS_BUSY,
            False,
            "All who handle questions of this path have as many as they take at a time; it was not put.",
        ),
        ErrorSpec(ErrorCode.TOO_MANY_HANDLERS, False, "The session, or the partition, has as many handlers as it may."),
        ErrorSpec(
            ErrorCode.TOO_MANY_QUESTIONS,
            False,
            "The session, the node or the partition has as many questions without an answer as it may; it was not put.",
        ),
        ErrorSpec(ErrorCode.QUESTION_OVER, False, "Nobody waits for an answer to this question of this session."),
        ErrorSpec(ErrorCode.QUESTION_TIMEOUT, False, "The question was not answered in time."),
        ErrorSpec(ErrorCode.HANDLER_LOST, False, "The session that had the question has ended."),
        ErrorSpec(ErrorCode.HANDLER_FAILED, False, "Who was given the question could not answer it."),
        ErrorSpec(ErrorCode.ANSWER_LOST, False, "The grid has lost the question, or had no room for the answer."),
        ErrorSpec(ErrorCode.FORBIDDEN, False, "The principal may not do this."),
        ErrorSpec(ErrorCode.INTERNAL, False, "The node failed on the request, which may have been executed."),
        ErrorSpec(ErrorCode.UNAUTHENTICATED, False, "The principal and secret were not accepted."),
        ErrorSpec(ErrorCode.TOKEN_INVALID, False, "The token's signature or form is wrong."),
        ErrorSpec(ErrorCode.TOKEN_EXPIRED, False, "The token's life is over."),
        ErrorSpec(ErrorCode.TOKEN_KEY_RETIRED, False, "The token was signed with a key that is no longer accepted."),
        ErrorSpec(ErrorCode.TOKEN_SUPERSEDED, False, "A newer token of the session has been used already."),
        ErrorSpec(ErrorCode.STALE_ATTEMPT, False, "A later resume attempt of the session has been served already."),
        ErrorSpec(ErrorCode.SESSION_UNKNOWN, False, "The grid knows no such session."),
        ErrorSpec(ErrorCode.SESSION_EXPIRED, False, "The session's window ended before it was resumed."),
        ErrorSpec(ErrorCode.SESSION_CLOSED, False, "The session was closed."),
        ErrorSpec(
            ErrorCode.REVOKED, False, "The session, its principal or the credential it was opened with was revoked."
        ),
        ErrorSpec(ErrorCode.NOT_REPLICATED, False, "Sessions are not replicated and this node does not hold this one."),
        ErrorSpec(
            ErrorCode.CREDENTIALS_EXPIRED, False, "The session's credentials ended; resume it with fresh ones (4.2)."
        ),
        ErrorSpec(
            ErrorCode.AUTHENTICATION_UNAVAILABLE,
            True,
            "The credentials cannot be verified now; try again.",
        ),
        ErrorSpec(
            ErrorCode.TRY_LATER,
            True,
            "Not all sessions are restored yet in a grid that came back, or more clients come than are taken on or "
            "verified, or the values of a page are still being read (6.7).",
        ),
        ErrorSpec(ErrorCode.NOT_MASTER, True, "The client follows the master, which is another node (15.4)."),
        ErrorSpec(ErrorCode.PROTOCOL_ERROR, False, "The packet is not what the protocol allows here."),
        ErrorSpec(ErrorCode.UNKNOWN_PACKET_TYPE, False, "The packet's type is not known; the message names it."),
        ErrorSpec(ErrorCode.MESSAGE_TOO_BIG, False, "The message is larger than limits.message_bytes."),
        ErrorSpec(ErrorCode.HANDSHAKE_TIMEOUT, True, "No hello or resume came in time."),
    )
}
