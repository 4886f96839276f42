/**
 * Messages of queues: what `consume` returns, and what a session knows of the messages that it has (protocol 13).
 *
 * ```text
 * message ── new? ── queue ── for await ── accept, reject, release
 *              │
 *              no: it came again after the session moved; once more, marked, if packet numbers began anew
 * ```
 *
 * @module
 */

import { checkCall } from "./calls.js";
import { encodeValue } from "./content.js";
import { checkDuration } from "./environment.js";
import { NotHeld, RequestRefused, SessionEnded } from "./errors.js";
import { iterate } from "./iteration.js";
import { checkTopic, isReserved } from "./selectors.js";

/** The word of a server that knows queues (protocol 13.1). */
export const QUEUES = "queues";

/** Messages that a consumer may hold, unless it is told otherwise. */
export const DEFAULT_CREDIT = 32;

/** What a node grants at most. */
export const MOST_CREDIT = 1000;

/** Deliveries that are remembered though they are settled: four times what a session may hold. */
const REMEMBERED = 4096;

/** Times its credit that a consumer keeps for a reader that is slow, before it asks for no more. */
const PAUSED_AT = 2;

/**
 * @typedef {import("./packets.js").MessageBody} MessageBody
 * @typedef {import("./sender.js").CallOptions} CallOptions
 * @typedef {"auto" | "each" | "client" | "none"} Ack - How messages are settled: when they have been received here; by
 *   `accept`, `reject` or `release` of each; likewise, where `accept` includes all before; before they are sent.
 * @typedef {"accept" | "reject" | "release"} Settlement
 * @typedef {import("./calls.js").Calls} Calls
 * @typedef {import("./calls.js").Request} Request
 * @typedef {import("./requests.js").Reply} Reply
 *
 * @typedef {Extract<import("./requests.js").Ask, {type: "settle"}>} Settle
 * @typedef {{consumer: MessageConsumer, ask: Settle}} Staged - What a transaction settles.
 */

/**
 * Tell what is asked to send a message.
 *
 * @param {string} queue
 * @param {unknown} value
 * @param {{headers?: Record<string, string> | undefined, delay?: number | undefined, expires?: number | undefined}} options
 * @returns {Extract<import("./requests.js").Ask, {type: "send"}>}
 */
export function sendOf(queue, value, { headers, delay, expires }) {
  for (const [name, seconds] of Object.entries({ delay, expires })) if (seconds !== undefined) checkDuration(name, seconds);
  return {
    type: "send",
    queue: checkTopic(queue),
    text: encodeValue(value),
    ...(headers === undefined ? {} : { headers: { ...headers } }),
    ...(delay === undefined ? {} : { delay }),
    ...(expires === undefined ? {} : { expires }),
  };
}

/** A message of a queue. */
export class Message {
  #consumer;
  #delivery;
  /** Settlements that were asked for, and whose answers nobody was told yet. @type {Map<Settlement, Promise<Reply>[]>} */
  #untold = new Map();

  /**
   * @param {MessageBody} packet
   * @param {MessageConsumer} consumer - That settles it.
   */
  constructor(packet, consumer) {
    this.#consumer = consumer;
    this.#delivery = packet.delivery;
    /** Its queue. */
    this.queue = packet.queue;
    /** Identifies it in its queue, and rises. */
    this.id = packet.message;
    /** What was sent. */
    this.value = packet.value;
    /** Texts by name, as its sender gave them. */
    this.headers = Object.freeze(packet.headers);
    /** When it was sent, in milliseconds since 1970. */
    this.sent = packet.sent;
    /** How often it was delivered before, and failed for certain. */
    this.deliveries = packet.deliveries;
    /** Whether somebody may have received it before. */
    this.redelivered = packet.redelivered;
  }

  /**
   * Say that it is done; settles once the grid has forgotten it. There is nothing to be done with `auto` and `none`.
   *
   * A time limit, or a signal, ends the wait and nothing else, here and below; the same call again waits on.
   *
   * @param {CallOptions} [options]
   * @throws {NotHeld} The session does not hold it any more, and another consumer may have it.
   */
  async accept(options) {
    await this.#settle("accept", options);
  }

