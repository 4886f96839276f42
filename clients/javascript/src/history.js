/**
 * Values that every listener sees from the beginning: recoveries and notices. Somebody who begins to listen after the first
 * failover still learns of it, because the last values are kept.
 *
 * @module
 */

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
  /** @type {(() => void)[]} */
  #readers = [];

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

  /** @returns {AsyncGenerator<T, void, undefined>} */
  async *[Symbol.asyncIterator]() {
    let place = 0;
    for (;;) {
      place = Math.max(place, this.#count - this.#kept.length);
      if (place < this.#count) {
        yield /** @type {T} */ (this.#kept.at(place - this.#count));
        place += 1;
      } else if (this.#ended) {
        if (this.#error !== null) throw this.#error;
        return;
      } else {
        await new Promise((/** @type {(value: void) => void} */ resolve) => this.#readers.push(resolve));
      }
    }
  }

  #wake() {
    for (const wake of this.#readers.splice(0)) wake();
  }
}
