"""Metrics of values that end; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

VALUES_ENDED = Metric(
    "gateway_values_ended_total",
    Kind.COUNTER,
    "Values that this node has put a removal in the place of, as their time to live was over.",
)
