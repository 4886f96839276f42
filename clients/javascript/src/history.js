/**
 * Values that every listener sees from the beginning: recoveries and notices. Somebody who begins to listen after the first
 * failover still learns of it, because the last values are kept.
 *
 * @module
 */

import { iterate } from "./iteration.js";

/** Values kept for listeners that come later. */
export const KEPT = 256;

/**
 * An append-only record of values with any number of iterations, each at its own place. One that is slower than the values
 * skips what is no longer kept.
 *
 * @template T
 */
export class History {
  /** @type {T[]} */
  #kept = [];
  #count = 0;
  #ended = false;
  /** @type {Error | null} */
  #error = null;
  /** @type {Set<() => void>} */
  #readers = new Set();

  /** All values there ever were. */
  get count() {
    return this.#count;
  }

  /** @param {T} value */
  append(value) {
    if (this.#ended) return;
    this.#kept.push(value);
    if (this.#kept.length > KEPT) this.#kept.shift();
    this.#count += 1;
    this.#wake();
  }

  /**
   * Let every iteration finish with what is kept, and then stop, or get *error* if there is one.
   *
   * @param {Error | null} error
   */
  end(error) {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wake();
  }

  /** @returns {AsyncIterableIterator<T>} */
  [Symbol.asyncIterator]() {
    let place = 0;
    return iterate(
      () => {
        place = Math.max(place, this.#count - this.#kept.length);
        if (place < this.#count) {
          const value = /** @type {T} */ (this.#kept.at(place - this.#count));
          place += 1;
          return { done: false, value };
        }
        if (!this.#ended) return null;
        if (this.#error !== null) throw this.#error;
        return { done: true, value: undefined };
      },
      (wake) => {
        this.#readers.add(wake);
        return () => this.#readers.delete(wake);
      },
    );
  }

  #wake() {
    for (const wake of [...this.#readers]) {
      this.#readers.delete(wake);
      wake();
    }
  }
}
