"""Every metric of a node: name, kind, label, buckets and meaning.

Names follow the Prometheus conventions: prefix ``gateway_``, base units, ``_total`` on counters. No label ever holds a
session, a principal or a client's address, and none holds a topic, except first segments that the operator has named
one by one; so the number of series is bounded by this file and the configuration.
"""

from __future__ import annotations

from typing import Final

from gateway.catalogue import (
    call_metrics,
    destination_metrics,
    durable_metrics,
    exchange_metrics,
    history_metrics,
    hook_metrics,
    journal_metrics,
    link_metrics,
    mirror_metrics,
    presence_metrics,
    queue_metrics,
    stream_metrics,
    takeover_metrics,
    topic_metrics,
    topology_metrics,
    transaction_metrics,
    will_metrics,
    zone_link_metrics,
    zone_metrics,
)
from gateway.catalogue.log_events import LOG_EVENTS, LOG_LINES_DROPPED
from gateway.catalogue.metric import LATENCY_BUCKETS, Kind, Metric
from gateway.catalogue.refusals import AdminRefusal, FrameRule, UpgradeRefusal
from gateway.core.policy.revocations import RevocationKind
from gateway.core.wire.codes import CLOSE_CODES, RECOVERED, ErrorCode, NotReplayed, Outcome

