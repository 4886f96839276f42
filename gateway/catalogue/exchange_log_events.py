"""Log events of questions and answers; see ``log_events``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.log_event import Level, LogEvent

HANDLERS_NOT_RESTORED = LogEvent(
    "handlers_not_restored",
    Level.WARNING,
    "A session that came to this node handles questions, and a partition has no room for its handlers any more. It is "
    "asked nothing there until it comes again or handles something else.",
    ("session",),
)
