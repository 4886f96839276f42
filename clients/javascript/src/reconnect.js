/**
 * Where and when a client connects next, and when it gives up: decisions only, without I/O, clock or randomness.
 *
 * ```text
 *                  next ──► Attempt(delay, url) ──► tried ──► connected ──► … ──► lost ─┐
 *                   ▲                                  └────► failed ─┐                 │
 *                   └─────────────────────────────────────────────────┴─────────────────┘
 *                  next ──► an error: the session, or the opening of one, has failed for good
 * ```
 *
 * - Delays are drawn with full jitter, also before the first retry (protocol 8.3).
 * - URLs are tried in turn, beginning with the one that worked last. Those that the user gave come first, then those that
 *   the cluster lists, which come and go. Who is asked to go to a node that is listed goes straight there.
 * - The route hint goes into the URL, so that a load balancer finds the node that holds the buffers; behind it the node
 *   that has a copy of them, if there is one. Both are left out after the node asked to go away. Once a node did not answer
 *   at all, its hint is left out: first that of the node that served the session, then that of its backup.
 * - The window counts from the loss of the connection, and is the shorter one of the client's and the node's.
 *
 * @module
 */

import { CloseCode, isRetryable, reconnectFor, SUPPORTS, TOPOLOGY } from "./codes.js";
import {
  ConnectFailed,
  SessionClosed,
  SessionExpired,
  SessionFailed,
  SessionRefused,
  Unauthenticated,
} from "./errors.js";

/** The path of a URL that names none (protocol 1.1). */
export const CONNECT_PATH = "/v1/connect";

/** The query parameter that carries the route hint; it is not secret. */
const HINT_PARAMETER = "node";

/** That which carries the second one: where to go if the first node is dead. */
const BACKUP_PARAMETER = "backup";

/** By what the bound of the delays grows with every attempt. */
const GROWTH = 2;

/** Seconds; the smallest bound, whatever a server advises. An advice of 0 would make all its clients spin. */
const LEAST_BOUND = 0.05;

/** Seconds; what a client goes by until a server has given its own advice (protocol 8.3.1). */
const DEFAULT_ADVICE = Object.freeze({ initial: 0.25, maximum: 10, stable_after: 10 });

/** Connections in a row that end with a broken protocol until the session is given up (protocol 8.2). */
const MAX_VIOLATIONS = 2;

/** Times in a row that a client is sent to the master; then it is served where it comes (protocol 15.4). */
const MOST_REDIRECTS = 3;

/** Close codes with which a node says that this client broke the protocol; the session is kept for its window. */
const NODE_SAYS_BUG = new Set([CloseCode.PROTOCOL_ERROR, CloseCode.MESSAGE_TOO_BIG, 1002, 1003, 1007]);

/**
 * How a connection, or an attempt at one, ended.
 *
 * @typedef {object} Ending
 * @property {string} message - For people; holds no token and no secret.
 * @property {number | null} [code] - The WebSocket close code, or null if there was none.
 * @property {string | null} [error] - The code of an error packet that came in place of a welcome.
 * @property {number | null} [retryAfter] - Seconds of that error packet.
 * @property {boolean} [hung] - The other side did not answer at all.
 * @property {boolean} [permanent] - Trying the same URL again is useless, as far as one can tell.
 * @property {boolean} [planned] - The client left because the node had asked it to.
 * @property {string | null} [node] - Where the node that asked to leave wants the client to go; null for anywhere.
 * @property {string[]} [urls] - Where clients reach that node, as far as a node has told.
 * @property {boolean} [violation] - One of the two sides broke the protocol.
 * @property {"at_once" | "later"} [excused] - How to come back in spite of the close code, as one request is, or may be, to
 *   blame (protocol 4.8).
 *
 * @typedef {{delay: number, url: string}} Attempt - Seconds to wait before, and where to.
 */

/**
 * Check the URLs a user gave, and complete those without a path.
 *
 * @param {string | URL | readonly (string | URL)[]} urls
 * @param {string} [base] - What relative URLs are relative to; the page, in a browser.
 * @returns {string[]} As `ws:` and `wss:` URLs.
 * @throws {TypeError} There is none, one is not a WebSocket URL, or some use TLS and some do not.
 */
