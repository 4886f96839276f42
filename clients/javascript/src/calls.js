/**
 * How something is asked for and its answer waited for, in one of two ways:
 *
 * - `request`: when the wait ends before the answer, what was not sent is never sent. So it is with what an application may
 *   want or not, such as a publish.
 * - `begin` and `wait`: it is done in any case, over however many connections, and only the wait can end. So it is with what
 *   ends something, or says what becomes of it: without it the node would go on with what nobody here wants.
 *
 * @module
 */

import { checkSeconds, checkSignal, unlessAborted } from "./environment.js";
import { RequestTimedOut } from "./errors.js";

/**
 * @typedef {import("./sender.js").CallOptions} CallOptions
 * @typedef {import("./requests.js").Ask} Ask
 * @typedef {import("./requests.js").Reply} Reply
 * @typedef {(ask: Ask, options?: CallOptions) => Promise<Reply>} Request
 */

/** What is asked for a part of a session. */
export class Calls {
  #environment;
  #limit;

  /**
   * @param {import("./environment.js").Environment} environment
   * @param {Request} request - Asks something of the server.
   * @param {number | null} limit - Seconds that a call may take whose caller does not say; null for no limit.
   */
  constructor(environment, request, limit) {
    this.#environment = environment;
    this.#limit = limit;
    /** Ask something, and wait for the answer. */
    this.request = request;
  }

  /**
   * Have the same asked in another way.
   *
   * @param {Request} request
   * @returns {Calls}
   */
  by(request) {
    return new Calls(this.#environment, request, this.#limit);
  }

  /**
   * Ask for something that is done in any case, as long as the session lives; nobody has to wait for it.
   *
   * @param {Ask} ask
   * @returns {Promise<Reply>}
   */
  begin(ask) {
    const answer = this.request(ask, { timeout: Infinity });
    answer.catch(() => {});
    return answer;
  }

  /**
   * Wait for the answers to what has begun; the wait may end before them, and nothing else does.
   *
   * @param {readonly Promise<Reply>[]} answers
   * @param {CallOptions} [options]
   */
  async wait(answers, options) {
    await waitFor(this.#environment, answers, this.#limit, options);
  }
}

/**
 * Wait for answers that come in any case.
 *
 * @param {import("./environment.js").Environment} environment
 * @param {readonly Promise<unknown>[]} answers
 * @param {number | null} usual - Seconds, if the caller does not say.
 * @param {CallOptions} [options]
 * @throws {RequestTimedOut} There were not all in time.
 */
export async function waitFor(environment, answers, usual, { timeout, signal } = {}) {
  const limit = timeout ?? usual;
  let cancel = () => {};
  const late = new Promise((_, reject) => {
    if (limit === null) return;
    const over = () => reject(new RequestTimedOut(`no answer within ${limit} s; it is done later`, true));
    cancel = environment.after(over, limit);
  });
  try {
    await unlessAborted(Promise.race([Promise.all(answers), late]), signal);
  } finally {
    cancel();
  }
}

/**
 * @param {CallOptions} [options]
 * @throws {TypeError} They make no sense.
 * @throws {unknown} The reason of a signal that is aborted.
 */
export function checkCall({ timeout, signal } = {}) {
  checkSeconds("timeout", timeout);
  checkSignal(signal);
}
