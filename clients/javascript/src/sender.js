/**
 * What the application asks for, until it is answered: requests, and the selections that its streams need.
 *
 * It knows nothing of connections: `RequestTable` decides what is sent when, `Promises` what a node has confirmed, `Wanted`
 * what is to be selected; this module connects them with the clock and with those who wait.
 *
 * @module
 */

import { checkCall, waitFor } from "./calls.js";
import { NoticeCode } from "./codes.js";
import { obstacle } from "./content.js";
import { DURABLES } from "./durablestream.js";
import { unlessAborted } from "./environment.js";
import { Forbidden, refusal, RequestRefused, RequestTimedOut } from "./errors.js";
import { RequestTable } from "./requests.js";
import { changed, Promises, Selections } from "./selections.js";
import { Streams } from "./streams.js";
import { TRANSACTIONS } from "./transactions.js";
import { VALUES } from "./values.js";
import { Wanted } from "./wanted.js";
import { WILLS } from "./wills.js";

/** Code of the notice with which this client itself declares that a grid had forgotten what it had promised. */
export const PROMISES_RESTORED = "promises_restored";

/** Word of a server that knows what a deselection leaves (protocol 6.3). */
const KEEP = "keep";

/** The word with which a server says that it can be asked for history (protocol 6.6). */
const HISTORY = "history";

const NOT_KNOWN = "the node is of an older release, which cannot be asked for this";

/** Requests about transactions (protocol 16). @type {ReadonlySet<string>} */
const OF_TRANSACTIONS = new Set(["begin", "stage", "commit", "rollback"]);

/** Requests about questions (protocol 18). @type {ReadonlySet<string>} */
const OF_QUESTIONS = new Set(["handle", "unhandle", "ask", "await", "answer"]);

/** The word of a server that knows questions (protocol 18.1.1). */
const QUESTIONS = "questions";

/**
 * @typedef {import("./packets.js").Welcome} Welcome
 * @typedef {import("./errors.js").SessionEnded} SessionEnded
 * @typedef {import("./requests.js").Ask} Ask
 * @typedef {import("./requests.js").Reply} Reply
 * @typedef {import("./requests.js").PendingRequest} PendingRequest
 * @typedef {import("./selectors.js").Selector} Selector
 * @typedef {import("./streams.js").UpdateStream} UpdateStream
 *
 * @typedef {object} CallOptions
 * @property {number | null | undefined} [timeout] - Seconds it may take; `Infinity` for as long as the session lives.
 * @property {AbortSignal | undefined} [signal] - Gives up; a request that was sent may be executed nevertheless.
 *
 * @typedef {object} Beginning
 * @property {Welcome} welcome
 * @property {number} firstRequest - The number of the first request.
 * @property {number | null} requestTimeout - Seconds a request may take if its caller does not say.
 * @property {import("./positions.js").Positions} positions - Told of subscribes that are executed.
 * @property {(requests: {request: number, body: string}[]) => void} send - Takes bodies of session packets, in order.
 * @property {(notice: import("./supervisor.js").Notice) => void} declare - Tells the application.
 */

/** The requests of one session. */
export class RequestSender {
  #environment;
  #table;
  #promises;
  #wanted;
  #limits;
  /** Whether the server knows what a deselection leaves (protocol 6.3). */
  #keeps = false;
  #requestTimeout;
  #positions;
  #tellsHistory;
  #send;
  #declare;
  /** Why nothing can be asked any more. @type {SessionEnded | null} */
  #ended = null;
  /** @type {(() => void) | null} */
  #cancelRetry = null;
  /** @type {(() => void)[]} */
  #idle = [];

  /**
   * @param {import("./environment.js").Environment} environment
   * @param {Beginning} beginning
   */
  constructor(environment, { welcome, firstRequest, requestTimeout, positions, send, declare }) {
    this.#environment = environment;
    this.#table = new RequestTable(welcome.limits.requests, firstRequest);
    this.#promises = new Promises(welcome);
    this.#wanted = new Wanted(this.#promises.selections);
    this.#limits = welcome.limits;
    this.#requestTimeout = requestTimeout;
    this.#positions = positions;
    this.#send = send;
    this.#declare = declare;
    /** All properties, as of the last welcome and the changes since. */
    this.properties = welcome.properties;
    this.streams = new Streams();
    this.#tellsHistory = welcome.supports.includes(HISTORY);
    positions.watch({ interrupted: () => this.streams.interrupted(), settled: () => this.streams.settled() });
  }

