"""Every log event: name, level, fields and meaning.

An event is a past-tense fact with a stable name, so that operators can search and count it. No field ever holds a
token, a secret or a value of a topic (P8).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Level(IntEnum):
    """Severity, with the numbers of the standard library."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True, eq=False)
class LogEvent:
    """One kind of log event; compared by identity, because each is declared exactly once.

    Attributes:
        name: stable name, ``subject_past-tense``.
        level: severity.
        meaning: what happened, and for warnings and errors what to do.
        fields: names of the fields it always carries.
        bug: True if it tells of a bug of the gateway; the traceback of the exception in ``error`` is logged with it.
    """

    name: str
    level: Level
    meaning: str
    fields: tuple[str, ...] = ()
    bug: bool = False


NODE_STARTED = LogEvent(
    "node_started", Level.INFO, "The node accepts connections.", ("node", "incarnation", "listen", "admin")
)
NODE_STOPPED = LogEvent("node_stopped", Level.INFO, "The node has stopped.", ("node",))
DEVELOPMENT_MODE = LogEvent(
    "development_mode",
    Level.WARNING,
    "A development shortcut is on, which is insecure or forgets sessions; the field says which. Not for production.",
    ("shortcut",),
)
DRAIN_STARTED = LogEvent("drain_started", Level.INFO, "No new sessions; clients are moved in batches.", ("sessions",))
DRAIN_FINISHED = LogEvent(
    "drain_finished", Level.INFO, "All sessions have moved, or the time for it is over.", ("moved", "left")
)
SESSION_OPENED = LogEvent("session_opened", Level.INFO, "A client opened a session.", ("session", "principal"))
SESSION_RESUMED = LogEvent(
    "session_resumed", Level.INFO, "A client came back to its session.", ("session", "outcome", "reason", "previous")
)
SESSION_DISCONNECTED = LogEvent(
    "session_disconnected", Level.INFO, "A session lost its connection; its window runs.", ("session", "code")
)
DISCONNECTED_GIVEN_UP = LogEvent(
    "disconnected_given_up",
    Level.WARNING,
    "Buffers, or whole copies, of sessions without a client were given up, those away for longest first. They go on by "
    "failover. Why: a limit, or memory that is short.",
    ("buffers", "copies", "why"),
)
SESSION_ENDED = LogEvent("session_ended", Level.INFO, "A session ended; nothing of it is left.", ("session", "reason"))
SESSION_FENCED = LogEvent(
    "session_fenced", Level.INFO, "Another node has claimed the session; the copy here is dropped.", ("session",)
)
RESUME_REFUSED = LogEvent("resume_refused", Level.INFO, "A resume was refused.", ("reason", "address"))
AUTHENTICATION_REFUSED = LogEvent(
    "authentication_refused",
    Level.WARNING,
    "Credentials that are not accepted, and why; the client is not told.",
    ("principal", "address", "reason"),
)
ISSUER_KEYS_FETCHED = LogEvent(
    "issuer_keys_fetched",
    Level.INFO,
    "The keys of an identity provider were fetched for the first time, or have changed.",
    ("url", "keys"),
)
ISSUER_KEYS_KEPT = LogEvent(
    "issuer_keys_kept",
    Level.WARNING,
    "The keys of an identity provider cannot be had; those from before stay in force. Look at the URL or file named.",
    ("error",),
)
CREDENTIALS_REFRESHED = LogEvent(
    "credentials_refreshed", Level.DEBUG, "A client showed fresh credentials on its connection.", ("session",)
)
CREDENTIALS_EXPIRED = LogEvent(
    "credentials_expired",
    Level.INFO,
    "A connection was closed because the credentials of its session ended and no fresh ones were shown.",
    ("session",),
)
AUTHENTICATION_UNAVAILABLE = LogEvent(
    "authentication_unavailable",
    Level.WARNING,
    "Whether credentials are good cannot be told, because something outside does not answer; the client asks again.",
    ("error",),
)
VERIFICATION_REFUSED = LogEvent(
    "verification_refused",
    Level.WARNING,
    "More credentials are shown than can be verified (hashed, or asked about), and those of an address that shows many "
    "were not looked at; the client comes again. Told at most once a second; a metric counts all.",
    ("address", "reason", "waiting", "failing"),
)
REVOKED_REFUSED = LogEvent(
    "revoked_refused",
    Level.WARNING,
    "A hello with good credentials, but of a revoked principal or with a revoked token id.",
    ("principal", "address"),
)
REVOCATION_MADE = LogEvent(
    "revocation_made",
    Level.WARNING,
    "An administrator revoked a session, a principal or a credential by this node; all nodes refuse it.",
    ("kind", "revoked", "reason", "until"),
)
REVOCATION_LIFTED = LogEvent(
    "revocation_lifted", Level.WARNING, "An administrator lifted a revocation by this node.", ("kind", "revoked")
)
REVOCATIONS_READ = LogEvent(
    "revocations_read",
    Level.INFO,
    "The revocations were read from the grid, at the start or after it had lost writes; how many are known now.",
    ("revocations", "lost_writes"),
)
REVOCATIONS_RESTORED = LogEvent(
    "revocations_restored",
    Level.WARNING,
    "Revocations that the grid had lost, and that no other node had restored yet, were written to it.",
    ("revocations",),
)
CONNECTION_FAILED = LogEvent(
    "connection_failed",
    Level.ERROR,
    "A connection met an error that is a bug of the gateway; the session is kept.",
    ("session", "error"),
    bug=True,
)
REQUEST_FAILED = LogEvent(
    "request_failed",
    Level.ERROR,
    "A request met an error that is a bug of the gateway; its client was told to try again.",
    ("session", "error"),
    bug=True,
)
PROTOCOL_VIOLATED = LogEvent(
    "protocol_violated", Level.INFO, "A client broke the protocol and was closed.", ("address", "error")
)
SLOW_CONSUMER_CLOSED = LogEvent(
    "slow_consumer_closed",
    Level.WARNING,
    "A session's queue reached its bound and its connection was closed; it may resume.",
    ("session", "packets", "bytes"),
)
GRID_AWAY = LogEvent(
    "grid_away", Level.ERROR, "The grid cannot be reached; sessions stay connected, requests are refused.", ("error",)
)
GRID_STILL_AWAY = LogEvent(
    "grid_still_away",
    Level.WARNING,
    "The grid cannot be reached yet, and why the last attempt failed; after some seconds, and again every ten.",
    ("error", "away_seconds"),
)
GRID_BACK = LogEvent(
    "grid_back", Level.WARNING, "The grid is reachable again.", ("generation", "lost_writes", "away_seconds")
)
GRID_MASTERS_CHANGED = LogEvent(
    "grid_masters_changed",
    Level.WARNING,
    "Other Redis processes than before are the masters of the grid: one was replaced, added or removed.",
    ("masters", "before"),
)
GRID_CLOCK_STEPPED = LogEvent(
    "grid_clock_stepped",
    Level.WARNING,
    "The clock of Redis was set, forward if the seconds are positive. Windows and leases go on as before. Told by one "
    "node.",
    ("seconds", "shift_seconds"),
)
GRID_SLOT_HALF_MOVED = LogEvent(
    "grid_slot_half_moved",
    Level.ERROR,
    "Somebody began to move a slot of the Redis Cluster and did not finish: commands for keys that it lacks are "
    "refused as retryable. Run `redis-cli --cluster fix`.",
    ("slot", "tag"),
)
GRID_WRITE_REFUSED = LogEvent(
    "grid_write_refused",
    Level.ERROR,
    "The grid answers but refuses writes: out of memory, or it cannot persist them. Told at most once a second.",
    ("error",),
)
GRID_FOREIGN_DATA = LogEvent(
    "grid_foreign_data",
    Level.ERROR,
    "Something in the grid is not the gateway's, or broken, and was skipped or deleted. Told at most every ten "
    "seconds.",
    ("key", "what", "error"),
)
GRID_RESTORED = LogEvent(
    "grid_restored",
    Level.INFO,
    "Live sessions and newer values were written to a grid that had lost them.",
    ("sessions", "fenced", "values"),
)
POSITION_LOST = LogEvent(
    "position_lost",
    Level.WARNING,
    "A partition's stream went on without this node; values are read again.",
    ("partition",),
)
LEASE_LOST = LogEvent(
    "lease_lost",
    Level.WARNING,
    "The node's lease had lapsed, after a pause or a long grid outage; every session is verified.",
    ("node",),
)
NODE_LAPSED = LogEvent("node_lapsed", Level.WARNING, "Another node's lease lapsed.", ("lapsed",))
NODES_WITHOUT_LEASE = LogEvent(
    "nodes_without_lease",
    Level.WARNING,
    "The grid held sessions of nodes whose lease it had lost; if they are dead, their sessions are taken over now.",
    ("nodes",),
)
TAKEOVER_FINISHED = LogEvent(
    "takeover_finished", Level.WARNING, "A lapsed node's sessions are on the clock.", ("lapsed", "sessions")
)
BACKGROUND_TASK_FAILED = LogEvent(
    "background_task_failed",
    Level.ERROR,
    "A background task met a bug and is started again.",
    ("task", "error"),
    bug=True,
)
LOG_LINES_DROPPED = LogEvent(
    "log_lines_dropped",
    Level.ERROR,
    "Whoever reads the log was too slow; that many lines are missing before this one. Clients were not delayed by it.",
    ("lines",),
)
LIBRARY_WARNED = LogEvent(
    "library_warned", Level.WARNING, "A library that the gateway uses logged a warning.", ("logger", "message")
)
LIBRARY_FAILED = LogEvent(
    "library_failed", Level.ERROR, "A library that the gateway uses logged an error.", ("logger", "message")
)
ADMIN_ACTED = LogEvent(
    "admin_acted",
    Level.INFO,
    "An administrator changed something by the admin API, or tried to: the audit log. The outcome tells.",
    ("caller", "roles", "action", "operation", "target", "outcome", "address", "forwarded_by"),
)
ADMIN_REFUSED = LogEvent(
    "admin_refused",
    Level.WARNING,
    "A request to the admin API came without a valid token, or its roles do not allow it: the audit log. Told at most "
    "some times a minute for each address.",
    ("caller", "roles", "action", "operation", "target", "outcome", "address", "forwarded_by"),
)
ADMIN_FAILED = LogEvent(
    "admin_failed",
    Level.ERROR,
    "A request to the admin port met an error that is a bug of the gateway.",
    ("path", "error"),
    bug=True,
)
ADMIN_PORT_CROWDED = LogEvent(
    "admin_port_crowded",
    Level.WARNING,
    "Connections without a token fill the admin port; those that were idle for longest are closed. Find out who opens "
    "them: the address is the one that has most. Told once a minute at most.",
    ("connections", "address", "most"),
)
ADMINS_RELOADED = LogEvent(
    "admins_reloaded", Level.INFO, "The file of administrators was read again (SIGHUP).", ("tokens",)
)
ADMINS_KEPT = LogEvent(
    "admins_kept",
    Level.ERROR,
    "The file of administrators could not be read again; those read before stay in force. Correct the file, send "
    "SIGHUP.",
    ("error",),
)
MEMORY_RAN_SHORT = LogEvent(
    "memory_ran_short",
    Level.ERROR,
    "The process nears the memory it may have, or an allocation failed. No new connections are taken, and what was "
    "kept for clients that are away is given up; sessions are kept. Give it more memory, or lower limits in bytes.",
    ("why", "buffers", "copies"),
)
MEMORY_SUFFICIENT = LogEvent(
    "memory_sufficient", Level.INFO, "There is enough memory again; new connections are taken.", ("used",)
)
LIMIT_EXCEEDED = LogEvent(
    "limit_exceeded",
    Level.WARNING,
    "Somebody, an address or a principal, met a limit. Told at most once a second for each limit; a metric counts all.",
    ("limit", "who"),
)
FLOOD_CLOSED = LogEvent(
    "flood_closed",
    Level.WARNING,
    "A client was closed that had sent frames which make no message, faster than they are read and for too long. Told "
    "at most every 10 s; gateway_frame_violations_total counts all.",
    ("address",),
)
CONNECTIONS_NOT_ACCEPTED = LogEvent(
    "connections_not_accepted",
    Level.ERROR,
    "The system has no descriptor or memory left for another connection. Accepting pauses for half a second and goes "
    "on by itself; told at most every 10 s. Raise the limit of open files (LimitNOFILE=, ulimit -n).",
    ("error",),
)
DESCRIPTORS_SHORT = LogEvent(
    "descriptors_short",
    Level.WARNING,
    "The process may open too few files for the connections that limit_connections allows; the node takes only as many "
    "as stand in the field connections. Raise the limit of open files (LimitNOFILE=, ulimit -n), or lower the setting.",
    ("descriptors", "configured", "connections"),
)
USERS_RELOADED = LogEvent("users_reloaded", Level.INFO, "The file of static users was read again (SIGHUP).", ("users",))
USERS_KEPT = LogEvent(
    "users_kept",
    Level.ERROR,
    "The file of static users could not be read again; those read before stay in force. Correct the file, send SIGHUP.",
    ("error",),
)
POLICY_ABSENT = LogEvent(
    "policy_absent",
    Level.WARNING,
    "No policy is configured: everybody who is let in may select and publish everything but the system's topics. "
    "The field says who is let in. Give --policy FILE.",
    ("principals",),
)
POLICY_RELOADED = LogEvent(
    "policy_reloaded",
    Level.INFO,
    "The policy, or the roles of principals, were read again (SIGHUP) and are in force for every session of this node; "
    "the fields count the sessions that were looked at, and those of them that had selections withdrawn.",
    ("roles", "principals", "sessions", "withdrawn"),
)
POLICY_KEPT = LogEvent(
    "policy_kept",
    Level.ERROR,
    "The policy could not be read again; the one that was read before stays in force. Correct the file, send SIGHUP.",
    ("error",),
)
SELECTIONS_WITHDRAWN = LogEvent(
    "selections_withdrawn",
    Level.INFO,
    "A session had selected what its principal may not select any more; it was taken out and the client was told.",
    ("session", "principal", "selectors"),
)

