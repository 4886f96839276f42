/**
 * Streams of updates: what `subscribe` returns.
 *
 * ```text
 * update ── selector matches? ── version grew? ──┬── queue ── for await
 *                                                │     │
 *                                                │     full: newest per topic
 *                                                └── listener, at once
 * ```
 *
 * **Versions** (protocol 6.4). A stream remembers the versions of the topics it delivered last. A live update passes if its
 * version is higher. A snapshot passes also with an equal version, if the stream has not delivered that topic since it
 * began or since the last failover. A lower version never passes.
 *
 * **Slow consumers.** Up to its bounds every update is kept, in order. Beyond, what waits is folded to the newest update per
 * topic until the queue has been emptied: reading late gives current values and not old ones. What was folded, here or by a
 * node (protocol 5.7.3), is marked on the update that took its place, and counted. If the newest values alone are too many
 * bytes, nothing can be spared any more, and the stream ends.
 *
 * @module
 */

import { guarded, StreamOverflow } from "./errors.js";
import { iterate } from "./iteration.js";
import { ConflatingQueue, Versions } from "./queue.js";
import { matches } from "./selectors.js";

/** Updates a stream keeps before it conflates. */
export const QUEUE_SIZE = 10_000;

/** Bytes of updates a stream keeps before it conflates: some seconds of a busy connection. */
export const QUEUE_BYTES = 64 * 1024 * 1024;

/** Topics for which it is remembered which streams match; beyond, the memory is emptied and fills again. */
const ROUTES_KEPT = 16_384;

/**
 * A topic has a value.
 *
 * @typedef {object} Update
 * @property {string} topic
 * @property {import("./packets.js").JsonValue} value
 * @property {number} version - Grows with every publish to the topic; a stream never yields a lower one than before.
 * @property {string} eventId - Identifies the publish in the whole cluster.
 * @property {boolean} snapshot - Not the successor of the value before: the first one after subscribing, the current one
 *   after a failover.
 * @property {boolean} removed - The topic was removed, and `value` is null; a later publish makes it anew.
 * @property {number} folded - How many updates of the topic this one took the place of since the one before, because they
 *   came faster than they could be sent or read; 0 if none.
 * @property {boolean} gap - Events before it are not kept any more that a stream with history was to have.
 *
 * @typedef {(update: Update) => unknown} UpdateListener
 *
 * @typedef {object} StreamOptions
 * @property {number} [queueSize] - Updates kept before they are conflated.
 * @property {number} [queueBytes] - Bytes of them, likewise.
 * @property {UpdateListener | null} [listener] - Called at once with each update, in place of an iteration.
 * @property {(stream: UpdateStream) => void} [released] - Told once that it has ended, though the session goes on.
 */

/** The updates of the topics that one selector matches; iterate over it with `for await`, or give it a listener. */
export class UpdateStream {
  #selector;
  #listener;
  #released;
  #queue;
  #versions = new Versions();
  /** What was taken out of it. @type {import("./selectors.js").Selector[]} */
  #without = [];
  /** Updates that nodes had folded. */
  #foldedByNodes = 0;
  /** @type {Set<() => void>} */
  #readers = new Set();
  #closed = false;
  /** @type {Error | null} */
  #error = null;

  /**
   * @param {import("./selectors.js").Selector} selector
   * @param {StreamOptions} [options]
   * @throws {TypeError} An option makes no sense.
   */
  constructor(selector, { queueSize = QUEUE_SIZE, queueBytes = QUEUE_BYTES, listener = null, released = () => {} } = {}) {
    for (const [name, value] of Object.entries({ queueSize, queueBytes })) {
      if (typeof value !== "number" || !(value >= 1)) throw new TypeError(`${name} is a number from 1, not ${String(value)}`);
    }
    if (listener !== null && typeof listener !== "function") {
      throw new TypeError(`listener is a function that takes an update, not a ${typeof listener}`);
    }
    this.#selector = selector;
    this.#queue = new ConflatingQueue(queueSize, queueBytes);
    this.#listener = listener;
    this.#released = released;
  }

  /** The selector in canonical form. */
  get selector() {
    return this.#selector.text;
  }

  /** Updates that wait to be read. */
  get waiting() {
    return this.#queue.length;
  }

  /** About how many bytes they have: those of their topics, and of their values as JSON text. */
  get waitingBytes() {
    return this.#queue.bytes;
  }

  /** Updates that newer ones of their topic took the place of, at a node or here. */
  get conflated() {
    return this.#foldedByNodes + this.#queue.conflated;
  }

