/**
 * The tree of errors that users of the client meet.
 *
 * ```text
 * GatewayError
 * ├── ConnectFailed               connect() got no session; .code, .retryable
 * │   └── Unauthenticated         the principal and secret were not accepted
 * ├── SessionEnded                the session is over; .code
 * │   ├── SessionClosed           on purpose: by close(), or by an administrator
 * │   ├── SessionExpired          no node could be reached within the window
 * │   ├── SessionRefused          a node was reached and will not go on with the session
 * │   └── SessionFailed           this client, or a node, broke the protocol: a bug
 * ├── RequestTimedOut             the caller's own time limit; .sent
 * ├── HandlerFailed               whoever was given a request of the application says that there is no answer
 * ├── HandlerLost, AnswerLost     there will be no answer; .mayHaveBeenExecuted
 * ├── StreamOverflow              a stream was read so slowly that not even the newest values can be kept
 * ├── RemoteProtocolError         used inside: the node sent what the protocol does not allow; .closeCode
 * └── RequestRefused              one request was refused, nothing else is harmed; .code
 *     ├── InvalidTopic, InvalidSelector, InvalidProperties, InvalidValue
 *     ├── ValueTooLarge, TooManySelections, Forbidden
 *     ├── NoSuchQueue, QueueFull, NotHeld
 *     ├── NoHandler, HandlersBusy
 *     ├── NoSuchDurable, DurableInUse, NoSuchTransaction
 *     └── RequestFailed           the node failed on it, and it may have been executed nevertheless
 * ```
 *
 * No message holds a token or a secret (protocol 11.2).
 *
 * @module
 */

import { CloseCode, ERROR_CODES } from "./codes.js";

/** Everything that this client throws on purpose. */
export class GatewayError extends Error {
  /** @param {string} message - For people. */
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

/** `connect` got no session. */
export class ConnectFailed extends GatewayError {
  /**
   * @param {string} message
   * @param {{code?: string | null, retryable?: boolean}} [details]
   */
  constructor(message, { code = null, retryable = true } = {}) {
    super(message);
    /** The error code a node gave, or null if none was reached. */
    this.code = code;
    /** Whether the same call can succeed later. */
    this.retryable = retryable;
  }
}

/** The principal and secret were not accepted. */
export class Unauthenticated extends ConnectFailed {
  /** @param {string} message */
  constructor(message) {
    super(message, { code: "unauthenticated", retryable: false });
  }
}

/** The session is over; open a new one with `connect`. A publish without an answer may or may not have been executed. */
export class SessionEnded extends GatewayError {
  /**
   * @param {string} message
   * @param {{code?: string | null}} [details]
   */
  constructor(message, { code = null } = {}) {
    super(message);
    /** The error code a node gave, or null. */
    this.code = code;
  }
}

/** The session was ended on purpose: by `close`, or by an administrator. */
export class SessionClosed extends SessionEnded {}

/** The session's window ended before a node could be reached. */
export class SessionExpired extends SessionEnded {}

/** A node was reached and refuses to go on with the session; `code` says why (rung 5 of the ladder). */
export class SessionRefused extends SessionEnded {}

/** This client or a node broke the protocol; always a bug on one of the two sides. */
export class SessionFailed extends SessionEnded {}

/** A request was not answered within the time the caller gave it. */
export class RequestTimedOut extends GatewayError {
  /**
   * @param {string} message
   * @param {boolean} sent
   */
  constructor(message, sent) {
    super(message);
    /** False if it was never sent, so that it was certainly not executed; true if it may have been. */
    this.sent = sent;
  }
}

/** The node sent what the protocol does not allow. */
export class RemoteProtocolError extends GatewayError {
  /**
   * @param {string} message
   * @param {{code?: string, closeCode?: number}} [details]
   */
  constructor(message, { code = "protocol_error", closeCode = CloseCode.PROTOCOL_ERROR } = {}) {
    super(message);
    /** For the error packet. */
    this.code = code;
    /** With which the connection is closed. */
    this.closeCode = closeCode;
  }
}

/** A stream was read so slowly that the newest values alone were more than it may keep; it has ended. */
export class StreamOverflow extends GatewayError {}

/** Events behind the position of a stream are not kept any more, and it was to refuse that (`onGap`). */
export class PositionGone extends GatewayError {}

/** One request was refused; nothing else is harmed. */
export class RequestRefused extends GatewayError {
  /**
   * @param {string} message
   * @param {string} code - Of protocol section 7.
   */
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

/** What was given as a position in a history is none. */
export class InvalidPosition extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "bad_request");
  }
}

