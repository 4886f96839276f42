"""What happens to nodes and to the grid, and how it is told; see ``announcer``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.app.journal.event import Event, Fields
from gateway.catalogue import log_events, metrics, takeover_log_events, takeover_metrics
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.journal import events as happened
from gateway.core.topics.selectors import Selector
from gateway.core.types import GridGeneration, NodeRef
from gateway.ports import ExpiredLease

MICROSECONDS: Final = 1_000_000
"""In a second: the journal's instants are whole numbers of them."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Between which times a node died whose lease has expired.

    Attributes:
        node: which.
        since: when it lived for certain, in microseconds since 1970.
        until: when its lease expired, likewise. Between the two is the length of the lease, to the microsecond.
    """

    node: NodeRef
    since: int
    until: int

    @classmethod
    def of(cls, node: NodeRef, lease: ExpiredLease, *, now: float) -> Expiry:
        """Reckon it from what the grid says of the lease at *now*, in seconds since 1970."""
        until = round((now - lease.ago) * MICROSECONDS)
        return cls(node, until - round(lease.length * MICROSECONDS), until)

    def told(self) -> Fields:
        """What the journal tells of it."""
        return {
            "peer": self.node.node,
            "peer_incarnation": self.node.incarnation,
            "since": self.since,
            "until": self.until,
        }


# --- This node --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeStarted(Event):
    """The node accepts sessions."""

    journal = happened.NODE_STARTED


@dataclass(frozen=True, slots=True)
class NodeStopped(Event):
    """The node stops as planned.

    Attributes:
        sessions: that it held still.
    """

    sessions: int

    journal = happened.NODE_STOPPED

    def told(self) -> Fields:
        """See ``Event``."""
        return {"sessions": self.sessions}


@dataclass(frozen=True, slots=True)
class DrainStarted(Event):
    """The node moves its clients to others.

    Attributes:
        sessions: that have a client.
    """

    sessions: int

    log = log_events.DRAIN_STARTED
    journal = happened.NODE_DRAINING

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"sessions": self.sessions}

    def told(self) -> Fields:
        """See ``Event``."""
        return {"sessions": self.sessions}


@dataclass(frozen=True, slots=True)
class LeaseFoundLost(Event):
    """The node found its own lease expired.

    Attributes:
        node: this one.
    """

    node: NodeRef

    metric = metrics.LEASE_LOST
    log = log_events.LEASE_LOST
    journal = happened.NODE_LEASE_LOST

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"node": str(self.node)}


# --- Destinations -----------------------------------------------------------------------------------------------------

NAMED_DESTINATIONS: Final = 20
"""Most destinations that one event names, as the field ``names`` of the journal says; a file may have a thousand."""


@dataclass(frozen=True, slots=True)
class DestinationsChanged(Event):
    """An administrator, or the file of the configuration, has changed through this node what paths are.

    Attributes:
        origin: who.
        described: those that are new or were changed.
        removed: selectors of those that are no more.
    """

    origin: Origin
    described: tuple[Destination, ...] = ()
    removed: tuple[Selector, ...] = ()

    log = log_events.DESTINATIONS_CHANGED
    journal = happened.DESTINATIONS_CHANGED

    def logged(self) -> Fields:
        """See ``Event``."""
        described = [f"{each.kind.value} {each.selector.text}" for each in self.described[:NAMED_DESTINATIONS]]
        removed = [each.text for each in self.removed[:NAMED_DESTINATIONS]]
        return {"origin": self.origin.value, "described": described, "removed": removed, "changes": self._count()}

    def told(self) -> Fields:
        """See ``Event``."""
        names = [f"+{each.kind.value} {each.selector.text}" for each in self.described]
        names += [f"-{each.text}" for each in self.removed]
        return {"names": names[:NAMED_DESTINATIONS], "count": self._count(), "reason": self.origin.value}

    def _count(self) -> int:
        return len(self.described) + len(self.removed)


# --- Other nodes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeSuspected(Event):
    """Another node is not heard any more, and its lease is looked at.

    Attributes:
        node: which.
        silence: seconds since it was heard.
    """

    node: NodeRef
    silence: float

    metric = takeover_metrics.SUSPICIONS
    log = takeover_log_events.NODE_SUSPECTED
    journal = happened.NODE_SUSPECTED

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"suspect": str(self.node), "silence": round(self.silence, 3)}

    def told(self) -> Fields:
        """See ``Event``."""
        return {"peer": self.node.node, "peer_incarnation": self.node.incarnation}


@dataclass(frozen=True, slots=True)
class SuspicionCleared(Event):
    """A node that was suspected is heard again.

    Attributes:
        node: which.
        seconds: for how long it was suspected.
    """

    node: NodeRef
    seconds: float

    metric = takeover_metrics.SUSPICIONS_CLEARED
    log = takeover_log_events.SUSPICION_CLEARED
    journal = happened.NODE_SUSPICION_CLEARED

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"suspect": str(self.node), "seconds": round(self.seconds, 3)}

    def told(self) -> Fields:
        """See ``Event``."""
        return {"peer": self.node.node, "peer_incarnation": self.node.incarnation}


@dataclass(frozen=True, slots=True)
class NodeExpired(Event):
    """Another node's lease has expired, and this one takes over.

    Attributes:
        expiry: of that lease.
    """

    expiry: Expiry

    log = log_events.LEASE_EXPIRED
    journal = happened.NODE_EXPIRED

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"expired": str(self.expiry.node)}

    def told(self) -> Fields:
        """See ``Event``."""
        return self.expiry.told()


@dataclass(frozen=True, slots=True)
class TakeoverFinished(Event):
    """All sessions of an expired node are on the clock.

    Attributes:
        expired: that node.
        sessions: how many there were.
    """

    expired: NodeRef
    sessions: int

    metric = metrics.TAKEOVERS
    log = log_events.TAKEOVER_FINISHED
    journal = happened.NODE_TAKEN_OVER

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"expired": str(self.expired), "sessions": self.sessions}

    def told(self) -> Fields:
        """See ``Event``."""
        return {"peer": self.expired.node, "peer_incarnation": self.expired.incarnation, "count": self.sessions}


@dataclass(frozen=True, slots=True)
class TakeoverContinued(Event):
    """Who took over from an expired node did not finish, and this node goes on.

    Attributes:
        expired: that node.
        stage: name of the stage that was under way.
    """

    expired: NodeRef
    stage: str

    log = takeover_log_events.TAKEOVER_CONTINUED
    journal = happened.NODE_TAKEOVER_CONTINUED

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"expired": str(self.expired), "stage": self.stage}

    def told(self) -> Fields:
        """See ``Event``."""
        return {"peer": self.expired.node, "peer_incarnation": self.expired.incarnation, "reason": self.stage}


@dataclass(frozen=True, slots=True)
class CleanupFinished(Event):
    """What was transient of a node that was taken over is removed.

    Attributes:
        expired: that node.
    """

    expired: NodeRef

    log = takeover_log_events.CLEANUP_FINISHED
    journal = happened.NODE_CLEANED_UP

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"expired": str(self.expired)}

    def told(self) -> Fields:
        """See ``Event``."""
        return {"peer": self.expired.node, "peer_incarnation": self.expired.incarnation}


# --- The grid ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GridLost(Event):
    """The node cannot reach the grid; its connection has logged why."""

    journal = happened.GRID_LOST


@dataclass(frozen=True, slots=True)
class GridRegained(Event):
    """The node reaches the grid again.

    Attributes:
        grid_generation: in force now.
        lost_writes: whether the grid may have forgotten some.
        away: seconds; None if nobody noticed that it went.
    """

    grid_generation: GridGeneration
    lost_writes: bool
    away: float | None

    journal = happened.GRID_REGAINED

    def told(self) -> Fields:
        """See ``Event``."""
        return {
            "generation": self.grid_generation,
            "lost_writes": self.lost_writes,
            "away_ms": None if self.away is None else round(self.away * 1000),
        }


@dataclass(frozen=True, slots=True)
class StreamPositionLost(Event):
    """A partition's stream went on without this node.

    Attributes:
        partition: which topic partition.
    """

    partition: int

    metric = metrics.GRID_POSITIONS_LOST
    log = log_events.POSITION_LOST

    def logged(self) -> Fields:
        """See ``Event``."""
        return {"partition": self.partition}