  /**
   * Make it a dead letter, which nobody is given.
   *
   * @param {CallOptions} [options]
   */
  async reject(options) {
    await this.#settle("reject", options);
  }

  /**
   * Give it back: it goes to its place in the queue, as a delivery that failed.
   *
   * @param {CallOptions & {delay?: number}} [options] - Seconds until somebody may be given it again.
   */
  async release({ delay = 0, ...options } = {}) {
    checkDuration("delay", delay);
    await this.#settle("release", options, delay);
  }

  /**
   * @param {Settlement} outcome
   * @param {CallOptions} [options]
   * @param {number} [delay]
   */
  async #settle(outcome, options, delay = 0) {
    checkCall(options);
    const answers = this.#untold.get(outcome) ?? this.#consumer.settle(this.#delivery, outcome, delay);
    this.#untold.set(outcome, answers);
    try {
      await this.#consumer.wait(answers, options);
    } catch (error) {
      if (error instanceof RequestRefused || error instanceof SessionEnded) this.#untold.delete(outcome);
      throw error;
    }
    this.#untold.delete(outcome);
  }

  /**
   * Take it, to settle it within a transaction; for `Transaction`.
   *
   * @param {Settlement} outcome
   * @param {number} delay
   * @returns {Staged[]}
   */
  stage(outcome, delay) {
    return this.#consumer.take(this.#delivery, outcome, delay).map((ask) => ({ consumer: this.#consumer, ask }));
  }
}

/** Messages of one queue; iterate over it with `for await`. It outlives connections and nodes as its session does. */
export class MessageConsumer {
  #calls;
  #over;
  #ack;
  /** @type {Message[]} */
  #messages = [];
  /** Ids of the messages that the application has to settle, by delivery, in order. @type {Map<number, number>} */
  #unsettled = new Map();
  /** Those of them that may come again, as packet numbers have begun anew. @type {Set<number>} */
  #again = new Set();
  /** Those of which the application has said what becomes of them, and whose settlement has no answer yet. @type {Set<number>} */
  #settling = new Set();
  /** Deliveries that were received and settle themselves. @type {Set<number>} */
  #done = new Set();
  #newest = 0;
  #owed = 0;
  #paused = false;
  #closed = false;
  /** The answer to its cancellation. @type {Promise<Reply> | null} */
  #cancelling = null;
  /** @type {Error | null} */
  #error = null;
  /** @type {Set<() => void>} */
  #readers = new Set();

  /**
   * @param {string} queue
   * @param {{credit: number, ack: Ack, calls: Calls, over: (consumer: MessageConsumer) => void}} details
   */
  constructor(queue, { credit, ack, calls, over }) {
    /** The queue's path. */
    this.queue = queue;
    this.credit = credit;
    this.#ack = ack;
    this.#calls = calls;
    this.#over = over;
  }

  /** Messages that wait to be read. */
  get waiting() {
    return this.#messages.length;
  }

  /** Whether no further message will come. */
  get closed() {
    return this.#closed;
  }