BUILD_INFO = Metric("gateway_build_info", Kind.GAUGE, "Always 1; the label is the version.", "version", open=True)
CONNECTIONS = Metric("gateway_connections", Kind.GAUGE, "Open client connections.")
SESSIONS = Metric(
    "gateway_sessions", Kind.GAUGE, "Sessions this node owns, by state.", "state", ("connected", "disconnected")
)
SESSIONS_GIVEN_BACK = Metric(
    "gateway_sessions_given_back",
    Kind.GAUGE,
    "Sessions without a client of which the node gave up its copy; only the grid holds them until their windows end.",
)
DISCONNECTED_BYTES = Metric(
    "gateway_disconnected_bytes",
    Kind.GAUGE,
    "Approximate memory of sessions without a client. A body that several sessions share counts once for each.",
)
CONNECTED_BUFFER_BYTES = Metric(
    "gateway_connected_buffer_bytes",
    Kind.GAUGE,
    "Bytes that connected sessions keep for their clients, unacknowledged or waiting; see limit_buffer_bytes. A body "
    "that several sessions share counts once for each.",
)
STORED_SESSION_BYTES = Metric(
    "gateway_stored_session_bytes",
    Kind.GAUGE,
    "Bytes that this node's sessions, and those that it has given back, take in the grid; see limit_session_bytes.",
)
DISCONNECTED_GIVEN_UP = Metric(
    "gateway_disconnected_given_up_total",
    Kind.COUNTER,
    "Sessions without a client of which the node gave up the buffers, or its whole copy, to stay within its memory.",
    "what",
    ("buffers", "copies"),
)
RESUME_SECONDS = Metric(
    "gateway_resume_seconds",
    Kind.HISTOGRAM,
    "Time from a resume packet to the write of its welcome, by recovery outcome, or to its refusal.",
    "outcome",
    (*(each.value for each in RECOVERED), Outcome.REFUSED.value),
    buckets=LATENCY_BUCKETS,
)
HELLO_SECONDS = Metric(
    "gateway_hello_seconds",
    Kind.HISTOGRAM,
    "Time from a hello packet to the write of its welcome: authentication and one step of the grid, without the wait "
    "for a turn at the grid.",
    buckets=LATENCY_BUCKETS,
)
LOSSES_DECLARED = Metric(
    "gateway_losses_declared_total",
    Kind.COUNTER,
    "Losses reported to sessions (P2): a resume needed more than the resend buffers held, a stream was cut before its "
    "node had read it, or the grid had lost writes.",
    "kind",
    ("gap", "position", "grid"),
)
SESSIONS_OPENED = Metric("gateway_sessions_opened_total", Kind.COUNTER, "New sessions created by hello.")
SESSIONS_ENDED = Metric(
    "gateway_sessions_ended_total",
    Kind.COUNTER,
    "Sessions ended by this node, by reason.",
    "reason",
    ("closed", "expired", "revoked"),
)
AUTHENTICATIONS = Metric(
    "gateway_authentications_total",
    Kind.COUNTER,
    "Credentials verified, with a hello, a resume or on an open connection, by outcome.",
    "outcome",
    ("accepted", "refused", "unavailable"),
)
AUTHENTICATION_SECONDS = Metric(
    "gateway_authentication_seconds",
    Kind.HISTOGRAM,
    "Time to verify credentials, including the wait for their turn.",
    buckets=LATENCY_BUCKETS,
)
VERIFICATIONS_WAITING = Metric(
    "gateway_verifications_waiting",
    Kind.GAUGE,
    "Credentials that wait for their turn to be hashed, or to be verified by an external service.",
)
VERIFICATIONS_REFUSED = Metric(
    "gateway_verifications_refused_total",
    Kind.COUNTER,
    "Credentials that were not verified, by reason: too many of the same origin waited, they waited for too long, the "
    "client had disconnected, or its session had shown credentials too often.",
    "reason",
    ("crowded", "late", "hung_up", "too_often"),
)
RESUMES = Metric(
    "gateway_resumes_total",
    Kind.COUNTER,
    "Resumes by recovery outcome, or by the reason of a refusal.",
    "outcome",
    (
        *(each.value for each in RECOVERED),
        ErrorCode.TOKEN_INVALID.value,
        ErrorCode.TOKEN_EXPIRED.value,
        ErrorCode.TOKEN_KEY_RETIRED.value,
        ErrorCode.TOKEN_SUPERSEDED.value,
        ErrorCode.STALE_ATTEMPT.value,
        ErrorCode.SESSION_UNKNOWN.value,
        ErrorCode.SESSION_EXPIRED.value,
        ErrorCode.SESSION_CLOSED.value,
        ErrorCode.REVOKED.value,
    ),
    open=True,
)
REVOCATIONS = Metric(
    "gateway_revocations",
    Kind.GAUGE,
    "Revocations that this node knows, by kind; all nodes know the same.",
    "kind",
    tuple(kind.value for kind in RevocationKind),
)
CLAIM_SECONDS = Metric(
    "gateway_claim_seconds", Kind.HISTOGRAM, "Time the grid took to answer a claim.", buckets=LATENCY_BUCKETS
)
PUBLISH_SECONDS = Metric(
    "gateway_publish_seconds",
    Kind.HISTOGRAM,
    "Time from the start of a run of publish requests of one session until its replies are ready.",
    buckets=LATENCY_BUCKETS,
)
DELIVERY_SECONDS = Metric(
    "gateway_delivery_seconds",
    Kind.HISTOGRAM,
    "Time from the arrival of an update at the node to its write to the last session that could take it at once.",
    buckets=LATENCY_BUCKETS,
)
GRID_TAIL_LAG_SECONDS = Metric(
    "gateway_grid_tail_lag_seconds",
    Kind.HISTOGRAM,
    "Time from sending a publish of this node to the grid until its entry is read back from the stream.",
    buckets=LATENCY_BUCKETS,
)
GRID_STEP_SECONDS = Metric(
    "gateway_grid_step_seconds", Kind.HISTOGRAM, "Time of one pipeline to the grid.", buckets=LATENCY_BUCKETS
)
GRID_BATCH_COMMANDS = Metric(
    "gateway_grid_batch_commands",
    Kind.HISTOGRAM,
    "Commands that shared one pipeline to the grid.",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)
