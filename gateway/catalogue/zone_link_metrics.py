"""Metrics of links between clusters; part of ``metrics``."""

from __future__ import annotations

from typing import Final

from gateway.catalogue.metric import Kind, Metric
from gateway.core.zones.protocol import ZoneRefusal
from gateway.core.zones.routes import Stopped

REFUSED_BY_PORT: Final = ("tls", "crowded")
"""Why the port itself refuses: no certificate that is vouched for, or room was needed for others."""

ZONE_LINKS = Metric(
    "gateway_zone_links",
    Kind.GAUGE,
    "Links to other clusters that are up at this node, by direction: out are those over which it sends.",
    "direction",
    ("out", "in"),
)
ZONE_LINKS_WANTED = Metric(
    "gateway_zone_links_wanted",
    Kind.GAUGE,
    "Links to other clusters that this node is to keep up as a carrier; if fewer are up, a cluster gets nothing.",
)
ZONE_LINKS_REFUSED = Metric(
    "gateway_zone_links_refused_total",
    Kind.COUNTER,
    "Connections to the port of zone links that did not become a link, or were ended by this node, by reason.",
    "reason",
    (*REFUSED_BY_PORT, *(each.value for each in ZoneRefusal)),
)
ZONE_LINKS_LOST = Metric(
    "gateway_zone_links_lost_total", Kind.COUNTER, "Links to other clusters that broke, or could not be made."
)
ZONE_EVENTS = Metric(
    "gateway_zone_events_total",
    Kind.COUNTER,
    "Events that crossed between clusters, by direction.",
    "direction",
    ("out", "in"),
)
ZONE_BYTES = Metric(
    "gateway_zone_link_bytes_total",
    Kind.COUNTER,
    "Bytes of messages over links to other clusters, by direction, without those of TLS.",
    "direction",
    ("out", "in"),
)
ZONE_STOPPED = Metric(
    "gateway_zone_events_stopped_total",
    Kind.COUNTER,
    "Events that went no further, by reason: hop (a member of the zone sent it, and sends to the others itself), loop "
    "and hops (joins), system (a topic of the system), policy, stamp (a time far in the future), invalid.",
    "reason",
    (*(each.value for each in Stopped), "policy", "stamp", "invalid"),
)
ZONE_NOT_APPLIED = Metric(
    "gateway_zone_events_not_applied_total",
    Kind.COUNTER,
    "Events that came and changed nothing, by reason: duplicate (it had come another way), older (the topic has a "
    "newer value), not_created and not_stored (limits of topics).",
    "reason",
    ("duplicate", "older", "not_created", "not_stored"),
)
ZONE_WAITING = Metric(
    "gateway_zone_events_unacknowledged",
    Kind.GAUGE,
    "Events that were sent to other clusters and not acknowledged yet.",
)
ZONE_BEHIND = Metric(
    "gateway_zone_events_behind",
    Kind.GAUGE,
    "Entries of the streams that have yet to be looked at for other clusters; of the link that is furthest behind.",
)
ZONE_GAPS = Metric(
    "gateway_zone_gaps_total",
    Kind.COUNTER,
    "Topic partitions whose stream did not reach back to what was sent last to another cluster, so that events are "
    "missing in histories there.",
)
ZONE_CARRIED = Metric(
    "gateway_zone_carrier_changes_total", Kind.COUNTER, "Times that this node became the carrier of a link."
)
ZONE_CLOCK = Metric(
    "gateway_zone_clock_difference_seconds",
    Kind.GAUGE,
    "Largest difference between the clocks of this node and of the other end of a link, the time under way included.",
)
ZONE_INTEREST = Metric(
    "gateway_zone_link_interest_selectors",
    Kind.GAUGE,
    "Selectors of interest, by whose it is: own is what other clusters are told, others what they have told.",
    "whose",
    ("own", "others"),
)
