"""The tree of errors that users of the client meet.

```text
GatewayError                    (gateway.core)
├── ConnectFailed               connect() got no session; says why and whether trying again makes sense
│   └── Unauthenticated         the principal and secret were not accepted
├── SessionEnded                the session is over, and with it every call, stream and iterator that waited on it
│   ├── SessionClosed           on purpose: by close() here, or by an administrator
│   ├── SessionExpired          no node could be reached within the window
│   ├── SessionRefused          a node was reached and will not go on with the session; .code says why
│   └── SessionFailed           this client, or a node, broke the protocol: a bug
├── StreamOverflow              one stream was read too slowly; the session is unharmed
├── RequestTimedOut             the caller's own time limit; also a TimeoutError
├── HandlerFailed               whoever was given a request of the application says that there is no answer
├── HandlerLost                 the session that had such a request has ended
├── AnswerLost                  the grid has lost such a request, or its answer
└── RequestRefused              one request was refused, nothing else is harmed; .code says why  (gateway.core)
    ├── InvalidTopic            (gateway.core)
    ├── InvalidSelector         (gateway.core)
    ├── InvalidProperties       (gateway.core)
    ├── InvalidValue            (gateway.core); also a ValueError
    ├── ValueTooLarge
    ├── TooManySelections
    ├── Forbidden
    ├── NoSuchQueue
    ├── QueueFull
    ├── NotHeld
    ├── NoHandler
    ├── HandlersBusy
    ├── NoSuchDurable
    ├── DurableInUse
    ├── NoSuchTransaction
    └── RequestFailed           the node failed on it, and it may have been executed nevertheless
```

No message holds a token or a secret (P8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from gateway.core.wire.codes import ERRORS, ErrorCode
from gateway.core.wire.errors import (
    GatewayError,
    InvalidProperties,
    InvalidSelector,
    InvalidTopic,
    InvalidValue,
    RequestRefused,
)

__all__ = [
    "AnswerLost",
    "ClearTextWarning",
    "ConnectFailed",
    "DurableInUse",
    "Forbidden",
    "GatewayError",
    "HandlerFailed",
    "HandlerLost",
    "HandlersBusy",
    "InvalidPosition",
    "InvalidProperties",
    "InvalidSelector",
    "InvalidTopic",
    "InvalidValue",
    "NoHandler",
    "NoSuchDurable",
    "NoSuchQueue",
    "NoSuchTransaction",
    "NotHeld",
    "PositionGone",
    "QueueFull",
    "RequestFailed",
    "RequestRefused",
    "RequestTimedOut",
    "SessionClosed",
    "SessionEnded",
    "SessionExpired",
    "SessionFailed",
    "SessionRefused",
    "StreamOverflow",
    "TooManySelections",
    "Unauthenticated",
    "ValueTooLarge",
    "refusal",
]


class ConnectFailed(GatewayError):
    """``connect`` got no session.

    Attributes:
        code: the error code a node gave, or None if none was reached.
        retryable: whether the same call can succeed later: nobody was reached, or who was reached said "later".
    """

    def __init__(self, message: str, *, code: ErrorCode | None = None, retryable: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable


class Unauthenticated(ConnectFailed):
    """The principal and secret were not accepted."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.UNAUTHENTICATED, retryable=False)


