/**
 * What the console knows of the cluster, live: it is a client of the gateway like any other, and survives like one.
 *
 * @module
 */

import { connect } from "./client/index.js";

/** Seconds without news after which a node counts as silent; three reports may be late. */
const SILENT_AFTER = 4;

/** Happenings kept for the feed. */
const KEPT = 300;

/** Seconds after which what a node tells of earlier is no news to anybody: the nodes' own bound. */
const RECENT = 900;

/**
 * @typedef {object} NodeState - See `gateway/app/operations/reports.py`; a node that is gone has only the first three.
 * @property {string} node
 * @property {string} incarnation
 * @property {"serving" | "expired" | "left"} state
 * @property {string} version
 * @property {number} started
 * @property {number} at
 * @property {{connected: number, disconnected: number}} sessions - Without consoles.
 * @property {number} [consoles] - Those that are connected; nodes of earlier releases count them among the sessions.
 * @property {number} [updates] - Delivered since the start, likewise.
 * @property {number} connections
 * @property {Counts} resumes
 * @property {{blocked: number, closed: number}} slow
 * @property {number} lag
 * @property {{node: string | null, copied: number, to_copy: number}} [backup] - Absent of a node that is to have none.
 * @property {{state: string, generation: number}} grid
 * @property {boolean} draining
 * @property {string[]} reasons
 * @property {string[]} alive
 * @property {string[]} [suspects] - Nodes that it does not hear, as in `alive`; absent of nodes of earlier releases.
 * @property {{node: string, incarnation: string, stage: string, sessions: number}[]} [takeovers] - What it does for failed nodes.
 *
 * @typedef {{at: number, what: string, session: string, detail: string | null, replayed?: boolean | null, node: string}} Happening
 * @typedef {"ready" | "not ready" | "draining" | "not heard yet" | "silent" | "suspected" | "taken over" | "expired" | "left"} Standing
 * @typedef {import("./client/session.js").Session} Session
 * @typedef {import("./rungs.js").Counts} Counts
 */

/**
 * The live state. Events: `change` (something of the nodes), `happenings` (detail: new ones), `connection` (its own).
 */
export class Live extends EventTarget {
  #token;
  #keep;
  #others;

  /** Where the session is: an origin, that of the page or of another node. */
  origin = location.origin;
  /** @type {Session | null} */
  #session = null;
  #timer = 0;
  /** When it began to listen, in seconds of the page's clock. */
  #since = 0;

  /**
   * @param {string} token - Of an administrator.
   * @param {boolean} keep - Go on with the session after a reload of the page.
   * @param {string[]} [others] - Where it goes on if its node dies: URLs of other nodes' admin ports.
   */
  constructor(token, keep, others = []) {
    super();
    this.#token = token;
    this.#keep = keep;
    this.#others = others;
    /** @type {Map<string, NodeState>} */
    this.nodes = new Map();
    /** When each node was heard last, in seconds of the page's clock; absent for values that are not news. */
    this.heard = new Map();
    /** Updates a second that each node delivered between its last two reports. @type {Map<string, number>} */
    this.rates = new Map();
    /** @type {Map<string, {interval: number, rungs: string[], columns: number[][]}>} */
    this.recoveries = new Map();
    /** @type {Map<string, {count: number, sessions: any[]}>} */
    this.slow = new Map();
    /** @type {Happening[]} */
    this.happenings = [];
  }

