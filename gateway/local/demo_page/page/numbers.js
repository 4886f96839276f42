/**
 * Whether updates are missing, or came twice, by the numbers that their values have.
 *
 * @module
 */

/**
 * @typedef {{price: number, number: number, run: string}} Price
 * @typedef {{topic: string, value: Price, snapshot: boolean, folded: number}} PriceUpdate
 */

/** Counts the updates of all topics. */
export class Numbers {
  received = 0;
  /** Left out without a word: that must not be. */
  missed = 0;
  /** Came again: that must not be, either. */
  twice = 0;
  /** Left out, and the update that followed said so. */
  leftOut = 0;
  /** @type {Map<string, Price>} */
  #last = new Map();

  /** @param {PriceUpdate} update */
  take({ topic, value, snapshot, folded }) {
    this.received += 1;
    const last = this.#last.get(topic);
    this.#last.set(topic, value);
    // A new run begins at 1; the first update of all is wherever the publisher is.
    if (last === undefined || last.run !== value.run) return;
    const gap = value.number - last.number - 1;
    if (gap < 0) {
      // A current value that the page has already is no second delivery of an update.
      if (!snapshot) this.twice += 1;
    } else if (snapshot) this.leftOut += gap;
    else {
      this.leftOut += Math.min(gap, folded);
      this.missed += Math.max(0, gap - folded);
    }
  }
}
