"""Metrics of the session journal; see ``metrics``, which lists them with all others."""

from __future__ import annotations

from typing import Final

from gateway.catalogue.metric import LATENCY_BUCKETS, Kind, Metric

JOURNAL_GRID_UNREACHABLE: Final = "grid_unreachable"
JOURNAL_GRID_REFUSES: Final = "grid_refuses"
JOURNAL_TOO_SLOW: Final = "too_slow"
JOURNAL_STOPPED: Final = "stopped"
"""Why an event of the journal was dropped: the grid was unreachable, refused to write, or took less than there was; or
the node stopped."""

JOURNAL_EVENTS = Metric("gateway_journal_events_total", Kind.COUNTER, "Events of the session journal in the grid.")
JOURNAL_DROPPED = Metric(
    "gateway_journal_dropped_total",
    Kind.COUNTER,
    "Events of the session journal that were dropped, by reason. The journal records it, too.",
    "reason",
    (JOURNAL_GRID_UNREACHABLE, JOURNAL_GRID_REFUSES, JOURNAL_TOO_SLOW, JOURNAL_STOPPED),
)
JOURNAL_WAITING = Metric("gateway_journal_waiting_events", Kind.GAUGE, "Events of the session journal not yet written.")
JOURNAL_CUT = Metric(
    "gateway_journal_cut_total",
    Kind.COUNTER,
    "Events cut by journal_length to make room for those of this node: unread, before their reader had them, or "
    "unclaimed, while there never was a reader.",
    "state",
    ("unread", "unclaimed"),
)
JOURNAL_APPEND_SECONDS = Metric(
    "gateway_journal_append_seconds",
    Kind.HISTOGRAM,
    "Time of the grid to store a batch of the journal; no client waits for it.",
    buckets=LATENCY_BUCKETS,
)
