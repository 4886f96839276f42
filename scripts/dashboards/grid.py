"""Redis, as nodes see it and as it says of itself."""

from __future__ import annotations

from typing import Final

from scripts.dashboards.model import Dashboard, Panel, Query, Section, Unit
from scripts.dashboards.parts import CLUSTER, figure, quantile, rate, spread


def _of_master(metric: str) -> str:
    """Every node tells the same of a master."""
    return f"max by (master) ({metric}{{{CLUSTER}}})"


def _rate_of_master(metric: str) -> str:
    return f"max by (master) (rate({metric}{{{CLUSTER}}}[$__rate_interval]))"


GRID: Final = Dashboard(
    name="grid",
    title="Gateway: grid",
    meaning="Redis, as the nodes see it and as it says of itself.",
    sections=(
        Section(
            "Now",
            (
                figure(
                    "Nodes with a grid",
                    "Share of the nodes that can reach it.",
                    f"avg(gateway_grid_up{{{CLUSTER}}})",
                    unit=Unit.RATIO,
                    warn=1,
                    alarm=0.5,
                    low=True,
                ),
                figure("Masters", "Redis processes that take writes.", f"max(gateway_grid_masters{{{CLUSTER}}})"),
                figure(
                    "Generation",
                    "Grows by one whenever the grid came back with less than it had.",
                    f"max(gateway_grid_generation{{{CLUSTER}}})",
                ),
                figure(
                    "Clocks apart",
                    "Largest difference between the clocks of the masters.",
                    f"max(gateway_grid_clock_spread_seconds{{{CLUSTER}}})",
                    unit=Unit.SECONDS,
                    warn=1,
                ),
                figure(
                    "Disk",
                    "1 while every master writes to its disk as it should.",
                    f"min(gateway_grid_persistence_ok{{{CLUSTER}}})",
                    alarm=1,
                    low=True,
                ),
                figure(
                    "Evicted keys",
                    "Must stay 0: see maxmemory-policy.",
                    f"max(gateway_grid_evicted_keys_total{{{CLUSTER}}})",
                    alarm=1,
                ),
            ),
        ),
        Section(
            "As the nodes see it",
            (
                Panel(
                    title="Reachable",
                    meaning="1 while the grid is reachable and adopted.",
                    queries=(Query(f"gateway_grid_up{{{CLUSTER}}}", "{{node}}"),),
                ),
                Panel(
                    title="Pipeline, round trip",
                    meaning="From a pipeline being sent to its last answer, all nodes together.",
                    queries=spread("gateway_grid_step_seconds"),
                    unit=Unit.SECONDS,
                    warn=0.25,
                ),
                Panel(
                    title="Commands in a pipeline",
                    meaning="The busier a node, the more commands share a round trip.",
                    queries=spread("gateway_grid_batch_commands"),
                ),
                Panel(
                    title="From publish to update",
                    meaning="From sending a publish to reading its update back, p99 by node.",
                    queries=(Query(quantile(0.99, "gateway_grid_tail_lag_seconds", by="node"), "{{node}}"),),
                    unit=Unit.SECONDS,
                    warn=1,
                    empty="no node follows what its own clients publish",
                ),
                Panel(
                    title="Silence of the streams",
                    meaning="Time since the last read of the streams ended, with news or without; a healthy node's "
                    "stays below three seconds.",
                    queries=(Query(f"gateway_grid_tail_silence_seconds{{{CLUSTER}}}", "{{node}}"),),
                    unit=Unit.SECONDS,
                    warn=5,
                    alarm=30,
                ),
                Panel(
                    title="Updates read, places lost",
                    meaning="Updates that each node reads from the streams; partitions whose values had to be read "
                    "again.",
                    queries=(
                        Query(rate("gateway_stream_updates_total"), "{{node}} updates"),
                        Query(rate("gateway_grid_positions_lost_total"), "{{node}} places lost"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Foreign data",
                    meaning="Entries, fields and keys that are not the gateway's, or broken, within ten minutes; they "
                    "were skipped. None, unless another program writes below our prefix.",
                    queries=(Query(f"increase(gateway_grid_foreign_data_total{{{CLUSTER}}}[10m])", "{{node}}"),),
                    alarm=1,
                ),
            ),
        ),
        Section(
            "As Redis says",
            (
                Panel(
                    title="Memory",
                    meaning="What each master uses, and its maxmemory if it has one; and what sessions take of all "
                    "masters together, as the nodes count it.",
                    queries=(
                        Query(_of_master("gateway_grid_memory_bytes"), "{{master}} used"),
                        Query(f"{_of_master('gateway_grid_memory_limit_bytes')} > 0", "{{master}} limit"),
                        Query('sum(gateway_stored_session_bytes{cluster=~"$cluster"})', "sessions"),
                    ),
                    unit=Unit.BYTES,
                ),
                Panel(
                    title="Processor",
                    meaning="Cores in use; commands are executed by one.",
                    queries=(Query(_rate_of_master("gateway_grid_cpu_seconds_total"), "{{master}}"),),
                    unit=Unit.RATIO,
                    warn=0.7,
                ),
                Panel(
                    title="Commands",
                    meaning="As Redis counts them.",
                    queries=(Query(_rate_of_master("gateway_grid_commands_total"), "{{master}}"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Connections and replicas",
                    meaning="Each node has two connections to each master.",
                    queries=(
                        Query(_of_master("gateway_grid_clients"), "{{master}} connections"),
                        Query(_of_master("gateway_grid_replicas"), "{{master}} replicas"),
                    ),
                ),
            ),
        ),
        Section(
            "Session journal",
            (
                Panel(
                    title="Events",
                    meaning="Events of the session journal that are in the grid, those that were dropped, and those "
                    "that were cut before their reader had them.",
                    queries=(
                        Query(rate("gateway_journal_events_total"), "{{node}}"),
                        Query(f"{rate('gateway_journal_dropped_total', by='reason')} > 0", "dropped: {{reason}}"),
                        Query(f"{rate('gateway_journal_cut_total', by='state')} > 0", "cut: {{state}}"),
                    ),
                    unit=Unit.PER_SECOND,
                    empty="no journal is written",
                ),
                Panel(
                    title="Waiting",
                    meaning="Events that are not in the grid yet; they are dropped beyond a bound.",
                    queries=(Query(f"sum by (node) (gateway_journal_waiting_events{{{CLUSTER}}})", "{{node}}"),),
                    empty="no journal is written",
                ),
                Panel(
                    title="Writing, p99",
                    meaning="Time of the grid to store a batch, p99; no client waits for it.",
                    queries=(Query(quantile(0.99, "gateway_journal_append_seconds", by="node"), "{{node}}"),),
                    unit=Unit.SECONDS,
                    empty="no journal is written",
                ),
            ),
        ),
        Section(
            "Event hooks",
            (
                Panel(
                    title="Events taken by receivers",
                    meaning="Events that receivers have taken, requests to them that failed, and gaps that they were "
                    "told.",
                    queries=(
                        Query(rate("gateway_hook_events_total", by="hook"), "{{hook}}"),
                        Query(f"{rate('gateway_hook_failures_total', by='hook')} > 0", "failed requests: {{hook}}"),
                        Query(f"{rate('gateway_hook_gaps_total', by='hook')} > 0", "gaps: {{hook}}"),
                        Query(f"{rate('gateway_hook_missing_events_total', by='hook')} > 0", "missing: {{hook}}"),
                    ),
                    unit=Unit.PER_SECOND,
                    empty="there are no hooks",
                ),
                Panel(
                    title="Age of the oldest event not taken",
                    meaning="How long the oldest event that is being sent has waited for its receiver.",
                    queries=(Query(f"max by (hook) (gateway_hook_behind_seconds{{{CLUSTER}}})", "{{hook}}"),),
                    unit=Unit.SECONDS,
                    empty="there are no hooks",
                ),
                Panel(
                    title="Answering, p99",
                    meaning="Time of receivers to answer a request, p99.",
                    queries=(Query(quantile(0.99, "gateway_hook_request_seconds", by="node"), "{{node}}"),),
                    unit=Unit.SECONDS,
                    empty="there are no hooks",
                ),
                Panel(
                    title="Events behind",
                    meaning="Events of the journal that a hook has yet to pass.",
                    queries=(Query(f"max by (hook) (gateway_hook_behind_events{{{CLUSTER}}})", "{{hook}}"),),
                    empty="there are no hooks",
                ),
            ),
        ),
    ),
)