export function checkUrls(urls, base) {
  const given = Array.isArray(urls) ? urls : [urls];
  if (given.length === 0) throw new TypeError("connect needs at least one URL, such as wss://gateway.example");
  const checked = given.map((each) => checkUrl(each, base));
  if (new Set(checked.map(isSecure)).size > 1) {
    // Who can disturb connections over TLS would decide that the secret travels without.
    throw new TypeError("either all URLs use TLS (wss, https) or none does; a failure must not weaken a connection");
  }
  return checked;
}

/**
 * @param {string | URL} given
 * @param {string} [base]
 * @returns {string}
 */
function checkUrl(given, base) {
  let url;
  try {
    url = new URL(given, base);
  } catch {
    throw new TypeError("connect needs URLs such as ws://127.0.0.1:8100 or wss://gateway.example/");
  }
  if (url.protocol === "http:") url.protocol = "ws:";
  if (url.protocol === "https:") url.protocol = "wss:";
  if (url.protocol !== "ws:" && url.protocol !== "wss:") {
    throw new TypeError(`${describeUrl(url.href)} is not a URL such as ws://127.0.0.1:8100`);
  }
  if (url.pathname === "" || url.pathname === "/") url.pathname = CONNECT_PATH;
  url.hash = "";
  return url.href;
}

/** @param {string} url - As `checkUrl` returned it. */
const isSecure = (url) => url.startsWith("wss:");

/**
 * Choose of a list of the cluster what a client may connect to (protocol 15.3).
 *
 * @param {import("./packets.js").ClusterList} cluster
 * @param {readonly string[]} configured - As `checkUrls` returned them. What is safer than they are is left out, too: from
 *   there the next attempt at one of them would lead back to clear text.
 * @returns {Map<string, string>} The nodes by the URLs that are safe in the same way, completed, in order.
 */
function discoveredUrls(cluster, configured) {
  const found = new Map();
  const secure = isSecure(/** @type {string} */ (configured[0]));
  for (const { node, urls } of cluster.nodes) {
    for (const each of urls) {
      try {
        const { protocol, username, password, port } = new URL(each);
        const usable = /^wss?:$/.test(protocol) && username === "" && password === "" && port !== "0";
        const url = checkUrl(each);
        if (usable && isSecure(url) === secure && !found.has(url)) found.set(url, node);
      } catch {
        // Of a node that is configured wrongly, or of a later release.
      }
    }
  }
  return found;
}

/** Hosts whose connections do not leave the machine. */
const THIS_MACHINE = /^(localhost|.*\.localhost|127(\.\d+){3}|\[::1\])$/;

/** Hosts that were warned of: once in the life of a page or process is enough. @type {Set<string>} */
const warnedOf = new Set();

/**
 * Warn, once for each host, of URLs that lead to another one without TLS: secrets and tokens can be read on the way.
 *
 * @param {readonly string[]} urls - As `checkUrls` returned them.
 * @param {(text: string) => void} [warn]
 */
export function warnOfClearText(urls, warn = console.warn) {
  for (const url of urls) {
    const { protocol, hostname } = new URL(url);
    if (protocol === "wss:" || THIS_MACHINE.test(hostname) || warnedOf.has(hostname)) continue;
    warnedOf.add(hostname);
    warn(`session gateway: secrets and tokens go to ${hostname} in clear text; use wss, unless nobody else is in that network`);
  }
}

/**
 * Return a URL as it may appear in messages: without user, password and query, which may be secret.
 *
 * @param {string} url
 * @returns {string}
 */
export function describeUrl(url) {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}

/**
 * @param {string} url
 * @param {string | null} node
 * @param {string | null} backup
 * @returns {string}
 */
function withHints(url, node, backup) {
  const parts = new URL(url);
  for (const [name, hint] of Object.entries({ [HINT_PARAMETER]: node, [BACKUP_PARAMETER]: backup })) {
    parts.searchParams.delete(name);
    if (hint !== null) parts.searchParams.set(name, hint);
  }
  return parts.href;
}

