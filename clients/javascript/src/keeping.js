/**
 * The token, kept over reloads of a page; only if the application asks for it, because it is a secret: whoever has it has
 * the session (protocol 11.1).
 *
 * @module
 */

/** Begins the names of what is kept. */
const PREFIX = "session-gateway:";

/**
 * What is kept. `attempt` and `request` are the highest numbers used: those of the next life must be above them (protocol
 * 11.5).
 *
 * @typedef {object} Kept
 * @property {string} token
 * @property {number} attempt
 * @property {number} request
 *
 * @typedef {Pick<Storage, "getItem" | "setItem" | "removeItem">} Store
 */

/** Keeps one session's token in `sessionStorage`, which belongs to one tab and ends with it. */
export class Keeper {
  #name;
  #store;

  /**
   * @param {string} name - Tells the sessions of one page apart.
   * @param {Store} [store]
   */
  constructor(name, store = globalThis.sessionStorage) {
    if (store === undefined) throw new TypeError("there is no sessionStorage here, so that options.keep makes no sense");
    this.#name = PREFIX + name;
    this.#store = store;
  }

  /** @returns {Kept | null} */
  read() {
    try {
      const kept = JSON.parse(this.#store.getItem(this.#name) ?? "null");
      const { token, attempt, request } = kept ?? {};
      const usable = typeof token === "string" && Number.isSafeInteger(attempt) && Number.isSafeInteger(request);
      return usable ? { token, attempt, request } : null;
    } catch {
      return null;
    }
  }

  /** @param {Kept} kept */
  write(kept) {
    try {
      this.#store.setItem(this.#name, JSON.stringify(kept));
    } catch {
      // Storage is full or forbidden: a reload opens a new session, and this one goes on.
    }
  }

  forget() {
    try {
      this.#store.removeItem(this.#name);
    } catch {
      // As above.
    }
  }
}
