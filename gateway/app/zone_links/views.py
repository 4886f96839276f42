"""Links between clusters, for people."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.ports import ZoneLinkReport, ZoneLinkState


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
        refused: whether one of the two does not want the other.
        detail: why there is none.
        since: when it came up, or went down, in seconds since 1970.
        events: that have been sent, or taken.
        behind: entries of the streams that have yet to be looked at.
        unacknowledged: events under way.
        bytes: of messages, in both directions, over the present connection.
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
    refused: bool = False
    detail: str = ""
    since: float = 0.0
    events: int = 0
    behind: int = 0
    unacknowledged: int = 0
    bytes: int = 0
    repeated: int = 0
    selectors: int = 0
    clock_difference: float = 0.0

    def report(self) -> ZoneLinkReport:
        """Describe it as nodes tell each other of their links."""
        joined = self.link.removeprefix("from:").partition("join:")[2].rpartition("/")[0]
        state = ZoneLinkState.UP if self.up else ZoneLinkState.REFUSED if self.refused else ZoneLinkState.DOWN
        return ZoneLinkReport(
            name=self.link,
            remote=joined or self.remote,
            remote_name=self.label,
            direction=self.direction,
            state=state.value,
            detail=self.detail,
            since=self.since,
            events=self.events,
            bytes=self.bytes,
            behind=self.behind,
            unacknowledged=self.unacknowledged,
            duplicates=self.repeated,
            selectors=self.selectors,
        )
