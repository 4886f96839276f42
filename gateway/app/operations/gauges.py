"""Gauges of the sessions of a node, read when somebody asks for the metrics."""

from __future__ import annotations

from collections.abc import Callable

from gateway.app.registry.sessions import Sessions
from gateway.catalogue import metrics as catalogue
from gateway.ports import Metrics


def watch_sessions(metrics: Metrics, sessions: Sessions, draining: Callable[[], bool]) -> None:
    """Have *metrics* read how many *sessions* there are, what is kept for them, and whether the node drains."""
    watch = metrics.watch
    watch(catalogue.SESSIONS, sessions.connected, label="connected")
    watch(catalogue.SESSIONS, lambda: len(sessions) - sessions.connected(), label="disconnected")
    watch(catalogue.RESEND_BUFFER_BYTES, lambda: sum(each.machine.resend_bytes for each in sessions))
    watch(catalogue.OUTBOX_PACKETS, lambda: sum(each.machine.waiting for each in sessions))
    watch(catalogue.BLOCKED_SESSIONS, lambda: sessions.flusher.blocked)
    watch(catalogue.DRAINING, lambda: float(draining()))