/**
 * What to do next: the close code's range decides, or the error packet if the code was lost on the way.
 *
 * @param {Ending} ending
 * @returns {import("./codes.js").Reconnect}
 */
function reconnectAfter({ code = null, error = null }) {
  if (code !== null || error === null) return reconnectFor(code);
  // A stale attempt is not retryable as such, but the next attempt carries a higher number.
  return isRetryable(error) || error === "stale_attempt" ? "later" : "never";
}

/** The plan of one session. */
export class ReconnectPlan {
  #configured;
  #discover;
  #follow;
  /** Times in a row that it was sent to the master and did not get there; the most, if that was not to be reached. */
  #redirects = 0;
  /** Nodes by the URLs that the cluster lists. @type {Map<string, string>} */
  #nodes = new Map();
  #connectTimeout;
  /** @type {number | null} */
  #window;
  /** @type {number | null} */
  #granted;
  #opened = false;
  #welcomed = false;
  #index = 0;
  /** @type {string | null} */
  #hint = null;
  /** @type {string | null} */
  #backup = null;
  /** @type {import("./packets.js").BackoffAdvice} */
  #advice = DEFAULT_ADVICE;
  /** Seconds below which the next delay is drawn; null for the advice's first one. @type {number | null} */
  #bound = null;
  /** Seconds that the next delay has at least. */
  #earliest = 0;
  /** Seconds of the delay handed out last that a node has asked for. */
  leastDelay = 0;
  /** @type {number | null} */
  #connectedAt = null;
  /** @type {number | null} */
  #deadline;
  /** @type {Set<number>} */
  #useless = new Set();
  #violations = 0;
  #atOnce = true;
  /** @type {Ending | null} */
  #last = null;
  /** @type {Error | null} */
  #over = null;

  /**
   * @param {string[]} urls - As `checkUrls` returned them.
   * @param {{connectTimeout: number, window: number | null, now: number, resumes?: boolean, discover?: boolean,
   *   follow?: boolean}} options -
   *   Seconds within which the session must be opened; seconds without a connection after which this client gives up, or
   *   null to leave that to the node; the time at which opening begins; whether it is not opened, but gone on with by a
   *   token that was kept; whether to use what the cluster lists; whether to follow the master.
   */
  constructor(urls, { connectTimeout, window, now, resumes = false, discover = true, follow = false }) {
    this.#follow = follow;
    this.#discover = discover;
    /** What is to be told in every hello and resume (protocol 4.1.1). @type {readonly string[]} */
    this.supports = discover ? [...SUPPORTS, TOPOLOGY] : SUPPORTS;
    this.#configured = urls;
    /** Where to connect: as given, and as the cluster lists them. @type {readonly string[]} */
    this.urls = urls;
    this.#connectTimeout = connectTimeout;
    this.#window = this.#granted = window;
    this.#deadline = now + connectTimeout;
    this.#opened = resumes;
    /** Connections tried since the last loss, or since the beginning. */
    this.attempts = 0;
  }

  // --- What happened ------------------------------------------------------------------------------------------------

  /**
   * A node has welcomed the session.
   *
   * @param {import("./packets.js").Welcome} welcome
   * @param {number} now
   */
  connected(welcome, now) {
    this.#opened = this.#welcomed = true;
    this.#redirects = 0;
    this.#hint = welcome.node;
    this.#backup = welcome.backup ?? null;
    this.listed(welcome.cluster ?? null);
    this.#granted = this.#window === null ? welcome.window : Math.min(welcome.window, this.#window);
    this.#advice = welcome.backoff;
    this.#connectedAt = now;
    this.#earliest = 0;
    this.#deadline = null;
    this.#last = null;
  }

  /**
   * The node gives new advice on an open connection.
   *
   * @param {import("./packets.js").BackoffAdvice} advice
   */
  advised(advice) {
    this.#advice = advice;
  }

