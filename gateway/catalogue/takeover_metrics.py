"""Metrics of failed nodes and of takeovers; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

SUSPECTS = Metric(
    "gateway_suspects",
    Kind.GAUGE,
    "Nodes that hold a lease, and that this node does not hear over its links any more. One that is dead is among them "
    "until its lease has ended.",
)
SUSPICIONS = Metric("gateway_suspicions_total", Kind.COUNTER, "Times this node began to suspect another one.")
SUSPICIONS_CLEARED = Metric(
    "gateway_suspicions_cleared_total", Kind.COUNTER, "Suspicions that were false: the node was heard again."
)
TAKEOVERS_UNDER_WAY = Metric(
    "gateway_takeovers_under_way",
    Kind.GAUGE,
    "Nodes from which this node takes over at the moment, or after which it cleans up.",
)
