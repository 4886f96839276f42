/**
 * Close codes, error codes, notices and outcomes (protocol sections 5.8, 7, 8 and 10); a test compares them with the node's registry.
 *
 * The range of a close code *is* the client's behaviour, so that a code unknown to this client does the right thing too.
 *
 * @module
 */

/**
 * What to do after a connection was closed.
 *
 * @typedef {"at_once" | "later" | "never"} Reconnect
 */

/** Close codes that this client sends or looks at by name. */
export const CloseCode = Object.freeze({
  NORMAL: 1000,
  MESSAGE_TOO_BIG: 1009,
  GOING_AWAY: 4000,
  SLOW_CONSUMER: 4001,
  PING_TIMEOUT: 4002,
  OUT_OF_ORDER: 4003,
  FENCED: 4004,
  INTERNAL_ERROR: 4005,
  CREDENTIALS_EXPIRED: 4006,
  NOT_MASTER: 4007,
  GRID_UNAVAILABLE: 4100,
  TRY_LATER: 4101,
  HANDSHAKE_TIMEOUT: 4102,
  STALE_ATTEMPT: 4103,
  AUTHENTICATION_UNAVAILABLE: 4104,
  LIMIT_EXCEEDED: 4105,
  PROTOCOL_ERROR: 4200,
  UNAUTHENTICATED: 4201,
  REFUSED: 4202,
  SUPERSEDED: 4203,
  SESSION_EXPIRED: 4204,
  SESSION_CLOSED: 4205,
  REVOKED: 4206,
  FORBIDDEN: 4207,
});

/** How a connection got its session. */
export const Outcome = Object.freeze({
  CREATED: "created",
  REATTACHED: "reattached",
  HANDED_OVER: "handed_over",
  MIRRORED: "mirrored",
  FAILED_OVER: "failed_over",
});

/** Notices by which this client does something, beyond handing them on (protocol 5.8). */
export const NoticeCode = Object.freeze({
  /** The grid is back with less than it had. */
  GRID_LOST_WRITES: "grid_lost_writes",
  /** Current values come in place of each update between. */
  VALUES_REREAD: "values_reread",
  /** All current values have come (protocol 10.6). */
  SNAPSHOTS_COMPLETE: "snapshots_complete",
  /** A right was withdrawn (protocol 6.5.4). */
  PERMISSIONS_WITHDRAWN: "permissions_withdrawn",
  /** It stands in for updates lost by a withdrawn right (protocol 6.5.4). */
  WITHHELD: "withheld",
  /** Fresh credentials are asked for. */
  CREDENTIALS_EXPIRING: "credentials_expiring",
});

/** What this client understands beyond the first version of the protocol; told in every hello and resume (protocol 4.1). */
export const SUPPORTS = Object.freeze(["handed_over", "mirrored", "replay", "queues", "questions"]);

/** The word with which a client asks for the list of the cluster, and its changes (protocol 15.2). */
export const TOPOLOGY = "topology";

/** Whether packet numbers go on over a welcome; what a client acts by, whatever the outcome is called (protocol 4.3). */
export const Numbering = Object.freeze({ KEPT: "kept", RESTARTED: "restarted" });

/** What the outcomes meant before servers said it. @type {ReadonlyMap<string, string>} */
const NUMBERING_BY_OUTCOME = new Map([
  [Outcome.CREATED, Numbering.RESTARTED],
  [Outcome.REATTACHED, Numbering.KEPT],
  [Outcome.FAILED_OVER, Numbering.RESTARTED],
]);

/**
 * Tell whether packet numbers go on.
 *
 * @param {{outcome: string, numbering: string | null}} welcome
 * @returns {"kept" | "restarted" | null} Null if this client cannot know (protocol 5.4.4).
 */
export function numberingOf({ outcome, numbering }) {
  const told = numbering ?? NUMBERING_BY_OUTCOME.get(outcome) ?? null;
  return told === Numbering.KEPT || told === Numbering.RESTARTED ? told : null;
}

/** Error codes after which the same request, sent again later as a new one, can succeed. */
export const RETRYABLE_ERRORS = Object.freeze([
  "grid_unavailable",
  "draining",
  "rate_limited",
  "too_many_sessions",
  "try_later",
  "not_master",
  "handshake_timeout",
  "authentication_unavailable",
]);

/** All error codes of protocol section 7; one that is not among them counts as `internal`. */
export const ERROR_CODES = Object.freeze([
  ...RETRYABLE_ERRORS,
  "bad_request",
  "bad_selector",
  "bad_topic",
  "bad_properties",
  "bad_value",
  "value_too_large",
  "too_many_selections",
  "too_many_topics",
  "too_many_bytes",
  "no_such_queue",
  "queue_full",
  "not_held",
  "too_many_consumers",
  "no_such_durable",
  "durable_in_use",
  "durable_differs",
  "too_many_durables",
  "no_such_transaction",
  "too_many_transactions",
  "transaction_too_large",
  "no_handler",
  "handlers_busy",
  "too_many_handlers",
  "too_many_questions",
  "question_over",
  "question_timeout",
  "handler_lost",
  "handler_failed",
  "answer_lost",
  "forbidden",
  "internal",
  "unauthenticated",
  "token_invalid",
  "token_expired",
  "token_key_retired",
  "token_superseded",
  "stale_attempt",
  "session_unknown",
  "session_expired",
  "session_closed",
  "revoked",
  "not_replicated",
  "credentials_expired",
  "protocol_error",
  "unknown_packet_type",
  "message_too_big",
]);

/** Standard close codes that say "you erred" or "done". */
const STANDARD_NEVER = new Set([1000, 1002, 1003, 1007, 1008, 1009, 1010]);

/**
 * Tell what to do after a close, by the range of its code alone.
 *
 * @param {number | null} code - The close code; null when the connection ended without one.
 * @returns {Reconnect}
 */
export function reconnectFor(code) {
  if (code === null) return "at_once";
  if (code >= 4100 && code < 4200) return "later";
  if ((code >= 4200 && code < 4300) || STANDARD_NEVER.has(code)) return "never";
  return "at_once";
}

/**
 * Tell whether a refused request can be asked again.
 *
 * @param {string} code - Of the reply or error packet; an unknown one counts as `internal`.
 * @returns {boolean}
 */
export function isRetryable(code) {
  return RETRYABLE_ERRORS.includes(code);
}
