"""Packets about queues, as values (protocol section 13); see ``packets`` for all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final, TypeAlias

from gateway.core.immutable import immutable
from gateway.core.types import DeliveryTag, JsonValue, MessageId, RequestNumber

QUEUES: Final = "queues"
"""The word with which both sides say that they know queues (protocol 13)."""


TEMPORARY: Final = "temporary"
"""The word with which a server says that it can be asked for temporary queues (protocol 13.6)."""


class AckMode(StrEnum):
    """How a consumer's messages are settled (protocol 13.3)."""

    AUTO = "auto"
    """By the acknowledgement of the packet that brings them."""
    EACH = "each"
    """By the client's requests."""
    NONE = "none"
    """Before they are sent: at most once."""


class Settlement(StrEnum):
    """What becomes of messages that a consumer holds."""

    ACCEPT = "accept"
    """They are done, and gone."""
    REJECT = "reject"
    """They become dead letters."""
    RELEASE = "release"
    """They go back to their place in the queue, as failed deliveries."""


@immutable
class Send:
    """Put a message into a queue, exactly once however often it is resent (P5, P15).

    Attributes:
        request: the request's number; the grid refuses to execute it twice.
        queue: path of the queue, not yet validated.
        value: JSON text of the value, compact.
        headers: texts by name, which travel with it.
        delay: seconds until it may be delivered.
        expires: seconds after which it is not delivered any more; None as the queue has it.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    queue: str
    value: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    expires: float | None = None
    resubmitted: bool = False


@immutable
class Consume:
    """Be given messages of a queue, or go on being so, by another credit or after a failover.

    Attributes:
        request: the request's number.
        queue: which.
        credit: messages that may be held without being settled.
        mode: how they are settled.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    queue: str
    credit: int
    mode: AckMode = AckMode.AUTO
    resubmitted: bool = False


@immutable
class Cancel:
    """Be given no more messages of a queue; what is held goes back.

    Attributes:
        request: the request's number.
        queue: which.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    queue: str
    resubmitted: bool = False


@immutable
class Settle:
    """Say what becomes of messages that the session holds, once however often it is resent (P15).

    Attributes:
        request: the request's number.
        queue: of the messages.
        messages: id and delivery of each, as the message packets named them.
        outcome: what becomes of them.
        delay: of what is released, seconds until it may be delivered again.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    queue: str
    messages: tuple[tuple[MessageId, DeliveryTag], ...]
    outcome: Settlement = Settlement.ACCEPT
    delay: float = 0.0
    resubmitted: bool = False


@immutable
class Declare:
    """Make a queue for the life of the session, which alone consumes from it (protocol 13.6).

    Attributes:
        request: the request's number.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    resubmitted: bool = False


QueueRequest: TypeAlias = Send | Consume | Cancel | Settle | Declare
"""What clients ask of queues."""


@immutable(kw_only=True)
class Message:
    """A message of a queue (protocol 13.4).

    Attributes:
        queue: which.
        message: its id.
        delivery: number of this assignment; rises within the queue.
        sent: when, in milliseconds since 1970.
        deliveries: how often it was delivered before and failed.
        redelivered: whether somebody may have received it before.
        headers: texts by name.
        value: the value itself.
    """

    queue: str
    message: MessageId
    delivery: DeliveryTag
    sent: int
    deliveries: int = 0
    redelivered: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    value: JsonValue
