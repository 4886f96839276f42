"""What kinds of events there are, and every event of the journal, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.core.journal.fields import FIELDS
from gateway.core.types import Epoch, NodeRef, SessionId


@dataclass(frozen=True, slots=True, eq=False)
class EventType:
    """One kind of journal event; compared by identity, because each is declared exactly once.

    Attributes:
        name: as in records: ``subject_past-tense``.
        meaning: what happened, for people.
        fields: names of the fields that it may carry beside the envelope; each may be left out if there is nothing to
            tell.
        about_session: whether it is about a session, and then in the order of that session's events.
    """

    name: str
    meaning: str
    fields: tuple[str, ...] = ()
    about_session: bool = True


NAMES_TOLD: Final = 20
"""Names of changed properties or selections in one event; there may be a thousand."""

NAME_LENGTH: Final = 256
"""Characters of each of them, and of names of links and clusters."""

SESSION_OPENED = EventType("session_opened", "A client opened a session.", ("principal", "client", "window_ms"))
SESSION_RESUMED = EventType(
    "session_resumed",
    "A client came back to its session. The peer is the node that owned it before.",
    (
        "principal", "rung", "reason", "replayed", "away_ms", "resent", "conflated", "deduplicated", "lost", "peer",
        "peer_incarnation",
    ),
)  # fmt: skip
SESSION_DISCONNECTED = EventType(
    "session_disconnected",
    "A session lost its connection; its window runs.",
    ("principal", "cause", "code", "deduplicated", "packets"),
)
SESSION_ORPHANED = EventType(
    "session_orphaned",
    "The node that served the session died, and a survivor put the session on the clock. The peer is the dead node; "
    "it lived until `since` at least and until `until` at most.",
    ("peer", "peer_incarnation", "since", "until"),
)
SESSION_FENCED = EventType(
    "session_fenced", "The node learned that another one owns the session, and dropped its copy.", ("principal",)
)
SESSION_SLOW_CLOSED = EventType(
    "session_slow_closed",
    "The client read too slowly, and its connection was closed.",
    ("principal", "packets", "bytes"),
)
SESSION_CLOSED = EventType(
    "session_closed",
    "The session was ended on purpose: by its client, an administrator or a revocation.",
    ("principal", "reason"),
)
SESSION_EXPIRED = EventType(
    "session_expired", "The window of the session ended before its client resumed.", ("principal",)
)
SESSION_REFUSED = EventType(
    "session_refused",
    "A resume was refused. The session is known only if the token is genuine.",
    ("reason", "away_ms"),
)
SESSION_PROPERTIES_CHANGED = EventType(
    "session_properties_changed", "Properties of the session were set or removed.", ("principal", "names", "count")
)
SESSION_SELECTIONS_CHANGED = EventType(
    "session_selections_changed",
    "Selections of the session were added (`+`) or removed (`-`), by its client or because it may not have them any "
    "more; `count` are in force now, among them what is left of one that was taken away in part.",
    ("principal", "names", "count"),
)
NODE_STARTED = EventType("node_started", "The node accepts connections.", (), about_session=False)
NODE_DRAINING = EventType("node_draining", "The node moves its clients to others.", ("sessions",), about_session=False)
NODE_STOPPED = EventType("node_stopped", "The node has stopped as planned.", ("sessions",), about_session=False)
NODE_LEASE_LOST = EventType(
    "node_lease_lost", "The node found its own lease expired, after a pause or an outage.", (), about_session=False
)
NODE_EXPIRED = EventType(
    "node_expired",
    "The lease of the peer expired: it died, or hangs. It lived until `since` at least.",
    ("peer", "peer_incarnation", "since", "until"),
    about_session=False,
)
NODE_TAKEN_OVER = EventType(
    "node_taken_over",
    "The windows of all sessions of the peer whose lease expired have begun; `count` is their number.",
    ("peer", "peer_incarnation", "count"),
    about_session=False,
)
NODE_SUSPECTED = EventType(
    "node_suspected",
    "The node does not hear the peer any more over their link, and looks at its lease.",
    ("peer", "peer_incarnation"),
    about_session=False,
)
NODE_SUSPICION_CLEARED = EventType(
    "node_suspicion_cleared",
    "The node hears the peer again, which it had suspected.",
    ("peer", "peer_incarnation"),
    about_session=False,
)
NODE_TAKEOVER_CONTINUED = EventType(
    "node_takeover_continued",
    "Who took over from the peer did not finish, and this node goes on; the reason is the stage that was under way.",
    ("peer", "peer_incarnation", "reason"),
    about_session=False,
)
NODE_CLEANED_UP = EventType(
    "node_cleaned_up",
    "The peer was taken over and has not come back in time: what was transient of it is removed.",
    ("peer", "peer_incarnation"),
    about_session=False,
)
DESTINATIONS_CHANGED = EventType(
    "destinations_changed",
    "What paths are was described (`+` and the kind) or taken back (`-`) through this node; the reason tells by whom: "
    "an `administrator`, or the `file`. `count` are all of these changes.",
    ("names", "count", "reason"),
    about_session=False,
)
GRID_LOST = EventType("grid_lost", "The node cannot reach the grid.", (), about_session=False)
GRID_REGAINED = EventType(
    "grid_regained", "The node reaches the grid again.", ("generation", "lost_writes", "away_ms"), about_session=False
)
TRAFFIC_MEASURED = EventType(
    "traffic_measured",
    "What passed from `since` to `until`, about once a minute: one record for the node, and one for each root of "
    "topics with traffic, the busiest ones; the rest together under the root `*`.",
    ("root", "since", "until", "deliveries", "publishes", "bytes", "connections", "sessions", "cpu_ms"),
    about_session=False,
)
QUEUE_MEASURED = EventType(
    "queue_measured",
    "What passed through a queue at this node from `since` to `until`, about once a minute: one record for each queue "
    "with traffic, the busiest ones; the rest together under the queue `*`.",
    (
        "queue", "since", "until", "sent", "given", "redelivered", "accepted", "rejected", "released", "settle_ms",
        "settle_max_ms",
    ),
    about_session=False,
)  # fmt: skip
MASTER_ELECTED = EventType(
    "master_elected",
    "The node has become the master of its cluster. The peer was it before, as far as the node knew.",
    ("term", "peer", "peer_incarnation"),
    about_session=False,
)
MASTER_MISSED = EventType(
    "master_missed",
    "The node finds that its cluster has no master. The peer was the last one, in that term.",
    ("term", "peer", "peer_incarnation"),
    about_session=False,
)
ZONE_LINK_CONNECTED = EventType(
    "zone_link_connected", "A link with another cluster is up.", ("link", "remote", "direction"), about_session=False
)
ZONE_LINK_LOST = EventType(
    "zone_link_lost",
    "A link with another cluster has ended, which was up since `since`; the reason tells whether one of both `refused` "
    "it, or the node has `given_up` to carry it, or it was just `lost`.",
    ("link", "remote", "direction", "since", "reason"),
    about_session=False,
)
ZONE_GAP_FOUND = EventType(
    "zone_gap_found",
    "The stream of the sending cluster did not reach back to what had crossed a link: histories on the other side lack "
    "events.",
    ("link", "remote", "direction"),
    about_session=False,
)
ZONE_LINK_MEASURED = EventType(
    "zone_link_measured",
    "What crossed a link with another cluster from `since` to `until`, about once a minute: one record for each link "
    "with traffic, or behind, the busiest ones; the rest together under the link `*`.",
    (
        "link", "remote", "direction", "since", "until", "events", "bytes", "taken", "repeated", "refused", "behind",
    ),
    about_session=False,
)  # fmt: skip
EVENTS_DROPPED = EventType(
    "events_dropped",
    "`count` events of this node are missing: they could not be written in time. The numbers of their ids are missing, "
    "too.",
    ("count", "since", "until", "reason"),
    about_session=False,
)

EVENT_TYPES: Final[Mapping[str, EventType]] = {
    each.name: each for each in list(globals().values()) if isinstance(each, EventType)
}
"""All of them by name, in the order of this file."""


def event_type(name: str) -> EventType | None:
    """Find an event type; None if this version does not know it."""
    return EVENT_TYPES.get(name)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who tells: the same for all events of one run of a node.

    Attributes:
        node: the node and its incarnation.
        release: version of the gateway.
    """

    node: NodeRef
    release: str


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """One event, before it has a number.

    Attributes:
        type: what happened.
        at: microseconds since 1970.
        session: to which session, if to one.
        epoch: of the session.
        told: the values of its fields, by name; None and missing mean the same.
    """

    type: EventType
    at: int
    session: SessionId | None = None
    epoch: Epoch | None = None
    told: Mapping[str, object] = field(default_factory=dict)


if unknown := {name for each in EVENT_TYPES.values() for name in each.fields} - FIELDS.keys():
    raise AssertionError(f"fields of journal events that are not declared: {sorted(unknown)}")
