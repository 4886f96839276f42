"""Queues, histories, durable subscriptions and transactions."""

from __future__ import annotations

from typing import Final

from scripts.dashboards.model import Dashboard, Panel, Query, Section, Unit
from scripts.dashboards.parts import CLUSTER, figure, rate

QUEUES: Final = Dashboard(
    name="queues",
    title="Gateway: queues",
    meaning="What waits in queues, who takes it, and what failed; durable subscriptions and transactions.",
    sections=(
        Section(
            "Now",
            (
                figure(
                    "Ready",
                    "Messages that wait for a consumer.",
                    f'sum(gateway_queue_messages{{state="ready", {CLUSTER}}})',
                ),
                figure(
                    "Held",
                    "Messages that consumers hold.",
                    f'sum(gateway_queue_messages{{state="held", {CLUSTER}}})',
                ),
                figure(
                    "Dead letters",
                    "Messages that nobody is given any more.",
                    f'sum(gateway_queue_messages{{state="dead", {CLUSTER}}})',
                    warn=1,
                ),
                figure(
                    "Oldest",
                    "For how long the message has waited that has waited longest.",
                    f"max(gateway_queue_oldest_seconds{{{CLUSTER}}})",
                    unit=Unit.SECONDS,
                    warn=900,
                ),
                figure(
                    "Queues",
                    "Queues in which something is, or from which somebody consumes.",
                    f"sum(gateway_queues{{{CLUSTER}}})",
                ),
                figure(
                    "Without consumers",
                    "Queues in which messages wait, and from which nobody consumes.",
                    f"sum(gateway_queues_unattended{{{CLUSTER}}})",
                    warn=1,
                ),
            ),
        ),
        Section(
            "Messages",
            (
                Panel(
                    title="Sent",
                    meaning="Messages that clients sent, by what came of it.",
                    queries=(Query(rate("gateway_queue_sends_total", by="result"), "{{result}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    title="Given to consumers",
                    meaning="Messages that nodes sent to consumers; more than are sent if some are given again.",
                    queries=(Query(rate("gateway_queue_deliveries_total"), "{{node}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    title="Settled",
                    meaning="Messages that consumers accepted, rejected or released.",
                    queries=(Query(rate("gateway_queue_settlements_total", by="outcome"), "{{outcome}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    title="In queues",
                    meaning="Messages of all queues, by state.",
                    queries=(Query(f"sum by (state) (gateway_queue_messages{{{CLUSTER}}})", "{{state}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Longest wait",
                    meaning="For how long the message has waited that has waited longest.",
                    queries=(Query(f"max(gateway_queue_oldest_seconds{{{CLUSTER}}})", "longest"),),
                    unit=Unit.SECONDS,
                    warn=900,
                ),
                Panel(
                    title="Consumers",
                    meaning="Consumers by the node at which they are.",
                    queries=(Query(f"sum by (node) (gateway_queue_consumers{{{CLUSTER}}})", "{{node}}"),),
                    stacked=True,
                ),
            ),
        ),
        Section(
            "Durable subscriptions and transactions",
            (
                Panel(
                    title="Durable subscriptions taken up",
                    meaning="Those that sessions began to use: made by that, or gone on with; and those that expired.",
                    queries=(
                        Query(rate("gateway_durable_opened_total", by="how"), "{{how}}"),
                        Query(f"sum(rate(gateway_durable_expired_total{{{CLUSTER}}}[$__rate_interval]))", "expired"),
                    ),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Acknowledgements of durable subscriptions",
                    meaning="Each may be for many events.",
                    queries=(Query(rate("gateway_durable_advances_total"), "{{node}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel(
                    title="Transactions",
                    meaning="How transactions ended. Those that were abandoned, or finished by another node, tell of "
                    "clients or nodes that went.",
                    queries=(Query(rate("gateway_transactions_total", by="result"), "{{result}}"),),
                    unit=Unit.PER_SECOND,
                    stacked=True,
                ),
            ),
        ),
    ),
)
