/**
 * What a client shows of itself: one secret for good, or a fresh one whenever it is needed (protocol 5.9).
 *
 * @module
 */

import { checkCredential } from "./content.js";
import { sleep } from "./environment.js";
import { SessionEnded } from "./errors.js";
import { byteLength } from "./packets.js";
import { AttemptFailed } from "./transport.js";

/** Code of the error that refuses a resume without them. */
export const EXPIRED = "credentials_expired";

/** Seconds that the application may take to come by a fresh secret. */
const FETCH_TIMEOUT = 10;

/** Seconds until a refresh that failed is tried again; doubles with each failure. */
const REFRESH_INITIAL = 1;

/** Seconds up to which that doubles. */
const REFRESH_MAXIMUM = 10;

/** The credentials of one session. */
export class Credentials {
  #environment;
  #source;
  #notices = 0;
  #refreshing = false;

  /**
   * @param {import("./environment.js").Environment} environment
   * @param {string} principal
   * @param {string | (() => string | Promise<string>) | undefined} secret - For good, or what fetches a fresh one.
   */
  constructor(environment, principal, secret) {
    this.#environment = environment;
    this.principal = principal;
    this.#source = typeof secret === "function" ? secret : null;
    /** Those that the server holds have ended, or will soon. */
    this.stale = false;
  }

  /** Whether there can be fresh ones. */
  get renewable() {
    return this.#source !== null;
  }

  /**
   * Have the application fetch a fresh one.
   *
   * @param {number} most - Bytes of it that a node takes.
   * @returns {Promise<string>}
   * @throws {AttemptFailed} It failed, took too long, or cannot be sent; what it said is not repeated, as it may be secret.
   */
  async fresh(most) {
    const source = /** @type {() => string | Promise<string>} */ (this.#source);
    const done = new AbortController();
    const late = sleep(this.#environment, FETCH_TIMEOUT, done.signal).then(() => null);
    const secret = await Promise.race([new Promise((resolve) => resolve(source())), late]).catch(() => null);
    done.abort();
    try {
      checkCredential("the secret", secret);
    } catch {
      throw new AttemptFailed({ message: "fresh credentials could not be had" });
    }
    if (byteLength(JSON.stringify([this.principal, secret])) > most) {
      throw new AttemptFailed({ message: "fresh credentials are longer than the node accepts" });
    }
    return secret;
  }

  /**
   * The credentials end soon: show fresh ones, over any number of connections, until they are accepted.
   *
   * @param {() => Promise<string>} fresh - Fetches some.
   * @param {(secret: string) => Promise<unknown>} show - Asks the server, and waits for its answer.
   * @param {AbortSignal} over - Aborted when nobody waits any more.
   */
  async refresh(fresh, show, over) {
    this.stale = true;
    this.#notices += 1;
    if (this.#refreshing) return;
    this.#refreshing = true;
    let pause = REFRESH_INITIAL;
    // A resume may have shown fresh ones meanwhile.
    while (this.stale && !over.aborted) {
      const before = this.#notices;
      try {
        await show(await fresh());
        // A notice that came meanwhile may already speak of those that were shown just now.
        if (before === this.#notices) this.stale = false;
      } catch (error) {
        if (error instanceof SessionEnded) break;
        await sleep(this.#environment, pause * (1 + this.#environment.random()), over);
        pause = Math.min(REFRESH_MAXIMUM, 2 * pause);
      }
    }
    this.#refreshing = false;
  }
}
