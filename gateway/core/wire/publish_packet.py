"""The packet of a publish, which transactions hold, too; see ``packets`` for all others."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.types import RequestNumber


@dataclass(frozen=True, slots=True)
class Publish:
    """Set the value of a topic, exactly once however often it is resent (P5).

    Attributes:
        request: the request's number; the grid refuses to execute it twice.
        topic: path of the topic, not yet validated.
        value: JSON text of the value, compact.
        resubmitted: it was sent before a failover and never answered.
    """

    request: RequestNumber
    topic: str
    value: bytes
    resubmitted: bool = False
