"""Metrics of last wills; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

WILLS = Metric(
    "gateway_wills_total",
    Kind.COUNTER,
    "Wills of sessions that have ended, which this node has executed: published, or refused by the policy, for want of "
    "room or because they could not be read.",
    "outcome",
    ("published", "refused"),
)
