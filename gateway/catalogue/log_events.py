"""Every log event: name, level, fields and meaning.

An event is a past-tense fact with a stable name, so that operators can search and count it. No field ever holds a
token, a secret or a value of a topic (P8).
"""

from __future__ import annotations

from typing import Final

from gateway.catalogue import (
    exchange_log_events,
    hook_log_events,
    journal_log_events,
    policy_log_events,
    takeover_log_events,
    will_log_events,
    zone_link_log_events,
    zone_log_events,
)
from gateway.catalogue.log_event import Level, LogEvent

NODE_STARTED = LogEvent(
    "node_started", Level.INFO, "The node accepts connections.", ("node", "incarnation", "listen", "admin")
)
CLEAR_TEXT = LogEvent(
    "clear_text",
    Level.WARNING,
    "Something secret goes to or comes from other hosts unencrypted. The field exposed says what, and what to do. "
    "Reported when the node starts.",
    ("exposed",),
)
MASTER_CHANGED = LogEvent("master_changed", Level.INFO, "Another node is the master, or none.", ("master", "before"))
NODE_STOPPED = LogEvent("node_stopped", Level.INFO, "The node has stopped.", ("node",))
DEVELOPMENT_MODE = LogEvent(
    "development_mode",
    Level.WARNING,
    "A development shortcut is on, which is insecure or loses sessions. The field names it. Not for production.",
    ("shortcut",),
)
DRAIN_STARTED = LogEvent(
    "drain_started",
    Level.INFO,
    "The drain began: the node opens no new sessions, and moves its clients in batches.",
    ("sessions",),
)
DRAIN_FINISHED = LogEvent(
    "drain_finished", Level.INFO, "The drain ended: all sessions have moved, or its time is over.", ("moved", "left")
)
STOP_CONFIRMED = LogEvent(
    "stop_confirmed",
    Level.INFO,
    "A node that stops as planned asked the grid once more, and the grid holds its sessions. If they were written "
    "again, the grid had been replaced or was unreachable.",
    ("sessions", "written_again", "seconds"),
)
STOP_UNCONFIRMED = LogEvent(
    "stop_unconfirmed",
    Level.WARNING,
    "A node that stops as planned could not make sure in time that the grid holds its sessions. It leaves as if it had "
    "died: sessions that the grid does not hold are lost.",
    ("sessions", "error", "seconds"),
)
SESSION_OPENED = LogEvent("session_opened", Level.INFO, "A client opened a session.", ("session", "principal"))
SESSION_RESUMED = LogEvent(
    "session_resumed",
    Level.INFO,
    "A client came back to its session. After a failover, `replayed` says whether all that it had missed follows.",
    ("session", "outcome", "reason", "replayed", "previous"),
)
SESSION_DISCONNECTED = LogEvent(
    "session_disconnected", Level.INFO, "A session lost its connection. Its window has begun.", ("session", "code")
)
DISCONNECTED_GIVEN_UP = LogEvent(
    "disconnected_given_up",
    Level.WARNING,
    "The node gave up buffers, or whole copies, of sessions without a client, those disconnected for longest first. "
    "These sessions resume by failover. The reason is a limit, or memory that is short.",
    ("buffers", "copies", "why"),
)
SESSION_ENDED = LogEvent("session_ended", Level.INFO, "A session ended. Nothing of it is kept.", ("session", "reason"))
SESSION_END_PENDING = LogEvent(
    "session_end_pending",
    Level.WARNING,
    "An administrator closed a session while the grid was unreachable. Its client is gone from this node; the grid "
    "still holds the session. This node ends it there as soon as the grid answers (`session_ended`), unless another "
    "node has taken the client in by then (`session_not_ended`), or this node stops first.",
    ("session",),
)
SESSION_NOT_ENDED = LogEvent(
    "session_not_ended",
    Level.WARNING,
    "A session that was closed here while the grid was unreachable goes on: its client was taken in again "
    "before the grid could be told. Close it again.",
    ("session",),
)
SESSIONS_PASSED_ON = LogEvent(
    "sessions_passed_on",
    Level.INFO,
    "The node stops, and other nodes keep what it had for clients that are away. What is left fails over.",
    ("sessions", "left"),
)
BACKUP_CHOSEN = LogEvent(
    "backup_chosen",
    Level.INFO,
    "Another node begins to keep copies of the sessions of this one. The field apart tells whether it is in another "
    "failure domain.",
    ("backup", "apart"),
)
BACKUP_WHOLE = LogEvent(
    "backup_whole", Level.INFO, "The backup has a copy of every session of this node.", ("backup", "sessions")
)
BACKUP_LOST = LogEvent(
    "backup_lost",
    Level.WARNING,
    "No node keeps copies of the sessions of this one any more; another one is chosen, or the same is filled anew. "
    "Should this node die before that is done, clients fail over.",
    ("backup", "why"),
)
COPIES_BROKEN = LogEvent(
    "copies_broken",
    Level.ERROR,
    "The copies of another node's sessions were not what they should be, and were given up; they are made anew. That "
    "is a bug: please report it.",
    ("peer", "error"),
    bug=True,
)
SESSION_FENCED = LogEvent(
    "session_fenced", Level.INFO, "Another node has claimed the session. This node dropped its copy.", ("session",)
)
RESUME_REFUSED = LogEvent("resume_refused", Level.INFO, "A resume was refused.", ("reason", "address"))
AUTHENTICATION_REFUSED = LogEvent(
    "authentication_refused",
    Level.WARNING,
    "A client showed credentials that are not accepted. The reason is logged here, and is not sent to the client; it "
    "is if the credentials are good and lack a right.",
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
    "The keys of an identity provider could not be fetched. The previous keys stay in force, and it is asked again "
    "within five minutes. Check the URL named.",
    ("error",),
)
ISSUER_FILE_KEPT = LogEvent(
    "issuer_file_kept",
    Level.ERROR,
    "The file with the keys of an identity provider could not be read again. The previous keys stay in force. Correct "
    "the file, then send SIGHUP.",
    ("error",),
)
CREDENTIALS_REFRESHED = LogEvent(
    "credentials_refreshed", Level.DEBUG, "A client showed new credentials on its connection.", ("session",)
)
CREDENTIALS_EXPIRED = LogEvent(
    "credentials_expired",
    Level.INFO,
    "A connection was closed because the credentials of its session expired and the client showed no new ones.",
    ("session",),
)
AUTHENTICATION_UNAVAILABLE = LogEvent(
    "authentication_unavailable",
    Level.WARNING,
    "Credentials could not be verified, because an external service does not answer. The client tries again.",
    ("error",),
)
VERIFICATION_REFUSED = LogEvent(
    "verification_refused",
    Level.WARNING,
    "Clients show more credentials than can be verified (by a hash or an external service). Those of an address that "
    "shows many were not verified; the client tries again. Reported at most once a second; a metric counts all.",
    ("address", "reason", "waiting", "failing"),
)
REVOKED_REFUSED = LogEvent(
    "revoked_refused",
    Level.WARNING,
    "A hello was refused whose credentials are valid, because the principal or the id of its token is revoked.",
    ("principal", "address"),
)
REVOCATION_MADE = LogEvent(
    "revocation_made",
    Level.WARNING,
    "An administrator revoked a session, a principal or a credential through this node. All nodes refuse it.",
    ("kind", "revoked", "reason", "until"),
)
UNBLOCKED = LogEvent(
    "unblocked",
    Level.WARNING,
    "An administrator unblocked a session, a principal or a credential through this node.",
    ("kind", "revoked"),
)
REVOCATIONS_READ = LogEvent(
    "revocations_read",
    Level.INFO,
    "The node read the revocations from the grid, at its start or after the grid had lost writes. The field counts "
    "them.",
    ("revocations", "lost_writes"),
)
REVOCATIONS_RESTORED = LogEvent(
    "revocations_restored",
    Level.WARNING,
    "The node wrote revocations to the grid that the grid had lost and that no other node had restored yet.",
    ("revocations",),
)
DESTINATIONS_CHANGED = LogEvent(
    "destinations_changed",
    Level.INFO,
    "An administrator, or the file of destinations, changed through this node what paths are. The event names the "
    "first 20 changes, and counts all.",
    ("origin", "described", "removed", "changes"),
)
DESTINATIONS_APPLIED = LogEvent(
    "destinations_applied",
    Level.INFO,
    "The file of destinations was read, at the start or again (SIGHUP), and the grid holds what it says. The fields "
    "count what it says, and what that changed.",
    ("destinations", "written", "removed"),
)
DESTINATIONS_KEPT = LogEvent(
    "destinations_kept",
    Level.ERROR,
    "The file of destinations could not be used; what the grid holds stays. Correct the file, then send SIGHUP.",
    ("error",),
)
DESTINATIONS_READ = LogEvent(
    "destinations_read",
    Level.INFO,
    "The node read the destinations from the grid, at its start or after the grid had lost writes. The field counts "
    "them.",
    ("destinations", "lost_writes"),
)
DESTINATIONS_RESTORED = LogEvent(
    "destinations_restored",
    Level.WARNING,
    "The node wrote destinations to the grid that the grid had lost and that no other node had restored yet.",
    ("destinations",),
)
CONNECTION_FAILED = LogEvent(
    "connection_failed",
    Level.ERROR,
    "A connection failed by a bug of the gateway. Its session is kept.",
    ("session", "error"),
    bug=True,
)
REQUEST_FAILED = LogEvent(
    "request_failed",
    Level.ERROR,
    "A request failed by a bug of the gateway. The reply asks the client to try again.",
    ("session", "error"),
    bug=True,
)
PROTOCOL_VIOLATED = LogEvent(
    "protocol_violated", Level.INFO, "A client broke the protocol. Its connection was closed.", ("address", "error")
)
SLOW_CONSUMER_CLOSED = LogEvent(
    "slow_consumer_closed",
    Level.WARNING,
    "The queue of a session reached its limit. Its connection was closed; the client may resume.",
    ("session", "packets", "bytes"),
)
GRID_UNREACHABLE = LogEvent(
    "grid_unreachable",
    Level.ERROR,
    "The grid is unreachable. Sessions stay connected; requests are refused.",
    ("error",),
)
GRID_STILL_UNREACHABLE = LogEvent(
    "grid_still_unreachable",
    Level.WARNING,
    "The grid is still unreachable; the field says why the last attempt failed. Reported after some seconds, and again "
    "every ten.",
    ("error", "unreachable_seconds"),
)
GRID_BACK = LogEvent(
    "grid_back", Level.WARNING, "The grid is reachable again.", ("generation", "lost_writes", "unreachable_seconds")
)
GRID_MASTERS_CHANGED = LogEvent(
    "grid_masters_changed",
    Level.WARNING,
    "The masters of the grid are other Redis processes than before: one was replaced, added or removed.",
    ("masters", "before"),
)
GRID_CLOCK_STEPPED = LogEvent(
    "grid_clock_stepped",
    Level.WARNING,
    "The clock of Redis was set, forward if the seconds are positive. Windows and leases end as they would have. One "
    "node reports it.",
    ("seconds", "shift_seconds"),
)
GRID_SLOT_HALF_MOVED = LogEvent(
    "grid_slot_half_moved",
    Level.ERROR,
    "A slot of the Redis Cluster was moved in part only. Commands for keys that are missing there are refused as "
    "retryable. Run `redis-cli --cluster fix`.",
    ("slot", "tag"),
)
GRID_WRITE_REFUSED = LogEvent(
    "grid_write_refused",
    Level.ERROR,
    "The grid answers but refuses writes: it is out of memory, or cannot persist them. Reported at most once a second.",
    ("error",),
)
GRID_FOREIGN_DATA = LogEvent(
    "grid_foreign_data",
    Level.ERROR,
    "Data in the grid that is not the gateway's, or is broken, was skipped or deleted. Reported at most every ten "
    "seconds.",
    ("key", "what", "error"),
)
MESSAGES_NOT_HELD = LogEvent(
    "messages_not_held",
    Level.WARNING,
    "A client has received messages of a queue that its session did not hold any more when they were to be accepted: "
    "they were held for too long, or the grid has lost writes. They are delivered again, and marked.",
    ("session", "queue", "count"),
)
DURABLE_EXPIRED = LogEvent(
    "durable_expired",
    Level.INFO,
    "A durable subscription was removed because nobody had used it for its life.",
    ("principal", "durable"),
)
QUEUE_CONSUMER_DISMISSED = LogEvent(
    "queue_consumer_dismissed",
    Level.WARNING,
    "A part of the grid went back: a queue had a consumer again whose session has ended. Others get its messages.",
    ("queue", "session"),
)
GRID_RESTORED = LogEvent(
    "grid_restored",
    Level.INFO,
    "The node wrote live sessions and newer values to a grid that had lost them.",
    ("sessions", "fenced", "values"),
)
POSITION_LOST = LogEvent(
    "position_lost",
    Level.WARNING,
    "The stream of a partition was cut before this node had read all of it. The node reads its values again.",
    ("partition",),
)
LEASE_LOST = LogEvent(
    "lease_lost",
    Level.WARNING,
    "The lease of this node had expired, after a pause or a long outage of the grid. The node verifies every session.",
    ("node",),
)
LEASE_EXPIRED = LogEvent("lease_expired", Level.WARNING, "The lease of another node expired.", ("expired",))
NODES_WITHOUT_LEASE = LogEvent(
    "nodes_without_lease",
    Level.WARNING,
    "The grid holds sessions of nodes whose leases it has lost. If these nodes are dead, others take over.",
    ("nodes",),
)
NODE_NAME_TAKEN = LogEvent(
    "node_name_taken",
    Level.ERROR,
    "Another node that lives has the name of this one. If this node came later, it accepts no new sessions "
    "(takes_sessions is false). Stop one of the two, or give it a name of its own (node).",
    ("node", "other", "other_admin", "takes_sessions"),
)
TAKEOVER_FINISHED = LogEvent(
    "takeover_finished",
    Level.WARNING,
    "The windows of all sessions of a node whose lease has expired have begun.",
    ("expired", "sessions"),
)
BACKGROUND_TASK_FAILED = LogEvent(
    "background_task_failed",
    Level.ERROR,
    "A background task failed by a bug of the gateway. It is started again.",
    ("task", "error"),
    bug=True,
)
LOG_LINES_DROPPED = LogEvent(
    "log_lines_dropped",
    Level.ERROR,
    "The reader of the log was too slow. So many lines are missing before this one. Clients were not delayed by it.",
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
    "Audit log: an administrator changed something through the admin API, or tried to. The outcome is `done`; "
    "`accepted` if it was begun and not finished when it was answered (202); the kind of the problem, or its status if "
    "another node answered; or `unknown`.",
    ("caller", "roles", "action", "operation", "target", "outcome", "address", "forwarded_by"),
)
ADMIN_REFUSED = LogEvent(
    "admin_refused",
    Level.WARNING,
    "Audit log: a request to the admin API had no valid token, or its roles do not allow it. Reported a few times a "
    "minute for each address at most.",
    ("caller", "roles", "action", "operation", "target", "outcome", "address", "forwarded_by"),
)
ADMIN_FAILED = LogEvent(
    "admin_failed",
    Level.ERROR,
    "A request to the admin port failed by a bug of the gateway.",
    ("path", "error"),
    bug=True,
)
CALL_FAILED = LogEvent(
    "call_failed",
    Level.ERROR,
    "A call by HTTP failed by a bug of the gateway. Nobody knows what of it was done.",
    ("path", "error"),
    bug=True,
)
STREAM_FAILED = LogEvent(
    "stream_failed",
    Level.ERROR,
    "A stream of events failed by a bug of the gateway. Its reader was told to come back.",
    ("error",),
    bug=True,
)
ADMIN_PORT_CROWDED = LogEvent(
    "admin_port_crowded",
    Level.WARNING,
    "Connections without a token fill the admin port. Those idle for longest are closed. Find out who opens them: the "
    "field address is the one with the most connections. Reported once a minute at most.",
    ("connections", "address", "most"),
)
ADMINS_RELOADED = LogEvent(
    "admins_reloaded", Level.INFO, "The file of administrators was read again (SIGHUP).", ("tokens",)
)
ADMINS_KEPT = LogEvent(
    "admins_kept",
    Level.ERROR,
    "The file of administrators could not be read again. The previous tokens stay in force. Correct the file, then "
    "send SIGHUP.",
    ("error",),
)
ADMIN_ROLE_UNDEFINED = LogEvent(
    "admin_role_undefined",
    Level.WARNING,
    "Tokens in the file of administrators have a role that is neither built in nor in the policy. The role allows them "
    "nothing. Correct its name in the file of administrators or in the policy, then send SIGHUP.",
    ("role", "tokens"),
)
MEMORY_RAN_SHORT = LogEvent(
    "memory_ran_short",
    Level.ERROR,
    "The process nears its memory limit, or an allocation failed. The node accepts no new connections, and gives up "
    "what it kept for disconnected clients; sessions are kept. Give it more memory, or lower the limits in bytes.",
    ("why", "buffers", "copies"),
)
MEMORY_SUFFICIENT = LogEvent(
    "memory_sufficient", Level.INFO, "There is enough memory again. The node accepts new connections.", ("used",)
)
LIMIT_EXCEEDED = LogEvent(
    "limit_exceeded",
    Level.WARNING,
    "An address or a principal reached a limit. Reported at most once a second for each limit; a metric counts all.",
    ("limit", "who"),
)
ORIGIN_REFUSED = LogEvent(
    "origin_refused",
    Level.WARNING,
    "A web page tried to connect whose origin is not in the setting origins. If the page is yours, add its origin "
    "there, as the field origin has it. Reported at most every 10 s; gateway_upgrades_refused_total counts all.",
    ("origin", "address"),
)
FLOOD_CLOSED = LogEvent(
    "flood_closed",
    Level.WARNING,
    "A connection was closed because its client sent frames without a message for too long, faster than they are read. "
    "Reported at most every 10 s; gateway_frame_violations_total counts all.",
    ("address",),
)
CONNECTIONS_NOT_ACCEPTED = LogEvent(
    "connections_not_accepted",
    Level.ERROR,
    "The system has no descriptor or memory left for another connection. The node accepts none for half a second, "
    "and then tries again. Reported at most every 10 s. Raise the limit of open files (LimitNOFILE=, ulimit -n).",
    ("error",),
)
DESCRIPTORS_SHORT = LogEvent(
    "descriptors_short",
    Level.WARNING,
    "The process may open too few files for the connections that limit_connections allows. The node accepts as many as "
    "the field connections says, and of one address as many as address_connections says. Raise the limit of open files "
    "(LimitNOFILE=, ulimit -n), or lower the setting.",
    ("descriptors", "configured", "connections", "address_connections"),
)
USERS_RELOADED = LogEvent("users_reloaded", Level.INFO, "The file of static users was read again (SIGHUP).", ("users",))
USERS_KEPT = LogEvent(
    "users_kept",
    Level.ERROR,
    "The file of static users could not be read again. The previous users stay in force. Correct the file, then send "
    "SIGHUP.",
    ("error",),
)
CERTIFICATE_RELOADED = LogEvent(
    "certificate_reloaded",
    Level.INFO,
    "The TLS files of a port were read again (SIGHUP). New connections get the new certificate.",
    ("port", "expires"),
)
CERTIFICATE_KEPT = LogEvent(
    "certificate_kept",
    Level.ERROR,
    "The TLS files of a port cannot be used. The previous certificate stays in force. Correct the files, then send "
    "SIGHUP.",
    ("port", "error"),
)
LINK_UP = LogEvent(
    "link_up",
    Level.INFO,
    "The link to another node is there. The field dialed_by tells which of the two had opened it.",
    ("peer", "dialed_by"),
)
LINK_DOWN = LogEvent(
    "link_down",
    Level.WARNING,
    "The link to another node broke. It is dialled again as long as that node lives. Sessions are not affected, but "
    "until then they move by failover. If it stays down, check the network between the nodes.",
    ("peer", "why"),
)
LINK_ENDED = LogEvent(
    "link_ended",
    Level.INFO,
    "The link to another node was hung up on purpose: one of the two stops or left, or another connection took over.",
    ("peer", "why"),
)
LINK_REFUSED = LogEvent(
    "link_refused",
    Level.WARNING,
    "A connection to the port of links was refused. The peer is the node that it claimed to be, or an address. Told "
    "once for each peer and reason until its link is up; a metric counts all.",
    ("peer", "reason", "detail"),
)
LINK_FAILED = LogEvent(
    "link_failed",
    Level.WARNING,
    "Another node could not be dialled, or refused the link. It is tried again. Check link_advertise and the "
    "certificates there, and the network. Reported once for each node and reason until its link is up.",
    ("peer", "address", "error"),
)
KEYS_RELOADED = LogEvent(
    "keys_reloaded",
    Level.INFO,
    "The files of token keys were read again (SIGHUP). The fields hold the ids of the keys, which are not secret.",
    ("signs", "verifies"),
)
KEYS_KEPT = LogEvent(
    "keys_kept",
    Level.ERROR,
    "The files of token keys could not be read again. The previous keys stay in force. Correct the file, then send "
    "SIGHUP.",
    ("error",),
)

LOG_EVENTS: Final[tuple[LogEvent, ...]] = tuple(
    each
    for module in (
        globals(),
        vars(exchange_log_events),
        vars(journal_log_events),
        vars(hook_log_events),
        vars(policy_log_events),
        vars(takeover_log_events),
        vars(will_log_events),
        vars(zone_link_log_events),
        vars(zone_log_events),
    )
    for each in list(module.values())
    if isinstance(each, LogEvent)
)
"""All of them, in the order of these files."""
