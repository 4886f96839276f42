"""The whole cluster at a glance."""

from __future__ import annotations

from typing import Final

from scripts.dashboards.model import Dashboard, Panel, Query, Section, Unit
from scripts.dashboards.parts import CLUSTER, figure, quantile, rate, spread

FLEET: Final = Dashboard(
    name="fleet",
    title="Gateway: fleet",
    meaning="The whole cluster: who is there, what flows, how fast it arrives.",
    sections=(
        Section(
            "Now",
            (
                figure(
                    "Nodes",
                    "Nodes that answer Prometheus.",
                    f'sum(up{{job="gateway", {CLUSTER}}})',
                    warn=2,
                    alarm=1.5,
                    low=True,
                ),
                figure(
                    "Connected sessions",
                    "Sessions with a client.",
                    f'sum(gateway_sessions{{state="connected", {CLUSTER}}})',
                ),
                figure(
                    "Waiting sessions",
                    "Disconnected sessions; they are kept until their windows end.",
                    f'sum(gateway_sessions{{state="disconnected", {CLUSTER}}})',
                ),
                figure(
                    "Deliveries",
                    "Updates written to sessions.",
                    f"sum(rate(gateway_deliveries_total{{{CLUSTER}}}[$__rate_interval]))",
                    unit=Unit.PER_SECOND,
                ),
                figure(
                    "Publishes",
                    "Publishes that are in the grid.",
                    f'sum(rate(gateway_publishes_total{{result="published", {CLUSTER}}}[$__rate_interval]))',
                    unit=Unit.PER_SECOND,
                ),
                figure(
                    "Alerts",
                    "Alerts of the gateway that fire.",
                    'count(ALERTS{alertstate="firing", alertname=~"Gateway.+"}) or vector(0)',
                    warn=1,
                    alarm=3,
                ),
            ),
        ),
        Section(
            "Sessions",
            (
                Panel(
                    title="Connected sessions by node",
                    meaning="A node that dies gives its sessions to the others; the sum dips for as long as that "
                    "takes.",
                    queries=(Query(f'sum by (node) (gateway_sessions{{state="connected", {CLUSTER}}})', "{{node}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Arrivals and ends",
                    meaning="New sessions, resumes by recovery outcome or reason of refusal, and sessions "
                    "that nodes ended, by reason.",
                    queries=(
                        Query(rate("gateway_sessions_opened_total", by=""), "opened"),
                        Query(f"{rate('gateway_resumes_total', by='outcome')} > 0", "{{outcome}}"),
                        Query(f"{rate('gateway_sessions_ended_total', by='reason')} > 0", "ended: {{reason}}"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Connections closed by nodes",
                    meaning="By close code; the reference of close codes says what each means.",
                    queries=(Query(f"{rate('gateway_closes_total', by='code')} > 0", "{{code}}"),),
                    unit=Unit.PER_SECOND,
                    empty="no node has closed a connection in that time",
                ),
            ),
        ),
        Section(
            "Traffic",
            (
                Panel(
                    title="Deliveries by node",
                    meaning="Updates written to sessions.",
                    queries=(Query(rate("gateway_deliveries_total"), "{{node}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    title="Publishes",
                    meaning="By result: duplicates are resubmissions after a reconnect, recognised and not stored "
                    "again.",
                    queries=(Query(rate("gateway_publishes_total", by="result"), "{{result}}"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Updates by first segment of the topic",
                    meaning="Updates read from the grid by the busiest node; segments are those of the setting "
                    "metrics_topics.",
                    queries=(
                        Query(
                            f"max by (root) (rate(gateway_topic_updates_total{{{CLUSTER}}}[$__rate_interval]))",
                            "{{root}}",
                        ),
                    ),
                    unit=Unit.PER_SECOND,
                    empty="the setting metrics_topics names no first segment",
                ),
            ),
        ),
        Section(
            "Time",
            (
                Panel(
                    title="Through the node",
                    meaning="From an update's arrival at a node to its last write, all nodes together.",
                    queries=spread("gateway_delivery_seconds"),
                    unit=Unit.SECONDS,
                    warn=0.25,
                ),
                Panel(
                    title="Publish, round trip",
                    meaning="From a publish being begun at a node to its reply being ready: one step of the grid.",
                    queries=spread("gateway_publish_seconds"),
                    unit=Unit.SECONDS,
                    warn=0.25,
                ),
                Panel(
                    title="From publish to update",
                    meaning="From a publish being sent to the grid to its update being read back by the same node.",
                    queries=spread("gateway_grid_tail_lag_seconds"),
                    unit=Unit.SECONDS,
                    warn=1,
                    empty="no node follows what its own clients publish",
                ),
            ),
        ),
        Section(
            "Unauthenticated clients",
            (
                Panel(
                    title="Rejected connections",
                    meaning="Connections to the client port that did not become a WebSocket, and such to the admin "
                    "port that were slow, silent, said too much or made room for newer ones, by reason.",
                    queries=(
                        Query(f"{rate('gateway_upgrades_refused_total', by='reason')} > 0", "{{reason}}"),
                        Query(
                            f"{rate('gateway_admin_connections_refused_total', by='reason')} > 0",
                            "admin port: {{reason}}",
                        ),
                    ),
                    unit=Unit.PER_SECOND,
                    empty="no connection was rejected in that time",
                ),
                Panel(
                    title="Calls by HTTP",
                    meaning="Requests of back ends, by what became of them: answered, refused, limited because there "
                    "were too many, failed here, or abandoned by who called.",
                    queries=(Query(f"{rate('gateway_calls_total', by='outcome')} > 0", "{{outcome}}"),),
                    unit=Unit.PER_SECOND,
                    empty="nobody calls by HTTP",
                ),
                Panel(
                    title="Refused: credentials and permissions",
                    meaning="Credentials that were not accepted, could not be judged, or found no place to be "
                    "verified; requests for what the policy does not allow, and selectors that a changed policy took "
                    "away.",
                    queries=(
                        Query(
                            rate("gateway_authentications_total", f'outcome!="accepted", {CLUSTER}', by="outcome"),
                            "credentials {{outcome}}",
                        ),
                        Query(
                            f"{rate('gateway_verifications_refused_total', by='reason')} > 0",
                            "not verified: {{reason}}",
                        ),
                        Query(rate("gateway_forbidden_total", by="permission"), "{{permission}} forbidden"),
                        Query(rate("gateway_selections_withdrawn_total"), "{{node}} selectors withdrawn"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Limits exceeded",
                    meaning="Connections, sessions, requests and messages that met a limit, by the name of the "
                    "setting.",
                    queries=(Query(f"{rate('gateway_limits_exceeded_total', by='limit')} > 0", "{{limit}}"),),
                    unit=Unit.PER_SECOND,
                    empty="no limit was reached in that time",
                ),
                Panel(
                    title="Broken rules, and revocations",
                    meaning="WebSockets closed because their client broke a rule of the protocol, or slowed down for "
                    "floods of frames; revocations in force.",
                    queries=(
                        Query(f"{rate('gateway_frame_violations_total', by='rule')} > 0", "{{rule}}/s"),
                        Query(f"max by (kind) (gateway_revocations{{{CLUSTER}}})", "{{kind}} revoked"),
                        Query(f"{rate('gateway_reading_slowed_total', by='of')} > 0", "{{of}} slowed/s"),
                    ),
                ),
            ),
        ),
        Section(
            "Machines",
            (
                Panel(
                    title="Processor",
                    meaning="Cores in use; a node has one event loop and can use one core.",
                    queries=(
                        Query(
                            f'rate(process_cpu_seconds_total{{job="gateway", {CLUSTER}}}[$__rate_interval])', "{{node}}"
                        ),
                    ),
                    unit=Unit.RATIO,
                    warn=0.85,
                ),
                Panel(
                    title="Memory",
                    meaning="Resident memory of each node.",
                    queries=(Query(f'process_resident_memory_bytes{{job="gateway", {CLUSTER}}}', "{{node}}"),),
                    unit=Unit.BYTES,
                ),
                Panel(
                    title="Event loop",
                    meaning="How late a timer fires, p99 by node: the best single sign of an overloaded node.",
                    queries=(Query(quantile(0.99, "gateway_event_loop_lag_seconds", by="node"), "{{node}}"),),
                    unit=Unit.SECONDS,
                    warn=0.1,
                ),
            ),
        ),
    ),
)
