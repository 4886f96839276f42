"""Log events of the session journal; see ``log_events``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.log_event import Level, LogEvent

JOURNAL_FULL = LogEvent(
    "journal_full",
    Level.WARNING,
    "The node drops events of the session journal from now on, because the grid does not accept them. Sessions are not "
    "affected. The journal will record how many are missing. Check the grid.",
    ("reason",),
)
JOURNAL_INCOMPLETE = LogEvent(
    "journal_incomplete",
    Level.WARNING,
    "The node stopped before it could write the last events of the session journal. The field counts the missing ones.",
    ("events",),
)