CERTIFICATE_RELOADED = LogEvent(
    "certificate_reloaded",
    Level.INFO,
    "The files for TLS of a port were read again (SIGHUP); connections that begin from now on get the certificate.",
    ("port", "expires"),
)
CERTIFICATE_KEPT = LogEvent(
    "certificate_kept",
    Level.ERROR,
    "The files for TLS of a port cannot be used; those read before stay in force. Correct the files, send SIGHUP.",
    ("port", "error"),
)
KEYS_RELOADED = LogEvent(
    "keys_reloaded",
    Level.INFO,
    "The files of token keys were read again (SIGHUP); the fields are ids, which are not secret.",
    ("signs", "verifies"),
)
KEYS_KEPT = LogEvent(
    "keys_kept",
    Level.ERROR,
    "The files of token keys could not be read again; those read before stay in force. Correct the file, send SIGHUP.",
    ("error",),
)

JOURNAL_FULL = LogEvent(
    "journal_full",
    Level.WARNING,
    "Events of the session journal are dropped from now on, because the grid does not take them; sessions are served "
    "as ever. The journal will tell how many. See to the grid.",
    ("reason",),
)
JOURNAL_INCOMPLETE = LogEvent(
    "journal_incomplete",
    Level.WARNING,
    "The node stopped before the grid had taken the last events of the session journal; so many are missing there.",
    ("events",),
)

LOG_EVENTS: Final[tuple[LogEvent, ...]] = tuple(each for each in list(globals().values()) if isinstance(each, LogEvent))
"""All of them, in the order of this file."""
