"""The packet of a publish, which transactions hold, too; see ``packets`` for all others."""

from __future__ import annotations

from typing import Final

from gateway.core.immutable import immutable
from gateway.core.types import RequestNumber

TTL: Final = "ttl"
"""The word by which a server says that values can end (protocol 17)."""

LONGEST_TTL: Final = 366 * 86_400
"""Longest time, in seconds, after which a value can end: a year, as what destinations can name."""

SHORTEST_TTL: Final = 0.001
"""Shortest time, in seconds: the grid counts milliseconds."""

FOR_EVER: Final = 0.0
"""In the place of a time: the value never ends."""


@immutable
class Publish:
    """Set the value of a topic, exactly once however often it is resent (P5).

    Attributes:
        request: the request's number; the grid refuses to execute it twice.
        topic: path of the topic, not yet validated.
        value: JSON text of the value, compact.
        resubmitted: it was sent before a failover and never answered.
        ttl: seconds after which the value ends; ``FOR_EVER`` for never, None as the topic has it.
    """

    request: RequestNumber
    topic: str
    value: bytes
    resubmitted: bool = False
    ttl: float | None = None
