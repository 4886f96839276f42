/**
 * The public face of the client: `connect` and `Session`.
 *
 * @module
 */

import { Outcome } from "./codes.js";
import { Credentials } from "./credentials.js";
import { platform } from "./environment.js";
import { InvalidProperties, RemoteProtocolError, SessionEnded, ValueTooLarge } from "./errors.js";
import { Keeper } from "./keeping.js";
import { byteLength, MAX_NUMBER } from "./packets.js";
import { reach } from "./reaching.js";
import { checkUrls, ReconnectPlan } from "./reconnect.js";
import { SERVERS_PREFIX } from "./selections.js";
import { checkTopic, parseSelector } from "./selectors.js";
import { UpdateStream } from "./streams.js";
import { Supervisor } from "./supervisor.js";
import { VERSION } from "./version.js";

/** How this client introduces itself; the fixed property `$client`. */
export const CLIENT_NAME = `javascript/${VERSION}`;

/** Seconds `connect` tries to open a session. */
export const CONNECT_TIMEOUT = 10;

/** Seconds `close` waits until a node has confirmed that the session is ended. */
export const CLOSE_TIMEOUT = 5;

/** Bytes that a publish has at most around its topic and value. */
const PACKET_OVERHEAD = 192;

/**
 * @typedef {object} ConnectOptions
 * @property {string} [principal] - Who you are; `anonymous` by default.
 * @property {string | (() => string | Promise<string>)} [secret] - Your proof, or what fetches a fresh one: for each hello,
 *   and whenever the server says that the credentials end. It never travels in a URL.
 * @property {Record<string, string>} [properties] - User-defined properties to start with.
 * @property {number} [window] - Seconds without a connection that the session shall survive; the node may grant less.
 * @property {number} [connectTimeout] - Seconds to try, if no node can be reached.
 * @property {number} [requestTimeout] - Seconds that a request may take if its call does not say; none by default.
 * @property {string} [keep] - Keep the token in `sessionStorage` under this name, so that a reload of the page goes on with
 *   the session. Off by default: the token is a secret.
 * @property {import("./keeping.js").Store} [store] - Instead of `sessionStorage`.
 * @property {import("./environment.js").WebSocketConstructor} [WebSocket] - Where there is no global one, as in Node.js 20.
 * @property {import("./environment.js").Environment} [environment] - For tests: clock, timers and chance.
 *
 * @typedef {{eventId: string, version: number}} Receipt - A publish is in the grid. Empty and 0 if it had been executed
 *   before and its receipt is no longer kept.
 */

/**
 * A session at a gateway: it outlives its connections, the nodes that serve it and their deploys.
 *
 * Events: `state` (detail: connected, recovering, closed), `recovery` (detail: `Recovery`), `notice` (detail: `Notice`).
 */
export class Session extends EventTarget {
  #supervisor;

  /** @param {Supervisor} supervisor - Made by `connect`. */
  constructor(supervisor) {
    super();
    this.#supervisor = supervisor;
    /** @param {string} type */
    const dispatch = (type) => (/** @type {unknown} */ detail) => {
      this.dispatchEvent(new CustomEvent(type, { detail }));
    };
    supervisor.tell({ state: dispatch("state"), recovery: dispatch("recovery"), notice: dispatch("notice") });
  }

  // --- What it is ---------------------------------------------------------------------------------------------------

  /** The session's identity in the whole cluster; the same for its whole life. */
  get id() {
    return this.#supervisor.welcome.session;
  }

  /** Who it belongs to. */
  get principal() {
    return this.#supervisor.welcome.principal;
  }

  /** The node that serves it, or served it last. */
  get node() {
    return this.#supervisor.welcome.node;
  }

  /** All properties; names with `$` are the server's. @returns {Readonly<Record<string, string>>} */
  get properties() {
    return this.#supervisor.properties;
  }

  /** Where it stands: connected, recovering or closed. */
  get state() {
    return this.#supervisor.state;
  }

  /** Whether it survives the loss of its node. */
  get replicated() {
    return this.#supervisor.welcome.replicated;
  }

  /** Seconds it survives without a connection, as the node granted. */
  get window() {
    return this.#supervisor.welcome.window;
  }

  /** Why it is over; null while it is not. */
  get closedReason() {
    return this.#supervisor.ended;
  }

  /** Settled when the session is over, for whatever reason; `closedReason` tells it. */
  get closed() {
    return this.#supervisor.over;
  }

