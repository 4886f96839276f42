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
 * **Versions** (protocol 6.4). A stream remembers the version of every topic it has delivered. A live update passes if its
 * version is higher. A snapshot passes also with an equal version, if the stream has not delivered that topic since it
 * began or since the last failover. A lower version never passes.
 *
 * **Slow consumers.** Up to a bound every update is kept, in order. Beyond, what waits is folded to the newest update per
 * topic until the queue has been emptied: reading late gives current values and not old ones.
 *
 * @module
 */

import { matches } from "./selectors.js";

/** Updates a stream keeps before it conflates. */
export const QUEUE_SIZE = 10_000;

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
 *   after a failover, the newest of several that came faster than they could be sent.
 * @property {boolean} removed - The topic was removed, and `value` is null; a later publish makes it anew.
 *
 * @typedef {(update: Update) => void} UpdateListener
 */

/** The updates of the topics that one selector matches; iterate over it with `for await`, or give it a listener. */
export class UpdateStream {
  #selector;
  #size;
  #listener;
  /** @type {Update[]} */
  #queue = [];
  /** @type {Map<string, Update> | null} */
  #folded = null;
  /** @type {Map<string, {version: number, epoch: number}>} */
  #seen = new Map();
  #epoch = 0;
  /** @type {(() => void)[]} */
  #readers = [];
  #closed = false;
  /** @type {Error | null} */
  #error = null;

  /**
   * @param {import("./selectors.js").Selector} selector
   * @param {{queueSize?: number, listener?: UpdateListener | null}} [options]
   */
  constructor(selector, { queueSize = QUEUE_SIZE, listener = null } = {}) {
    if (!(queueSize >= 1)) throw new TypeError(`a stream keeps at least 1 update, not ${queueSize}`);
    this.#selector = selector;
    this.#size = queueSize;
    this.#listener = listener;
    /** Updates that were replaced by newer ones of their topic because this stream was read too slowly. */
    this.conflated = 0;
  }

  /** The selector in canonical form. */
  get selector() {
    return this.#selector.text;
  }

  /** Updates that wait to be read. */
  get waiting() {
    return this.#queue.length + (this.#folded?.size ?? 0);
  }

  /** Whether no further update will be added. */
  get closed() {
    return this.#closed;
  }

  /** Drop what waits and end the iteration. The session keeps its selection; see `Session.unsubscribe`. */
  close() {
    this.#queue = [];
    this.#folded = null;
    this.end(null);
  }

  /**
   * Iterate; each update goes to one of several iterations. Leaving the loop closes the stream.
   *
   * @returns {AsyncGenerator<Update, void, undefined>}
   */
  async *[Symbol.asyncIterator]() {
    try {
      for (;;) {
        const update = this.#take();
        if (update !== null) {
          yield update;
        } else if (this.#closed) {
          if (this.#error !== null) throw this.#error;
          return;
        } else {
          await new Promise((/** @type {(value: void) => void} */ resolve) => this.#readers.push(resolve));
        }
      }
    } finally {
      this.close();
    }
  }

  #take() {
    if (this.#folded !== null) {
      const [[topic, update]] = /** @type {[[string, Update]]} */ ([this.#folded.entries().next().value]);
      this.#folded.delete(topic);
      if (this.#folded.size === 0) this.#folded = null;
      return update;
    }
    return this.#queue.shift() ?? null;
  }

  // --- For the session ----------------------------------------------------------------------------------------------

  /**
   * Take an update in that the selector matches, unless its version says that it is old.
   *
   * @param {Update} update
   */
  offer(update) {
    if (this.#closed || !this.#passes(update)) return;
    if (this.#listener !== null) {
      try {
        this.#listener(update);
      } catch (error) {
        report(error);
      }
      return;
    }
    this.#push(update);
    this.#wake();
  }

  /** @param {Update} update */
  #push(update) {
    if (this.#folded === null && this.#queue.length < this.#size) {
      this.#queue.push(update);
      return;
    }
    this.#folded ??= new Map();
    for (const each of [...this.#queue.splice(0), update]) {
      if (this.#folded.has(each.topic)) this.conflated += 1;
      this.#folded.set(each.topic, each);
    }
  }

  /** @param {Update} update */
  #passes({ topic, version, snapshot }) {
    const seen = this.#seen.get(topic);
    if (seen !== undefined) {
      if (version < seen.version) return false;
      if (version === seen.version && !(snapshot && seen.epoch < this.#epoch)) return false;
    }
    this.#seen.set(topic, { version, epoch: this.#epoch });
    return true;
  }

  /**
   * @param {string} topic
   * @returns {boolean}
   */
  wants(topic) {
    return matches(this.#selector, topic);
  }

  /** Another node serves the session: the current values follow. */
  failedOver() {
    this.#epoch += 1;
  }

  /**
   * Add nothing any more; readers get what waits and then stop, or get *error* if there is one.
   *
   * @param {Error | null} error
   */
  end(error) {
    if (this.#closed) return;
    this.#closed = true;
    this.#error = error;
    this.#wake();
  }

  #wake() {
    for (const wake of this.#readers.splice(0)) wake();
  }
}

/**
 * Report a bug of the application like any other of it; it must not harm the session.
 *
 * @param {unknown} error
 */
function report(error) {
  if (typeof reportError === "function") {
    reportError(error);
  } else {
    queueMicrotask(() => {
      throw error;
    });
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
    this.#streams = this.#streams.filter(({ closed }) => !closed);
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
   * End the streams of exactly this selector.
   *
   * @param {string} selector - In canonical form.
   */
  unsubscribe(selector) {
    for (const stream of this.#streams.filter((each) => each.selector === selector)) this.discard(stream);
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

  /** @param {Error | null} error */
  end(error) {
    for (const stream of this.#streams) stream.end(error);
    this.#streams = [];
    this.#routes.clear();
  }
}
