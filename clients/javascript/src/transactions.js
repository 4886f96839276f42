/**
 * Transactions: what is asked for within one is done as a whole, or not at all (protocol 16).
 *
 * ```text
 * begin ──► publish, send, accept … ──► commit ──► all of it is done, once
 *               (held in the grid)  └─► rollback, or nobody goes on with it ──► nothing of it is
 * ```
 *
 * @module
 */

import { sendOf } from "./consumers.js";
import { publishOf } from "./content.js";
import { checkDuration } from "./environment.js";
import { NoSuchTransaction, RequestRefused } from "./errors.js";

/** The word of a server that knows transactions (protocol 16.1). */
export const TRANSACTIONS = "transactions";

/**
 * @typedef {import("./consumers.js").Message} Message
 * @typedef {import("./consumers.js").Staged} Staged
 * @typedef {import("./consumers.js").Settlement} Settlement
 * @typedef {import("./requests.js").Operation} Operation
 * @typedef {import("./sender.js").CallOptions} CallOptions
 */

/**
 * What `Session.transaction` gives. What is asked for is in the grid when a call settles, and done by `commit`.
 *
 * It goes on over connections, nodes and deploys as its session does, but not for ever: a minute without a call, or ten in
 * all, and it is rolled back.
 */
export class Transaction {
  #request;
  #options;
  #number;
  #isOver = false;
  /** Calls without an answer. @type {Set<Promise<unknown>>} */
  #pending = new Set();
  /** What of it settles messages. @type {Set<Staged>} */
  #settled = new Set();

  /**
   * @param {import("./consumers.js").Request} request
   * @param {number} number - Of the request that began it.
   * @param {CallOptions} options - Of each of its calls.
   */
  constructor(request, number, options) {
    this.#request = request;
    this.#number = number;
    this.#options = options;
  }

  /** Whether it was committed or rolled back, or is about to be. */
  get isOver() {
    return this.#isOver;
  }

  /**
   * Publish a value to a topic, with the transaction.
   *
   * @param {string} topic
   * @param {unknown} value - Taken as it is now.
   * @param {{ttl?: number}} [options] - As of `Session.publish`; the seconds begin with the commit.
   * @returns {Promise<void>}
   * @throws {NoSuchTransaction} It is over, or was rolled back, as nobody had gone on with it.
   */
  async publish(topic, value, { ttl } = {}) {
    await this.#stage(publishOf(topic, value, ttl));
  }

  /**
   * Put a message into a queue, with the transaction.
   *
   * @param {string} queue
   * @param {unknown} value - Taken as it is now.
   * @param {{headers?: Record<string, string>, delay?: number, expires?: number}} [options] - As of `Session.send`; the
   *   seconds begin with the commit.
   * @returns {Promise<void>}
   */
  async send(queue, value, { headers, delay, expires } = {}) {
    await this.#stage(sendOf(queue, value, { headers, delay, expires }));
  }

  /**
   * Say that a message is done, with the transaction. Until then the session holds it.
   *
   * @param {Message} message - Of a consumer with `ack: "each"` or `"client"`.
   * @throws {import("./errors.js").NotHeld} The session does not hold it any more.
   */
  async accept(message) {
    await this.#settle(message, "accept");
  }

  /**
   * Make a message a dead letter, with the transaction.
   *
   * @param {Message} message
   */
  async reject(message) {
    await this.#settle(message, "reject");
  }

  /**
   * Give a message back, with the transaction.
   *
   * @param {Message} message
   * @param {{delay?: number}} [options] - Seconds, from the commit, until somebody may be given it again.
   */
  async release(message, { delay = 0 } = {}) {
    checkDuration("delay", delay);
    await this.#settle(message, "release", delay);
  }

  /**
   * Have all of it done, once. It waits for the answers to what was asked for before; if something of that fails, the
   * transaction is rolled back, and this call fails likewise.
   *
   * @throws {import("./errors.js").NotHeld} The session does not hold a message any more; nothing was done.
   * @throws {import("./errors.js").QueueFull} A queue has no room; nothing was done.
   * @throws {import("./errors.js").NoSuchQueue} A queue has ended since; nothing was done.
   * @throws {import("./errors.js").RequestTimedOut} Nobody knows yet; it is done as a whole, or not at all.
   */
  async commit() {
    this.#end();
    const failed = (await Promise.allSettled(this.#pending)).find((each) => each.status === "rejected");
    if (failed?.status === "rejected") {
      await this.#forget();
      throw failed.reason;
    }
    try {
      await this.#request({ type: "commit", transaction: this.#number }, this.#options);
    } catch (error) {
      this.#giveBack();
      throw error;
    }
    for (const each of this.#settled) each.consumer.unstage(each, true);
  }

  /** Forget all of it; the messages that it was to settle can be settled otherwise. */
  async rollback() {
    this.#end();
    this.#giveBack();
    await this.#request({ type: "rollback", transaction: this.#number }, this.#options);
  }

  /**
   * Do some work within it: commit at the end, or roll back if the work fails.
   *
   * @template T
   * @param {(transaction: Transaction) => T | Promise<T>} work
   * @returns {Promise<T>}
   */
  async run(work) {
    try {
      const result = await work(this);
      if (!this.#isOver) await this.commit();
      return result;
    } catch (error) {
      if (!this.#isOver) {
        this.#isOver = true;
        await this.#forget();
      }
      throw error;
    }
  }

  /** What has failed is told by its own error: a transaction that cannot be rolled back now will be. */
  async #forget() {
    this.#giveBack();
    const { signal, ...options } = this.#options;
    const forgotten = this.#request({ type: "rollback", transaction: this.#number }, options).catch(() => {});
    if (!signal?.aborted) await forgotten;
  }

  #end() {
    if (this.#isOver) throw new NoSuchTransaction("the transaction is over");
    this.#isOver = true;
  }

  /** @param {Operation} operation */
  async #stage(operation) {
    if (this.#isOver) throw new NoSuchTransaction("the transaction is over");
    const answer = this.#request({ type: "stage", transaction: this.#number, operation }, this.#options);
    this.#pending.add(answer);
    try {
      await answer;
    } finally {
      this.#pending.delete(answer);
    }
  }

  /**
   * @param {Message} message
   * @param {Settlement} outcome
   * @param {number} [delay]
   */
  async #settle(message, outcome, delay = 0) {
    if (this.#isOver) throw new NoSuchTransaction("the transaction is over");
    const staged = message.stage(outcome, delay);
    for (const each of staged) this.#settled.add(each);
    await Promise.all(
      staged.map(async (each) => {
        try {
          await this.#stage(each.ask);
        } catch (error) {
          // What was refused is no part of it; of what has no answer nobody knows.
          if (error instanceof RequestRefused && this.#settled.delete(each)) each.consumer.unstage(each, false);
          throw error;
        }
      }),
    );
  }

  #giveBack() {
    for (const each of this.#settled) each.consumer.unstage(each, false);
    this.#settled.clear();
  }
}
