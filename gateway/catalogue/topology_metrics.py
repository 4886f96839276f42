"""Metrics of the master of a cluster; part of ``metrics``."""

from __future__ import annotations

from gateway.catalogue.metric import Kind, Metric

MASTER = Metric("gateway_master", Kind.GAUGE, "1 at the node that is the master as far as it knows, else 0.")
MASTER_KNOWN = Metric(
    "gateway_master_known", Kind.GAUGE, "1 if the node found a master when it last renewed its lease, else 0."
)
FOLLOWERS_REDIRECTED = Metric(
    "gateway_followers_redirected_total",
    Kind.COUNTER,
    "Times that a client that follows the master was told to connect there instead.",
)
FOLLOWERS_MOVED = Metric(
    "gateway_followers_moved_total",
    Kind.COUNTER,
    "Times that a session with a client that follows the master was sent there.",
)
MASTER_CHANGES = Metric(
    "gateway_master_changes_total", Kind.COUNTER, "Times that the node found another master than before, or none."
)
