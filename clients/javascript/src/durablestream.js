/**
 * Streams of durable subscriptions: what `subscribeDurable` returns, and how what was read is acknowledged.
 *
 * The stream itself is a `HistoryStream`. What is added is where it begins, which the grid knows, and that the grid is told
 * how far it came.
 *
 * @module
 */

import { checkCall } from "./calls.js";
import { RequestRefused, RequestTimedOut, SessionEnded } from "./errors.js";
import { parsePosition } from "./logreader.js";

/** The word with which a node says that it knows durable subscriptions. */
export const DURABLES = "durables";

/** Seconds between two acknowledgements that leave by themselves. */
const SPACING = 0.1;

/**
 * @typedef {import("./sender.js").CallOptions} CallOptions
 * @typedef {import("./streams.js").Update} Update
 * @typedef {import("./calls.js").Calls} Calls
 */

/**
 * Open a durable subscription; see `Session.subscribeDurable`.
 *
 * @param {Calls} calls
 * @param {Extract<import("./requests.js").Ask, {type: "durable-open"}>} ask
 * @param {CallOptions} options - Of each call.
 * @param {object} how
 * @param {"auto" | "client"} how.mode - How it is acknowledged.
 * @param {(queue: string) => Promise<import("./consumers.js").MessageConsumer>} how.consume - Of one that is shared.
 * @param {(begin: string) => Promise<import("./historystream.js").HistoryStream>} how.subscribe
 * @returns {Promise<DurableStream | import("./consumers.js").MessageConsumer>}
 */
export async function openDurable(calls, ask, options, { mode, consume, subscribe }) {
  checkCall(options);
  const { name } = ask;
  let isOpen = false;
  try {
    const { durable } = await calls.request(ask, options);
    isOpen = true;
    if (durable !== null && durable.queue !== null) return consume(durable.queue); // which undoes itself
    const places = Object.entries(durable?.positions ?? {}).sort(([one], [other]) => Number(one) - Number(other));
    const begin = places.length === 0 ? "earliest" : places.map(([, event]) => event).join(",");
    return new DurableStream(calls, name, await subscribe(begin), { ack: mode, created: durable?.created ?? false });
  } catch (error) {
    const isRefused = error instanceof RequestRefused;
    if (isRefused && !isOpen) throw error;
    // It may be open, and then nobody else could use it; one that is shared means nothing by this.
    const released = calls.begin({ type: "durable-release", name });
    if (isRefused) await calls.wait([released], options).catch(() => {});
    throw error;
  }
}

/**
 * The events of a durable subscription: each once, in order, from where its last reader was done.
 *
 * An update is done when the next one is asked for, and then acknowledged by itself (`ack: "auto"`), or by `acknowledge`
 * (`ack: "client"`).
 */
export class DurableStream {
  #calls;
  #stream;
  #isAuto;
  /** @type {string | null} */
  #told;
  /** @type {ReturnType<typeof setTimeout> | null} */
  #timer = null;
  #telling = false;
  /** @type {RequestRefused | null} */
  #lost = null;
  /** The answer to its release. @type {Promise<import("./requests.js").Reply> | null} */
  #releasing = null;

  /**
   * @param {Calls} calls
   * @param {string} name
   * @param {import("./historystream.js").HistoryStream} stream
   * @param {{ack: "auto" | "client", created: boolean}} options
   */
  constructor(calls, name, stream, { ack, created }) {
    this.#calls = calls;
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
   * A time limit, or a signal, ends the wait, and what was read last may be read again; the subscription is released
   * nevertheless. Closing twice does no harm.
   *
   * @param {CallOptions} [options]
   */
  async close(options) {
    checkCall(options);
    const wasClosed = this.closed;
    try {
      await this.flush(options);
    } finally {
      if (this.#timer !== null) clearTimeout(this.#timer);
      this.#timer = null;
      this.#stream.close();
      if (this.#lost === null) this.#releasing ??= this.#calls.begin({ type: "durable-release", name: this.name });
    }
    if (this.#releasing === null) return;
    try {
      await this.#calls.wait([this.#releasing], options);
    } catch (error) {
      if (!wasClosed || !(error instanceof SessionEnded)) throw error;
    }
  }

  /** @param {CallOptions} [options] */
  async #tell(options) {
    if (this.#lost !== null) throw this.#lost;
    const position = this.position;
    if (position === null || position === this.#told) return;
    const positions = Object.fromEntries(parsePosition(position));
    try {
      await this.#calls.request({ type: "durable-advance", name: this.name, positions }, options);
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