  /** The console's own session. */
  get session() {
    return /** @type {Session} */ (this.#session);
  }

  /** Sign in; rejected if the token is not accepted, or if nobody answers. */
  async start() {
    const urls = ["/v1/connect", ...this.#others.map((each) => `${each}/v1/connect`)];
    const session = await connect(urls, {
      principal: "console",
      secret: this.#token,
      WebSocket: this.#watched(),
      ...(this.#keep ? { keep: "console" } : {}),
    });
    this.#session = session;
    this.#since = now();
    for (const name of ["state", "recovery"]) session.addEventListener(name, () => this.#tell("connection"));
    if (!this.#keep) addEventListener("pagehide", () => void session.close());
    await Promise.all([
      session.subscribe("$gateway/nodes/*", { listener: (update) => this.#node(update) }),
      session.subscribe("$gateway/recoveries/*", { listener: ({ value }) => value && this.recoveries.set(value.node, value) }),
      session.subscribe("$gateway/slow/*", { listener: ({ value }) => value && this.slow.set(value.node, value) }),
      session.subscribe("$gateway/activity/*", { listener: (update) => this.#activity(update) }),
      session.subscribe("$gateway/recent/*", { listener: ({ value }) => value && this.#recent(value) }),
    ]);
    this.#timer = setInterval(() => this.#tell("change"), 1000);
    this.#tell("connection");
  }

  /** WebSockets that tell where the newest of them leads. */
  #watched() {
    const live = this;
    return class extends WebSocket {
      /**
       * @param {string} url
       * @param {string[]} protocols
       */
      constructor(url, protocols) {
        super(url, protocols);
        this.addEventListener("open", () => {
          live.origin = new URL(url).origin.replace(/^ws/, "http");
        });
      }
    };
  }

  /** End the console's session. */
  async stop() {
    clearInterval(this.#timer);
    await this.#session?.close({ timeout: 2 });
  }

  /**
   * @param {import("./client/streams.js").Update} update
   */
  #node({ value, snapshot, removed }) {
    if (removed) return;
    const before = this.nodes.get(value.node);
    if (before !== undefined && before.incarnation === value.incarnation && value.at > before.at) {
      this.rates.set(value.node, Math.max(0, ((value.updates ?? 0) - (before.updates ?? 0)) / (value.at - before.at)));
    }
    this.nodes.set(value.node, value);
    // What was kept from earlier says nothing about now; a snapshot after a failover does not either.
    if (!snapshot) this.heard.set(value.node, now());
  }

  /**
   * @param {import("./client/streams.js").Update} update
   */
  #activity({ value, snapshot, removed }) {
    if (snapshot || removed) return;
    /** @type {Happening[]} */
    const news = value.happenings.map((/** @type {any} */ each) => ({ ...each, node: value.node }));
    const added = this.#add(news);
    this.dispatchEvent(new CustomEvent("happenings", { detail: { news: added, more: value.more } }));
  }

  /**
   * Put in what this page has missed: from before it was opened, or while it had no connection.
   *
   * @param {{node: string, happenings: any[]}} value
   */
  #recent({ node, happenings }) {
    const since = Date.now() / 1000 - RECENT;
    const missed = this.#add(happenings.filter(({ at }) => at >= since).map((each) => ({ ...each, node })));
    if (missed.length > 0) this.dispatchEvent(new CustomEvent("happenings", { detail: { news: [], more: 0 } }));
  }

  /**
   * Add happenings that are not there yet, each in its place: the newest first.
   *
   * @param {Happening[]} several
   * @returns {Happening[]} Those that were added.
   */
  #add(several) {
    const known = new Set(this.happenings.map(keyOf));
    const added = several.filter((each) => !known.has(keyOf(each)));
    if (added.length === 0) return added;
    // Sorting is stable: what happened at the same time stays in the order in which a node tells it.
    this.happenings = [...[...added].reverse(), ...this.happenings].sort((one, other) => other.at - one.at).slice(0, KEPT);
    return added;
  }

  /** @param {string} what */
  #tell(what) {
    this.dispatchEvent(new CustomEvent(what));
  }

  // --- What follows from it -----------------------------------------------------------------------------------------

  /**
   * Tell how a node stands: by its own words as long as it is heard, else by those of the others, which see its lease.
   *
   * @param {NodeState} state
   * @returns {Standing}
   */
  standing(state) {
    if (state.state !== "serving") return state.state;
    const heard = this.heard.get(state.node);
    const name = `${state.node}/${state.incarnation}`;
    const others = [...this.nodes.values()].filter((each) => each !== state && this.#isHeard(each));
    if (this.takeoverOf(state) !== undefined) return "taken over";
    if (others.some(({ suspects }) => suspects?.includes(name))) return "suspected";
    // What is retained of a node comes before its first report to a page that has just been opened.
    if (heard === undefined && now() - this.#since <= SILENT_AFTER) return "not heard yet";
    if (heard === undefined || now() - heard > SILENT_AFTER) {
      return others.length > 0 && !others.some(({ alive }) => alive.includes(name)) ? "expired" : "silent";
    }
    if (state.draining) return "draining";
    return state.reasons.length > 0 ? "not ready" : "ready";
  }

  /**
   * Find what another node does for one that has failed; undefined if none does.
   *
   * @param {NodeState} state
   */
  takeoverOf({ node, incarnation }) {
    for (const by of this.nodes.values()) {
      const found = by.takeovers?.find((each) => each.node === node && each.incarnation === incarnation);
      if (found !== undefined && this.#isHeard(by)) return { by: by.node, ...found };
    }
    return undefined;
  }

  /** @param {NodeState} state */
  #isHeard({ node, state }) {
    const heard = this.heard.get(node);
    return state === "serving" && heard !== undefined && now() - heard <= SILENT_AFTER;
  }

  /** The nodes, by name; those that were gone when this page came, and about which nobody has news, are left out. */
  list() {
    return [...this.nodes.values()]
      .filter((each) => this.heard.has(each.node) || ["silent", "not heard yet"].includes(this.standing(each)))
      .sort((one, other) => one.node.localeCompare(other.node, "en", { numeric: true }));
  }

  /** The nodes that serve. */
  serving() {
    return this.list().filter((each) => this.#isHeard(each));
  }

  /**
   * Add up the resumes of all nodes, by interval and rung. Nodes of different releases may know different rungs.
   *
   * @returns {Map<number, Counts>} By the beginning of the interval, in seconds since 1970.
   */
  history() {
    /** @type {Map<number, Counts>} */
    const sums = new Map();
    for (const { rungs, columns } of this.recoveries.values()) {
      for (const [begins, ...counts] of columns) {
        const sum = sums.get(/** @type {number} */ (begins)) ?? {};
        rungs.forEach((rung, index) => (sum[rung] = (sum[rung] ?? 0) + (counts[index] ?? 0)));
        sums.set(/** @type {number} */ (begins), sum);
      }
    }
    return sums;
  }
}

/** @param {Happening} happening */
function keyOf({ at, what, session, node, detail }) {
  return `${at} ${node} ${what} ${session} ${detail}`;
}

/** Seconds of the page's clock. */
function now() {
  return performance.now() / 1000;
}
