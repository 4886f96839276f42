"""The table of requests: which wait to be sent, which wait for their reply, and when refused ones are sent again.

```text
            add                  ready                         answer
 caller ───────────▶ waiting ───────────▶ unanswered ───────────────────▶ caller
                      ▲   ▲                │      │
                      │   └─ "later" ──────┘      │ failover
                      │      (new number)         ▼
                      └─ first in line ── to be asked again (same number)
```

**Numbers.** A request gets its number when it is sent. After a failover the requests without an answer are asked again
with the same numbers, and the grid executes each of them once (P5). A request that was refused with a retryable error
was certainly not executed; it is sent again under a new number.

**Order.** Requests are sent in the order in which they were added. Refused ones go back to their place in that order,
so they pass nobody by; while the node refuses, only one request at a time probes whether it still does.

Time and randomness are arguments, and nothing here waits.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from gateway.core.client.errors import InvalidProperties, RequestRefused, ValueTooLarge, refusal
from gateway.core.types import RequestNumber
from gateway.core.wire.codec import encode_request
from gateway.core.wire.codes import ERRORS, ErrorCode
from gateway.core.wire.durable_packets import DurableRequest
from gateway.core.wire.exchange_packets import Answer, Ask, ExchangeRequest
from gateway.core.wire.packets import (
    Authenticate,
    Publish,
    ReadHistory,
    Reply,
    SetProperties,
    Subscribe,
    Unsubscribe,
)
from gateway.core.wire.queue_packets import (
    QueueRequest,
    Send,
)
from gateway.core.wire.transaction_packets import Stage, TransactionRequest
from gateway.core.wire.value_packets import ReadValues
from gateway.core.wire.will_packets import SetWills

RETRY_INITIAL: Final = 0.1
"""Seconds before a refused request is sent again, if the node gives no advice; doubles with each refusal in a row."""

RETRY_MAXIMUM: Final = 5.0
"""Seconds up to which that doubles: an application waits no longer than this after the node accepts again."""

UNNUMBERED: Final = RequestNumber(0)
"""The number of a request that has not been sent yet; numbers begin at 1."""

ClientAsk: TypeAlias = (
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
)
"""A request that a client makes."""


PACKET_OVERHEAD: Final = 192
"""Bytes that a request has at most around what an application puts in: names of fields, three numbers of 16 digits."""


def encode_within(ask: ClientAsk, message_bytes: int) -> bytes:
    """Encode a request, if a node accepts a message of its size (protocol 4.8.3).

    Args:
        ask: with its number.
        message_bytes: largest message that the node accepts.

    Raises:
        RequestRefused: it is too large: ``ValueTooLarge``, ``InvalidProperties``, or MESSAGE_TOO_BIG.
    """
    text = encode_request(ask)
    most = message_bytes - PACKET_OVERHEAD
    if len(text) <= most:
        return text
    message = f"the request has {len(text)} bytes of JSON; the node accepts {most}"
    match ask:
        case Publish() | Send() | Stage() | Ask() | Answer():
            raise ValueTooLarge(message)
        case SetProperties():
            raise InvalidProperties(message)
        case _:
            raise RequestRefused(message, code=ErrorCode.MESSAGE_TOO_BIG)


class PendingRequest:
    """One call, over all the times it is sent.

    Args:
        ask: what is asked; its number and its ``resubmitted`` are set whenever it is sent.
        order: its place in the order of calls.
        call: what the caller knows it by; means nothing here.
        repairs: it was not the application that asked, but the client, to restore what had been promised already.

    Attributes:
        ask: as last sent.
        sent: whether it was ever sent.
        withdrawn: nobody wants to know the answer. What was sent stays until it is answered, other requests go.
    """

    __slots__ = ("ask", "call", "order", "repairs", "sent", "withdrawn")

    def __init__(self, ask: ClientAsk, order: int, call: Any, *, repairs: bool) -> None:
        self.ask = ask
        self.order = order
        self.call = call
        self.repairs = repairs
        self.sent = False
        self.withdrawn = False

    def __lt__(self, other: PendingRequest) -> bool:
        return self.order < other.order


class Answered(NamedTuple):
    """A request that will not be sent again.

    Attributes:
        pending: which.
        error: why it was not executed; None if it was.
    """

    pending: PendingRequest
    error: RequestRefused | None


class RequestTable:
    """The requests of one session.

    Args:
        limit: requests that may be unanswered at once, as the welcome says.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._next_number = 1
        self._next_order = 0
        self._first_order = 0
        self._waiting: list[PendingRequest] = []
        self._unanswered: dict[RequestNumber, PendingRequest] = {}
        self._again: deque[PendingRequest] = deque()
        self._frozen = True
        self._refusals = 0
        self._pause = RETRY_INITIAL
        self._not_before = 0.0

    def __repr__(self) -> str:
        return f"<RequestTable waiting={len(self._waiting)} unanswered={len(self._unanswered)}>"

    @property
    def unanswered(self) -> int:
        """Requests sent and not answered."""
        return len(self._unanswered)

    @property
    def waiting(self) -> int:
        """Requests not sent yet, or to be sent again."""
        return len(self._waiting) + len(self._again)

    def unanswered_asks(self) -> list[ClientAsk]:
        """Return the requests sent and not answered, in the order of their numbers."""
        return [self._unanswered[number].ask for number in sorted(self._unanswered)]

    @property
    def oldest_unanswered(self) -> RequestNumber | None:
        """Lowest number of a request without an answer; None if there is none."""
        return min(self._unanswered, default=None)

    def is_unanswered(self, number: RequestNumber) -> bool:
        """Tell whether a request was sent and has no answer yet."""
        return number in self._unanswered

    def drop(self, number: RequestNumber) -> PendingRequest:
        """Ask a request no more, and return it."""
        pending = self._unanswered.pop(number)
        if pending in self._again:
            self._again.remove(pending)
        return pending

    def next_deadline(self) -> float | None:
        """Tell when ``ready`` will have something although nothing else happens; None for never."""
        if not self._refusals or not self._waiting or self._frozen:
            return None
        # While a request is under way that finds out whether the node still refuses, the others wait for its answer.
        probing = len(self._unanswered) > len(self._again)
        return None if probing or self._again else self._not_before

    def add(self, ask: ClientAsk, call: object) -> PendingRequest:
        """Take a call in at the end of the order; ``ready`` hands it out when its time has come."""
        pending = PendingRequest(ask, self._next_order, call, repairs=False)
        self._next_order += 1
        heapq.heappush(self._waiting, pending)
        return pending

    def add_repairs(self, repairs: Sequence[tuple[ClientAsk, object]]) -> None:
        """Take in what restores broken promises: in order, after what is unanswered and before all that waits."""
        self._first_order -= len(repairs)
        for order, (ask, call) in enumerate(repairs, self._first_order):
            heapq.heappush(self._waiting, PendingRequest(ask, order, call, repairs=True))

    def ready(self, now: float) -> list[ClientAsk]:
        """Number the requests that may be sent now, and return them in order."""
        asks: list[ClientAsk] = []
        if self._frozen:
            return asks
        in_flight = len(self._unanswered) - len(self._again)
        while self._again and in_flight < self.limit:
            pending = self._again.popleft()
            pending.ask = replace(pending.ask, resubmitted=True)
            asks.append(pending.ask)
            in_flight += 1
        if self._again or (self._refusals and now < self._not_before):
            return asks
        # While the node refuses, one request finds out whether it still does: a crowd would be refused like the first,
        # or worse, be accepted while the first is not, and so be passed by.
        limit = 1 if self._refusals else self.limit
        while self._waiting and in_flight < limit:
            pending = heapq.heappop(self._waiting)
            if pending.withdrawn:
                continue
            number = RequestNumber(self._next_number)
            self._next_number += 1
            pending.ask = replace(pending.ask, request=number, resubmitted=False)
            pending.sent = True
            self._unanswered[number] = pending
            asks.append(pending.ask)
            in_flight += 1
        return asks

    def answer(self, reply: Reply, *, now: float, random: float) -> Answered | None:
        """Take a reply in.

        Args:
            reply: as received.
            now: the time.
            random: uniform between 0 and 1; spreads the retries of many clients.

        Returns:
            The request, executed or refused for good; None if it was refused for now, or if the number is unknown.
        """
        pending = self._unanswered.get(reply.request)
        if pending is None:
            return None
        del self._unanswered[reply.request]
        if pending in self._again:
            self._again.remove(pending)
        # Fresh credentials are asked for again by who fetches them, and hold nothing else back (protocol 5.9.3).
        apart = isinstance(pending.ask, Authenticate) and reply.error is ErrorCode.AUTHENTICATION_UNAVAILABLE
        if reply.error is not None and ERRORS[reply.error].retryable and not apart:
            self._refused(pending, reply.retry_after, now, random)
            return None
        self._refusals = 0
        self._pause = RETRY_INITIAL
        if reply.error is not None:
            return Answered(pending, refusal(reply.error, reply.message))
        return Answered(pending, None)

    def _refused(self, pending: PendingRequest, retry_after: float | None, now: float, random: float) -> None:
        if not pending.withdrawn:
            heapq.heappush(self._waiting, pending)
        if self._refusals and now < self._not_before:
            # One of a crowd that was under way when the first was refused: it says nothing new.
            self._not_before = max(self._not_before, now + (retry_after or 0.0))
            return
        pause = self._pause if retry_after is None else max(RETRY_INITIAL, retry_after)
        self._pause = min(RETRY_MAXIMUM, 2 * self._pause)
        self._refusals += 1
        self._not_before = now + pause * (1 + random)

    # --- The connection -------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Hand out nothing until ``resume``: the connection is lost, or about to be left."""
        self._frozen = True

    def resume(self, *, limit: int, restarted: bool, now: float) -> None:
        """Go on over a new connection.

        Args:
            limit: as the new welcome says.
            restarted: True after a failover: what is unanswered is asked again, with the same numbers, before all else.
            now: the time; a refusal on the connection before is no reason to wait on this one.
        """
        self.limit = limit
        self._frozen = False
        self._not_before = now
        if restarted:
            self._again = deque(self._unanswered[number] for number in sorted(self._unanswered))

    def clear(self) -> list[PendingRequest]:
        """The session is over: forget all requests, and return them, those under way first."""
        pending = [*self._unanswered.values(), *self._waiting]
        self._unanswered.clear()
        self._waiting.clear()
        self._again.clear()
        self._frozen = True
        return pending
