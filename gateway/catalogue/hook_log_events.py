"""Log events of event hooks; see ``log_events``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.log_event import Level, LogEvent

HOOKS_APPLIED = LogEvent(
    "hooks_applied", Level.INFO, "The file of hooks was read, at the start or again (SIGHUP).", ("hooks",)
)
HOOKS_KEPT = LogEvent(
    "hooks_kept",
    Level.ERROR,
    "The file of hooks could not be read again. The previous hooks stay. Correct the file, then send SIGHUP.",
    ("error",),
)
HOOK_DELIVERER = LogEvent(
    "hook_deliverer",
    Level.INFO,
    "The node delivers for a hook from now on, or does no longer.",
    ("hook", "term", "delivers"),
)
HOOK_FAILING = LogEvent(
    "hook_failing",
    Level.WARNING,
    "A receiver did not take events. They wait in the journal, and are sent again with growing pauses; reported once "
    "until it takes some.",
    ("hook", "error"),
)
HOOK_RECOVERED = LogEvent(
    "hook_recovered",
    Level.INFO,
    "A receiver takes events again. The fields say how many attempts had failed, and for how many seconds.",
    ("hook", "failures", "seconds"),
)
HOOK_SUSPENDED = LogEvent(
    "hook_suspended",
    Level.WARNING,
    "A receiver answered that it is gone (410). Nothing is sent to it until its URL is changed, or an administrator "
    "asks for another attempt (`gateway admin hooks retry`). Remove the hook if it is not needed any more.",
    ("hook",),
)
HOOK_GAP = LogEvent(
    "hook_gap",
    Level.WARNING,
    "Events were gone from the journal before a receiver had taken them; it was told. The fields say why and, if "
    "that is known, how many events of the journal these were.",
    ("hook", "reason", "missing"),
)
HOOK_FORGOTTEN = LogEvent(
    "hook_forgotten",
    Level.INFO,
    "No node has had a hook of this name in its file for an hour. Its place in the journal is forgotten.",
    ("hook",),
)