  /** The recoveries there were (the last 256), then each new one; to be iterated with `for await`. */
  get recoveries() {
    return this.#supervisor.recoveries;
  }

  /** What the server declared, likewise. */
  get notices() {
    return this.#supervisor.notices;
  }

  // --- Topics -------------------------------------------------------------------------------------------------------

  /**
   * Select topics and be sent their values. Settles once the grid has accepted the selection, so that it survives the node.
   *
   * @param {string} selector - `*` matches one segment, `**` any number, such as `prices/*` or `prices/**`.
   * @param {{listener?: import("./streams.js").UpdateListener, queueSize?: number, timeout?: number}} [options] - A
   *   listener is called at once with each update, in place of an iteration; else `queueSize` updates are kept before they
   *   are conflated to the newest per topic.
   * @returns {Promise<UpdateStream>}
   */
  async subscribe(selector, { timeout, ...options } = {}) {
    const parsed = parseSelector(selector);
    const stream = new UpdateStream(parsed, options);
    const { streams } = this.#supervisor;
    // It listens before it asks, so that no update can come too early for it.
    streams.add(stream);
    try {
      await this.#supervisor.request({ type: "subscribe", selector: parsed.text }, timeout);
    } catch (error) {
      streams.discard(stream);
      throw error;
    }
    return stream;
  }

  /**
   * Deselect topics: nothing that the selector matches is sent any more, whatever selected it. Streams of exactly this
   * selector end; wider ones go on without the topics that it matches.
   *
   * @param {string} selector
   * @param {{timeout?: number}} [options]
   */
  async unsubscribe(selector, { timeout } = {}) {
    await this.#supervisor.request({ type: "unsubscribe", selector: parseSelector(selector).text }, timeout);
  }

  /**
   * Set the value of a topic, exactly once however often the client has to ask.
   *
   * @param {string} topic - Its path, such as `prices/ACME`.
   * @param {unknown} value - Anything that `JSON.stringify` encodes.
   * @param {{timeout?: number}} [options]
   * @returns {Promise<Receipt>} Once the publish is in the grid.
   */
  async publish(topic, value, { timeout } = {}) {
    const path = checkTopic(topic);
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError(`a ${typeof value} has no JSON text; publish null to say "nothing"`);
    const { value_bytes: most, message_bytes: message } = this.#supervisor.welcome.limits;
    const size = byteLength(text);
    if (size > Math.min(most, message - byteLength(JSON.stringify(path)) - PACKET_OVERHEAD)) {
      throw new ValueTooLarge(`the value has ${size} bytes of JSON; the node accepts ${most}`);
    }
    // As it is now: the application may change its object before the request is sent.
    const ask = { type: /** @type {const} */ ("publish"), topic: path, value: JSON.parse(text) };
    const reply = await this.#supervisor.request(ask, timeout);
    return { eventId: reply.event ?? "", version: reply.version ?? 0 };
  }

  /**
   * Change user-defined properties.
   *
   * @param {Record<string, string | null>} changes - Value by name; null removes one, and what is not named stays.
   * @param {{timeout?: number}} [options]
   */
  async setProperties(changes, { timeout } = {}) {
    checkProperties(changes);
    await this.#supervisor.request({ type: "properties", set: { ...changes } }, timeout);
  }

  /**
   * Show fresh credentials, before those of the session end; a `secret` that is a function does so by itself.
   *
   * @param {string} secret
   * @param {{principal?: string, timeout?: number}} [options] - Who shows it, if the proof does not tell.
   * @throws {import("./errors.js").RequestRefused} They are not accepted, or it cannot be told now.
   */
  async authenticate(secret, { principal = "", timeout } = {}) {
    await this.#supervisor.request({ type: "authenticate", secret, principal }, timeout);
  }

  /**
   * End the session on purpose; nothing of it stays in the grid. Requests without an answer fail with `SessionClosed`.
   *
   * @param {{timeout?: number}} [options] - Seconds to wait until a node has confirmed; if none can be reached, the session
   *   is left to its window.
   */
  async close({ timeout = CLOSE_TIMEOUT } = {}) {
    await this.#supervisor.close(timeout);
  }
}

/**
 * @param {Record<string, unknown>} changes
 * @throws {InvalidProperties}
 */
