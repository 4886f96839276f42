"""Log events of the policy, and of what it gives and takes; see ``log_events``, which lists them with all others."""

from __future__ import annotations

from gateway.catalogue.log_event import Level, LogEvent

POLICY_ABSENT = LogEvent(
    "policy_absent",
    Level.WARNING,
    "No policy is configured: every authenticated principal may select and publish everything but the system's topics. "
    "The field says who is authenticated. Give --policy FILE.",
    ("principals",),
)
POLICY_RELOADED = LogEvent(
    "policy_reloaded",
    Level.INFO,
    "The file of the policy was read again (SIGHUP). The new policy is in force for all sessions here. "
    "The fields count the sessions that were checked, and those that lost selections.",
    ("roles", "principals", "sessions", "withdrawn"),
)
SESSIONS_REVIEWED = LogEvent(
    "sessions_reviewed",
    Level.INFO,
    "The directories of principals and keys were read again (SIGHUP). All sessions here were judged by what they say "
    "now, under the policy that was in force. The fields count the sessions that were checked, and those that lost "
    "selections.",
    ("sessions", "withdrawn"),
)
POLICY_KEPT = LogEvent(
    "policy_kept",
    Level.ERROR,
    "The policy could not be read again. The previous policy stays in force. Correct the file, then send SIGHUP.",
    ("error",),
)
SELECTIONS_WITHDRAWN = LogEvent(
    "selections_withdrawn",
    Level.INFO,
    "A session had selected what its principal may not select any more. The selectors were withdrawn and the "
    "client was notified.",
    ("session", "principal", "selectors"),
)
CONSUMERS_WITHDRAWN = LogEvent(
    "consumers_withdrawn",
    Level.INFO,
    "A session consumed from queues from which its principal may not consume any more. It consumes from them no more, "
    "what it held of them goes back, and the client was notified.",
    ("session", "principal", "queues"),
)
