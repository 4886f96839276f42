/**
 * Streams of durable subscriptions: what `subscribeDurable` returns, and how what was read is acknowledged.
 *
 * The stream itself is a `HistoryStream`. What is added is where it begins, which the grid knows, and that the grid is told
 * how far it came.
 *
 * @module
 */

import { RequestRefused, RequestTimedOut } from "./errors.js";
import { parsePosition } from "./logreader.js";

/** The word with which a node says that it knows durable subscriptions. */
export const DURABLES = "durables";

/** Seconds between two acknowledgements that leave by themselves. */
const SPACING = 0.1;

/**
 * @typedef {import("./sender.js").CallOptions} CallOptions
 * @typedef {import("./streams.js").Update} Update
 * @typedef {(ask: import("./requests.js").Ask, options?: CallOptions) => Promise<unknown>} Request
 */

/**
 * The events of a durable subscription: each once, in order, from where its last reader was done.
 *
 * An update is done when the next one is asked for, and then acknowledged by itself (`ack: "auto"`), or by `acknowledge`
 * (`ack: "client"`).
 */
export class DurableStream {
  #request;
  #stream;
  #isAuto;
  /** @type {string | null} */
  #told;
  /** @type {ReturnType<typeof setTimeout> | null} */
  #timer = null;
  #telling = false;
  /** @type {RequestRefused | null} */
  #lost = null;

  /**
   * @param {Request} request
   * @param {string} name
   * @param {import("./historystream.js").HistoryStream} stream
   * @param {{ack: "auto" | "client", created: boolean}} options
   */
  constructor(request, name, stream, { ack, created }) {
    this.#request = request;
    this.#stream = stream;
    this.#isAuto = ack === "auto";
    this.#told = stream.position;
    /** What the principal calls it. */
    this.name = name;
    /** Whether there was none before. */
    this.created = created;
  }

  /** Which topics, in canonical form. */
  get selector() {
    return this.#stream.selector;
  }

  /** Up to where the application has had everything; the grid may not know yet. */
  get position() {
    return this.#stream.position;
  }

  /** Whether it gives no more updates. */
  get closed() {
    return this.#stream.closed;
  }

  /** @returns {AsyncIterableIterator<Update>} */
  [Symbol.asyncIterator]() {
    const updates = this.#stream[Symbol.asyncIterator]();
    /** @type {AsyncIterableIterator<Update>} */
    const iterator = {
      next: async () => {
        this.#stream.done();
        if (this.#isAuto) this.#tellSoon();
        if (this.#lost !== null) throw this.#lost;
        const found = await updates.next();
        if (found.done && this.#lost !== null) throw this.#lost;
        return found;
      },
      // Leaving the loop closes the stream as it does others, and what was done by then is told.
      return: async () => {
        await this.close();
        return { done: true, value: undefined };
      },
      [Symbol.asyncIterator]: () => iterator,
    };
    return iterator;
  }

  /**
   * Say that all updates which were taken so far are done; settles once the grid knows.
   *
   * @param {CallOptions} [options]
   * @throws {import("./errors.js").DurableInUse} Another session has taken it, and reads on from what was acknowledged before.
   * @throws {import("./errors.js").NoSuchDurable} It was removed.
   */
  async acknowledge(options) {
    this.#stream.done();
    await this.#tell(options);
  }

  /**
   * Have the grid told what acknowledges itself, of all updates but the last one that was taken.
   *
   * @param {CallOptions} [options]
   */
  async flush(options) {
    if (this.#isAuto && !this.closed) await this.#tell(options);
  }

  /**
   * End the stream, and let other sessions use the subscription; it stays, with its place.
   *
   * @param {CallOptions} [options]
   */
  async close(options) {
    if (this.closed) return;
    try {
      await this.flush(options);
    } finally {
      if (this.#timer !== null) clearTimeout(this.#timer);
      this.#timer = null;
      this.#stream.close();
    }
    await this.#request({ type: "durable-release", name: this.name }, options);
  }

  /** @param {CallOptions} [options] */
  async #tell(options) {
    if (this.#lost !== null) throw this.#lost;
    const position = this.position;
    if (position === null || position === this.#told) return;
    const positions = Object.fromEntries(parsePosition(position));
    try {
      await this.#request({ type: "durable-advance", name: this.name, positions }, options);
    } catch (error) {
      if (error instanceof RequestRefused) {
        this.#lost = error;
        this.#stream.close();
      }
      throw error;
    }
    this.#told = position;
  }

  #tellSoon() {
    if (this.#telling || this.#timer !== null || this.closed || this.position === this.#told) return;
    this.#telling = true;
    this.#tell()
      .then(
        () => true,
        // What took the subscription or the session away tells itself to the reader.
        (error) => error instanceof RequestTimedOut,
      )
      .then((goesOn) => {
        this.#telling = false;
        if (!goesOn || this.closed) return;
        this.#timer = setTimeout(() => {
          this.#timer = null;
          this.#tellSoon();
        }, SPACING * 1000);
      });
  }
}
