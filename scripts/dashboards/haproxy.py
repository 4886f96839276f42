"""HAProxy, by its own exporter, and what clients meet there, by the blackbox exporter."""

from __future__ import annotations

from typing import Final

from scripts.dashboards.model import Dashboard, Panel, Query, Section, Unit
from scripts.dashboards.parts import CLUSTER, figure

_BACKEND: Final = f'proxy="gateway", {CLUSTER}'
_ENDPOINT: Final = f'job="endpoint", {CLUSTER}'
_UNTRIED: Final = "the endpoint is not probed, or speaks no TLS"
_DAY: Final = 86_400
_FRONTEND: Final = f'proxy="clients", {CLUSTER}'


def _rate(metric: str, matchers: str, by: str = "server") -> str:
    return f"sum by ({by}) (rate({metric}{{{matchers}}}[$__rate_interval]))"


HAPROXY: Final = Dashboard(
    name="haproxy",
    title="Gateway: HAProxy",
    meaning="What HAProxy sees of clients and nodes.",
    sections=(
        Section(
            "Now",
            (
                figure(
                    "Nodes in use",
                    "Servers that take new sessions.",
                    f"min(haproxy_backend_active_servers{{{_BACKEND}}})",
                    warn=2,
                    alarm=1,
                    low=True,
                ),
                figure(
                    "Connections",
                    "Of all clients, through all HAProxies.",
                    f"sum(haproxy_frontend_current_sessions{{{_FRONTEND}}})",
                ),
                figure(
                    "Full",
                    "Connections in use, as a share of maxconn.",
                    "max(haproxy_process_current_connections / haproxy_process_max_connections)",
                    unit=Unit.RATIO,
                    warn=0.7,
                    alarm=0.85,
                ),
                figure(
                    "Idle",
                    "Share of the time that HAProxy waits.",
                    "min(haproxy_process_idle_time_percent) / 100",
                    unit=Unit.RATIO,
                    warn=0.3,
                    alarm=0.1,
                    low=True,
                ),
                figure(
                    "Endpoint",
                    "1 while connections to all the addresses that clients use can be opened, tried from outside.",
                    f"min(probe_success{{{_ENDPOINT}}})",
                    alarm=1,
                    low=True,
                    empty=_UNTRIED,
                ),
                figure(
                    "Certificate",
                    "How long the first of the certificates that clients see is still good for.",
                    f"min(probe_ssl_earliest_cert_expiry{{{_ENDPOINT}}}) - time()",
                    unit=Unit.SECONDS,
                    warn=14 * _DAY,
                    alarm=2 * _DAY,
                    low=True,
                    empty=_UNTRIED,
                ),
            ),
        ),
        Section(
            "Nodes",
            (
                Panel(
                    title="Alive",
                    meaning="1 while the health checks of a node pass; a node at 0 has lost all of its connections.",
                    queries=(
                        Query(f'min by (server) (haproxy_server_status{{state="UP", {_BACKEND}}})', "{{server}}"),
                    ),
                ),
                Panel(
                    title="Connections by node",
                    meaning="Of those that went through.",
                    queries=(Query(f"sum by (server) (haproxy_server_current_sessions{{{_BACKEND}}})", "{{server}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Weight",
                    meaning="What the agent check says: 0 for a node that is not ready or drains.",
                    queries=(Query(f"min by (server) (haproxy_server_weight{{{_BACKEND}}})", "{{server}}"),),
                ),
                Panel(
                    title="Tried again, and sent elsewhere",
                    meaning="Requests that were tried again, and those that went to another node than the first: "
                    "dead, hung or draining nodes, of which clients noticed nothing.",
                    queries=(
                        Query(_rate("haproxy_server_retry_warnings_total", _BACKEND), "{{server}} again"),
                        Query(_rate("haproxy_server_redispatch_warnings_total", _BACKEND), "{{server}} elsewhere"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Failed checks and connections",
                    meaning="Health checks that failed, and connections that could not be made.",
                    queries=(
                        Query(_rate("haproxy_server_check_failures_total", _BACKEND), "{{server}} checks"),
                        Query(_rate("haproxy_server_connection_errors_total", _BACKEND), "{{server}} connections"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Time to connect and to answer",
                    meaning="Averages over the last 1,024 requests: until the node's kernel accepted, and until the "
                    "upgrade was answered.",
                    queries=(
                        Query(
                            f"max by (server) (haproxy_server_connect_time_average_seconds{{{_BACKEND}}})",
                            "{{server}} connect",
                        ),
                        Query(
                            f"max by (server) (haproxy_server_response_time_average_seconds{{{_BACKEND}}})",
                            "{{server}} answer",
                        ),
                    ),
                    unit=Unit.SECONDS,
                    warn=0.5,
                ),
            ),
        ),
        Section(
            "Clients",
            (
                Panel(
                    title="New connections",
                    meaning="Clients that connect.",
                    queries=(
                        Query(_rate("haproxy_frontend_connections_total", _FRONTEND, "instance"), "{{instance}}"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Answers",
                    meaning="1xx are upgrades that succeeded; 4xx did not ask for what there is; 5xx found no node.",
                    queries=(Query(_rate("haproxy_frontend_http_responses_total", _FRONTEND, "code"), "{{code}}"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Traffic",
                    meaning="Bytes from and to clients.",
                    queries=(
                        Query(_rate("haproxy_frontend_bytes_in_total", _FRONTEND, "instance"), "{{instance}} in"),
                        Query(_rate("haproxy_frontend_bytes_out_total", _FRONTEND, "instance"), "{{instance}} out"),
                    ),
                    unit=Unit.BYTES_PER_SECOND,
                ),
            ),
        ),
    ),
)
