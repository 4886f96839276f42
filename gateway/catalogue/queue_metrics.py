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
QUEUES = Metric(
    "gateway_queues",
    Kind.GAUGE,
    "Queues that this node looks after: those in which something is, or from which somebody consumes, of its share of "
    "the partitions. As of the last look, some 30 s ago; so are the following.",
)
QUEUE_MESSAGES = Metric(
    "gateway_queue_messages",
    Kind.GAUGE,
    "Messages in the queues that this node looks after. The sum over all nodes is what all queues hold.",
    "state",
    ("ready", "delayed", "held", "dead"),
)
QUEUE_OLDEST_SECONDS = Metric(
    "gateway_queue_oldest_seconds",
    Kind.GAUGE,
    "For how long the message has waited for a consumer that has waited longest in the queues that this node looks "
    "after.",
)
QUEUES_UNATTENDED = Metric(
    "gateway_queues_unattended",
    Kind.GAUGE,
    "Queues that this node looks after in which messages wait, and from which nobody consumes.",
)
