"""Metrics of event hooks; part of ``metrics``. A node shows gauges of hooks that it delivers for, counters of all."""

from __future__ import annotations

from gateway.catalogue.metric import LATENCY_BUCKETS, Kind, Metric

HOOK_EVENTS = Metric(
    "gateway_hook_events_total", Kind.COUNTER, "Events that receivers have taken, by hook.", "hook", open=True
)
HOOK_FAILURES = Metric(
    "gateway_hook_failures_total",
    Kind.COUNTER,
    "Requests to receivers that failed, by hook: no answer in time, or another status than 2xx.",
    "hook",
    open=True,
)
HOOK_SECONDS = Metric(
    "gateway_hook_request_seconds",
    Kind.HISTOGRAM,
    "Time of receivers to answer a request.",
    buckets=LATENCY_BUCKETS,
)
HOOK_BEHIND = Metric(
    "gateway_hook_behind_events",
    Kind.GAUGE,
    "Events of the journal that a hook has yet to pass, those that it does not want included, by hook.",
    "hook",
    open=True,
)
HOOK_BEHIND_SECONDS = Metric(
    "gateway_hook_behind_seconds",
    Kind.GAUGE,
    "Age of the oldest event that is being sent and that the receiver has not taken yet; 0 for none, by hook.",
    "hook",
    open=True,
)
HOOK_SUSPENDED = Metric(
    "gateway_hook_suspended",
    Kind.GAUGE,
    "1 if the receiver answered that it is gone (410), so that nothing is sent until somebody says otherwise, by hook.",
    "hook",
    open=True,
)
HOOK_GAPS = Metric(
    "gateway_hook_gaps_total",
    Kind.COUNTER,
    "Gaps that receivers were told: events of the journal were gone before they could be sent, by hook.",
    "hook",
    open=True,
)
HOOK_MISSING = Metric(
    "gateway_hook_missing_events_total",
    Kind.COUNTER,
    "Events in those gaps whose number is known, those that the hook does not want included, by hook.",
    "hook",
    open=True,
)
