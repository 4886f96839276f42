"""Metrics of copies of sessions at other nodes; part of ``metrics``."""

from __future__ import annotations

from gateway.catalogue.metric import LATENCY_BUCKETS, Kind, Metric

MIRROR_SESSIONS = Metric(
    "gateway_mirror_sessions",
    Kind.GAUGE,
    "Sessions of a node that is to have a backup, by whether that has a copy.",
    "copied",
    ("true", "false"),
)
MIRROR_BEGUN = Metric(
    "gateway_mirror_begun_total", Kind.COUNTER, "Times that a backup was begun to be filled: a new one, or one anew."
)
MIRROR_BYTES = Metric("gateway_mirror_bytes_total", Kind.COUNTER, "Bytes that were sent to backups.")
MIRROR_UNACKNOWLEDGED_BYTES = Metric(
    "gateway_mirror_unacknowledged_bytes", Kind.GAUGE, "Bytes sent to the backup that it has yet to take in."
)
MIRROR_LAG_SECONDS = Metric(
    "gateway_mirror_lag_seconds",
    Kind.HISTOGRAM,
    "Time until the backup had taken in what it was sent.",
    buckets=LATENCY_BUCKETS,
)
MIRROR_HELD = Metric(
    "gateway_mirror_held_connections", Kind.GAUGE, "Connections whose output waits for the backup at the moment."
)
MIRROR_LAPSES = Metric(
    "gateway_mirror_lapses_total",
    Kind.COUNTER,
    "Times that a connection stopped waiting for the backup, as it was silent for mirror_patience.",
)
MIRROR_COPIES = Metric("gateway_mirror_copies", Kind.GAUGE, "Copies of other nodes' sessions that this node keeps.")
MIRROR_COPY_BYTES = Metric("gateway_mirror_copy_bytes", Kind.GAUGE, "Bytes of these copies, about.")
MIRROR_COPIES_LOST = Metric(
    "gateway_mirror_copies_lost_total",
    Kind.COUNTER,
    "Copies that were given up: no room for one, or all of a node as they were not what they should be, by a bug.",
    "why",
    ("room", "broken"),
)
MIRROR_TAKES = Metric(
    "gateway_mirror_takes_total",
    Kind.COUNTER,
    "Times that a backup was asked for the copy of a session that came here, by what came of it.",
    "result",
    ("given", "gone", "unclaimed", "outdated", "behind", "no_link", "declined", "silent", "invalid"),
)
