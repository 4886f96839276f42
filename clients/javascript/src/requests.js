/**
 * The table of requests: which wait to be sent, which wait for their reply, and when refused ones are sent again.
 *
 * ```text
 *             add                  ready                         answer
 *  caller ───────────▶ waiting ───────────▶ unanswered ───────────────────▶ caller
 *                       ▲   ▲                │      │
 *                       │   └─ "later" ──────┘      │ failover
 *                       │      (new number)         ▼
 *                       └─ first in line ── to be asked again (same number)
 * ```
 *
 * **Numbers.** A request gets its number when it is sent. After a failover the requests without an answer are asked again
 * with the same numbers, and the grid executes each publish once (protocol 5.2.5). A request refused with a retryable error
 * was certainly not executed; it is sent again under a new number (5.2.4).
 *
 * **Order.** Requests are sent in the order in which they were added. Refused ones go back to their place in that order, so
 * they pass nobody by; while the node refuses, only one request at a time probes whether it still does.
 *
 * Time and randomness are arguments, and nothing here waits.
 *
 * @module
 */

import { isRetryable } from "./codes.js";
import { refusal } from "./errors.js";

/** Seconds before a refused request is sent again, if the node gives no advice; doubles with each refusal in a row. */
export const RETRY_INITIAL = 0.1;

/** Seconds up to which that doubles. */
export const RETRY_MAXIMUM = 5;

/**
 * What a transaction can do.
 *
 * @typedef {{type: "publish", topic: string, text: string, ttl?: number}
 *   | {type: "send", queue: string, text: string, headers?: Record<string, string>, delay?: number, expires?: number}
 *   | {type: "settle", queue: string, as: "accept" | "reject" | "release", messages: [number, number][], delay?: number}
 *   } Operation
 *
 * A will whose value is written already.
 *
 * @typedef {{topic: string, when?: EndKind[], ttl?: number, text: string}} WrittenWill
 *
 * @typedef {import("./wills.js").EndKind} EndKind
 *
 * A request without its number, as it is written.
 *
 * @typedef {Operation
 *   | {type: "subscribe", selector: string}
 *   | {type: "unsubscribe", selector: string, keep?: string[]}
 *   | {type: "history", selector: string, after?: Record<string, string>, from?: string, limit?: number}
 *   | {type: "values", selector: string, after?: string, limit?: number}
 *   | {type: "properties", set: Record<string, string | null>}
 *   | {type: "consume", queue: string, credit: number, mode: "auto" | "each" | "none"}
 *   | {type: "cancel", queue: string}
 *   | {type: "declare", temporary: true}
 *   | {type: "durable-open", name: string, selector: string, after?: Record<string, string>, from?: string, life?: number,
 *       take?: boolean, shared?: boolean}
 *   | {type: "durable-advance", name: string, positions: Record<string, string>}
 *   | {type: "durable-release", name: string}
 *   | {type: "durable-remove", name: string}
 *   | {type: "wills", wills: WrittenWill[]}
 *   | {type: "begin"}
 *   | {type: "stage", transaction: number, operation: Operation}
 *   | {type: "commit", transaction: number}
 *   | {type: "rollback", transaction: number}
 *   | {type: "handle", selector: string, concurrency: number}
 *   | {type: "unhandle", selector: string}
 *   | {type: "ask", path: string, text: string, timeout: number, principal?: string, session?: string}
 *   | {type: "await", asks: [number, string][]}
 *   | {type: "answer", question: string, text?: string, failed?: string}
 *   | {type: "authenticate", secret: string, principal: string}} Ask
 *
 * @typedef {import("./packets.js").ReplyBody} Reply
 * @typedef {import("./packets.js").Limits} Limits
 */

/**
 * Write the fields of a request, without braces; of a publish or send the value as it was when the application asked.
 *
 * @param {Ask} ask
 * @returns {string}
 */
function written(ask) {
  if (ask.type === "publish") {
    const ends = ask.ttl === undefined ? "" : `"ttl":${ask.ttl},`;
    return `${ends}"topic":${JSON.stringify(ask.topic)},"value":${ask.text}`;
  }
  if (ask.type === "wills") {
    const wills = ask.wills.map(({ text, ...said }) => `${JSON.stringify(said).slice(0, -1)},"value":${text}}`);
    return `"wills":[${wills.join(",")}]`;
  }
  if (ask.type === "send" || ask.type === "ask" || (ask.type === "answer" && ask.text !== undefined)) {
    const { type: _, text, ...others } = ask;
    return `${JSON.stringify(others).slice(1, -1)},"value":${text}`;
  }
  if (ask.type === "stage") {
    return `"transaction":${ask.transaction},"operation":{"type":"${ask.operation.type}",${written(ask.operation)}}`;
  }
  const { type, ...fields } = ask;
  return JSON.stringify(fields).slice(1, -1);
}

