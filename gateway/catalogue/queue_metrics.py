"""Metrics of queues; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric
from gateway.core.wire.queue_packets import (
    Settlement,
)

QUEUE_SENDS = Metric(
    "gateway_queue_sends_total",
    Kind.COUNTER,
    "Messages that clients sent to queues through this node: sent now, sent before and asked for again, refused for "
    "lack of room, or refused for another reason.",
    "result",
    ("sent", "duplicate", "full", "refused"),
)
QUEUE_DELIVERIES = Metric(
    "gateway_queue_deliveries_total",
    Kind.COUNTER,
    "Messages of queues that this node has sent to consumers.",
)
QUEUE_SETTLEMENTS = Metric(
    "gateway_queue_settlements_total",
    Kind.COUNTER,
    "Messages of queues that were settled through this node, by what became of them.",
    "outcome",
    tuple(outcome.value for outcome in Settlement),
)
QUEUE_CONSUMERS = Metric(
    "gateway_queue_consumers",
    Kind.GAUGE,
    "Consumers at this node: a session counts for each queue that it consumes from.",
)