GRID_UP = Metric("gateway_grid_up", Kind.GAUGE, "1 while the grid is reachable and adopted, else 0.")
GRID_GENERATION = Metric("gateway_grid_generation", Kind.GAUGE, "The adopted generation of the grid.")
GRID_MASTERS = Metric(
    "gateway_grid_masters", Kind.GAUGE, "Redis masters that the grid consists of; 0 while the grid is unreachable."
)
GRID_CLOCK_SPREAD = Metric(
    "gateway_grid_clock_spread_seconds",
    Kind.GAUGE,
    "Largest difference between the clocks of the masters when the grid was last adopted, round trips included.",
)
GRID_SLOTS_HALF_MOVED = Metric(
    "gateway_grid_slots_half_moved",
    Kind.GAUGE,
    "Slots of the Redis Cluster whose move is unfinished, of those this node was redirected for.",
)
GRID_CLOCK_SHIFT = Metric(
    "gateway_grid_clock_shift_seconds",
    Kind.GAUGE,
    "How far the clock of Redis is ahead of the time of the grid: the sum of all steps by which it was set.",
)
GRID_CLOCK_STEPS = Metric(
    "gateway_grid_clock_steps_total",
    Kind.COUNTER,
    "Times this node recorded that the clock of Redis was set. Deadlines are kept.",
)
GRID_POSITIONS_LOST = Metric(
    "gateway_grid_positions_lost_total", Kind.COUNTER, "Partitions whose values had to be read again."
)
GRID_TAIL_SILENCE_SECONDS = Metric(
    "gateway_grid_tail_silence_seconds",
    Kind.GAUGE,
    "Time since the last read of the grid's streams ended, with or without updates; below three seconds on a healthy "
    "node.",
)
FOLLOWED_PARTITIONS = Metric(
    "gateway_followed_partitions", Kind.GAUGE, "Topic partitions (of 64) that this node follows and copies."
)
REPLICA_TOPICS = Metric("gateway_replica_topics", Kind.GAUGE, "Topics whose values this node keeps a copy of.")
GRID_MEMORY_BYTES = Metric(
    "gateway_grid_memory_bytes", Kind.GAUGE, "Memory that a master of the grid uses.", "master", open=True
)
GRID_MEMORY_LIMIT_BYTES = Metric(
    "gateway_grid_memory_limit_bytes", Kind.GAUGE, "The maxmemory of a master; 0 for none.", "master", open=True
)
GRID_CLIENTS = Metric("gateway_grid_clients", Kind.GAUGE, "Connections to a master of the grid.", "master", open=True)
GRID_REPLICAS = Metric("gateway_grid_replicas", Kind.GAUGE, "Replicas attached to a master.", "master", open=True)
GRID_PERSISTENCE_OK = Metric(
    "gateway_grid_persistence_ok",
    Kind.GAUGE,
    "1 while a master persists its data as configured, else 0.",
    "master",
    open=True,
)
GRID_COMMANDS = Metric(
    "gateway_grid_commands_total",
    Kind.COUNTER,
    "Commands that a master has executed, by its own count.",
    "master",
    open=True,
)
GRID_CPU_SECONDS = Metric(
    "gateway_grid_cpu_seconds_total", Kind.COUNTER, "Processor time of a master's process.", "master", open=True
)
GRID_EVICTED_KEYS = Metric(
    "gateway_grid_evicted_keys_total",
    Kind.COUNTER,
    "Keys that a master evicted for lack of memory: must stay 0, see maxmemory-policy.",
    "master",
    open=True,
)
GRID_FOREIGN_DATA = Metric(
    "gateway_grid_foreign_data_total",
    Kind.COUNTER,
    "Entries, fields and keys in the grid that are not the gateway's, or are broken, and were skipped: must stay 0.",
)
STREAM_UPDATES = Metric("gateway_stream_updates_total", Kind.COUNTER, "Updates read from the grid's streams.")
TOPIC_UPDATES = Metric(
    "gateway_topic_updates_total",
    Kind.COUNTER,
    "Updates read from the grid's streams, by the first segment of their topic: each segment that the "
    "setting metrics_topics names, and all others as other. Without the setting nothing is counted.",
    "root",
    open=True,
)
DELIVERIES = Metric("gateway_deliveries_total", Kind.COUNTER, "Updates written to sessions.")
HANDOFFS = Metric(
    "gateway_handoffs_total",
    Kind.COUNTER,
    "Times that this node asked another one for what it had held of a session that came here, by what came of it.",
    "result",
    ("given", "gone", "unclaimed", "outdated", "no_link", "declined", "silent", "invalid"),
)
HANDOFF_SECONDS = Metric(
    "gateway_handoff_seconds", Kind.HISTOGRAM, "Time to get a session from another node.", buckets=LATENCY_BUCKETS
)
FORMER_SESSIONS = Metric(
    "gateway_former_sessions", Kind.GAUGE, "Sessions of others now, kept as they were until they are taken, or 10 s."
)
FAILOVERS = Metric(
    "gateway_failovers_total",
    Kind.COUNTER,
    "Clients that failed over: true, they were sent all that they had missed; nothing, they select no topics.",
    "replayed",
    ("true", "false", "nothing"),
)
REPLAYED_UPDATES = Metric(
    "gateway_replayed_updates_total", Kind.COUNTER, "Updates that clients had missed and were sent after a failover."
)
REPLAY_EVENTS = Metric(
    "gateway_replay_events_total", Kind.COUNTER, "Updates looked at for that, each once for all who came together."
)
REPLAY_READS = Metric(
    "gateway_replay_reads_total", Kind.COUNTER, "Stretches of streams that were read again for clients that came back."
)
NOT_REPLAYED = Metric(
    "gateway_not_replayed_total",
    Kind.COUNTER,
    "Topic partitions of which a client that failed over, and asked for what it had missed, was sent current values.",
    "reason",
    tuple(NotReplayed),
)
WRITES = Metric("gateway_writes_total", Kind.COUNTER, "Messages written to sockets; each may carry many packets.")
CONFLATED = Metric(
    "gateway_conflated_updates_total", Kind.COUNTER, "Updates replaced by a newer one while their session was slow."
)
PUBLISHES = Metric(
    "gateway_publishes_total",
    Kind.COUNTER,
    "Publish requests by result.",
    "result",
    ("published", "duplicate", "refused"),
)
FORBIDDEN = Metric(
    "gateway_forbidden_total",
    Kind.COUNTER,
    "Requests and hellos refused because the principal lacks the permission.",
    "permission",
    ("select", "publish", "send", "consume", "request", "handle", "address", "declare", "properties"),
)
PERMISSION_ANSWER_BYTES = Metric(
    "gateway_permission_answer_bytes", Kind.GAUGE, "Bytes of answers about permissions that are remembered, of 64 MiB."
)
SELECTIONS_WITHDRAWN = Metric(
    "gateway_selections_withdrawn_total",
    Kind.COUNTER,
    "Selectors taken out of sessions because the policy does not allow them any more.",
)
RESEND_BUFFER_BYTES = Metric(
    "gateway_resend_buffer_bytes", Kind.GAUGE, "Bytes in all resend buffers; shared bodies count for each session."
)
OUTBOX_PACKETS = Metric("gateway_outbox_packets", Kind.GAUGE, "Packets waiting in outboxes, not yet numbered.")
REQUEST_BYTES = Metric(
    "gateway_request_bytes",
    Kind.GAUGE,
    "Approximate bytes of requests without a reply; see limit_node_request_bytes.",
)
BLOCKED_SESSIONS = Metric(
    "gateway_blocked_sessions", Kind.GAUGE, "Connected sessions whose sockets accept no more bytes."
)
FENCED_WRITES = Metric(
    "gateway_fenced_writes_total", Kind.COUNTER, "Writes the grid refused because the session has a newer owner."
)
CLOSES = Metric(
    "gateway_closes_total",
    Kind.COUNTER,
    "Connections closed by this node, by close code.",
    "code",
    tuple(str(close.code) for close in CLOSE_CODES),
    open=True,
)
SLOW_CLOSES = Metric(
    "gateway_slow_closes_total",
    Kind.COUNTER,
    "Connections closed because the client read too slowly, by close code.",
    "code",
    ("4001", "4002"),
)
TAKEOVERS = Metric(
    "gateway_takeovers_total",
    Kind.COUNTER,
    "Nodes with an expired lease whose sessions this node took over: it began their windows.",
)
LEASE_LOST = Metric("gateway_lease_lost_total", Kind.COUNTER, "Times this node found its own lease expired.")
EVENT_LOOP_LAG_SECONDS = Metric(
    "gateway_event_loop_lag_seconds",
    Kind.HISTOGRAM,
    "How late a timer of the event loop fires.",
    buckets=LATENCY_BUCKETS,
)
DRAINING = Metric("gateway_draining", Kind.GAUGE, "1 while the node drains, else 0.")
NAMESAKES = Metric("gateway_namesakes", Kind.GAUGE, "Other nodes that live and have the name of this one.")
ADMIN_REQUESTS = Metric(
    "gateway_admin_requests_total",
    Kind.COUNTER,
    "Requests to the admin API, by HTTP status.",
    "status",
    tuple(str(status) for status in (200, 201, 202, 204, 400, 401, 403, 404, 409, 413, 415, 421, 429, 500, 502, 503)),
)
RATE_LIMITED_SECONDS = Metric(
    "gateway_rate_limited_seconds_total", Kind.COUNTER, "Time for which rate limits paused reading from clients."
)

