"""One node, or some of them side by side."""

from __future__ import annotations

from typing import Final

from scripts.dashboards.model import Dashboard, Panel, Query, Section, Unit
from scripts.dashboards.parts import NODE, quantile, rate

_WAITING: Final = "no client of the node reads slowly"

NODE_DASHBOARD: Final = Dashboard(
    name="node",
    title="Gateway: node",
    meaning="One node, or some side by side: its load, its queues, its complaints.",
    by_node=True,
    sections=(
        Section(
            "Load",
            (
                Panel(
                    title="Sessions and connections",
                    meaning="By state; the disconnected ones wait for their client until their window ends, those "
                    "given back do so in the grid alone. More connections than connected sessions: clients that have "
                    "not said who they are yet.",
                    queries=(
                        Query(f"gateway_sessions{{{NODE}}}", "{{node}} {{state}}"),
                        Query(f"gateway_sessions_given_back{{{NODE}}}", "{{node}} given back"),
                        Query(f"gateway_connections{{{NODE}}}", "{{node}} connections"),
                    ),
                ),
                Panel(
                    title="Event loop",
                    meaning="How late a timer fires: p50 and p99.",
                    queries=(
                        Query(quantile(0.5, "gateway_event_loop_lag_seconds", NODE, by="node"), "{{node}} p50"),
                        Query(quantile(0.99, "gateway_event_loop_lag_seconds", NODE, by="node"), "{{node}} p99"),
                    ),
                    unit=Unit.SECONDS,
                    warn=0.1,
                ),
                Panel(
                    title="Processor",
                    meaning="Cores in use; one at most.",
                    queries=(
                        Query(
                            f'rate(process_cpu_seconds_total{{job="gateway", {NODE}}}[$__rate_interval])', "{{node}}"
                        ),
                    ),
                    unit=Unit.RATIO,
                    warn=0.85,
                ),
                Panel(
                    title="Memory",
                    meaning="Resident memory of the process, and what is in it, about: what all resend buffers refer "
                    "to, what connected sessions keep and what those without a client take (shared bodies count each "
                    "time, so that these may exceed the first), requests without an answer, and answers about "
                    "permissions. The bound is where the system draws it.",
                    queries=(
                        Query(f'process_resident_memory_bytes{{job="gateway", {NODE}}}', "{{node}} resident"),
                        Query(f"gateway_resend_buffer_bytes{{{NODE}}}", "{{node}} resend buffers"),
                        Query(f"gateway_disconnected_bytes{{{NODE}}}", "{{node}} sessions without a client"),
                        Query(f"gateway_connected_buffer_bytes{{{NODE}}}", "{{node}} connected sessions"),
                        Query(f"gateway_request_bytes{{{NODE}}}", "{{node}} requests"),
                        Query(f"gateway_permission_answer_bytes{{{NODE}}}", "{{node}} permissions"),
                        Query(f"gateway_memory_limit_bytes{{{NODE}}}", "{{node}} bound"),
                    ),
                    unit=Unit.BYTES,
                ),
                Panel(
                    title="Memory against its bound",
                    meaning="From 85 % on a node takes no new connections and sheds load; 1 while it does.",
                    queries=(
                        Query(
                            f"gateway_memory_used_bytes{{{NODE}}} / (gateway_memory_limit_bytes{{{NODE}}} > 0)",
                            "{{node}}",
                        ),
                        Query(f"gateway_memory_short{{{NODE}}}", "{{node}} sheds"),
                    ),
                    unit=Unit.RATIO,
                    warn=0.85,
                ),
                Panel(
                    title="Open files",
                    meaning="Descriptors in use, as a share of those allowed: each connection takes one.",
                    queries=(
                        Query(
                            f'process_open_fds{{job="gateway", {NODE}}} / process_max_fds{{job="gateway", {NODE}}}',
                            "{{node}}",
                        ),
                    ),
                    unit=Unit.RATIO,
                    warn=0.85,
                ),
                Panel(
                    title="Garbage collections",
                    meaning="Of the oldest generation, each of which stops the node for a moment; rare by design.",
                    queries=(
                        Query(
                            f'rate(python_gc_collections_total{{generation="2", {NODE}}}[$__rate_interval])',
                            "{{node}}",
                        ),
                    ),
                    unit=Unit.PER_SECOND,
                ),
            ),
        ),
        Section(
            "Delivery",
            (
                Panel(
                    title="Deliveries and writes",
                    meaning="Updates written to sessions, and messages that carried them: the further apart, the "
                    "more was joined.",
                    queries=(
                        Query(rate("gateway_deliveries_total", NODE), "{{node}} updates"),
                        Query(rate("gateway_writes_total", NODE), "{{node}} messages"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Through the node",
                    meaning="From an update's arrival to its last write.",
                    queries=(
                        Query(quantile(0.5, "gateway_delivery_seconds", NODE, by="node"), "{{node}} p50"),
                        Query(quantile(0.99, "gateway_delivery_seconds", NODE, by="node"), "{{node}} p99"),
                    ),
                    unit=Unit.SECONDS,
                    warn=0.25,
                ),
                Panel(
                    title="What it follows",
                    meaning="Topic partitions (of 64), and the topics in them whose values it keeps.",
                    queries=(
                        Query(f"gateway_followed_partitions{{{NODE}}}", "{{node}} partitions"),
                        Query(f"gateway_replica_topics{{{NODE}}}", "{{node}} topics"),
                    ),
                ),
            ),
        ),
        Section(
            "Slow clients",
            (
                Panel(
                    title="Blocked sessions and waiting packets",
                    meaning="Sessions whose transport pushes back, and packets that wait for them.",
                    queries=(
                        Query(f"gateway_blocked_sessions{{{NODE}}}", "{{node}} sessions"),
                        Query(f"gateway_outbox_packets{{{NODE}}}", "{{node}} packets"),
                    ),
                ),
                Panel(
                    title="Conflated updates",
                    meaning="Updates that were replaced by a newer one before a slow client could take them.",
                    queries=(Query(rate("gateway_conflated_updates_total", NODE), "{{node}}"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Slow clients closed, and readers slowed down",
                    meaning="Connections closed because their queue reached its bound; seconds for which chatty "
                    "clients were not read.",
                    queries=(
                        Query(rate("gateway_slow_closes_total", NODE), "{{node}} closed"),
                        Query(rate("gateway_rate_limited_seconds_total", NODE), "{{node}} paused"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
            ),
        ),
        Section(
            "Disconnected clients",
            (
                Panel(
                    title="Given up for want of room",
                    meaning="Sessions without a client whose buffers, or whose copies here, were given up, so that the "
                    "node stays within its memory; they go on by failover.",
                    queries=(
                        Query(rate("gateway_disconnected_given_up_total", NODE, by="node, what"), "{{node}} {{what}}"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
            ),
        ),
        Section(
            "Links to other nodes",
            (
                Panel(
                    title="Links",
                    meaning="Links to the other nodes of the cluster that are up, and that are down to a node which "
                    "lives. Without one, sessions move by failover.",
                    queries=(Query(f"gateway_links{{{NODE}}}", "{{node}} {{state}}"),),
                    empty="no node has the setting link",
                ),
                Panel(
                    title="Heard of each other",
                    meaning="Seconds since a node heard of another one. Heartbeats keep it below half a second.",
                    queries=(Query(f"gateway_link_silence_seconds{{{NODE}}}", "{{node}} of {{peer}}"),),
                    unit=Unit.SECONDS,
                    empty="no node has the setting link",
                ),
                Panel(
                    title="Traffic of links",
                    meaning="What nodes say to each other.",
                    queries=(
                        Query(rate("gateway_link_bytes_total", NODE, by="node, direction"), "{{node}} {{direction}}"),
                    ),
                    unit=Unit.BYTES_PER_SECOND,
                    empty="no node has the setting link",
                ),
                Panel(
                    title="Frames, and links that are lost or refused",
                    meaning="Frames of links with heartbeats; links that broke; connections that became none.",
                    queries=(
                        Query(rate("gateway_link_frames_total", NODE, by="node, direction"), "{{node}} {{direction}}"),
                        Query(rate("gateway_links_lost_total", NODE), "{{node}} lost"),
                        Query(rate("gateway_links_refused_total", NODE, by="node, reason"), "{{node}} {{reason}}"),
                    ),
                    unit=Unit.PER_SECOND,
                    empty="no node has the setting link",
                ),
                Panel(
                    title="Waiting in links",
                    meaning="Bytes that wait until the other nodes read them.",
                    queries=(Query(f"gateway_link_queued_bytes{{{NODE}}}", "{{node}}"),),
                    unit=Unit.BYTES,
                    empty="no node has the setting link",
                ),
            ),
        ),
        Section(
            "Log",
            (
                Panel(
                    title="Events",
                    meaning="Everything the node logs, by name; the reference of logs says what each means.",
                    queries=(Query(f"{rate('gateway_events_total', NODE, by='event')} > 0", "{{event}}"),),
                    unit=Unit.PER_SECOND,
                    empty="nothing has happened in that time",
                    width=24,
                ),
            ),
        ),
    ),
)
