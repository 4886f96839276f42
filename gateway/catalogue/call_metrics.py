"""Metrics of calls by HTTP; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

CALLS = Metric(
    "gateway_calls_total",
    Kind.COUNTER,
    "Calls by HTTP, by what became of them: answered, refused, limited (too many), failed (here), abandoned (by who "
    "called).",
    "outcome",
    ("answered", "refused", "limited", "failed", "abandoned"),
)
