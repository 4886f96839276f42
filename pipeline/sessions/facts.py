"""What the fold takes from an event."""

from __future__ import annotations

from typing import NamedTuple


class Fact(NamedTuple):
    """An event of a session, without what the fold does not need.

    It is kept in the state of streams, as the list of these values up to the last that is there: a new one is added at
    the end.

    Attributes:
        type: what happened; one of ``FACT_TYPES``.
        at: when, in microseconds since 1970 by the clock of the node that told.
        node: that node.
        incarnation: which run of it.
        number: of the event among all those of the incarnation.
        epoch: of the session.
        release: that the node ran.
    """

    type: str
    at: int
    node: str
    incarnation: str
    number: int
    epoch: int | None = None
    release: str | None = None
    cause: str | None = None
    rung: str | None = None
    reason: str | None = None
    peer: str | None = None
    peer_incarnation: str | None = None
    away_ms: int | None = None
    resent: int | None = None
    conflated: int | None = None
    deduplicated: int | None = None
    lost: int | None = None
    since: int | None = None
    until: int | None = None
    principal: str | None = None
    client: str | None = None
    window_ms: int | None = None
    replayed: bool | None = None