UPGRADES_REFUSED = Metric(
    "gateway_upgrades_refused_total",
    Kind.COUNTER,
    "Connections to the client port that did not become a WebSocket, by reason.",
    "reason",
    tuple(each.value for each in UpgradeRefusal),
)
FRAME_VIOLATIONS = Metric(
    "gateway_frame_violations_total",
    Kind.COUNTER,
    "WebSockets closed because their client broke a rule of RFC 6455 or sent a flood of frames, by rule.",
    "rule",
    tuple(each.value for each in FrameRule),
)
READING_SLOWED = Metric(
    "gateway_reading_slowed_total",
    Kind.COUNTER,
    "Pauses in reading from a connection whose frames cause more work than allowed, by whether it has a session.",
    "of",
    ("sessions", "unauthenticated"),
)
READING_DEFERRED = Metric(
    "gateway_reading_deferred_total",
    Kind.COUNTER,
    "Times a connection had data to read after the time for its kind in a turn of the loop was used up.",
    "of",
    ("sessions", "unauthenticated"),
)
EVENTS = Metric(
    "gateway_events_total",
    Kind.COUNTER,
    "Log events by name, also those below the log level.",
    "event",
    tuple(event.name for event in LOG_EVENTS if event is not LOG_LINES_DROPPED),
)
LOG_LINES_LOST = Metric(
    "gateway_log_lines_dropped_total",
    Kind.COUNTER,
    "Lines missing from the log because its reader was too slow.",
)
LIMITS_EXCEEDED = Metric(
    "gateway_limits_exceeded_total",
    Kind.COUNTER,
    "Connections, sessions, requests and messages that exceeded a limit, by setting.",
    "limit",
    (
        "limit_connections",
        "limit_address_connections",
        "rate_address_handshakes",
        "rate_address_verifications",
        "rate_exempt_tls_handshakes",
        "rate_address_packets",
        "rate_address_publish_bytes",
        "limit_principal_sessions",
        "limit_principal_disconnected",
        "limit_principal_disconnected_bytes",
        "limit_principal_session_bytes",
        "limit_session_bytes",
        "limit_principal_buffer_bytes",
        "limit_buffer_bytes",
        "limit_disconnected",
        "limit_disconnected_bytes",
        "rate_principal_handshakes",
        "rate_principal_verifications",
        "rate_principal_packets",
        "rate_principal_publish_bytes",
        "limit_principal_selections",
        "rate_principal_topics",
        "rate_packets",
        "rate_bytes",
        "rate_node_packets",
        "rate_node_publish_bytes",
        "limit_node_selections",
        "limit_partition_topics",
        "limit_partition_bytes",
        "limit_selections",
        "limit_selection_bytes",
        "limit_questions",
        "limit_node_questions",
        "limit_handlers",
        "limit_node_pages",
        "limit_requests",
        "limit_request_bytes",
        "limit_node_request_bytes",
        "limit_message_bytes",
        "limit_value_bytes",
        "memory_limit",
        "admission_rate",
        "claim_rate",
        "claims_at_once",
    ),
)
MEMORY_USED_BYTES = Metric(
    "gateway_memory_used_bytes",
    Kind.GAUGE,
    "Memory of the process, to be compared with gateway_memory_limit_bytes; see memory_limit.",
)
MEMORY_LIMIT_BYTES = Metric(
    "gateway_memory_limit_bytes",
    Kind.GAUGE,
    "Memory at which the process is killed or its allocations fail: by memory_limit, its control group, RLIMIT_AS or "
    "the machine; 0 if unknown.",
)
MEMORY_SHORT = Metric(
    "gateway_memory_short", Kind.GAUGE, "1 while memory is short and the node accepts no new connections, else 0."
)
MEMORY_SHEDDINGS = Metric(
    "gateway_memory_sheddings_total",
    Kind.COUNTER,
    "Times the node gave up what it kept for disconnected clients because memory ran short.",
)
LIMITED_ACCOUNTS = Metric(
    "gateway_limited_accounts",
    Kind.GAUGE,
    "Addresses and principals whose use is counted.",
    "of",
    ("address", "principal"),
)
ADMISSIONS = Metric(
    "gateway_admissions_total",
    Kind.COUNTER,
    "Clients that asked to connect, by result; those that exceed a limit of their own are not counted.",
    "result",
    ("accepted", "rejected"),
)
ADMISSIONS_WAITING = Metric("gateway_admissions_waiting", Kind.GAUGE, "Clients that wait to be accepted.")
ADMISSION_WAIT_SECONDS = Metric(
    "gateway_admission_wait_seconds",
    Kind.HISTOGRAM,
    "Time that accepted clients had waited.",
    buckets=LATENCY_BUCKETS,
)
HANDSHAKES_WAITING = Metric(
    "gateway_handshakes_waiting", Kind.GAUGE, "Clients whose first packet waits for its turn at the grid."
)
BACKOFF_ADVISED_SECONDS = Metric(
    "gateway_backoff_advised_seconds",
    Kind.GAUGE,
    "Time over which the clients of this node are advised to spread their reconnects, should the node die now.",
)

