"""Metrics of topics with history; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

HISTORY_EVENTS = Metric(
    "gateway_history_events_total", Kind.COUNTER, "Events of topics with history that were read for clients."
)
HISTORY_GAPS = Metric(
    "gateway_history_gaps_total",
    Kind.COUNTER,
    "Readings of history that were told of a gap: events behind their place were not kept any more.",
)
HISTORY_RESTORED = Metric(
    "gateway_history_restored_total",
    Kind.COUNTER,
    "Events that were put back into histories after the grid had lost writes.",
)
HISTORY_SWEPT = Metric(
    "gateway_history_swept_total",
    Kind.COUNTER,
    "Entries of histories that were cut by age, or dropped with a destination; one for the events of one step.",
)