  get #isSettledHere() {
    return this.#ack === "each" || this.#ack === "client";
  }

  /** What asks for it, at first and wherever the session goes on. */
  get ask() {
    const mode = this.#ack === "client" ? /** @type {const} */ ("each") : this.#ack;
    const credit = this.#paused ? 0 : this.credit;
    return { type: /** @type {const} */ ("consume"), queue: this.queue, credit, mode };
  }

  /**
   * Consume no more; what is held goes back to its place. A time limit, or a signal, ends the wait and nothing else.
   * Cancelling twice does no harm.
   *
   * @param {CallOptions} [options]
   */
  async cancel(options) {
    checkCall(options);
    if (!this.#closed) {
      this.end(null);
      this.#messages.length = 0;
      this.#cancelling = this.#calls.begin({ type: "cancel", queue: this.queue });
    }
    if (this.#cancelling !== null) await this.#calls.wait([this.#cancelling], options);
  }

  /** @returns {AsyncIterableIterator<Message>} */
  [Symbol.asyncIterator]() {
    return iterate(
      () => {
        const message = this.#messages.shift();
        if (message !== undefined) {
          if (this.#paused && this.#messages.length <= this.credit / 2) this.#allow(true);
          return { done: false, value: message };
        }
        if (!this.#closed) return null;
        if (this.#error !== null) throw this.#error;
        return { done: true, value: undefined };
      },
      (wake) => {
        this.#readers.add(wake);
        return () => this.#readers.delete(wake);
      },
    );
  }

  /**
   * Settle a message in any case; see `Message`.
   *
   * @param {number} delivery
   * @param {Settlement} outcome
   * @param {number} [delay]
   * @returns {Promise<Reply>[]}
   */
  settle(delivery, outcome, delay = 0) {
    if (!this.#isSettledHere && outcome === "accept") return [];
    return this.take(delivery, outcome, delay).map((ask) => {
      const answer = this.#calls.begin(ask);
      const staged = { consumer: this, ask };
      answer.then(
        () => this.unstage(staged, true),
        // What was refused the application has still, unless it is for that that it has not.
        (error) => this.unstage(staged, !(error instanceof RequestRefused) || error instanceof NotHeld),
      );
      return answer;
    });
  }

  /**
   * Wait for the answers to what `settle` has asked for.
   *
   * @param {Promise<Reply>[]} answers
   * @param {CallOptions} [options]
   */
  async wait(answers, options) {
    await this.#calls.wait(answers, options);
  }

  /**
   * Take a message, or with `client` also those before it, out of what the application has to settle. Until it is told of an
   * end, they are nothing new.
   *
   * @param {number} delivery
   * @param {Settlement} outcome
   * @param {number} delay
   * @returns {Settle[]} What is to be asked.
   */
  take(delivery, outcome, delay) {
    if (!this.#isSettledHere) throw new TypeError(`a consumer with ack "${this.#ack}" settles by itself; use "each" or "client"`);
    if (!this.#unsettled.has(delivery)) throw new NotHeld("the message was settled already, or its consumer was cancelled");
    const isForAll = this.#ack === "client" && outcome === "accept";
    /** @type {[number, number][]} */
    const messages = [];
    for (const [each, id] of this.#unsettled) {
      if (each === delivery || (isForAll && each < delivery)) messages.push([id, each]);
    }
    for (const [, each] of messages) {
      this.#unsettled.delete(each);
      this.#again.delete(each);
      this.#settling.add(each);
    }
    /** @type {Settle[]} */
    const asks = [];
    for (let start = 0; start < messages.length; start += MOST_CREDIT) {
      const part = messages.slice(start, start + MOST_CREDIT);
      const later = delay > 0 ? { delay } : {};
      asks.push({ type: "settle", queue: this.queue, as: outcome, messages: part, ...later });
    }
    return asks;
  }

  /**
   * What settles messages has its answer.
   *
   * @param {Staged} staged
   * @param {boolean} done - If not, they can be settled otherwise.
   */
  unstage({ ask }, done) {
    for (const [, each] of ask.messages) this.#settling.delete(each);
    if (!done && !this.#closed) for (const [id, delivery] of ask.messages) this.#unsettled.set(delivery, id);
  }

  // --- For the session ----------------------------------------------------------------------------------------------

  /**
   * Take in a message, unless the application has it.
   *
   * @param {MessageBody} packet
   * @returns {boolean} Whether an acknowledgement is due before its time: half of what it may hold waits for that.
   */
  received(packet) {
    const { delivery } = packet;
    const isKnown = delivery <= this.#newest;
    this.#newest = Math.max(this.#newest, delivery);
    if (!this.#isSettledHere) {
      if (this.#done.has(delivery)) return false;
      this.#done.add(delivery);
      if (this.#done.size > REMEMBERED) {
        for (const oldest of this.#done) {
          this.#done.delete(oldest);
          break;
        }
      }
      this.#owed += 1;
    } else if (this.#settling.has(delivery)) {
      return false; // the settlement was asked for, and is asked for again as long as it takes
    } else if (this.#unsettled.has(delivery) && !this.#again.delete(delivery)) {
      return false;
    } else {
      this.#unsettled.set(delivery, packet.message);
    }
    this.#messages.push(new Message({ ...packet, redelivered: packet.redelivered || isKnown }, this));
    this.#wake();
    if (this.#isSettledHere) return false;
    if (!this.#paused && this.#messages.length >= PAUSED_AT * this.credit) this.#allow(false);
    if (2 * this.#owed < this.credit) return false;
    this.#owed = 0;
    return true;
  }

  /** Packet numbers have begun anew: what the application has not settled comes again. */
  restarted() {
    this.#again = new Set(this.#unsettled.keys());
  }

  /** @param {Error | null} error - What the iteration ends with. */
  end(error) {
    if (this.#closed) return;
    this.#closed = true;
    this.#error = error;
    this.#unsettled.clear();
    this.#over(this);
    this.#wake();
  }

  #wake() {
    const readers = [...this.#readers];
    this.#readers.clear();
    for (const wake of readers) wake();
  }

  /** @param {boolean} more - Whether more may be sent, or no more for now: a slow reader does not make this process grow. */
  #allow(more) {
    this.#paused = !more;
    this.#calls.begin(this.ask);
  }
}

/** The queues that a session consumes from. */
export class Consumers {
  /** @type {Map<string, MessageConsumer>} */
  #consumers = new Map();
  #calls;

  /** @param {Calls} calls - Ask something of the server. */
  constructor(calls) {
    this.#calls = calls;
  }

  /**
   * Consume from a queue; see `Session.consume`.
   *
   * @param {string} queue
   * @param {{credit: number, ack: Ack}} details
   * @param {CallOptions} options
   * @returns {Promise<MessageConsumer>}
   */
  async consume(queue, details, options) {
    checkCall(options);
    if (this.#consumers.has(queue)) throw new TypeError(`the session consumes from ${queue} already; cancel that first`);
    const over = (/** @type {MessageConsumer} */ each) => {
      if (this.#consumers.get(queue) === each) this.#consumers.delete(queue);
    };
    const consumer = new MessageConsumer(queue, { ...details, calls: this.#calls, over });
    // It listens before it asks, so that no message can come too early for it.
    this.#consumers.set(queue, consumer);
    try {
      await this.#calls.request(consumer.ask, options);
    } catch (error) {
      consumer.end(null);
      // Who gave up before the answer may consume all the same.
      if (!(error instanceof RequestRefused)) this.#calls.begin({ type: "cancel", queue });
      throw error;
    }
    return consumer;
  }

  /**
   * Take in a message.
   *
   * @param {MessageBody} packet
   * @returns {boolean} See `MessageConsumer.received`.
   */
  received(packet) {
    return this.#consumers.get(packet.queue)?.received(packet) ?? false;
  }

  /**
   * The session goes on elsewhere: ask for what it holds.
   *
   * @param {boolean} restarted - Whether packet numbers have begun anew.
   */
  recovered(restarted) {
    const consumers = [...this.#consumers.values()];
    if (restarted) for (const consumer of consumers) consumer.restarted();
    this.#askAgain(consumers);
  }

  /** The grid has lost writes: queues that nobody describes may be lost themselves. */
  doubt() {
    this.#askAgain([...this.#consumers.values()].filter(({ queue }) => isReserved(queue)));
  }

  /**
   * The session may not consume from a queue any more.
   *
   * @param {string} queue
   * @param {Error} error
   */
  lost(queue, error) {
    this.#consumers.get(queue)?.end(error);
  }

  /** @param {MessageConsumer[]} consumers */
  #askAgain(consumers) {
    for (const consumer of consumers) {
      this.#calls.begin(consumer.ask).catch((error) => {
        if (error instanceof RequestRefused) consumer.end(error);
      });
    }
  }

  /** @param {Error | null} error */
  end(error) {
    for (const consumer of [...this.#consumers.values()]) consumer.end(error);
  }
}
