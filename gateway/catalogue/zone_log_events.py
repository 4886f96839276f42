"""Log events of zones; see ``log_events``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.log_event import Level, LogEvent

ZONES_RESTORED = LogEvent(
    "zones_restored",
    Level.WARNING,
    "The node wrote zones, members and joins to the grid that the grid had lost and that no other node had restored "
    "yet.",
    ("records",),
)
