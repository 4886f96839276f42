/**
 * What people see of a session: its state, counts, last recoveries, and the values it holds.
 *
 * @module
 */

/** Milliseconds between two drawings: what is counted changes hundreds of times a second. */
const DRAW_EVERY = 250;

/** Recoveries, and messages, that are shown. */
const SHOWN = 8;

/** Draws a session into the page. */
export class Board {
  #counts = new Map([["updates", 0], ["snapshots", 0], ["folded", 0], ["published", 0], ["acknowledged", 0], ["recoveries", 0]]);
  /** @type {Map<string, {value: unknown, version: number, updates: number}>} */
  #values = new Map();
  /** @type {string[][]} */
  #recoveries = [];
  /** @type {string[]} */
  #messages = [];
  /** @type {any} */
  #session = null;

  constructor() {
    setInterval(() => this.#draw(), DRAW_EVERY);
  }

  /** @param {any} session */
  session(session) {
    this.#session = session;
  }

  /** @param {string} what @param {number} [by] */
  count(what, by = 1) {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + by);
  }

  /** @param {any} update */
  update({ topic, value, version, snapshot, folded = 0 }) {
    this.count("updates");
    if (snapshot) this.count("snapshots");
    if (folded > 0) this.count("folded", folded);
    const updates = (this.#values.get(topic)?.updates ?? 0) + 1;
    this.#values.set(topic, { value, version, updates });
  }

  /** @param {any} recovery */
  recovery({ outcome, reason, node, gapSeconds, attempts, lost, cause }) {
    this.count("recoveries");
    const at = new Date().toLocaleTimeString();
    const gap = gapSeconds === null ? "unknown" : `${gapSeconds.toFixed(2)} s`;
    const row = [at, outcome, reason ?? "", node, gap, attempts, lost ?? "unknown", cause];
    this.#recoveries = [row.map(String), ...this.#recoveries].slice(0, SHOWN);
  }

  /** @param {string} text */
  message(text) {
    this.#messages = [`${new Date().toLocaleTimeString()} ${text}`, ...this.#messages].slice(0, SHOWN);
  }

  #draw() {
    const state = this.#session?.state ?? "connecting";
    const badge = element("state");
    badge.textContent = state;
    badge.dataset["state"] = state;
    if (this.#session !== null) {
      const { id, principal, node, window, properties } = this.#session;
      const facts = { id, principal, node, window: `${window} s`, mark: properties["mark"] ?? "" };
      list("session", Object.entries(facts));
    }
    list("counts", [...this.#counts]);
    rows("recoveries", this.#recoveries);
    const values = [...this.#values].sort(([one], [other]) => (one < other ? -1 : 1));
    rows("values", values.map(([topic, { value, version, updates }]) => [topic, JSON.stringify(value), version, updates].map(String)));
    element("messages").replaceChildren(...this.#messages.map((text) => made("li", text)));
  }
}

/** @param {string} id @returns {HTMLElement} */
function element(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** @param {string} tag @param {string} text */
function made(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}

/** @param {string} id @param {(readonly [string, unknown])[]} pairs */
function list(id, pairs) {
  element(id).replaceChildren(...pairs.flatMap(([name, value]) => [made("dt", name), made("dd", String(value))]));
}

/** @param {string} id @param {string[][]} lines */
function rows(id, lines) {
  element(id).replaceChildren(
    ...lines.map((cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map((cell) => made("td", cell)));
      return row;
    }),
  );
}
