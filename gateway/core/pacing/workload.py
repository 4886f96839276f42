"""What clients have asked for and have no answer to yet, in bytes: of one session, and of a node in all (P20).

Nothing here waits: who is above a bound is told so, and who may go on again.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from gateway.core.wire.durable_packets import AdvanceDurable, DurableRequest, OpenDurable, ReleaseDurable, RemoveDurable
from gateway.core.wire.exchange_packets import Answer, Ask, Await
from gateway.core.wire.packets import (
    Authenticate,
    Bye,
    ClientRequest,
    Publish,
    ReadHistory,
    SetProperties,
    Unsubscribe,
)
from gateway.core.wire.queue_packets import (
    Send,
    Settle,
)
from gateway.core.wire.transaction_packets import Stage
from gateway.core.wire.value_packets import ReadValues
from gateway.core.wire.will_packets import SetWills

REQUEST_BYTES: Final = 512
"""Bytes as which a request counts besides its texts: its packet, its place in line and its command for the grid."""

PLACE_BYTES: Final = 128
"""Bytes of a place in a topic partition that a request names: a number, an event id, and their entry."""

PAIR_BYTES: Final = 128
"""Bytes of a message that is settled: a pair of numbers, and their texts for the grid."""

Request: TypeAlias = ClientRequest | Bye


def weight(request: Request) -> int:
    """Tell how much memory a request takes until it is answered, about."""
    if type(request) is Publish:  # by far the most frequent, and the largest
        return REQUEST_BYTES + len(request.topic) + len(request.value)
    if type(request) is Send:
        headers = sum(REQUEST_BYTES // 4 + len(name) + len(text) for name, text in request.headers.items())
        return REQUEST_BYTES + len(request.queue) + len(request.value) + headers
    if isinstance(request, Settle):
        return REQUEST_BYTES + len(request.queue) + PAIR_BYTES * len(request.messages)
    if isinstance(request, Ask | Answer | Await):
        return REQUEST_BYTES + _of_exchange(request)
    if isinstance(request, Stage):
        return REQUEST_BYTES + weight(request.operation)
    if isinstance(request, SetProperties | SetWills | Authenticate):
        return REQUEST_BYTES + _of_the_session(request)
    if isinstance(request, Unsubscribe):
        return REQUEST_BYTES + len(request.selector) + sum(REQUEST_BYTES // 4 + len(each) for each in request.keep)
    if isinstance(request, ReadHistory | ReadValues):
        place = len(request.after or "") if isinstance(request, ReadValues) else PLACE_BYTES * len(request.after)
        return REQUEST_BYTES + len(request.selector) + place
    if isinstance(request, OpenDurable | AdvanceDurable | ReleaseDurable | RemoveDurable):
        return REQUEST_BYTES + len(request.name) + _of_durable(request)
    return REQUEST_BYTES + len(getattr(request, "selector", ""))


def _of_exchange(request: Ask | Answer | Await) -> int:
    match request:
        case Ask():
            named = len(request.principal or "") + len(request.session or "")
            return len(request.path) + len(request.value) + named
        case Answer():
            return len(request.question) + len(request.value or b"") + len(request.failed or "")
        case Await():
            return sum(PAIR_BYTES + len(path) for _, path in request.asks)


def _of_the_session(request: SetProperties | SetWills | Authenticate) -> int:
    match request:
        case SetProperties():
            return sum(REQUEST_BYTES // 4 + len(name) + len(value or "") for name, value in request.changes.items())
        case SetWills():
            return sum(REQUEST_BYTES + len(each.topic) + len(each.value) for each in request.wills)
        case Authenticate():
            return len(request.principal) + len(request.secret)


def _of_durable(request: DurableRequest) -> int:
    match request:
        case OpenDurable():
            return len(request.selector) + PLACE_BYTES * len(request.after)
        case AdvanceDurable():
            return PLACE_BYTES * len(request.positions)
    return 0


class Workload:
    """The unanswered requests of all sessions of a node.

    Args:
        most: bytes above which those that have most have to wait; 0 for no limit.

    Attributes:
        bytes: of all unanswered requests.
        holders: sessions that have some.
    """

    __slots__ = ("_most", "bytes", "holders")

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = 0
        self.holders = 0

    @property
    def is_exceeded(self) -> bool:
        """Whether there is more than there may be."""
        return 0 < self._most < self.bytes

    def exceeded_by(self, held: int) -> bool:
        """Tell whether a session that holds so many bytes has to wait: it has more than an equal share of too much."""
        return 0 < self._most < self.bytes and held * self.holders > self._most

    def add(self, before: int, more: int) -> None:
        """A session that holds so many bytes gets more."""
        self.bytes += more
        if not before:
            self.holders += 1

    def change(self, before: int, after: int) -> None:
        """A session holds other bytes than before."""
        self.bytes += after - before
        if not before or not after:
            self.holders += (after > 0) - (before > 0)
