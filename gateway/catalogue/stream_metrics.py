"""Metrics of streams of events; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

STREAMS = Metric("gateway_streams", Kind.GAUGE, "Streams of events that are open.")
STREAMS_OPENED = Metric(
    "gateway_streams_opened_total",
    Kind.COUNTER,
    "Streams of events by how they began: fresh (nothing was named), replayed (all that was missed followed), gap "
    "(current values followed in place of some of it).",
    "outcome",
    ("fresh", "replayed", "gap"),
)
STREAMS_ENDED = Metric(
    "gateway_streams_ended_total",
    Kind.COUNTER,
    "Streams of events by why they ended: left (by the reader), slow (it took less than came), draining, forbidden, "
    "revoked, credentials_expired, internal (a bug).",
    "reason",
    ("left", "slow", "draining", "forbidden", "revoked", "credentials_expired", "internal"),
)
