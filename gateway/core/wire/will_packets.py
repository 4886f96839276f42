"""Last wills: what the gateway publishes for a session when it ends (protocol section 19); see ``packets``."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from gateway.core.immutable import immutable
from gateway.core.types import RequestNumber

WILLS: Final = "wills"
"""The word by which a server says that sessions can leave wills (protocol 19.1)."""

WILLS_PROPERTY: Final = "$wills"
"""Property of a session that holds its wills: with all its properties they are stored, handed over and shown."""

MOST_WILLS: Final = 8
"""Wills of a session: one for each kind of end, of two topics, and two to spare."""

MOST_WILL_BYTES: Final = 8 * 1024
"""Bytes of the wills of a session, as they are stored: they travel with each of its welcomes."""


class EndKind(StrEnum):
    """How a session ended."""

    CLOSED = "closed"
    """Its client has closed it."""
    EXPIRED = "expired"
    """Its client did not come back within the window."""
    REMOVED = "removed"
    """An administrator has closed it, or it was revoked."""


UNASKED: Final = (EndKind.EXPIRED, EndKind.REMOVED)
"""The ends for which a will is meant that names none: those that its client has not asked for."""


@immutable
class Will:
    """A publish that the gateway makes when a session ends.

    Attributes:
        topic: path of the topic, not yet validated.
        value: JSON text of the value, compact.
        when: for which ends it is meant, each once.
        ttl: as of ``Publish``, from the end of the session on.
    """

    topic: str
    value: bytes
    when: tuple[EndKind, ...] = UNASKED
    ttl: float | None = None


@immutable
class SetWills:
    """Set all wills of the session, in the place of those that it had.

    Attributes:
        request: the request's number.
        wills: in the order in which they will be published; none to leave nothing.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    wills: tuple[Will, ...] = ()
    resubmitted: bool = False