  /** How far the session has come in the streams of topics. */
  get positions() {
    return this.#positions;
  }

  /** The highest number of a request so far. */
  get lastNumber() {
    return this.#table.lastNumber;
  }

  /** Requests sent and not answered. */
  get unanswered() {
    return this.#table.unanswered;
  }

  /** Selectors of the subscribes sent and not answered, by request. @returns {Map<number, string>} */
  get unansweredSubscribes() {
    return this.#table.unansweredSubscribes;
  }

  /** The lowest number without an answer; null if there is none. */
  get oldest() {
    return this.#table.oldest;
  }

  /** The selections that a node has confirmed, as `+selector` and `-selector`. */
  get selections() {
    return this.#promises.selections.toWire();
  }

  // --- For the application ------------------------------------------------------------------------------------------

  /**
   * Ask something and wait for the answer, however many connections it takes.
   *
   * @param {Ask} ask
   * @param {CallOptions} [options]
   * @returns {Promise<Reply>}
   */
  async request(ask, options) {
    const { answer } = this.#begin(ask, options);
    this.#pump();
    return answer;
  }

  /**
   * Ask for a page of history.
   *
   * @param {{selector: string, after: Record<string, string>, earliest: boolean, limit?: number | undefined}} ask
   * @param {CallOptions} [options]
   * @returns {Promise<import("./packets.js").HistoryPart>}
   */
  async readHistory({ selector, after, earliest, limit }, options) {
    if (!this.#tellsHistory) throw new RequestRefused(NOT_KNOWN, "bad_request");
    /** @type {Ask} */
    const ask = { type: "history", selector, after };
    if (!earliest) ask.from = "now";
    if (limit !== undefined) ask.limit = limit;
    const { history } = await this.request(ask, options);
    return history ?? { events: [], positions: {}, complete: true, gap: false, missing: [] };
  }

  /**
   * Ask for what a stream needs.
   *
   * @param {Selector} selector
   * @param {UpdateStream} stream - Of this selector.
   * @param {CallOptions} options
   */
  async subscribe(selector, stream, options) {
    if (this.#ended !== null) throw this.#ended;
    checkCall(options);
    // It listens before it asks, so that no update can come too early for it.
    this.streams.add(stream);
    this.#wanted.add(selector, stream);
    const { pending, answer } = this.#begin({ type: "subscribe", selector: selector.text }, options);
    this.#pump();
    try {
      await answer;
    } catch (error) {
      this.#forget(stream);
      // Who gave up before the answer may have got the selection all the same.
      if (pending.sent && !(error instanceof RequestRefused)) this.#giveUp(selector);
      throw error;
    }
  }

  /**
   * A stream has ended: ask for no more than the others need.
   *
   * @param {Selector} selector
   * @param {UpdateStream} stream
   */
  release(selector, stream) {
    this.#forget(stream);
    this.#giveUp(selector);
  }

  /**
   * End the streams of exactly this selector; if there are none, take what it matches out of wider ones. It is done in any
   * case; what may end before is the wait for it.
   *
   * @param {Selector} selector
   * @param {CallOptions} options
   */
  async unsubscribe(selector, options) {
    checkCall(options);
    const streams = this.streams.of(selector.text);
    for (const stream of streams) this.#forget(stream);
    if (!this.#wanted.disinherit(selector) && streams.length === 0) {
      const wider = this.#wanted.takeOut(selector);
      if (wider.length === 0) return;
      this.streams.takeOut(/** @type {UpdateStream[]} */ (wider.filter((each) => each !== null)), selector);
    }
    await waitFor(this.#environment, this.#settle(selector), this.#requestTimeout, options);
  }

  /** @param {UpdateStream} stream */
  #forget(stream) {
    this.streams.discard(stream);
    this.#wanted.remove(stream);
  }

  /** @param {Selector} selector */
  #giveUp(selector) {
    this.#settle(selector);
  }

  /** Wait until every request that was sent is answered. @returns {Promise<void>} */
  idle() {
    return this.#table.unanswered === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve));
  }

  /**
   * Ask for what makes the node hold what is wanted, now that something of *selector* has ended; nobody has to wait for it.
   *
   * @param {Selector} selector
   * @returns {Promise<unknown>[]}
   */
  #settle(selector) {
    if (this.#ended !== null) return [];
    const asks = this.#wanted.after(selector).flatMap((each) => asksFor(each, this.#keeps));
    const answers = asks.map((ask) => {
      const answer = this.#begin(ask, { timeout: Infinity }).answer.catch((error) => {
        if (error instanceof RequestRefused) this.#withheld(ask, error);
        throw error;
      });
      answer.catch(() => {});
      return answer;
    });
    // All together, so that they go in one message.
    this.#pump();
    return answers;
  }

  /**
   * What streams still need was not given back to them: they must not wait for it in vain.
   *
   * @param {Ask} ask
   * @param {RequestRefused} error
   */
  #withheld(ask, error) {
    if (ask.type !== "subscribe") return;
    if (error instanceof Forbidden) {
      const { selections } = this;
      this.#wanted.withdrawn([ask.selector], this.#promises.selections);
      this.#declare({ code: NoticeCode.PERMISSIONS_WITHDRAWN, message: error.message, withdrawn: [ask.selector], selections });
      return;
    }
    for (const stream of this.streams.of(ask.selector)) {
      stream.end(error);
      this.#forget(stream);
    }
  }

  /**
   * @param {Ask} ask
   * @param {CallOptions} [options]
   * @returns {{pending: PendingRequest, answer: Promise<Reply>}}
   * @throws {SessionEnded | TypeError} It cannot be asked at all.
   */
  #begin(ask, { timeout, signal } = {}) {
    checkCall({ timeout, signal });
    if (this.#ended !== null) throw this.#ended;
    const pending = this.#table.add(ask);
    return { pending, answer: this.#answerTo(pending, timeout ?? this.#requestTimeout, signal) };
  }

  /**
   * @param {PendingRequest} pending
   * @param {number | null} limit
   * @param {AbortSignal | undefined} signal
   * @returns {Promise<Reply>}
   */
  async #answerTo(pending, limit, signal) {
    const { ask } = pending;
    const error = obstacle(ask, pending.fields, this.#limits);
    if (error !== null) pending.reject?.(error);
    const cancel =
      limit === null
        ? null
        : this.#environment.after(() => {
            const fate = pending.sent ? "it may have been executed" : "it was not sent";
            pending.reject?.(new RequestTimedOut(`no answer within ${limit} s; ${fate}`, pending.sent));
          }, limit);
    try {
      return await unlessAborted(pending.answer, signal);
    } catch (reason) {
      pending.reject?.(/** @type {Error} */ (reason));
      throw reason;
    } finally {
      cancel?.();
    }
  }

  /** Hand out what may be sent now, and come again when more may. */
  #pump() {
    const requests = this.#table.ready(this.#environment.now());
    if (requests.length > 0) this.#send(requests);
    this.#cancelRetry?.();
    this.#cancelRetry = null;
    const deadline = this.#table.nextDeadline;
    const wait = deadline === null ? 0 : deadline - this.#environment.now();
    if (wait > 0) this.#cancelRetry = this.#environment.after(() => this.#pump(), wait);
  }

  // --- For the session ----------------------------------------------------------------------------------------------

  /**
   * Do what a reply means, before anything that follows it is looked at.
   *
   * @param {Reply} reply
   */
  answered(reply) {
    const executed = this.#table.answer(reply, this.#environment.now(), this.#environment.random());
    if (executed?.ask.type === "subscribe") this.#positions.subscribed(reply.request, executed.ask.selector);
    if (executed !== null && !executed.repairs) {
      const { ask } = executed;
      this.#promises.executed(ask);
      if (ask.type === "properties") this.properties = changed(this.properties, ask.set);
    }
    this.#wakeIdle();
    this.#pump();
  }

  /**
   * A node will not read a request: give it up.
   *
   * @param {number} number
   * @param {{code: string, message: string}} why
   * @returns {boolean} Whether it was under way.
   */
  drop(number, { code, message }) {
    return this.#table.drop(number, refusal(code, message));
  }

  /** Send nothing until `resume`. */
  freeze() {
    this.#table.freeze();
  }

  /**
   * Go on over a new connection.
   *
   * @param {Welcome} welcome
   * @param {boolean} restarted - Whether what is unanswered is to be asked again.
   */
  resume({ limits, supports }, restarted) {
    this.#limits = limits;
    this.#keeps = supports.includes(KEEP);
    this.#tellsHistory = supports.includes(HISTORY);
    this.#table.resume({ limit: limits.requests, restarted, now: this.#environment.now() });
    this.#table.sift(({ ask, fields }) =>
      // A node of an older release would not know what this is, and close the connection for it.
      (ask.type === "history" && !this.#tellsHistory) || (ask.type.startsWith("durable-") && !supports.includes(DURABLES)) ||
      (ask.type === "declare" && !supports.includes("temporary")) ||
      (OF_TRANSACTIONS.has(ask.type) && !supports.includes(TRANSACTIONS)) ||
      (OF_QUESTIONS.has(ask.type) && !supports.includes(QUESTIONS)) ||
      ([WILLS, VALUES].includes(ask.type) && !supports.includes(ask.type)) ||
      // Nor would it end a value, and keep it for ever.
      (endsOf(ask) && !supports.includes("ttl"))
        ? new RequestRefused(NOT_KNOWN, "bad_request")
        : obstacle(ask, fields, limits),
    );
    if (!this.#keeps) this.#keepOtherwise();
    this.#wakeIdle();
    this.#pump();
  }

  /** What was to be asked of a server that knows `keep` goes to one that does not. */
  #keepOtherwise() {
    /** @type {Set<string>} */
    const stays = new Set();
    this.#table.rewrite((ask) => {
      if (ask.type !== "unsubscribe" || ask.keep === undefined) return ask;
      for (const each of ask.keep) stays.add(each);
      return { type: "unsubscribe", selector: ask.selector };
    });
    for (const selector of stays) {
      if (this.streams.of(selector).length === 0) continue;
      this.#begin({ type: "subscribe", selector }, { timeout: Infinity }).answer.catch(() => {});
    }
  }

  /**
   * Another numbering has begun: find out what the node lacks, and ask for it before all that waits.
   *
   * @param {Welcome} welcome
   * @param {boolean} replayed - Whether what was missed follows, and no current values.
   */
  failedOver(welcome, replayed) {
    if (welcome.withdrawn.length > 0) this.withdrawn(welcome.withdrawn, welcome.selections);
    const missing = this.#promises.missing(welcome, this.#table.unansweredAsks);
    if (!replayed) this.streams.failedOver();
    if (missing.length > 0) this.#restore(missing, welcome.selections);
  }

  /**
   * A right was withdrawn.
   *
   * @param {string[]} withdrawn - Selectors.
   * @param {string[]} selections - What the node has left.
   */
  withdrawn(withdrawn, selections) {
    this.#promises.withdrawn(selections);
    this.#wanted.withdrawn(withdrawn, this.#promises.selections);
  }

  /**
   * The session is over, or about to be: every caller gets the error.
   *
   * @param {SessionEnded} error
   */
  fail(error) {
    this.#ended ??= error;
    this.#table.fail(error);
    this.#cancelRetry?.();
    this.#wakeIdle();
  }

  /**
   * @param {Ask[]} missing
   * @param {string[]} selections - What the node has instead.
   */
  #restore(missing, selections) {
    this.#declare({
      code: PROMISES_RESTORED,
      message: `the grid had forgotten what it had promised to this session; ${missing.length} requests restore it`,
    });
    for (const repair of this.#table.addRepairs(missing)) {
      // Nobody waits for it; should the node refuse for another reason, the notice has said what is missing.
      repair.answer.catch((error) => {
        if (!(error instanceof Forbidden) || repair.ask.type !== "subscribe") return;
        const { selector } = repair.ask;
        this.#promises.forbidden(selector, selections);
        this.#wanted.withdrawn([selector], Selections.fromWire(selections));
        this.#declare({ code: NoticeCode.PERMISSIONS_WITHDRAWN, message: error.message, withdrawn: [selector], selections });
      });
    }
  }

  #wakeIdle() {
    if (this.#table.unanswered === 0) for (const wake of this.#idle.splice(0)) wake();
  }
}

/**
 * @param {import("./wanted.js").Deselection} deselection
 * @param {boolean} keeps - Whether the server knows what stays; another one is asked for that anew.
 * @returns {Ask[]}
 */
function asksFor({ selector, keep }, keeps) {
  if (keep.length === 0) return [{ type: "unsubscribe", selector }];
  if (keeps) return [{ type: "unsubscribe", selector, keep }];
  const type = /** @type {const} */ ("subscribe");
  return [{ type: "unsubscribe", selector }, ...keep.map((each) => ({ type, selector: each }))];
}

/**
 * Tell whether a request publishes a value that may have to end.
 *
 * @param {Ask} ask
 */
function endsOf(ask) {
  const asked = ask.type === "stage" ? ask.operation : ask;
  return asked.type === "publish" && asked.ttl !== undefined;
}
