/**
 * Requests of applications and their handlers: what `request` and `handle` do, and what a session knows of the questions that
 * it asks and is asked (protocol 18).
 *
 * The grid holds questions and answers. Where a session goes on, its client says which answers it waits for, and is sent again
 * what it has been asked and has not answered: it has these already, and passes none on twice.
 *
 * @module
 */

import { checkCall } from "./calls.js";
import { encodeValue } from "./content.js";
import { checkSeconds, checkSignal, unlessAborted } from "./environment.js";
import { AnswerLost, HandlerFailed, HandlerLost, report, RequestRefused, RequestTimedOut } from "./errors.js";
import { checkTopic, matches, parseSelector } from "./selectors.js";

/** The word of a server that knows questions (protocol 18.1.1). */
export const QUESTIONS = "questions";

/** Requests that a handler has at a time, unless it is told otherwise. */
export const DEFAULT_CONCURRENCY = 32;

/** What a node grants at most. */
export const MOST_CONCURRENCY = 1000;

/** Seconds for an answer: what a person waits for. */
export const DEFAULT_TIMEOUT = 5;

/** Seconds that a node grants at most. */
export const LONGEST_TIMEOUT = 600;

/** Seconds that are waited longer than the grid waits for an answer: then it says itself what has become of it. */
const GRACE = 1;

/** Answers that one request asks for (protocol 18.6); with more open, there are several. */
const AWAIT_MOST = 64;

/** Answers that are kept for calls that learn in a moment that they wait for them. */
const EARLY_MOST = 128;

/** Bytes of a sentence that says why there is no answer (protocol 18.4). */
const FAILURE_BYTES = 1024;

/** What is told of errors that are not meant for who asks; they are reported where the handler is. */
const FAILED = "the handler failed";

/**
 * @typedef {import("./packets.js").JsonValue} JsonValue
 * @typedef {import("./packets.js").QuestionBody} QuestionBody
 * @typedef {import("./packets.js").AnsweredBody} AnsweredBody
 * @typedef {import("./sender.js").CallOptions} CallOptions
 * @typedef {import("./calls.js").Calls} Calls
 * @typedef {import("./requests.js").Reply} Reply
 * @typedef {import("./selectors.js").Selector} Selector
 *
 * @typedef {object} AskedRequest - What a handler is asked.
 * @property {string} path - What it is about.
 * @property {JsonValue} value - The question.
 * @property {string} principal - Who asks, as the server has authenticated them.
 * @property {string} sessionId - Whose session it is that asks.
 * @property {number} timeout - Seconds that were left for an answer when it arrived here.
 * @property {boolean} redelivered - Whether this session may have been asked it before, on another connection.
 * @property {AbortSignal} signal - Aborted when the time for an answer is over, or the session.
 *
 * @typedef {(request: AskedRequest) => unknown} RequestHandler - Answers requests: what it returns, or resolves with, is the
 *   answer. It may throw `HandlerFailed` to have who asks told why there is none.
 */

/** What `handle` returns. It outlives connections and nodes as its session does, and needs not be registered again. */
export class Handling {
  #calls;
  #over;
  /** The answer to its cancellation. @type {Promise<Reply> | null} */
  #cancelling = null;

  /**
   * @param {Selector} selector
   * @param {RequestHandler} handler
   * @param {{calls: Calls, over: (handling: Handling) => boolean}} details
   */
  constructor(selector, handler, { calls, over }) {
    this.#calls = calls;
    this.#over = over;
    /** Of the paths that are handled. */
    this.selector = selector.text;
    /** @internal */
    this.parsed = selector;
    /** @internal */
    this.handler = handler;
  }