/** One call of the application, over all the times it is sent. */
export class PendingRequest {
  /**
   * @param {Ask} ask
   * @param {number} order - Its place in the order of calls.
   * @param {boolean} repairs - It was not the application that asked, but the client, to restore what had been promised.
   */
  constructor(ask, order, repairs) {
    this.ask = ask;
    this.fields = written(ask);
    this.order = order;
    this.repairs = repairs;
    this.number = 0;
    /** Whether it was ever sent. */
    this.sent = false;
    /** Whether nobody waits for it any more. */
    this.done = false;
    /** @type {Promise<Reply>} */
    this.answer = new Promise((resolve, reject) => {
      /** @param {Reply} reply */
      this.resolve = (reply) => {
        this.done = true;
        resolve(reply);
      };
      /** @param {Error} error */
      this.reject = (error) => {
        this.done = true;
        reject(error);
      };
    });
  }

  /** @param {Ask} ask */
  change(ask) {
    if (ask === this.ask) return;
    this.ask = ask;
    this.fields = written(ask);
  }

  /** @returns {string} What goes into a session packet. */
  packet(resubmitted = false) {
    const mark = resubmitted ? ',"resubmitted":true' : "";
    const fields = this.fields === "" ? "" : `,${this.fields}`;
    return `{"type":"${this.ask.type}","request":${this.number}${mark}${fields}}`;
  }
}

/** The requests of one session. */
export class RequestTable {
  #limit;
  #nextNumber;
  #nextOrder = 0;
  #firstOrder = 0;
  /** Sorted by order. @type {PendingRequest[]} */
  #waiting = [];
  /** In the order of their numbers. @type {Map<number, PendingRequest>} */
  #unanswered = new Map();
  /** @type {PendingRequest[]} */
  #again = [];
  #frozen = true;
  #refusals = 0;
  #pause = RETRY_INITIAL;
  #notBefore = 0;

  /**
   * @param {number} limit - Requests that may be unanswered at once, as the welcome says.
   * @param {number} [firstNumber] - Above every number that the session has ever used.
   */
  constructor(limit, firstNumber = 1) {
    this.#limit = limit;
    this.#nextNumber = firstNumber;
  }

  /** Requests sent and not answered. */
  get unanswered() {
    return this.#unanswered.size;
  }

