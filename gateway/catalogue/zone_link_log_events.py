"""Log events of links between clusters; see ``log_events``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.log_event import Level, LogEvent

ZONE_LINK_UP = LogEvent(
    "zone_link_up",
    Level.INFO,
    "A link with another cluster is up. Direction out: this node sends to it.",
    ("remote", "direction", "link"),
)
ZONE_LINK_DOWN = LogEvent(
    "zone_link_down",
    Level.WARNING,
    "A link with another cluster has ended. It is dialled again as long as it is wanted.",
    ("remote", "direction", "link", "why"),
)
ZONE_LINK_FAILED = LogEvent(
    "zone_link_failed",
    Level.WARNING,
    "A link with another cluster does not come about; told again only if the reason changes. It is tried again.",
    ("remote", "link", "why"),
)
ZONE_LINK_REFUSED = LogEvent(
    "zone_link_refused",
    Level.WARNING,
    "Somebody has connected to the port of zone links and may not send here; told at most once a minute for an address "
    "and reason.",
    ("address", "reason", "why"),
)
ZONE_CARRIER = LogEvent(
    "zone_carrier",
    Level.INFO,
    "This node carries a link with another cluster from now on, or does no more.",
    ("link", "term", "carries"),
)
ZONE_GAP = LogEvent(
    "zone_gap",
    Level.ERROR,
    "The stream of a cluster does not reach back to what it sent last to another one. Current values follow; in the "
    "histories there events are missing.",
    ("remote", "partition"),
)