  /**
   * Handle no more requests; those that are being handled are finished. A time limit, or a signal, ends the wait and
   * nothing else. Cancelling twice does no harm.
   *
   * @param {CallOptions} [options]
   */
  async cancel(options) {
    checkCall(options);
    this.end();
    if (this.#cancelling !== null) await this.#calls.wait([this.#cancelling], options);
  }

  /**
   * Handle no more requests, without waiting until the node knows.
   *
   * @internal
   */
  end() {
    if (this.#over(this)) this.#cancelling = this.#calls.begin({ type: "unhandle", selector: this.selector });
  }
}

/** The questions of one session. */
export class Exchanges {
  #environment;
  #calls;
  /** Questions that were put, by the numbers of their requests. @type {Map<number, {path: string, told: (answered: AnsweredBody) => void, fail: (error: Error) => void}>} */
  #waiting = new Map();
  /** Answers that came together with the reply, before anybody knew its number. @type {Map<number, AnsweredBody>} */
  #early = new Map();
  /** Questions that the application has, and whose answers have no reply yet. @type {Set<string>} */
  #busy = new Set();
  /** @type {Map<string, Handling>} */
  #handlers = new Map();
  #ended = new AbortController();

  /**
   * @param {import("./environment.js").Environment} environment
   * @param {Calls} calls - Ask something of the server.
   */
  constructor(environment, calls) {
    this.#environment = environment;
    this.#calls = calls;
  }

  // --- Asked --------------------------------------------------------------------------------------------------------

  /**
   * Ask, and wait for the answer; see `Session.request`.
   *
   * @param {string} path
   * @param {unknown} value
   * @param {CallOptions & {principal?: string | undefined, sessionId?: string | undefined}} options
   * @returns {Promise<JsonValue>}
   */
  async request(path, value, { timeout, signal, principal, sessionId }) {
    const seconds = timeout ?? DEFAULT_TIMEOUT;
    checkSeconds("timeout", seconds, { zero: false });
    checkSignal(signal);
    if (seconds > LONGEST_TIMEOUT) throw new TypeError(`timeout is a number of seconds up to ${LONGEST_TIMEOUT}, not ${seconds}`);
    const until = this.#environment.now() + seconds + GRACE;
    const { request } = await this.#calls.request(
      {
        type: "ask",
        path: checkTopic(path),
        text: encodeValue(value),
        timeout: seconds,
        ...(principal === undefined ? {} : { principal }),
        ...(sessionId === undefined ? {} : { session: sessionId }),
      },
      { timeout: seconds + GRACE, signal },
    );
    const answered = await unlessAborted(this.#answer(request, path, until, seconds), signal).finally(() => {
      this.#waiting.delete(request);
    });
    if (answered.error === null) return answered.value;
    throw whyUnanswered(answered.error, answered.uncertain);
  }