class SessionEnded(GatewayError):
    """The session is over; open a new one with ``connect``.

    A publish that was not answered yet when this is raised may or may not have been executed.

    Attributes:
        code: the error code a node gave, or None.
    """

    def __init__(self, message: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code

    def again(self) -> Self:
        """Return an equal error, so that each of many waiters raises one with its own traceback."""
        return type(self)(str(self), code=self.code)


class SessionClosed(SessionEnded):
    """The session was ended on purpose: by ``Session.close`` or by an administrator."""


class SessionExpired(SessionEnded):
    """The session's window ended before a node could be reached."""


class SessionRefused(SessionEnded):
    """A node was reached and refuses to go on with the session; ``code`` says why (rung 5 of the ladder)."""


class SessionFailed(SessionEnded):
    """This client or a node broke the protocol; always a bug on one of the two sides."""


class ClearTextWarning(UserWarning):
    """``connect`` was given a URL of another host without TLS: whoever is on the way can read secrets and tokens."""


class StreamOverflow(GatewayError):
    """A stream was read so slowly that even the newest values of its topics were more than it may keep.

    The stream has ended, and with it its selection; the session goes on. Subscribe again for the current values.
    """

    def again(self) -> Self:
        """Return an equal error, so that each of many readers raises one with its own traceback."""
        return type(self)(str(self))


class PositionGone(GatewayError):
    """Events behind the position of a stream are not kept any more, and it was to refuse that (``on_gap="refuse"``).

    The stream can be read on, from the earliest event that is kept.
    """


class InvalidPosition(RequestRefused):
    """What was given as a position in a history is none."""

    code = ErrorCode.BAD_REQUEST


class RequestTimedOut(GatewayError, TimeoutError):
    """A request was not answered within the time the caller gave it.

    Attributes:
        sent: False if it never left this process, so that it was certainly not executed; True if it may have been.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class ValueTooLarge(RequestRefused):
    """The value is larger than the node accepts."""

    code = ErrorCode.VALUE_TOO_LARGE


class TooManySelections(RequestRefused):
    """The session holds as many selections as the node allows."""

    code = ErrorCode.TOO_MANY_SELECTIONS


class Forbidden(RequestRefused):
    """The principal may not do this."""

    code = ErrorCode.FORBIDDEN


class NoSuchQueue(RequestRefused):
    """Nobody has declared a queue of this path."""

    code = ErrorCode.NO_SUCH_QUEUE


class QueueFull(RequestRefused):
    """The queue has no room; the message was not sent. Send it again later, as a new one."""

    code = ErrorCode.QUEUE_FULL


class NotHeld(RequestRefused):
    """The session does not hold a message any more: it was settled, or was taken back and may be another's."""

    code = ErrorCode.NOT_HELD


class NoHandler(RequestRefused):
    """Nobody who is there handles requests of this path, so that nobody was asked."""

    code = ErrorCode.NO_HANDLER


class HandlersBusy(RequestRefused):
    """All who handle requests of this path have as many as they take; nobody was asked. Ask again later."""

    code = ErrorCode.HANDLERS_BUSY


class HandlerFailed(GatewayError):
    """There is no answer to a request, and whoever was asked says why; handlers raise it to say so."""


class HandlerLost(GatewayError):
    """The session that had a request has ended before it gave an answer.

    Attributes:
        may_have_been_executed: whether somebody may have acted upon the request all the same.
    """

    def __init__(self, message: str, *, uncertain: bool) -> None:
        super().__init__(message)
        self.may_have_been_executed = uncertain


class AnswerLost(GatewayError):
    """The grid has lost a request, or had no room for its answer.

    Attributes:
        may_have_been_executed: whether somebody may have acted upon the request all the same.
    """

    def __init__(self, message: str, *, uncertain: bool) -> None:
        super().__init__(message)
        self.may_have_been_executed = uncertain


class NoSuchDurable(RequestRefused):
    """The principal has no durable subscription of this name: it was removed, or nobody used it for its life."""

    code = ErrorCode.NO_SUCH_DURABLE


class DurableInUse(RequestRefused):
    """Another session uses the durable subscription, so that this one may not, or may not any more."""

    code = ErrorCode.DURABLE_IN_USE


class NoSuchTransaction(RequestRefused):
    """The transaction is not open: it is over, or was rolled back because nobody went on with it in time."""

    code = ErrorCode.NO_SUCH_TRANSACTION


class RequestFailed(RequestRefused):
    """The node failed on the request; its log has the reason. The request may have been executed nevertheless."""

    code = ErrorCode.INTERNAL


_REFUSALS: Final[Mapping[ErrorCode, type[RequestRefused]]] = {
    kind.code: kind
    for kind in (
        InvalidTopic,
        InvalidSelector,
        InvalidProperties,
        InvalidValue,
        ValueTooLarge,
        TooManySelections,
        Forbidden,
        NoSuchQueue,
        QueueFull,
        NotHeld,
        NoHandler,
        HandlersBusy,
        NoSuchDurable,
        DurableInUse,
        NoSuchTransaction,
        RequestFailed,
    )
}


def refusal(code: ErrorCode, message: str) -> RequestRefused:
    """Make the error that a refused request raises.

    Args:
        code: of the reply.
        message: of the reply; if it is empty, the code's own meaning is told.
    """
    return _REFUSALS.get(code, RequestRefused)(message or ERRORS[code].meaning, code=code)