  /** Whether no further update will be added. */
  get closed() {
    return this.#closed;
  }

  /**
   * Drop what waits and end the iteration. If it is the last stream of its selector, the session's selection ends, too;
   * what other streams want stays selected.
   */
  close() {
    this.#queue.clear();
    if (this.#closed) return;
    this.end(null);
    this.#released(this);
  }

  /**
   * Iterate; each update goes to one of several iterations. Leaving the loop closes the stream.
   *
   * @returns {AsyncIterableIterator<Update>}
   */
  [Symbol.asyncIterator]() {
    return iterate(
      () => {
        const update = this.#queue.take();
        if (update !== null) return { done: false, value: update };
        if (!this.#closed) return null;
        if (this.#error !== null) throw this.#error;
        return { done: true, value: undefined };
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
   * Take an update in that the selector matches, unless its version says that it is old.
   *
   * @param {Update} update
   */
  offer(update) {
    if (this.#closed || !this.#versions.passes(update)) return;
    this.#foldedByNodes += update.folded;
    const listener = this.#listener;
    if (listener === null) {
      this.#queue.push(update);
      if (this.#queue.overflows) {
        this.end(new StreamOverflow(`the newest values that wait to be read have more than ${this.#queue.limit} bytes`));
        this.#released(this);
      }
      this.#wake();
    } else {
      guarded(() => listener(update));
    }
  }

  /**
   * @param {string} topic
   * @returns {boolean}
   */
  wants(topic) {
    return matches(this.#selector, topic) && !this.#without.some((each) => matches(each, topic));
  }

  /**
   * Deliver nothing any more that *selector* matches.
   *
   * @param {import("./selectors.js").Selector} selector
   */
  takeOut(selector) {
    this.#without.push(selector);
  }

  /** Another node serves the session: the current values follow. */
  failedOver() {
    this.#versions.failedOver();
  }

  /** Live updates may not follow what came before; nothing to a stream without history. */
  interrupted() {}

  /** All current values of a subscribe have come; nothing likewise. */
  settled() {}

  /**
   * Add nothing any more; readers get what waits and then stop, or get *error* if there is one.
   *
   * @param {Error | null} error
   */
  end(error) {
    if (this.#closed) return;
    this.#closed = true;
    this.#error = error;
    this.#versions.clear();
    this.#wake();
  }

  #wake() {
    for (const wake of [...this.#readers]) {
      this.#readers.delete(wake);
      wake();
    }
  }
}

/** All streams of a session, and which of them each topic goes to. */
export class Streams {
  /** @type {UpdateStream[]} */
  #streams = [];
  /** @type {Map<string, UpdateStream[]>} */
  #routes = new Map();

  /** @param {UpdateStream} stream */
  add(stream) {
    this.#streams.push(stream);
    this.#routes.clear();
  }

  /** @param {UpdateStream} stream */
  discard(stream) {
    stream.end(null);
    this.#streams = this.#streams.filter((each) => each !== stream);
    this.#routes.clear();
  }

  /**
   * @param {string} selector - In canonical form.
   * @returns {UpdateStream[]} The streams of exactly this selector.
   */
  of(selector) {
    return this.#streams.filter((each) => each.selector === selector);
  }

  /**
   * Take topics out of streams that are wider.
   *
   * @param {UpdateStream[]} streams
   * @param {import("./selectors.js").Selector} selector
   */
  takeOut(streams, selector) {
    for (const stream of streams) stream.takeOut(selector);
    this.#routes.clear();
  }

  /** @param {Update} update */
  dispatch(update) {
    let routes = this.#routes.get(update.topic);
    if (routes === undefined) {
      if (this.#routes.size >= ROUTES_KEPT) this.#routes.clear();
      routes = this.#streams.filter((stream) => stream.wants(update.topic));
      this.#routes.set(update.topic, routes);
    }
    for (const stream of routes) stream.offer(update);
  }

  failedOver() {
    for (const stream of this.#streams) stream.failedOver();
  }

  /** Live updates may not follow what came before. */
  interrupted() {
    for (const stream of this.#streams) stream.interrupted();
  }

  /** All current values of a subscribe have come. */
  settled() {
    for (const stream of this.#streams) stream.settled();
  }

  /** @param {Error | null} error */
  end(error) {
    for (const stream of this.#streams) stream.end(error);
    this.#streams = [];
    this.#routes.clear();
  }
}
