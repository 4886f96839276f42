/**
 * What a session wants to see: an ordered list of selected and deselected selectors (protocol 6.3), and what a node has
 * promised to hold of it.
 *
 * A node leaves out entries that decide nothing, and so does this list, by the same rules: so what a node says after a
 * failover can be compared with what it was asked for.
 *
 * @module
 */

import { RemoteProtocolError } from "./errors.js";
import { covers, isReserved, overlaps, parseSelector } from "./selectors.js";

/**
 * @typedef {import("./selectors.js").Selector} Selector
 * @typedef {import("./requests.js").Ask} Ask
 * @typedef {{selects: boolean, selector: Selector}} Entry
 * @typedef {Readonly<Record<string, string>>} Properties
 */

/** Properties whose names begin with this are made by each node and are no promise. */
export const SERVERS_PREFIX = "$";

/** The selector that matches every topic but the system's. */
const EVERYTHING = "**";

/** An immutable list of entries in compact form. */
export class Selections {
  /** @param {readonly Entry[]} [entries] - Taken as they are. */
  constructor(entries = []) {
    this.entries = entries;
  }

  /**
   * Read the list of a welcome.
   *
   * @param {readonly string[]} wire - Entries, `+selector` or `-selector`.
   * @returns {Selections}
   * @throws {RemoteProtocolError} An entry is neither.
   */
  static fromWire(wire) {
    return new Selections(
      wire.map((text) => {
        const sign = text[0];
        try {
          if (sign === "+" || sign === "-") return { selects: sign === "+", selector: parseSelector(text.slice(1)) };
        } catch {
          // Said below.
        }
        throw new RemoteProtocolError(`its selections are not valid: ${JSON.stringify(text.slice(0, 80))}`);
      }),
    );
  }

  /** Write the entries as `+selector` and `-selector`. */
  toWire() {
    return this.entries.map(({ selects, selector }) => `${selects ? "+" : "-"}${selector.text}`);
  }

  /**
   * Return the list after a request has been executed; this very object if that changes nothing.
   *
   * @param {Ask} ask
   * @returns {Selections}
   */
  after(ask) {
    if (ask.type !== "subscribe" && ask.type !== "unsubscribe") return this;
    const changed = this.with({ selects: ask.type === "subscribe", selector: parseSelector(ask.selector) });
    const stays = ask.type === "unsubscribe" ? (ask.keep ?? []) : [];
    return stays.reduce((list, each) => list.with({ selects: true, selector: parseSelector(each) }), changed);
  }

  /**
   * @param {Selections} other
   * @returns {boolean}
   */
  equals(other) {
    return sameTexts(this.toWire(), other.toWire());
  }

  /**
   * Return the list with one more entry; this very object if that changes nothing.
   *
   * @param {Entry} entry
   * @returns {Selections}
   */
  with(entry) {
    if (this.#isIdle(entry)) return this;
    const kept = this.entries.filter(({ selector }) => !covers(entry.selector, selector));
    const first = kept.findIndex(({ selects }) => selects);
    const remaining = new Selections(first < 0 ? [] : kept.slice(first));
    // What made the new entry matter may be gone: a deselect that removed its select has done all it can.
    if (remaining.entries.length < this.entries.length && remaining.#isIdle(entry)) return remaining;
    return new Selections([...remaining.entries, entry]);
  }

  /**
   * Tell whether an entry, put at the end, would be seen to change nothing.
   *
   * @param {Entry} entry
   */
  #isIdle(entry) {
    for (const { selects, selector } of [...this.entries].reverse()) {
      if (selects === entry.selects) {
        if (covers(selector, entry.selector)) return true;
      } else if (overlaps(selector, entry.selector)) {
        return false;
      }
    }
    return !entry.selects;
  }
}

/**
 * Return the user-defined ones of *properties*.
 *
 * @param {Properties} properties
 * @returns {Record<string, string>}
 */
function users(properties) {
  return Object.fromEntries(Object.entries(properties).filter(([name]) => !name.startsWith(SERVERS_PREFIX)));
}

/**
 * Return *properties* after *changes*; null removes one.
 *
 * @param {Properties} properties
 * @param {Readonly<Record<string, string | null>>} changes
 * @returns {Record<string, string>}
 */
export function changed(properties, changes) {
  const merged = new Map([...Object.entries(properties), ...Object.entries(changes)]);
  return Object.fromEntries(
    /** @type {[string, string][]} */ ([...merged].filter(([, value]) => value !== null)),
  );
}

/**
 * @param {Properties} one
 * @param {Properties} other
 */
function sameProperties(one, other) {
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && one[name] === other[name])
  );
}

/**
 * @param {string[]} one
 * @param {string[]} other
 */
