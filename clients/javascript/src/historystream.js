/**
 * Streams of topics with history: what `subscribe` with `start` returns. They are driven by `LogReader`.
 *
 * @module
 */

import { PositionGone } from "./errors.js";
import { iterate } from "./iteration.js";
import { LogReader } from "./logreader.js";
import { QUEUE_SIZE, UpdateStream } from "./streams.js";

/**
 * @typedef {import("./streams.js").Update} Update
 * @typedef {import("./packets.js").HistoryPart} HistoryPart
 *
 * @typedef {object} HistorySource - What such a stream needs of its session.
 * @property {(ask: {selector: string, after: Record<string, string>, earliest: boolean, limit?: number | undefined},
 *   options?: import("./sender.js").CallOptions) => Promise<HistoryPart>} readHistory
 * @property {import("./positions.js").Positions} positions
 *
 * @typedef {object} HistoryOptions
 * @property {string} start - `earliest`, `now`, or a position.
 * @property {"tell" | "refuse"} [onGap] - `tell` marks the first update behind a gap, `refuse` throws `PositionGone`.
 * @property {number} [queueSize] - Live updates kept for a slow reader; others are read from the history later.
 * @property {(stream: UpdateStream) => void} [released] - Told once that it has ended, though the session goes on.
 */

/** The events of the topics that one selector matches, from a place on: each once, in order, none folded. */
export class HistoryStream extends UpdateStream {
  #source;
  #reader;
  #refuses;
  #asking = false;
  /** @type {unknown} */
  #failure = null;
  /** @type {Error | null} */
  #endedBy = null;
  /** @type {Set<() => void>} */
  #waiting = new Set();

  /**
   * @param {import("./selectors.js").Selector} selector
   * @param {HistorySource} source
   * @param {HistoryOptions} options
   * @throws {import("./errors.js").InvalidPosition} *start* is no position.
   */
  constructor(selector, source, { start, onGap = "tell", queueSize = QUEUE_SIZE, released = () => {} }) {
    super(selector, { queueSize, released });
    if (onGap !== "tell" && onGap !== "refuse") throw new TypeError(`onGap is "tell" or "refuse", not ${String(onGap)}`);
    this.#source = source;
    this.#refuses = onGap === "refuse";
    this.#reader = new LogReader(start, queueSize);
  }

  /**
   * Up to where all has been had: to be stored, and given as `start` to a stream of the same selector. An update counts as
   * had when the next one is asked for; null if nothing has been had since the earliest event.
   */
  get position() {
    return this.#reader.position;
  }

  /** Say that the update which was taken last is done; asking for the next one does so, too. */
  done() {
    this.#reader.consume();
  }

  /** @override */
  get waiting() {
    return this.#reader.length;
  }

  /**
   * @override
   * @returns {AsyncIterableIterator<Update>}
   */
  [Symbol.asyncIterator]() {
    return iterate(
      () => this.#take(),
      (wake) => {
        this.#waiting.add(wake);
        this.#read();
        return () => this.#waiting.delete(wake);
      },
      () => this.close(),
    );
  }

  /** @override */
  close() {
    this.#reader.drop();
    super.close();
  }

  // --- For the session ----------------------------------------------------------------------------------------------

  /**
   * Find out where the partitions are, for who begins now.
   *
   * @param {import("./sender.js").CallOptions} [options]
   */
  async begin(options) {
    if (this.#reader.earliest) return;
    await this.#ask(options, 0);
    this.#reader.consume();
  }

  /**
   * @override
   * @param {Update} update
   */
  offer(update) {
    if (this.closed) return;
    this.#reader.offer(update);
    this.#wake();
  }

  /** @override */
  failedOver() {
    this.interrupted();
  }

  /**
   * Live updates may not follow what came before.
   *
   * @override
   */
  interrupted() {
    this.#reader.interrupt();
    this.#wake();
  }

  /**
   * The session may be live again.
   *
   * @override
   */
  settled() {
    this.#reader.wake();
    this.#wake();
  }

  /**
   * @override
   * @param {Error | null} error
   */
  end(error) {
    if (!this.closed) this.#endedBy = error;
    super.end(error);
    this.#wake();
  }

  // --- Inside -------------------------------------------------------------------------------------------------------

  /** @returns {IteratorResult<Update, undefined> | null} */
  #take() {
    const reader = this.#reader;
    reader.consume();
    if (reader.isAtGap && this.#refuses) {
      // It is not taken out: nobody has had it, and the position is in front of it.
      const of = reader.missing.length === 0 ? "its topics" : reader.missing.join(", ");
      throw new PositionGone(`events behind the position are not kept any more, of ${of}`);
    }
    const update = reader.take();
    if (update !== undefined) return { done: false, value: update };
    if (this.#failure !== null) {
      const failure = this.#failure;
      this.#failure = null;
      throw failure;
    }
    if (!this.closed) return null;
    if (this.#endedBy !== null) throw this.#endedBy;
    return { done: true, value: undefined };
  }

  /** Ask for a page, if that is what is missing. */
  #read() {
    if (this.#asking || this.closed || this.#reader.isLive || this.#reader.isWaiting) return;
    this.#asking = true;
    // A page is waited for as long as the session lives, whatever limit its calls have.
    this.#ask({ timeout: Infinity })
      .catch((error) => {
        if (!this.closed) this.#failure = error;
      })
      .finally(() => {
        this.#asking = false;
        this.#wake();
      });
  }

  /**
   * @param {import("./sender.js").CallOptions} [options]
   * @param {number} [limit]
   */
  async #ask(options, limit) {
    const { positions } = this.#source;
    const { interruptions, settled } = positions;
    const { after, earliest } = this.#reader;
    const part = await this.#source.readHistory({ selector: this.selector, after, earliest, limit }, options);
    const holds =
      positions.interruptions === interruptions && Object.keys(part.positions).every((each) => settled.has(each));
    if (this.closed) return;
    this.#reader.answered(part, holds);
    const now = positions.settled;
    const changed = now.size !== settled.size || [...now].some((each) => !settled.has(each));
    // What it would wait for has come while the page was under way.
    if (changed || positions.interruptions !== interruptions) this.#reader.wake();
  }

  #wake() {
    for (const wake of [...this.#waiting]) {
      this.#waiting.delete(wake);
      wake();
    }
  }
}

/**
 * Read the history of a topic, as far as it goes or up to *limit* events.
 *
 * @param {HistorySource["readHistory"]} ask - Asks for a page.
 * @param {string} topic
 * @param {string} start - `earliest`, or a position.
 * @param {number} limit
 * @returns {Promise<Update[]>} The oldest first.
 */
export async function readHistory(ask, topic, start, limit) {
  const reader = new LogReader(start, 1);
  /** @type {Update[]} */
  const events = [];
  for (;;) {
    const part = await ask({ selector: topic, after: reader.after, earliest: true, limit: limit - events.length });
    reader.answered(part, false);
    for (let update = reader.take(); update !== undefined && events.length < limit; update = reader.take()) {
      events.push(update);
    }
    if (part.complete || events.length >= limit) return events;
  }
}