function checkProperties(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value !== null && typeof value !== "string") {
      throw new InvalidProperties(`properties are strings by name, but the value of ${JSON.stringify(name)} is not`);
    }
    if (name.startsWith(SERVERS_PREFIX)) {
      throw new InvalidProperties(`${JSON.stringify(name)} cannot be set: names that begin with $ are the server's`);
    }
  }
}

/**
 * Open a session.
 *
 * @param {string | URL | readonly (string | URL)[]} urls - Of a load balancer or a node, such as `wss://gateway.example`; of
 *   several, each is tried in turn. One without a path gets `/v1/connect`; in a browser it may be relative to the page.
 * @param {ConnectOptions} [options]
 * @returns {Promise<Session>}
 * @throws {import("./errors.js").ConnectFailed} No session could be opened.
 * @throws {TypeError} An argument makes no sense.
 */
export async function connect(urls, options = {}) {
  const { principal = "anonymous", properties = {}, window = null, connectTimeout = CONNECT_TIMEOUT } = options;
  const environment = options.environment ?? platform(options.WebSocket);
  const checked = checkUrls(urls, environment.base);
  checkProperties(properties);
  for (const [name, seconds] of Object.entries({ window, connectTimeout, requestTimeout: options.requestTimeout })) {
    if (seconds !== null && seconds !== undefined && !(seconds > 0)) {
      throw new TypeError(`${name} is a number of seconds above 0, not ${seconds}`);
    }
  }
  const keeper = options.keep === undefined ? null : new Keeper(options.keep, options.store);
  const timing = { connectTimeout, window, now: environment.now() };
  const credentials = new Credentials(environment, principal, options.secret);
  const requestTimeout = options.requestTimeout ?? null;
  const begin = { environment, urls: checked, timing, keeper, requestTimeout, credentials };

  const resumed = await goOn(begin);
  if (resumed !== null) return resumed;
  const secret = typeof options.secret === "function" ? await options.secret() : options.secret;
  const plan = new ReconnectPlan(checked, { ...timing, now: environment.now() });
  const hello = {
    type: "hello",
    principal,
    ...(secret === undefined ? {} : { secret }),
    properties,
    client: CLIENT_NAME,
    ...(window === null ? {} : { window }),
  };
  const applicant = applyWith(() => hello, Outcome.CREATED);
  const reached = await reach(environment, plan, applicant, new AbortController().signal);
  return new Session(
    new Supervisor(environment, { reached, plan, keeper, attempt: 0, firstRequest: 1, requestTimeout, credentials }),
  );
}

/**
 * Go on with a session whose token was kept, as a client without its buffers (protocol 5.4.4).
 *
 * @param {object} begin
 * @param {import("./environment.js").Environment} begin.environment
 * @param {string[]} begin.urls
 * @param {{connectTimeout: number, window: number | null, now: number}} begin.timing
 * @param {Keeper | null} begin.keeper
 * @param {number | null} begin.requestTimeout
 * @param {Credentials} begin.credentials
 * @returns {Promise<Session | null>} Null if there is none, or if it is over.
 */
async function goOn({ environment, urls, timing, keeper, requestTimeout, credentials }) {
  const kept = keeper?.read() ?? null;
  if (keeper === null || kept === null) return null;
  const plan = new ReconnectPlan(urls, { ...timing, resumes: true });
  // The counters may not have been kept to the last: the clock is above all that was used before (protocol 11.5).
  let attempt = Math.max(kept.attempt, environment.wall());
  const applicant = applyWith(() => {
    attempt += 1;
    keeper.write({ ...kept, attempt });
    return { type: "resume", token: kept.token, attempt, received: 0, oldest: MAX_NUMBER };
  }, Outcome.FAILED_OVER);
  try {
    const reached = await reach(environment, plan, applicant, new AbortController().signal);
    const firstRequest = Math.max(kept.request + 1, environment.wall());
    const beginning = { reached, plan, keeper, attempt, firstRequest, requestTimeout, credentials };
    return new Session(new Supervisor(environment, beginning));
  } catch (error) {
    if (!(error instanceof SessionEnded)) throw error;
    keeper.forget();
    return null;
  }
}

/**
 * @param {() => object} firstPacket
 * @param {string} expected
 * @returns {import("./reaching.js").Applicant}
 */
function applyWith(firstPacket, expected) {
  return {
    firstPacket,
    accept: ({ outcome }) => {
      if (outcome !== expected) throw new RemoteProtocolError(`its outcome is ${outcome} and not ${expected}`);
    },
    rejected: () => {},
  };
}
