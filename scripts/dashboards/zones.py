"""Zones: links with other clusters, what crosses them, and who is interested in what."""

from __future__ import annotations

from typing import Final

from scripts.dashboards.model import Dashboard, Panel, Query, Section, Unit
from scripts.dashboards.parts import CLUSTER, figure, rate

_NOTHING: Final = "nothing of it has happened in that time"

ZONES: Final = Dashboard(
    name="zones",
    title="Gateway: zones",
    meaning="Links with other clusters: whether they are up, what crosses them, and what does not.",
    sections=(
        Section(
            "Now",
            (
                figure(
                    "Links down",
                    "Links over which the cluster has to send and cannot; with several clusters, of all of them.",
                    f"sum(gateway_zone_links_wanted{{{CLUSTER}}}) - "
                    f'sum(gateway_zone_links{{direction="out", {CLUSTER}}})',
                    warn=1,
                    alarm=1.5,
                ),
                figure(
                    "Members",
                    "Clusters in the zone, this one included; 0 if it is in none. It can be linked by joins all the "
                    "same.",
                    f"max(gateway_zone_members{{{CLUSTER}}})",
                ),
                figure(
                    "Joins",
                    "Static joins, in both directions.",
                    f"max(gateway_zone_joins{{{CLUSTER}}})",
                ),
                figure(
                    "Behind",
                    "Updates that have yet to be looked at for the link that is furthest behind. A topic partition "
                    "keeps 10,000 unless stream_length says otherwise; what is cut before it was sent is a gap.",
                    f"max(gateway_zone_events_behind{{{CLUSTER}}})",
                    warn=1000,
                    alarm=5000,
                ),
                figure(
                    "Gaps",
                    "Topic partitions whose stream did not reach back to what was sent last, within an hour.",
                    f"sum(increase(gateway_zone_gaps_total{{{CLUSTER}}}[1h]))",
                    warn=0.5,
                ),
                figure(
                    "Clock difference",
                    "Largest difference from the clock of another cluster, the time under way included.",
                    f"max(gateway_zone_clock_difference_seconds{{{CLUSTER}}})",
                    unit=Unit.SECONDS,
                    warn=1,
                    alarm=2,
                ),
            ),
        ),
        Section(
            "Links",
            (
                Panel(
                    title="Links by node",
                    meaning="Links that a node is to keep up as a carrier, those that are up over which it sends "
                    "(out), and those over which others send to it (in). Wanted above out: a cluster gets nothing.",
                    queries=(
                        Query(f"sum by (node) (gateway_zone_links_wanted{{{CLUSTER}}})", "{{node}} wanted"),
                        Query(
                            f"sum by (node, direction) (gateway_zone_links{{{CLUSTER}}})",
                            "{{node}} {{direction}}",
                        ),
                    ),
                ),
                Panel(
                    title="Lost links, and changes of carriers",
                    meaning="Links that broke or could not be made, and nodes that became the carrier of a link. Both "
                    "happen when nodes stop; again and again, they tell of a bad network or of nodes that lose their "
                    "leases.",
                    queries=(
                        Query(rate("gateway_zone_links_lost_total"), "{{node}} lost"),
                        Query(rate("gateway_zone_carrier_changes_total"), "{{node}} carries"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Refused at the port of zone links",
                    meaning="Connections that did not become a link, or were ended by this side, by reason; the "
                    "protocol of zone links says what each means. Stopped and stale belong to nodes that stop.",
                    queries=(Query(f"{rate('gateway_zone_links_refused_total', by='reason')} > 0", "{{reason}}"),),
                    unit=Unit.PER_SECOND,
                    empty="nobody was refused in that time",
                ),
            ),
        ),
        Section(
            "What crosses",
            (
                Panel(
                    title="Events",
                    meaning="Events that crossed, by direction.",
                    queries=(Query(rate("gateway_zone_events_total", by="node, direction"), "{{node}} {{direction}}"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Traffic",
                    meaning="Bytes of messages over links, without those of TLS. A link takes zone_byte_rate at most; "
                    "what comes faster waits at the sender.",
                    queries=(
                        Query(rate("gateway_zone_link_bytes_total", by="node, direction"), "{{node}} {{direction}}"),
                    ),
                    unit=Unit.BYTES_PER_SECOND,
                ),
                Panel(
                    title="Waiting",
                    meaning="Updates that a link has yet to look at, and events that were sent and not acknowledged. "
                    "Both high: the other cluster is slow, or the network. Behind alone: this node is.",
                    queries=(
                        Query(f"max by (node) (gateway_zone_events_behind{{{CLUSTER}}})", "{{node}} behind"),
                        Query(
                            f"sum by (node) (gateway_zone_events_unacknowledged{{{CLUSTER}}})",
                            "{{node}} not acknowledged",
                        ),
                    ),
                    warn=5000,
                ),
                Panel(
                    title="Gaps",
                    meaning="Topic partitions whose stream did not reach back to what was sent last. Current values "
                    "follow; histories miss events. Both ends count them.",
                    queries=(
                        Query(
                            f"sum by (node) (increase(gateway_zone_gaps_total{{{CLUSTER}}}[$__rate_interval]))",
                            "{{node}}",
                        ),
                    ),
                ),
                Panel(
                    title="Went no further",
                    meaning="Events that were stopped. Hop, loop and hops keep them from going in circles, system and "
                    "policy are as configured; stamp and invalid are faults.",
                    queries=(Query(f"{rate('gateway_zone_events_stopped_total', by='reason')} > 0", "{{reason}}"),),
                    unit=Unit.PER_SECOND,
                    empty=_NOTHING,
                ),
                Panel(
                    title="Came and changed nothing",
                    meaning="Duplicates came another way, older ones were overtaken. What was not created or not "
                    "stored met a limit of topics here, so that the clusters differ.",
                    queries=(Query(f"{rate('gateway_zone_events_not_applied_total', by='reason')} > 0", "{{reason}}"),),
                    unit=Unit.PER_SECOND,
                    empty=_NOTHING,
                ),
            ),
        ),
        Section(
            "Interest and clocks",
            (
                Panel(
                    title="Interest that links tell",
                    meaning="Selectors: own is what other clusters are told, others is what they have told. Above "
                    "1,000 they are widened, and more crosses than is needed.",
                    queries=(
                        Query(
                            f"max by (node, whose) (gateway_zone_link_interest_selectors{{{CLUSTER}}})",
                            "{{node}} {{whose}}",
                        ),
                    ),
                    warn=1000,
                ),
                Panel(
                    title="Interest by node",
                    meaning="Selectors by which each node tells what its sessions select, after compaction.",
                    queries=(Query(f"sum by (node) (gateway_zone_interest_selectors{{{CLUSTER}}})", "{{node}}"),),
                ),
                Panel(
                    title="Clock difference",
                    meaning="Largest difference from the clock of the other end of a link. It includes the time under "
                    "way, so a crowded link shows one, too.",
                    queries=(Query(f"max by (node) (gateway_zone_clock_difference_seconds{{{CLUSTER}}})", "{{node}}"),),
                    unit=Unit.SECONDS,
                    warn=2,
                ),
            ),
        ),
    ),
)
