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
VALUES_READ = Metric(
    "gateway_call_values_total", Kind.COUNTER, "Values that calls and sessions have read by selectors, page by page."
)
