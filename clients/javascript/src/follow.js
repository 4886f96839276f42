/**
 * Follow topics over an HTTP request, for networks that let no WebSocket through: server-sent events, read by `fetch`.
 *
 * `EventSource` cannot be used for it: it sends no header, and secrets do not belong into URLs. It reads only. Where a
 * WebSocket gets through, a session is the better choice.
 *
 * @module
 */

import { after as callAfter, checkSeconds, unlessAborted } from "./environment.js";
import { ConnectFailed, Unauthenticated } from "./errors.js";

/** Milliseconds until the first attempt after a loss, unless the server has said otherwise. */
const FIRST_RETRY = 1000;

/** Milliseconds between two attempts at most, while no node is reached. */
const LONGEST_RETRY = 30_000;

/** Seconds of silence after which a connection is lost: nodes show every 20 s that they are there, unless set otherwise. */
const SILENCE = 90;

/** Statuses after which the same request may succeed later. */
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);

const UNAUTHENTICATED = 401;

/**
 * A topic has a value.
 *
 * @typedef {object} FollowedUpdate
 * @property {"update"} type
 * @property {string} topic
 * @property {number} version - Grows per topic.
 * @property {string} event - Identifies the publish in the whole cluster.
 * @property {any} value - null if the topic was removed.
 * @property {boolean} snapshot - A current value that is not the successor of the one before.
 * @property {boolean} removed
 * @property {number} folded - Updates of the topic that it took the place of, because they were read too slowly.
 * @property {string} position - Where to go on, as `after`, when this has been dealt with; empty while nobody can tell.
 */

/**
 * How a stream goes on.
 *
 * @typedef {object} FollowedStep
 * @property {"open" | "complete" | "gap"} type - `open`: a node serves it; `complete`: all current values have come; `gap`:
 *   updates were missed, and current values follow in their place.
 * @property {Record<string, any>} data - As the reference of the client API has it.
 * @property {string} position
 */

/**
 * @typedef {object} FollowOptions
 * @property {string} [principal] - Who you are; leave it out if your proof tells.
 * @property {string | (() => string | Promise<string>)} [secret] - Your proof, or what returns one for each request.
 * @property {string} [after] - The `position` to go on from.
 * @property {AbortSignal} [signal] - Ends it.
 * @property {number} [silence] - Seconds, by default 90, without any sign of life after which the connection counts as lost.
 *   They have to be more than the `ping_interval` of the nodes.
 * @property {typeof fetch} [fetch] - In place of the global one.
 */

/**
 * Follow topics, for ever: it comes back by itself and goes on where it was.
 *
 * ```js
 * for await (const { type, topic, value } of follow("https://gateway.example", "prices/**", { secret: token })) {
 *   if (type === "update") console.log(topic, value);
 * }
 * ```
 *
 * @param {string} url - Of the gateway, `https:` or `http:`, without a path.
 * @param {string | string[]} selectors
 * @param {FollowOptions} [options]
 * @returns {AsyncGenerator<FollowedUpdate | FollowedStep, void, void>}
 * @throws {Unauthenticated} The principal and secret were not accepted.
 * @throws {ConnectFailed} The stream was refused, and will be.
 * @throws {TypeError} An option makes no sense.
 */
