"""Metrics of durable subscriptions; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

DURABLE_OPENED = Metric(
    "gateway_durable_opened_total",
    Kind.COUNTER,
    "Durable subscriptions that sessions of this node began to use: made by that, or taken up where they were.",
    "how",
    ("created", "taken_up"),
)
DURABLE_ADVANCES = Metric(
    "gateway_durable_advances_total",
    Kind.COUNTER,
    "Acknowledgements of events of durable subscriptions that clients of this node sent; one may be for many events.",
)
DURABLE_EXPIRED = Metric(
    "gateway_durable_expired_total",
    Kind.COUNTER,
    "Durable subscriptions that this node has removed because nobody had used them for their life.",
)
