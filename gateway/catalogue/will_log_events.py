"""Log events of last wills; see ``log_events``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.log_event import Level, LogEvent

WILL_REFUSED = LogEvent(
    "will_refused",
    Level.WARNING,
    "What a session had left to be published at its end is not published: its principal may not publish there any "
    "more, or there is no room.",
    ("session", "principal", "topic", "why"),
)
