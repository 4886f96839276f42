/**
 * Who has subscribed to a tree of topics: what `presence` returns.
 *
 * It is told by topics (protocol 20), so that watching needs nothing but streams: what was there before comes as
 * snapshots, and every recovery goes on by itself.
 *
 * @module
 */

import { guarded } from "./errors.js";
import { iterate } from "./iteration.js";

/** The root of the topics that tell it. */
const ROOT = "$presence";

/**
 * Somebody who has subscribed to topics of the tree.
 *
 * @typedef {object} Member
 * @property {string} sessionId - Whose session it is.
 * @property {string} principal - Who it belongs to.
 * @property {Readonly<Record<string, string>>} properties - Those that the tree's destination shows.
 *
 * @typedef {object} PresenceEvent
 * @property {"joined" | "changed" | "left" | "count"} kind - Of a member, or `count`.
 * @property {Member | null} member - Who; null for `count`.
 * @property {number} count - How many there are, as it was told last: once a second while it changes.
 *
 * @typedef {(event: PresenceEvent) => unknown} PresenceListener
 *
 * @typedef {object} PresenceOptions
 * @property {boolean} [members] - Whether it is told who they are; else only how many.
 * @property {PresenceListener | null} [listener] - Called at once with each event, in place of an iteration.
 */

/**
 * Name the topics of a tree: of the count, and what those of members begin with.
 *
 * @param {string} tree
 * @returns {{ count: string, members: string }}
 */
export function topicsOf(tree) {
  return { count: `${ROOT}/${tree}/$count`, members: `${ROOT}/${tree}/$members/` };
}

/** Who has subscribed to a tree; iterate over it with `for await` to hear who comes and goes, or give it a listener. */
export class Presence {
  #tree;
  #begins;
  #listener;
  #count = 0;
  #listed = 0;
  /** @type {Map<string, Member>} */
  #members = new Map();
  /** What was told: by event, or to whoever iterates. @type {Map<string, Member>} */
  #seen = new Map();
  /** Topics of which there is something to be told, the oldest first. @type {Set<string>} */
  #pending = new Set();
  /** @type {Set<() => void>} */
  #readers = new Set();
  /** @type {{ close(): void }[]} */
  #streams = [];
  #closed = false;

  /**
   * @param {string} tree
   * @param {PresenceListener | null} listener
   */
  constructor(tree, listener) {
    if (listener !== null && typeof listener !== "function") {
      throw new TypeError(`listener is a function that takes an event, not a ${typeof listener}`);
    }
    this.#tree = tree;
    this.#begins = topicsOf(tree).members;
    this.#listener = listener;
  }

  /** The path of the tree. */
  get tree() {
    return this.#tree;
  }

  /** How many there are, over all nodes, as it was told last: once a second while it changes. */
  get count() {
    return this.#count;
  }

  /** Of how many of these it is told who they are. */
  get listed() {
    return this.#listed;
  }

  /**
   * Those of whom it was told, by the ids of their sessions.
   *
   * @returns {ReadonlyMap<string, Member>}
   */
  get members() {
    return this.#members;
  }

  /** Whether nothing further will be told. */
  get closed() {
    return this.#closed;
  }

  /** Hear nothing more. */
  close() {
    if (this.#closed) return;
    this.#closed = true;
    this.#pending.clear();
    for (const stream of this.#streams) stream.close();
    this.#wake();
  }

  /**
   * Iterate; each event goes to one of several iterations. Leaving the loop closes it.
   *
   * @returns {AsyncIterableIterator<PresenceEvent>}
   */
  [Symbol.asyncIterator]() {
    return iterate(
      () => {
        const event = this.#next();
        if (event !== null) return { done: false, value: event };
        return this.#closed ? { done: true, value: undefined } : null;
      },
      (wake) => {
        this.#readers.add(wake);
        return () => this.#readers.delete(wake);
      },
      () => this.close(),
    );
  }

  // --- For the session ----------------------------------------------------------------------------------------------

  /**
   * Keep a stream that tells it, to be closed with it.
   *
   * @param {{ close(): void }} stream
   */
  hold(stream) {
    if (this.#closed) stream.close();
    else this.#streams.push(stream);
  }

  /** A stream that tells it has ended: so has this. */
  ended() {
    this.close();
  }

  /**
   * Take in what was told.
   *
   * @param {import("./streams.js").Update} update
   */
  told({ topic, value, removed }) {
    const told = /** @type {any} */ (value) ?? {};
    if (topic.startsWith(this.#begins)) {
      const session = topic.slice(this.#begins.length);
      if (removed) this.#members.delete(session);
      else this.#members.set(session, member(session, told));
    } else {
      this.#count = told.count ?? 0;
      this.#listed = told.listed ?? 0;
    }
    this.#pending.delete(topic);
    this.#pending.add(topic);
    const listener = this.#listener;
    if (listener === null) return this.#wake();
    const event = this.#next();
    if (event !== null) guarded(() => listener(event));
  }

  /** @returns {PresenceEvent | null} */
  #next() {
    for (const topic of this.#pending) {
      this.#pending.delete(topic);
      const event = this.#event(topic);
      if (event !== null) return event;
    }
    return null;
  }

  /**
   * @param {string} topic
   * @returns {PresenceEvent | null}
   */
  #event(topic) {
    const count = this.#count;
    if (!topic.startsWith(this.#begins)) return { kind: "count", member: null, count };
    const session = topic.slice(this.#begins.length);
    const [before, now] = [this.#seen.get(session), this.#members.get(session)];
    if (now === undefined) {
      this.#seen.delete(session);
      return before === undefined ? null : { kind: "left", member: before, count };
    }
    this.#seen.set(session, now);
    if (before !== undefined && same(before, now)) return null;
    return { kind: before === undefined ? "joined" : "changed", member: now, count };
  }

  #wake() {
    for (const wake of [...this.#readers]) wake();
  }
}

/**
 * @param {string} sessionId
 * @param {{ principal?: unknown, properties?: unknown }} told
 * @returns {Member}
 */
function member(sessionId, told) {
  const properties = Object.entries(told.properties ?? {}).map(([name, value]) => [name, String(value)]);
  return { sessionId, principal: String(told.principal ?? ""), properties: Object.freeze(Object.fromEntries(properties)) };
}

/**
 * @param {Member} one
 * @param {Member} other
 * @returns {boolean}
 */
function same(one, other) {
  return one.principal === other.principal && JSON.stringify(one.properties) === JSON.stringify(other.properties);
}
