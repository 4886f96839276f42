"""Links between clusters, for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneLinkView:
    """One link, for people.

    Attributes:
        link: its name.
        remote: which cluster is there; empty if that is not known.
        label: of it or of the join, for people.
        direction: ``out`` if this node sends, ``in`` if it takes.
        kind: member or join.
        up: whether there is a connection.
        detail: why there is none.
        since: when it came up, or went down, in seconds since 1970.
        events: that have been sent, or taken.
        behind: entries of the streams that have yet to be looked at.
        unacknowledged: events under way.
        repeated: events that had come another way, or were older than what is here.
        selectors: of interest, that were heard or told.
        clock_difference: seconds by which the clock there is ahead.
    """

    link: str
    remote: str
    label: str
    direction: str
    kind: str
    up: bool
    detail: str = ""
    since: float = 0.0
    events: int = 0
    behind: int = 0
    unacknowledged: int = 0
    repeated: int = 0
    selectors: int = 0
    clock_difference: float = 0.0