  /** The requests sent and not answered, in the order of their numbers. */
  get unansweredAsks() {
    return [...this.#unanswered.values()].map(({ ask }) => ask);
  }

  /** Selectors of the subscribes among them, by request. @returns {Map<number, string>} */
  get unansweredSubscribes() {
    /** @type {Map<number, string>} */
    const selectors = new Map();
    for (const [number, { ask }] of this.#unanswered) if (ask.type === "subscribe") selectors.set(number, ask.selector);
    return selectors;
  }

  /**
   * Have other requests asked in the place of some, from the next time on that they are sent.
   *
   * @param {(ask: Ask) => Ask} change
   */
  rewrite(change) {
    for (const pending of [...this.#unanswered.values(), ...this.#waiting]) pending.change(change(pending.ask));
  }

  /** The lowest number without an answer; null if there is none. */
  get oldest() {
    const [oldest] = this.#unanswered.keys();
    return oldest ?? null;
  }

  /** The highest number handed out so far. */
  get lastNumber() {
    return this.#nextNumber - 1;
  }

  /** When `ready` will have something although nothing else happens; null for never. */
  get nextDeadline() {
    return this.#refusals > 0 && this.#waiting.length > 0 && !this.#frozen ? this.#notBefore : null;
  }

  /**
   * Take a call in at the end of the order.
   *
   * @param {Ask} ask
   * @returns {PendingRequest}
   */
  add(ask) {
    const pending = new PendingRequest(ask, this.#nextOrder, false);
    this.#nextOrder += 1;
    this.#waiting.push(pending);
    return pending;
  }

  /**
   * Take in what restores broken promises: after what is unanswered and before all that waits.
   *
   * @param {Ask[]} asks
   * @returns {PendingRequest[]}
   */
  addRepairs(asks) {
    this.#firstOrder -= asks.length;
    const repairs = asks.map((ask, index) => new PendingRequest(ask, this.#firstOrder + index, true));
    this.#waiting.unshift(...repairs);
    return repairs;
  }

  /**
   * Number the requests that may be sent now.
   *
   * @param {number} now
   * @returns {{request: number, body: string}[]} Bodies of session packets, in order.
   */
  ready(now) {
    /** @type {{request: number, body: string}[]} */
    const bodies = [];
    if (this.#frozen) return bodies;
    let inFlight = this.#unanswered.size - this.#again.length;
    while (this.#again.length > 0 && inFlight < this.#limit) {
      const again = /** @type {PendingRequest} */ (this.#again.shift());
      bodies.push({ request: again.number, body: again.packet(true) });
      inFlight += 1;
    }
    if (this.#again.length > 0 || (this.#refusals > 0 && now < this.#notBefore)) return bodies;
    // While the node refuses, one request finds out whether it still does: a crowd would be refused like the first, or
    // worse, be accepted while the first is not, and so pass it by.
    const limit = this.#refusals > 0 ? 1 : this.#limit;
    let taken = 0;
    while (taken < this.#waiting.length && inFlight < limit) {
      const pending = /** @type {PendingRequest} */ (this.#waiting[taken]);
      taken += 1;
      if (pending.done) continue;
      pending.number = this.#nextNumber;
      this.#nextNumber += 1;
      pending.sent = true;
      this.#unanswered.set(pending.number, pending);
      bodies.push({ request: pending.number, body: pending.packet() });
      inFlight += 1;
    }
    this.#waiting.splice(0, taken);
    return bodies;
  }

  /**
   * Take a reply in.
   *
   * @param {Reply} reply
   * @param {number} now
   * @param {number} random - Uniform in [0, 1); spreads the retries of many clients.
   * @returns {PendingRequest | null} The request if it has been executed; null if it was refused or is unknown.
   */
  answer(reply, now, random) {
    const pending = this.#unanswered.get(reply.request);
    if (pending === undefined) return null;
    this.#unanswered.delete(reply.request);
    this.#again = this.#again.filter((each) => each !== pending);
    // Fresh credentials are asked for again by who fetches them, and hold nothing else back (protocol 5.9.3).
    const apart = pending.ask.type === "authenticate" && reply.error?.code === "authentication_unavailable";
    if (reply.error !== null && isRetryable(reply.error.code) && !apart) {
      this.#refused(pending, reply.error.retryAfter, now, random);
      return null;
    }
    this.#refusals = 0;
    this.#pause = RETRY_INITIAL;
    if (reply.error !== null) {
      pending.reject?.(refusal(reply.error.code, reply.error.message));
      return null;
    }
    pending.resolve?.(reply);
    return pending;
  }

  /**
   * @param {PendingRequest} pending
   * @param {number | null} retryAfter
   * @param {number} now
   * @param {number} random
   */
  #refused(pending, retryAfter, now, random) {
    if (!pending.done) {
      const place = this.#waiting.findIndex((each) => each.order > pending.order);
      this.#waiting.splice(place < 0 ? this.#waiting.length : place, 0, pending);
    }
    if (this.#refusals > 0 && now < this.#notBefore) {
      // One of a crowd that was under way when the first was refused: it says nothing new.
      this.#notBefore = Math.max(this.#notBefore, now + (retryAfter ?? 0));
      return;
    }
    const pause = retryAfter === null ? this.#pause : Math.max(RETRY_INITIAL, retryAfter);
    this.#pause = Math.min(RETRY_MAXIMUM, 2 * this.#pause);
    this.#refusals += 1;
    this.#notBefore = now + pause * (1 + random);
  }

  // --- The connection -----------------------------------------------------------------------------------------------

  /**
   * Give a request up that was sent; nothing is known of its fate but that it is not sent again.
   *
   * @param {number} number
   * @param {Error} error - For its caller.
   * @returns {boolean} Whether there was one.
   */
  drop(number, error) {
    const pending = this.#unanswered.get(number);
    if (pending === undefined) return false;
    this.#unanswered.delete(number);
    this.#again = this.#again.filter((each) => each !== pending);
    pending.reject?.(error);
    return true;
  }

  /**
   * Give up what a node would refuse to read, before it is sent to it.
   *
   * @param {(pending: PendingRequest) => Error | null} obstacle
   */
  sift(obstacle) {
    for (const pending of [...this.#again, ...this.#waiting]) {
      const error = obstacle(pending);
      if (error === null) continue;
      pending.reject?.(error);
      this.#unanswered.delete(pending.number);
    }
    this.#again = this.#again.filter(({ number }) => this.#unanswered.has(number));
  }

  /** Hand out nothing until `resume`: the connection is lost, or about to be left. */
  freeze() {
    this.#frozen = true;
  }

  /**
   * Go on over a new connection.
   *
   * @param {{limit: number, restarted: boolean, now: number}} how - Restarted: after a failover what is unanswered is asked
   *   again, with the same numbers, before all else.
   */
  resume({ limit, restarted, now }) {
    this.#limit = limit;
    this.#frozen = false;
    this.#notBefore = now;
    if (restarted) this.#again = [...this.#unanswered.values()];
  }

  /**
   * The session is over: every caller gets the error.
   *
   * @param {Error} error
   */
  fail(error) {
    for (const pending of [...this.#unanswered.values(), ...this.#waiting]) {
      if (!pending.done) pending.reject?.(error);
    }
    this.#unanswered.clear();
    this.#waiting = [];
    this.#again = [];
    this.#frozen = true;
  }
}
