"""Gauges of the sessions of a node, read when somebody asks for the metrics."""

from __future__ import annotations

from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.catalogue import metrics as catalogue


def watch_sessions(context: Context, sessions: Sessions) -> None:
    """Have the metrics read how many *sessions* there are, what is kept for them, and whether the node drains."""
    watch, lifecycle = context.metrics.watch, context.lifecycle
    watch(catalogue.SESSIONS, sessions.connected, label="connected")
    watch(catalogue.SESSIONS, lambda: len(sessions) - sessions.connected(), label="disconnected")
    watch(catalogue.RESEND_BUFFER_BYTES, lambda: sum(each.machine.resend_bytes for each in sessions))
    watch(catalogue.OUTBOX_PACKETS, lambda: sum(each.machine.waiting for each in sessions))
    watch(catalogue.BLOCKED_SESSIONS, lambda: sessions.flusher.blocked)
    watch(catalogue.DRAINING, lambda: float(lifecycle.draining))