/** The topic path breaks the rules of protocol section 6.1. */
export class InvalidTopic extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "bad_topic");
  }
}

/** The selector breaks the rules of protocol section 6.2. */
export class InvalidSelector extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "bad_selector");
  }
}

/** Properties are strings by name, and names that begin with `$` are the server's. */
export class InvalidProperties extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "bad_properties");
  }
}

/** The value is no JSON, or none that can be passed on. */
export class InvalidValue extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "bad_value");
  }
}

/** The value is larger than the node accepts. */
export class ValueTooLarge extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "value_too_large");
  }
}

/** The session holds as many selections as the node allows. */
export class TooManySelections extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "too_many_selections");
  }
}

/** The principal may not do this. */
export class Forbidden extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "forbidden");
  }
}

/** Nobody has declared a queue of this path. */
export class NoSuchQueue extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "no_such_queue");
  }
}

/** The queue has no room; the message was not sent. Send it again later, as a new one. */
export class QueueFull extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "queue_full");
  }
}

/** The session does not hold a message any more: it was settled, or was taken back and may be another's. */
export class NotHeld extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "not_held");
  }
}

/** Nobody who is there handles requests of this path, so that nobody was asked. */
export class NoHandler extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "no_handler");
  }
}

/** All who handle requests of this path have as many as they take; nobody was asked. Ask again later. */
export class HandlersBusy extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "handlers_busy");
  }
}

/** There is no answer to a request, and whoever was asked says why; handlers throw it to say so. */
export class HandlerFailed extends GatewayError {}

/** The session that had a request has ended before it gave an answer. */
export class HandlerLost extends GatewayError {
  /**
   * @param {string} message
   * @param {boolean} uncertain
   */
  constructor(message, uncertain) {
    super(message);
    /** Whether somebody may have acted upon the request all the same. */
    this.mayHaveBeenExecuted = uncertain;
  }
}

/** The grid has lost a request, or had no room for its answer. */
export class AnswerLost extends GatewayError {
  /**
   * @param {string} message
   * @param {boolean} uncertain
   */
  constructor(message, uncertain) {
    super(message);
    /** Whether somebody may have acted upon the request all the same. */
    this.mayHaveBeenExecuted = uncertain;
  }
}

/** The principal has no durable subscription of this name: it was removed, or nobody used it for its life. */
export class NoSuchDurable extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "no_such_durable");
  }
}

/** Another session uses the durable subscription, so that this one may not, or may not any more. */
export class DurableInUse extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "durable_in_use");
  }
}

/** The transaction is over: committed, or rolled back by its client, or because nobody went on with it in time. */
export class NoSuchTransaction extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "no_such_transaction");
  }
}

/** The node failed on the request; its log has the reason. The request may have been executed nevertheless. */
export class RequestFailed extends RequestRefused {
  /** @param {string} message */
  constructor(message) {
    super(message, "internal");
  }
}

/** @type {ReadonlyMap<string, new (message: string) => RequestRefused>} */
const REFUSALS = new Map([
  ["bad_topic", InvalidTopic],
  ["bad_selector", InvalidSelector],
  ["bad_properties", InvalidProperties],
  ["bad_value", InvalidValue],
  ["value_too_large", ValueTooLarge],
  ["too_many_selections", TooManySelections],
  ["forbidden", Forbidden],
  ["no_such_queue", NoSuchQueue],
  ["queue_full", QueueFull],
  ["not_held", NotHeld],
  ["no_handler", NoHandler],
  ["handlers_busy", HandlersBusy],
  ["no_such_durable", NoSuchDurable],
  ["durable_in_use", DurableInUse],
  ["no_such_transaction", NoSuchTransaction],
  ["internal", RequestFailed],
]);

/**
 * Make the error with which a refused request fails.
 *
 * @param {string} code - Of the reply.
 * @param {string} message - Of the reply.
 * @returns {RequestRefused}
 */
export function refusal(code, message) {
  const Kind = REFUSALS.get(code) ?? (ERROR_CODES.includes(code) ? undefined : RequestFailed);
  return Kind ? new Kind(message || code) : new RequestRefused(message || code, code);
}

/**
 * Report a bug of the application like any other of it; it harms neither the session nor the process.
 *
 * @param {unknown} error
 */
export function report(error) {
  if (typeof reportError === "function") reportError(error);
  else console.error(error);
}

/**
 * Call what the application gave, and report what it throws, at once or later.
 *
 * @param {() => unknown} call
 */
export function guarded(call) {
  try {
    const result = call();
    if (typeof result === "object" && result !== null && "then" in result) Promise.resolve(result).catch(report);
  } catch (error) {
    report(error);
  }
}
