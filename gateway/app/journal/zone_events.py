"""What happens to links with other clusters, and to the role of the master, and how it is told; see ``announcer``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from gateway.app.journal.event import Event, Fields
from gateway.app.journal.node_events import MICROSECONDS
from gateway.app.journal.zone_traffic import CountedLink
from gateway.catalogue import log_events, topology_metrics, zone_link_log_events, zone_link_metrics
from gateway.catalogue.metric import Metric
from gateway.core.journal import EventType
from gateway.core.journal import events as happened
from gateway.core.journal.events import NAME_LENGTH
from gateway.ports import Master

OUT: Final = "out"
IN: Final = "in"
"""Directions of links: this node sends over it, or takes what comes."""


class _OfLink(Event):
    """Something that happened to a link."""

    __slots__ = ()

    link: CountedLink

    def told(self) -> Fields:
        """See ``Event``."""
        return {name: value[:NAME_LENGTH] for name, value in self.link._asdict().items()}


@dataclass(frozen=True, slots=True)
class ZoneLinkConnected(_OfLink):
    """A link is up.

    Attributes:
        link: which.
    """

    link: CountedLink

    log = zone_link_log_events.ZONE_LINK_UP
    journal = happened.ZONE_LINK_CONNECTED

    def logged(self) -> Fields:
        """See ``Event``."""
        return self.link._asdict()


@dataclass(frozen=True, slots=True)
class ZoneLinkLost(_OfLink):
    """A link that was up has ended.

    Attributes:
        link: which.
        since: when it came up, in seconds since 1970.
        why: a sentence for people.
        refused: whether one of both did not want it any more.
    """

    link: CountedLink
    since: float
    why: str
    refused: bool

    metric = zone_link_metrics.ZONE_LINKS_LOST
    log = zone_link_log_events.ZONE_LINK_DOWN
    journal = happened.ZONE_LINK_LOST

    def amount(self) -> float:
        """Count it once, by the node that has dialled."""
        return float(self.link.direction == OUT)

    def logged(self) -> Fields:
        """See ``Event``."""
        return {**self.link._asdict(), "why": self.why}

    def told(self) -> Fields:
        """See ``Event``."""
        reason = "refused" if self.refused else "lost"
        return {**_OfLink.told(self), "since": round(self.since * MICROSECONDS), "reason": reason}


@dataclass(frozen=True, slots=True)
class ZoneGapFound(_OfLink):
    """A stream does not reach back to what has crossed a link.

    Attributes:
        link: which.
        partition: which topic partition.
    """

    link: CountedLink
    partition: int

    metric = zone_link_metrics.ZONE_GAPS
    log = zone_link_log_events.ZONE_GAP
    journal = happened.ZONE_GAP_FOUND

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"remote": self.link.remote, "partition": self.partition}


@dataclass(frozen=True, slots=True)
class ZoneLinkGivenUp(_OfLink):
    """A link that was up is not this node's to carry any more, or leads elsewhere; nothing is wrong.

    Attributes:
        link: which.
        since: when it came up, in seconds since 1970.
    """

    link: CountedLink
    since: float

    journal = happened.ZONE_LINK_LOST

    def told(self) -> Fields:
        """See ``Event``."""
        return {**_OfLink.told(self), "since": round(self.since * MICROSECONDS), "reason": "given_up"}


class _MasterChanged(Event):
    """This node has found another master than before, or none."""

    __slots__ = ()

    metric: ClassVar[Metric | None] = topology_metrics.MASTER_CHANGES
    log = log_events.MASTER_CHANGED
    journal: ClassVar[EventType | None] = None

    master: Master | None
    before: Master | None

    def logged(self) -> Fields:
        """See ``Event``."""
        shown = [None if each is None else each.node.node for each in (self.master, self.before)]
        return {"master": shown[0], "before": shown[1]}

    def told(self) -> Fields:
        """See ``Event``."""
        before = self.before
        known = before if self.master is None else self.master
        return {
            "term": None if known is None else known.term,
            "peer": None if before is None else before.node.node,
            "peer_incarnation": None if before is None else before.node.incarnation,
        }


@dataclass(frozen=True, slots=True)
class MasterFound(_MasterChanged):
    """Another node is the master.

    Attributes:
        master: the new one.
        before: the one before; None if there was none.
    """

    master: Master | None
    before: Master | None


@dataclass(frozen=True, slots=True)
class MasterElected(_MasterChanged):
    """This node is the master.

    Attributes:
        master: this node.
        before: the one before; None if there was none.
    """

    master: Master | None
    before: Master | None

    journal = happened.MASTER_ELECTED


@dataclass(frozen=True, slots=True)
class MasterMissed(_MasterChanged):
    """There is no master any more.

    Attributes:
        master: None.
        before: the last one.
    """

    master: Master | None
    before: Master | None

    journal = happened.MASTER_MISSED