  /**
   * @param {number} number
   * @param {string} path
   * @param {number} until
   * @param {number} seconds
   * @returns {Promise<AnsweredBody>}
   */
  #answer(number, path, until, seconds) {
    const early = this.#early.get(number);
    if (early !== undefined) {
      this.#early.delete(number);
      return Promise.resolve(early);
    }
    return new Promise((resolve, reject) => {
      const cancel = this.#environment.after(
        () => reject(new RequestTimedOut(`no answer within ${seconds} s; it may have been executed`, true)),
        Math.max(0, until - this.#environment.now()),
      );
      const told = (/** @type {AnsweredBody} */ answered) => {
        cancel();
        resolve(answered);
      };
      const fail = (/** @type {Error} */ error) => {
        cancel();
        reject(error);
      };
      this.#waiting.set(number, { path, told, fail });
    });
  }

  /** @param {AnsweredBody} answered */
  answered(answered) {
    const waiting = this.#waiting.get(answered.ask);
    if (waiting !== undefined) {
      this.#waiting.delete(answered.ask);
      waiting.told(answered);
      return;
    }
    // Its call may be told the reply in this very turn of the loop. What nobody waits for makes way for others.
    this.#early.set(answered.ask, answered);
    if (this.#early.size > EARLY_MOST) {
      for (const oldest of this.#early.keys()) {
        this.#early.delete(oldest);
        break;
      }
    }
  }

  /** The session goes on elsewhere: ask for the answers that are waited for. */
  recovered() {
    const asks = [...this.#waiting].map(([number, { path }]) => /** @type {[number, string]} */ ([number, path]));
    for (let start = 0; start < asks.length; start += AWAIT_MOST) {
      this.#calls.begin({ type: "await", asks: asks.slice(start, start + AWAIT_MOST) });
    }
  }

  // --- Handled ------------------------------------------------------------------------------------------------------

  /**
   * Answer requests of others; see `Session.handle`.
   *
   * @param {string} selector
   * @param {RequestHandler} handler
   * @param {CallOptions & {concurrency: number}} options
   * @returns {Promise<Handling>}
   */
  async handle(selector, handler, { concurrency, ...options }) {
    if (typeof handler !== "function") throw new TypeError("a handler is a function");
    checkCall(options);
    const parsed = parseSelector(selector);
    if (this.#handlers.has(parsed.text)) throw new TypeError(`the session handles ${parsed.text} already; cancel that first`);
    const over = (/** @type {Handling} */ each) =>
      this.#handlers.get(each.selector) === each && this.#handlers.delete(each.selector);
    const handling = new Handling(parsed, handler, { calls: this.#calls, over });
    // It listens before it asks, so that no request can come too early for it.
    this.#handlers.set(parsed.text, handling);
    try {
      await this.#calls.request({ type: "handle", selector: parsed.text, concurrency }, options);
    } catch (error) {
      if (error instanceof RequestRefused) over(handling);
      // Who gave up before the answer may handle all the same.
      else handling.end();
      throw error;
    }
    return handling;
  }

  /** @param {QuestionBody} question */
  given(question) {
    if (this.#busy.has(question.question)) return;
    this.#busy.add(question.question);
    const found = [...this.#handlers.values()].filter(({ parsed }) => matches(parsed, question.path));
    // The most particular of those that match.
    const handling = found.reduce(
      (/** @type {Handling | null} */ best, each) => (best !== null && particularity(best) >= particularity(each) ? best : each),
      null,
    );
    if (handling === null) this.#tell(question, { failed: "it is handled here no more" });
    else this.#handle(handling, question).then((answer) => this.#tell(question, answer), report);
  }

  /**
   * Have the application answer, within the time there is.
   *
   * @param {Handling} handling
   * @param {QuestionBody} question
   * @returns {Promise<{text: string} | {failed: string}>}
   */
  async #handle({ handler }, { path, value, principal, session, timeout, redelivered }) {
    const late = new AbortController();
    const cancel = this.#environment.after(() => late.abort(new HandlerFailed("it took too long")), timeout);
    const stop = () => late.abort(this.#ended.signal.reason);
    this.#ended.signal.addEventListener("abort", stop, { once: true });
    try {
      const { signal } = late;
      const asked = { path, value, principal, sessionId: session, timeout, redelivered, signal };
      const answer = (async () => handler(asked))();
      return { text: encodeValue(await unlessAborted(answer, signal)) };
    } catch (error) {
      if (error instanceof HandlerFailed) return { failed: sentence(error.message) };
      // The session is over: that is no failure of the handler, and nobody is told of one.
      if (this.#ended.signal.aborted && error === this.#ended.signal.reason) return { failed: FAILED };
      // Whoever asks is not told what went wrong here: it may be a secret.
      report(error);
      return { failed: FAILED };
    } finally {
      cancel();
      this.#ended.signal.removeEventListener("abort", stop);
    }
  }

  /**
   * @param {QuestionBody} question
   * @param {{text: string} | {failed: string}} answer
   */
  #tell({ question }, answer) {
    if (this.#ended.signal.aborted) return;
    this.#calls
      .begin({ type: "answer", question, ...answer })
      .catch(async (error) => {
        // What the node cannot take for an answer is one all the same: that there is none.
        if (error?.code === "value_too_large") {
          await this.#calls.begin({ type: "answer", question, failed: "the answer is too large" });
        }
      })
      .catch(() => {})
      .finally(() => this.#busy.delete(question));
  }

  /** @param {Error} error - What the session ended with. */
  end(error) {
    for (const { fail } of [...this.#waiting.values()]) fail(error);
    this.#waiting.clear();
    this.#handlers.clear();
    this.#ended.abort(error);
  }
}

/**
 * Make what can be sent of what a handler has said, whatever it is.
 *
 * @param {unknown} text
 * @returns {string}
 */
function sentence(text) {
  const bytes = new TextEncoder().encode(String(text)).subarray(0, FAILURE_BYTES);
  // As of a stream, whose last character may not be there as a whole.
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes, { stream: true });
}

/**
 * Tell how particular a handler is: by its literal segments, and then by how few `**` it has.
 *
 * @param {Handling} handling
 * @returns {number}
 */
function particularity({ selector }) {
  const segments = selector.split("/");
  const any = segments.filter((each) => each === "**").length;
  return 100 * segments.filter((each) => each !== "*" && each !== "**").length - any;
}

/**
 * Make the error with which a request fails that has no answer.
 *
 * @param {{code: string, message: string}} error
 * @param {boolean} uncertain
 * @returns {Error}
 */
function whyUnanswered({ code, message }, uncertain) {
  if (code === "question_timeout") return new RequestTimedOut(message, uncertain);
  if (code === "handler_failed") return new HandlerFailed(message);
  return code === "handler_lost" ? new HandlerLost(message, uncertain) : new AnswerLost(message, uncertain);
}
