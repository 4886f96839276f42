"""What a client's machine wants its shell to do: values, in the order in which they are to be done.

```text
Connect ────────── make a connection; then ``connected``, or ``disconnected`` with how the attempt ended
Disconnect ─────── write what is still to be said, close the connection, and forget it: no input comes of it any more
FetchCredentials ─ have the application make a fresh secret; then ``fetched`` or ``not_fetched``
Resolved, Rejected a call of the application has its answer
Message ────────── a message of a queue, likewise; none is passed on twice but those that come again, marked
Question ───────── somebody asks; none is passed on twice while it has no answer
ConsumerLost ───── a queue cannot be consumed from any more
Update ─────────── a topic has a value: the packet as it was received
FailedOver ─────── snapshots follow: streams let one value of each topic pass again
Noticed ────────── the server, or this client, declares something
Opened, Lost, Recovered, Ended ─ where the session stands
AttemptFailed, RequestGivenUp, Reported, RefreshFailed, RepairRefused ─ for logs and for those who want to see all of it
```

What is to be written is no effect: it comes out of ``flush``, no more of it at a time than the transport takes. Nor are
timers: ``next_deadline`` tells when ``tick`` has something to do.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from gateway.core.client.endings import Ending
from gateway.core.client.errors import GatewayError, RequestRefused
from gateway.core.client.types import Notice, Recovery
from gateway.core.types import RequestNumber
from gateway.core.wire.exchange_packets import Answered, Question
from gateway.core.wire.packets import (
    Error,
    Reply,
    Update,
    Welcome,
)
from gateway.core.wire.queue_packets import (
    Message,
)


class Purpose(Enum):
    """What fresh credentials are for; there may be one fetch of each kind at a time."""

    ATTEMPT = "attempt"
    """The hello or resume of the next attempt."""
    REFRESH = "refresh"
    """A request on the open connection (protocol 5.9.3)."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Make a connection.

    Attributes:
        url: where to, with the route hint; may hold user and password, so it is not part of a representation.
        seconds: time for the name look-up, TCP, TLS and the HTTP upgrade together.
    """

    url: str = field(repr=False)
    seconds: float


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection, in a bounded time and without making anybody wait; it may be closed already.

    Attributes:
        code: close code.
        reason: for people.
        last_messages: messages to write before, unless there is still something to be written that came before them.
    """

    code: int
    reason: str
    last_messages: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchCredentials:
    """Have the application make a fresh secret.

    Attributes:
        purpose: what for; comes back with the answer.
        seconds: how long it may take.
    """

    purpose: Purpose
    seconds: float


@dataclass(frozen=True, slots=True)
class Opened:
    """A node has opened the session.

    Attributes:
        welcome: as received; holds the token.
    """

    welcome: Welcome = field(repr=False)


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is lost, or was left, and the client is getting another one.

    Attributes:
        ending: how it ended.
    """

    ending: Ending


@dataclass(frozen=True, slots=True)
class Recovered:
    """The session has a connection again.

    Attributes:
        recovery: what came of it (P2).
    """

    recovery: Recovery


@dataclass(frozen=True, slots=True)
class Ended:
    """The session is over, or could not be opened; nothing comes after this.

    Attributes:
        error: why.
        on_purpose: whether this client closed it, so that iterations stop and do not raise.
    """

    error: GatewayError
    on_purpose: bool


@dataclass(frozen=True, slots=True)
class Resolved:
    """A request was executed.

    Attributes:
        call: what the application called it.
        reply: of the node; of a question, what became of it.
    """

    call: Hashable
    reply: Reply | Answered


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request was refused, or the session ended before it was answered.

    Attributes:
        call: what the application called it.
        error: why; of its own for each call.
    """

    call: Hashable
    error: GatewayError


@dataclass(frozen=True, slots=True)
class FailedOver:
    """Packets are numbered anew, and current values follow in the place of what was missed."""


@dataclass(frozen=True, slots=True)
class ConsumerLost:
    """A session may not consume any more, or not where it goes on, or the queue was lost with the grid.

    Attributes:
        queue: from which queue.
        error: why.
    """

    queue: str
    error: RequestRefused


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something was declared that the application could not see otherwise (P2).

    Attributes:
        notice: what.
        own: whether this client declares it, and not the server.
    """

    notice: Notice
    own: bool = False


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt to connect ended without a welcome; what the plan makes of it comes next.

    Attributes:
        number: of the attempt, since the connection was lost.
        url: where it went; may hold user and password.
        ending: how it ended.
    """

    number: int
    url: str = field(repr=False)
    ending: Ending


@dataclass(frozen=True, slots=True)
class RequestGivenUp:
    """A node closed the connection for a request, which is not sent again (protocol 4.8).

    Attributes:
        request: its number.
        error: what its caller is told.
    """

    request: RequestNumber
    error: RequestRefused


@dataclass(frozen=True, slots=True)
class Reported:
    """A node reports an error on the open connection.

    Attributes:
        error: as received.
    """

    error: Error


@dataclass(frozen=True, slots=True)
class RefreshFailed:
    """Fresh credentials could not be had or shown; it is tried again.

    Attributes:
        reason: for people; holds no secret.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class RepairRefused:
    """What a grid had forgotten could not be restored.

    Attributes:
        error: of the node.
    """

    error: GatewayError


Effect: TypeAlias = (
    Connect
    | Disconnect
    | FetchCredentials
    | Opened
    | Lost
    | Recovered
    | Ended
    | Resolved
    | Rejected
    | Update
    | Message
    | Question
    | ConsumerLost
    | FailedOver
    | Noticed
    | AttemptFailed
    | RequestGivenUp
    | Reported
    | RefreshFailed
    | RepairRefused
)
"""Anything that comes out of the machine. An update stays the packet that it was: it is by far the most frequent."""