ADMIN_CONNECTIONS_REFUSED = Metric(
    "gateway_admin_connections_refused_total",
    Kind.COUNTER,
    "Connections to the admin port that were closed, by reason: silent sent no request in time, slow took no answer or "
    "sent no body in time, too_much sent more than a request has or changed keys of TLS without end, and crowded_out "
    "made room for newer ones.",
    "reason",
    tuple(each.value for each in AdminRefusal),
)
ADMIN_CONNECTIONS = Metric(
    "gateway_admin_connections",
    Kind.GAUGE,
    "Connections to the admin port: callers have shown a valid token, unauthenticated clients have not. Each kind has "
    "a limit of its own.",
    "kind",
    ("unauthenticated", "callers"),
)
CERTIFICATE_EXPIRY = Metric(
    "gateway_certificate_expiry_timestamp_seconds",
    Kind.GAUGE,
    "When the certificate of a port that speaks TLS expires, in seconds since 1970; 0 if it speaks none.",
    "port",
    ("clients", "admin", "links", "zones"),
)

METRICS: Final[tuple[Metric, ...]] = tuple(
    each
    for module in (
        globals(),
        vars(destination_metrics),
        vars(history_metrics),
        vars(topic_metrics),
        vars(will_metrics),
        vars(presence_metrics),
        vars(journal_metrics),
        vars(hook_metrics),
        vars(link_metrics),
        vars(mirror_metrics),
        vars(topology_metrics),
        vars(exchange_metrics),
        vars(queue_metrics),
        vars(durable_metrics),
        vars(call_metrics),
        vars(stream_metrics),
        vars(takeover_metrics),
        vars(transaction_metrics),
        vars(zone_link_metrics),
        vars(zone_metrics),
    )
    for each in list(module.values())
    if isinstance(each, Metric)
)
"""All of them, in the order of these files."""
