"""Packets about durable subscriptions, as values (protocol section 14); see ``packets`` for all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, TypeAlias

from gateway.core.immutable import immutable
from gateway.core.types import EventId, RequestNumber

DURABLES: Final = "durables"
"""The word with which a node says that it can be asked for durable subscriptions (protocol 14)."""


@immutable
class OpenDurable:
    """Use a durable subscription, which is made if there is none (protocol 14.2).

    Attributes:
        request: the request's number.
        name: what the session's principal calls it.
        selector: which topics.
        after: of one that is made: by topic partition, the event up to which all is known.
        earliest: of one that is made: whether all other partitions are read from the earliest event that is kept; if
            not, from now on.
        life: seconds for which it outlives the last session that used it; None for the node's default.
        take: whether it is taken from a connected session that uses it.
        shared: whether any number of sessions use it, each of which is given a part of the events.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    name: str
    selector: str
    after: Mapping[int, EventId] = field(default_factory=dict)
    earliest: bool = True
    life: float | None = None
    take: bool = False
    shared: bool = False
    resubmitted: bool = False


@immutable
class AdvanceDurable:
    """Acknowledge what was had of a durable subscription (protocol 14.3).

    Attributes:
        request: the request's number.
        name: which.
        positions: by topic partition, the event up to which everything is acknowledged.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    name: str
    positions: Mapping[int, EventId]
    resubmitted: bool = False


@immutable
class ReleaseDurable:
    """Use a durable subscription no more; it stays (protocol 14.4).

    Attributes:
        request: the request's number.
        name: which.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    name: str
    resubmitted: bool = False


@immutable
class RemoveDurable:
    """Have a durable subscription forgotten (protocol 14.4).

    Attributes:
        request: the request's number.
        name: which.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    name: str
    resubmitted: bool = False


DurableRequest: TypeAlias = OpenDurable | AdvanceDurable | ReleaseDurable | RemoveDurable
"""What clients ask of durable subscriptions."""


@immutable(kw_only=True)
class DurablePlace:
    """Where a durable subscription goes on: what the reply to its opening says.

    Attributes:
        positions: by topic partition, the event up to which everything was acknowledged; all others are read from the
            earliest event that is kept.
        created: whether it was made by this request.
        queue: of a shared one: the queue whose messages its events become.
    """

    positions: Mapping[int, EventId] = field(default_factory=dict)
    created: bool = False
    queue: str | None = None