export async function* follow(url, selectors, options = {}) {
  const { principal, secret, after = "", signal, silence = SILENCE, fetch = globalThis.fetch } = options;
  checkSeconds("silence", silence, { zero: false });
  const address = new URL("/v1/stream", url);
  for (const each of [selectors].flat()) address.searchParams.append("selector", each);
  const place = { position: after, retry: FIRST_RETRY };
  for (let failed = 0; !signal?.aborted; ) {
    /** @type {Response | undefined} */
    let answer;
    let pause = place.retry;
    const attempt = new Attempt(silence ?? Infinity, signal);
    try {
      const headers = await headersOf(principal, secret, place.position);
      answer = await attempt.within(fetch(address, { headers, signal: attempt.signal, cache: "no-store" }));
      if (answer.ok && answer.body) {
        failed = 0;
        for await (const event of eventsOf(answer.body, place, attempt)) yield event;
        pause = place.retry;
      } else if (PASSING.has(answer.status)) {
        pause = Math.max(1000 * Number(answer.headers.get("Retry-After") ?? 0), spread(failed++));
      } else {
        throw await attempt.within(refusalOf(answer));
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (error instanceof ConnectFailed) throw error;
      pause = Math.max(place.retry, spread(failed++)); // the network, or whoever is between
    } finally {
      // Who leaves the loop hangs up.
      if (answer?.body && !answer.body.locked) await answer.body.cancel().catch(() => {});
      attempt.end();
    }
    await sleep(pause, signal);
  }
}

/** One request and its answer, which may not be silent for longer than is said. */
class Attempt {
  #silence;
  #outer;
  #controller = new AbortController();

  /**
   * @param {number} silence
   * @param {AbortSignal | undefined} outer - Ends it, too.
   */
  constructor(silence, outer) {
    this.#silence = silence;
    this.#outer = outer;
    outer?.addEventListener("abort", this.end, { once: true });
  }

  get signal() {
    return this.#controller.signal;
  }

  /**
   * Wait for what comes next.
   *
   * @template T
   * @param {Promise<T>} promise
   * @returns {Promise<T>}
   * @throws {unknown} It did not come in time, or the attempt has ended.
   */
  async within(promise) {
    const cancel = callAfter(() => this.#controller.abort(new Error("the connection is silent")), this.#silence);
    try {
      return await unlessAborted(promise, this.signal);
    } finally {
      cancel();
    }
  }

  /** Hang up. */
  end = () => {
    this.#outer?.removeEventListener("abort", this.end);
    this.#controller.abort(this.#outer?.reason);
  };
}

/**
 * @param {string | undefined} principal
 * @param {FollowOptions["secret"]} secret
 * @param {string} position
 */
async function headersOf(principal, secret, position) {
  const proof = typeof secret === "function" ? await secret() : secret;
  /** @type {Record<string, string>} */
  const headers = { Accept: "text/event-stream" };
  if (position) headers["Last-Event-ID"] = position;
  if (principal !== undefined) headers.Authorization = `Basic ${base64(`${principal}:${proof ?? ""}`)}`;
  else if (proof !== undefined) headers.Authorization = `Bearer ${proof}`;
  return headers;
}

/** @param {string} text */
function base64(text) {
  return btoa(String.fromCodePoint(...new TextEncoder().encode(text)));
}

/**
 * Read the events of one connection, as the HTML standard says (section 9.2.6).
 *
 * @param {ReadableStream<Uint8Array>} body
 * @param {{position: string, retry: number}} place - Kept up to date.
 * @param {Attempt} attempt
 * @returns {AsyncGenerator<FollowedUpdate | FollowedStep, void, void>}
 */
async function* eventsOf(body, place, attempt) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let kind = "";
  let data = "";
  let id = place.position;
  try {
    for (;;) {
      const { done, value } = await attempt.within(reader.read());
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          place.position = id;
          const event = data && kind !== "end" ? made(kind, JSON.parse(data), id) : undefined;
          kind = data = "";
          if (event) yield event;
          continue;
        }
        const colon = line.indexOf(":");
        const field = line.slice(0, colon);
        const content = line.slice(colon + 1).replace(/^ /, "");
        if (field === "event") kind = content;
        else if (field === "data") data += content;
        else if (field === "id") id = content;
        else if (field === "retry") place.retry = Number(content);
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
    reader.releaseLock();
  }
}

/**
 * @param {string} kind
 * @param {any} data
 * @param {string} position
 * @returns {FollowedUpdate | FollowedStep | undefined} Nothing for what a later release adds.
 */
function made(kind, data, position) {
  if (kind === "") return { type: "update", snapshot: false, removed: false, folded: 0, ...data, position };
  if (kind === "open" || kind === "complete" || kind === "gap") return { type: kind, data, position };
  return undefined;
}

/** @param {Response} answer */
async function refusalOf(answer) {
  const problem = await answer.json().catch(() => ({}));
  const message = problem.detail ?? `the gateway answered ${answer.status}`;
  const code = typeof problem.type === "string" ? problem.type.replace(/^.*:/, "") : null;
  if (answer.status === UNAUTHENTICATED) return new Unauthenticated(message);
  return new ConnectFailed(message, { code, retryable: false });
}

/** @param {number} failed - Attempts before. */
function spread(failed) {
  return Math.random() * Math.min(LONGEST_RETRY, FIRST_RETRY * 2 ** Math.min(failed, 10));
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<void>}
 */
function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done, { once: true });
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    }
  });
}