function sameTexts(one, other) {
  return one.length === other.length && one.every((each, index) => each === other[index]);
}

/**
 * The selections and properties that replies have confirmed.
 *
 * Should the grid have been set back to an older state just when a node died, nobody but this client knows better: it
 * compares each failover's welcome with what it was promised and asks for the rest again (protocol 5.5). What is still
 * unanswered may have been executed or not, so every state on the way is as good as any other.
 */
export class Promises {
  #selections;
  #properties;

  /** What replies have confirmed to be selected. */
  get selections() {
    return this.#selections;
  }

  /** @param {import("./packets.js").Welcome} welcome - The one with which this client begins. */
  constructor(welcome) {
    this.#selections = Selections.fromWire(welcome.selections);
    this.#properties = users(welcome.properties);
  }

  /**
   * Note that the server has taken rights away, and what selections it has left.
   *
   * @param {string[]} selections
   * @throws {RemoteProtocolError} They are not valid.
   */
  withdrawn(selections) {
    this.#selections = Selections.fromWire(selections);
  }

  /**
   * Note that a selection cannot be restored because the session has no right to it any more.
   *
   * @param {string} selector - As promised.
   * @param {string[]} actual - What the node held instead; what is left of the promise is in there.
   */
  forbidden(selector, actual) {
    const lost = parseSelector(selector);
    const left = Selections.fromWire(actual).entries.filter((each) => each.selects && covers(lost, each.selector));
    this.#selections = new Selections(
      this.#selections.entries.flatMap((each) => (each.selects && each.selector.text === lost.text ? left : [each])),
    );
  }

  /**
   * Note that a request has been executed; in the order of the replies.
   *
   * @param {Ask} ask
   */
  executed(ask) {
    this.#selections = this.#selections.after(ask);
    if (ask.type === "properties") this.#properties = changed(this.#properties, ask.set);
  }

  /**
   * Tell what must be asked again, after the unanswered requests, so that the node holds what was promised.
   *
   * @param {import("./packets.js").Welcome} welcome
   * @param {Ask[]} unanswered - In order; they are asked again anyway.
   * @returns {Ask[]} Usually none.
   */
  missing(welcome, unanswered) {
    const selected = Selections.fromWire(welcome.selections);
    const selections = [this.#selections];
    const properties = [this.#properties];
    for (const ask of unanswered) {
      selections.push(/** @type {Selections} */ (selections.at(-1)).after(ask));
      if (ask.type === "properties") properties.push(changed(/** @type {Properties} */ (properties.at(-1)), ask.set));
    }
    /** @type {Ask[]} */
    const asks = [];
    if (!selections.some((each) => each.equals(selected))) {
      asks.push(...selectionsFrom(selected, /** @type {Selections} */ (selections.at(-1))));
    }
    const actual = users(welcome.properties);
    if (!properties.some((each) => sameProperties(each, actual))) {
      asks.push(propertiesFrom(actual, /** @type {Properties} */ (properties.at(-1))));
    }
    return asks;
  }
}

/**
 * @param {Selections} actual
 * @param {Selections} wanted
 * @returns {Ask[]}
 */
function selectionsFrom(actual, wanted) {
  /** @type {Ask[]} */
  const asks = [];
  const [there, promised] = [actual.toWire(), wanted.toWire()];
  let alike = 0;
  while (alike < Math.min(there.length, promised.length) && there[alike] === promised[alike]) alike += 1;
  let entries = wanted.entries.slice(alike);
  const others = actual.entries.slice(alike);
  // What is there besides does no harm if entries that are asked for again decide about all of it. That must not be taken
  // away: should the reason be that a right was withdrawn, it is what is left of it.
  if (!others.every((other) => entries.some((entry) => covers(entry.selector, other.selector)))) {
    // The order of entries decides, so the list is made anew.
    entries = [...wanted.entries];
    asks.push({ type: "unsubscribe", selector: EVERYTHING });
    for (const { selects, selector } of actual.entries) {
      if (selects && isReserved(selector.text)) asks.push({ type: "unsubscribe", selector: selector.text });
    }
  }
  for (const { selects, selector } of entries) {
    asks.push({ type: selects ? "subscribe" : "unsubscribe", selector: selector.text });
  }
  return asks;
}

/**
 * @param {Properties} actual
 * @param {Properties} wanted
 * @returns {Ask}
 */
function propertiesFrom(actual, wanted) {
  /** @type {Map<string, string | null>} */
  const changes = new Map();
  for (const name of Object.keys(actual)) if (!Object.hasOwn(wanted, name)) changes.set(name, null);
  for (const [name, value] of Object.entries(wanted)) {
    if (!Object.hasOwn(actual, name) || actual[name] !== value) changes.set(name, value);
  }
  return { type: "properties", set: Object.fromEntries(changes) };
}
