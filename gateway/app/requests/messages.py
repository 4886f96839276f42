"""The rules that a message for a queue has to keep, whoever sends it: a session, its transaction, or a call by HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.app.context import Context
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.subject import Subject
from gateway.core.destinations.limits import SECONDS_PER_DAY, QueueLimits, WhenFull
from gateway.core.destinations.reserved import RESERVED_LIMITS, SHARED, TEMPORARY
from gateway.core.topics.topics import is_reserved, parse_topic, shown
from gateway.core.types import TopicPath
from gateway.core.wire.codec import json_text
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.queue_packets import Send
from gateway.ports import Overflow, QueueBounds

LONGEST_DELAY: Final = 366 * SECONDS_PER_DAY
"""Longest delay and life of a message, in seconds, as of what a queue says of them."""

MOST_HEADERS: Final = 32
HEADER_BYTES: Final = 4 * 1024
"""Headers of a message, and bytes of all of them as JSON: what tells what to do with it, and not what it is about."""


class CheckedMessage(NamedTuple):
    """A message that may be sent.

    Attributes:
        queue: where to.
        headers: JSON text of an object; empty for none.
        bounds: of the queue.
        expires: seconds after which it is not delivered any more; 0 for never.
    """

    queue: TopicPath
    headers: bytes
    bounds: QueueBounds
    expires: float


class MessageRules:
    """Judges messages.

    Args:
        context: of the node.
        authorisation: tells who may send where.
    """

    def __init__(self, context: Context, authorisation: Authorisation) -> None:
        self._largest = context.parameters.limits.value_bytes
        self._destinations = context.destinations
        self._authorisation = authorisation

    def find(self, name: str, *, consumes: bool = False) -> tuple[TopicPath, QueueLimits]:
        """Find a queue.

        Args:
            name: its path, not yet validated.
            consumes: whether it is to be consumed from.

        Raises:
            RequestRefused: there is none.
        """
        queue = parse_topic(name)
        limits = self._destinations.queue(queue)
        if is_reserved(queue):
            is_known = queue.startswith(TEMPORARY) or (consumes and queue.startswith(SHARED))
            limits = RESERVED_LIMITS if is_known else None
        if limits is None:
            raise no_queue(queue)
        return queue, limits

    def check(self, subject: Subject, message: Send) -> CheckedMessage:
        """Let pass what may be sent.

        Args:
            subject: who sends.
            message: what.

        Raises:
            RequestRefused: it breaks a rule, there is no such queue, or the subject may not send there.
        """
        queue, limits = self.find(message.queue)
        size = len(message.value)
        if size > self._largest:
            raise RequestRefused(
                f"the value has {size} bytes; limits.value_bytes is {self._largest}", code=ErrorCode.VALUE_TOO_LARGE
            )
        self._authorisation.check_send(subject, queue)
        expires = (limits.expires if message.expires is None else message.expires) or 0.0
        if message.delay > LONGEST_DELAY or expires > LONGEST_DELAY or message.expires == 0:
            raise RequestRefused("delay and expires are seconds, of a year at most, and expires is above 0")
        return CheckedMessage(queue, _headers(message.headers), bounds_of(limits), expires)


def bounds_of(limits: QueueLimits) -> QueueBounds:
    """Tell what the grid is told of a queue."""
    return QueueBounds(
        messages=limits.count,
        size=limits.bytes,
        overflow=Overflow.DROP_OLDEST if limits.full is WhenFull.DROP_OLDEST else Overflow.REFUSE,
        deliveries=limits.deliveries,
        ack_within=limits.ack_within or 0.0,
        exclusive=limits.exclusive,
        dead=limits.dead_count,
        dead_size=limits.bytes,
        dead_age=limits.dead_age,
    )


def no_queue(queue: TopicPath) -> RequestRefused:
    """Say that there is no such queue."""
    return RequestRefused(f"there is no queue {shown(queue)}", code=ErrorCode.NO_SUCH_QUEUE)


def _headers(headers: Mapping[str, str]) -> bytes:
    """Encode the headers of a message; nothing for none.

    Raises:
        RequestRefused: there are too many, or they are too long.
    """
    if not headers:
        return b""
    text = json_text(dict(headers))
    if len(headers) > MOST_HEADERS or len(text) > HEADER_BYTES:
        raise RequestRefused(
            f"a message has {MOST_HEADERS} headers at most, of {HEADER_BYTES} bytes of JSON together",
            code=ErrorCode.VALUE_TOO_LARGE,
        )
    return text