  /**
   * The cluster lists its nodes; null if it lists none, so that those it has listed before are forgotten.
   *
   * @param {import("./packets.js").ClusterList | null} cluster
   */
  listed(cluster) {
    if (!this.#discover) return;
    const current = /** @type {string} */ (this.urls[this.#index]);
    this.#nodes = cluster === null ? new Map() : discoveredUrls(cluster, this.#configured);
    this.urls = [...new Set([...this.#configured, ...this.#nodes.keys()])];
    this.#index = Math.max(0, this.urls.indexOf(current));
  }

  /**
   * Turn to the next URL, or to that of a node if it is listed.
   *
   * @param {string | null} [node]
   */
  #goOn(node = null) {
    this.#index = (this.#index + 1) % this.urls.length;
    this.#turnTo(node);
  }

  /** @param {string | null} node */
  #turnTo(node) {
    for (const [url, listed] of this.#nodes) {
      if (listed === node) {
        this.#index = this.urls.indexOf(url);
        return;
      }
    }
  }

  /**
   * A node has said who the master is: go there at once, unless that has led nowhere before.
   *
   * @param {Ending} ending
   */
  #redirected({ node = null, urls = [] }) {
    this.#redirects += 1;
    this.#atOnce = this.#redirects <= MOST_REDIRECTS;
    this.#hint = node;
    this.#backup = null;
    if (node === null || !this.#discover) return;
    const told = discoveredUrls({ revision: "", nodes: [{ node, urls }] }, this.#configured);
    this.#nodes = new Map([...this.#nodes, ...told]);
    this.urls = [...new Set([...this.#configured, ...this.#nodes.keys()])];
    this.#turnTo(node);
  }

  /** Whether nothing is left to be tried: `next` returns the error with which it has failed. */
  get isOver() {
    return this.#over !== null;
  }

  /** What is to be told of following the master in every hello and resume (protocol 15.4). */
  get following() {
    return { ...(this.#follow ? { follow: true } : {}), ...(this.#redirects > 0 ? { redirects: this.#redirects } : {}) };
  }

  /**
   * The connection ended: the window begins.
   *
   * @param {Ending} ending
   * @param {number} now
   */
  lost(ending, now) {
    this.attempts = 0;
    this.#deadline = this.#granted === null ? null : now + this.#granted;
    const planned = ending.planned ?? false;
    if (planned || ending.code === CloseCode.GOING_AWAY) {
      this.#hint = ending.node ?? null;
      this.#backup = null;
      this.#goOn(ending.node);
    }
    // Whoever left on request has spread its move already (protocol 8.3.3).
    this.#atOnce = planned;
    this.#ended(ending, now);
    if (ending.violation) this.#countViolation(ending);
  }

  /**
   * An attempt ended without a welcome.
   *
   * @param {Ending} ending
   * @param {number} now
   */
  failed(ending, now) {
    if (ending.permanent) this.#useless.add(this.#index);
    if (ending.hung) {
      if (this.#hint === null) this.#backup = null;
      this.#hint = null;
    }
    this.#goOn();
    this.#atOnce = false;
    if (ending.error === "not_master") this.#redirected(ending);
    // Whoever cannot get there is served by whoever is there meanwhile.
    else if (this.#redirects > 0) this.#redirects = MOST_REDIRECTS;
    this.#ended(ending, now);
    if (!this.#opened && this.#useless.size === this.urls.length) {
      this.#over = new ConnectFailed(ending.message, { retryable: false });
    }
  }

  /**
   * @param {Ending} ending
   * @param {number} now
   */
  #ended(ending, now) {
    this.#last = ending;
    const lasted = this.#connectedAt !== null && now - this.#connectedAt >= this.#advice.stable_after;
    this.#connectedAt = null;
    if (lasted || ending.excused) this.#violations = 0;
    if (lasted) this.#bound = null;
    let reconnect = ending.excused ?? reconnectAfter(ending);
    if (reconnect === "never") {
      if (this.#opened && NODE_SAYS_BUG.has(ending.code ?? 0) && !ending.violation) {
        this.#countViolation(ending);
      } else if (!ending.violation) {
        this.#over = this.#opened ? sessionOver(ending) : openingOver(ending);
      }
      reconnect = "later";
    }
    const retryAfter = ending.retryAfter ?? null;
    this.#earliest = retryAfter ?? 0;
    if (reconnect === "later" && retryAfter === null) this.#bound = this.#advice.maximum;
  }

  /** @param {Ending} ending */
  #countViolation(ending) {
    this.#violations += 1;
    if (this.#violations >= MAX_VIOLATIONS) {
      this.#over = new SessionFailed(
        `the session is given up, because connections in a row broke the protocol; the last one: ${ending.message}`,
        { code: ending.error ?? "protocol_error" },
      );
    }
  }

  // --- What to do ---------------------------------------------------------------------------------------------------

  /**
   * Decide what comes next.
   *
   * @param {number} now
   * @param {number} random - Uniform in [0, 1).
   * @returns {Attempt | Error} The next attempt, or the error with which the session, or the opening of one, has failed.
   */
  next(now, random) {
    if (this.#over !== null) return this.#over;
    const remaining = this.remaining(now);
    if (remaining !== null && remaining <= 0) return this.#tooLate();
    this.leastDelay = this.#atOnce ? 0 : this.#earliest;
    let delay = this.#atOnce ? 0 : this.#delay(random);
    if (remaining !== null && delay >= remaining) {
      if (remaining <= LEAST_BOUND) return this.#tooLate();
      // A bound beyond the end would mean not to try at all; so it is drawn from what is left.
      delay = random * remaining;
    }
    this.#atOnce = false;
    this.attempts += 1;
    return { delay, url: withHints(/** @type {string} */ (this.urls[this.#index]), this.#hint, this.#backup) };
  }

  /**
   * Tell how many seconds are left to get a connection; null for no limit.
   *
   * @param {number} now
   * @returns {number | null}
   */
  remaining(now) {
    return this.#deadline === null ? null : Math.max(0, this.#deadline - now);
  }

  /** @param {number} random */
  #delay(random) {
    const bound = Math.max(LEAST_BOUND, this.#bound ?? this.#advice.initial);
    const maximum = Math.max(LEAST_BOUND, this.#advice.initial, this.#advice.maximum);
    const delay = this.#earliest + random * bound;
    this.#bound = Math.min(maximum, bound * GROWTH);
    this.#earliest = 0;
    return delay;
  }

  #tooLate() {
    const last = this.#last === null ? "" : `; last: ${this.#last.message}`;
    if (!this.#welcomed) {
      return new ConnectFailed(`no session within ${this.#connectTimeout} s${last}`, { code: this.#last?.error ?? null });
    }
    const window = this.#granted === null ? "its window" : `its window of ${this.#granted} s`;
    return new SessionExpired(`no node took the session back within ${window}${last}`);
  }
}

/** @param {Ending} ending */
function openingOver(ending) {
  if (ending.error === "unauthenticated" || ending.code === CloseCode.UNAUTHENTICATED) {
    return new Unauthenticated(ending.message);
  }
  return new ConnectFailed(ending.message, { code: ending.error ?? null, retryable: false });
}

/**
 * Codes of the errors of sessions that end on an open connection, where no error packet names one.
 *
 * @type {ReadonlyMap<number, string>}
 */
const SAID_BY_CLOSE_CODE = new Map(/** @type {[number, string][]} */ ([
  [CloseCode.REVOKED, "revoked"],
  // Another holder of the token has the session: mostly a duplicate of the tab.
  [CloseCode.SUPERSEDED, "superseded"],
]));

/** What a node says to whoever comes back with a token that another holder has replaced; the same as a close with 4203. */
const REPLACED = "token_superseded";

/** @param {Ending} ending */
function sessionOver(ending) {
  // A connection that is closed while it is in use tells by its close code alone.
  const said = ending.error ?? SAID_BY_CLOSE_CODE.get(ending.code ?? 0) ?? null;
  const details = { code: said === REPLACED ? "superseded" : said };
  if (ending.error === "session_expired" || ending.code === CloseCode.SESSION_EXPIRED) {
    return new SessionExpired(ending.message, details);
  }
  if (
    ending.error === "session_closed" ||
    ending.code === CloseCode.NORMAL ||
    ending.code === CloseCode.SESSION_CLOSED
  ) {
    return new SessionClosed(ending.message, details);
  }
  return new SessionRefused(ending.message, details);
}
