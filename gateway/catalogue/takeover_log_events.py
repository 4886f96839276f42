"""Log events of failed nodes and of takeovers; see ``log_events``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.log_event import Level, LogEvent

NODE_SUSPECTED = LogEvent(
    "node_suspected",
    Level.WARNING,
    "Nothing is heard of another node over its link. Its lease is looked at; while that holds, nothing is taken over.",
    ("suspect", "silence"),
)
SUSPICION_CLEARED = LogEvent(
    "suspicion_cleared",
    Level.INFO,
    "A node that was suspected is heard again.",
    ("suspect", "seconds"),
)
TAKEOVER_CONTINUED = LogEvent(
    "takeover_continued",
    Level.WARNING,
    "The node that took over from a node with an expired lease did not finish. This node goes on at that stage.",
    ("expired", "stage"),
)
WINDOWS_PROLONGED = LogEvent(
    "windows_prolonged",
    Level.INFO,
    "A node was lost that may have served clients while the grid was unreachable. The windows of its disconnected"
    " sessions have begun anew, as they may have left later than the grid knows.",
    ("expired", "sessions"),
)
CLEANUP_FINISHED = LogEvent(
    "cleanup_finished",
    Level.INFO,
    "What was transient of a node that was taken over is removed: it has not come back in time.",
    ("expired",),
)
