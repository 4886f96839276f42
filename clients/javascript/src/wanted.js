/**
 * What the application wants to see, and what to ask for when it wants less.
 *
 * What a session selects at its node is what its living streams want together. A stream wants what its selector matches, but
 * for what was taken out of it. When something ends, the node is asked to deselect it, and told what stays because other
 * streams want it (protocol 6.3). It may send more than is wanted for a while; a stream never delivers what was taken out
 * of it.
 *
 * @module
 */

import { covers, overlaps, parseSelector } from "./selectors.js";

/** Selectors that may be said to stay; with more, nothing is deselected now, but when streams end later. */
const MAX_KEPT = 64;

/**
 * @typedef {import("./selectors.js").Selector} Selector
 * @typedef {{selector: string, keep: string[]}} Deselection
 *
 * @typedef {object} Wish - What a stream wants, or what was selected already before this client was.
 * @property {object | null} owner - The stream; null if nobody here asked for it.
 * @property {Selector} selector
 * @property {readonly Selector[]} actual - What the node selects for it: less than `selector` if a right was withdrawn.
 * @property {Selector[]} without - What was taken out of it.
 */

/** The wishes of one session. */
export class Wanted {
  /** @type {Wish[]} */
  #wishes = [];

  /** @param {import("./selections.js").Selections} inherited - What the session selects already when this client begins. */
  constructor(inherited) {
    for (const { selects, selector } of inherited.entries) {
      if (selects) this.#add(selector, null);
      else for (const wish of this.#wishes) if (covers(wish.selector, selector)) wish.without.push(selector);
    }
  }

  /**
   * A stream wants what *selector* matches; it takes over a selection that was there before.
   *
   * @param {Selector} selector
   * @param {object} owner - The stream.
   */
  add(selector, owner) {
    this.disinherit(selector);
    this.#add(selector, owner);
  }

  /**
   * A stream has ended.
   *
   * @param {object} owner
   */
  remove(owner) {
    this.#wishes = this.#wishes.filter((each) => each.owner !== owner);
  }

  /**
   * Forget a selection that nobody here asked for.
   *
   * @param {Selector} selector
   * @returns {boolean} Whether there was one.
   */
  disinherit(selector) {
    const before = this.#wishes.length;
    this.#wishes = this.#wishes.filter((each) => each.owner !== null || each.selector.text !== selector.text);
    return this.#wishes.length < before;
  }

  /**
   * Take what *selector* matches out of all that is wider.
   *
   * @param {Selector} selector
   * @returns {(object | null)[]} Whom it was taken from; null stands for a selection that nobody here asked for.
   */
  takeOut(selector) {
    const wider = this.#wishes.filter((each) => covers(each.selector, selector) && !lacks(each, selector));
    for (const wish of wider) wish.without.push(selector);
    return wider.map(({ owner }) => owner);
  }

  /**
   * A right was withdrawn: of these selectors no more is wanted than the node has left.
   *
   * @param {readonly string[]} withdrawn - Selectors, as they stood in the node's list.
   * @param {import("./selections.js").Selections} left - The node's list since then.
   */
  withdrawn(withdrawn, left) {
    const gone = withdrawn.map(parseSelector);
    const rest = left.entries.filter((each) => each.selects).map(({ selector }) => selector);
    for (const wish of this.#wishes) {
      if (!wish.actual.some((each) => gone.some((other) => overlaps(each, other)))) continue;
      wish.actual = wish.actual.flatMap((each) =>
        rest.some((other) => covers(other, each)) ? [each] : rest.filter((other) => covers(each, other)),
      );
    }
  }

  /**
   * Tell what to deselect, now that something has ended.
   *
   * @param {Selector} ended
   * @returns {Deselection[]} In order; none if others want all of it.
   */
  after(ended) {
    /** @type {Deselection[]} */
    const deselections = [];
    this.#release(ended, deselections, new Set());
    return deselections;
  }

  /**
   * @param {Selector} ended
   * @param {Deselection[]} deselections
   * @param {Set<string>} released - Selectors that have been looked at.
   */
  #release(ended, deselections, released) {
    if (released.has(ended.text)) return;
    released.add(ended.text);
    const wishes = this.#wishes.filter(
      (each) => !lacks(each, ended) && each.actual.some((selector) => overlaps(selector, ended)),
    );
    const whole = wishes.some((each) => each.actual.some((selector) => covers(selector, ended)));
    if (!whole) {
      const keep = widest(wishes.flatMap(({ actual }) => actual.filter((selector) => overlaps(selector, ended))));
      if (keep.length > MAX_KEPT) return;
      deselections.push({ selector: ended.text, keep: keep.map(({ text }) => text) });
    }
    // What was taken out of those that stay may be wanted by nobody but what has ended, or is back because they stay.
    for (const { without } of wishes) {
      for (const each of without) if (!whole || covers(ended, each)) this.#release(each, deselections, released);
    }
  }

  /**
   * @param {Selector} selector
   * @param {object | null} owner
   */
  #add(selector, owner) {
    this.#wishes.push({ owner, selector, actual: [selector], without: [] });
  }
}

/**
 * Tell whether all of *selector* was taken out of a wish.
 *
 * @param {Wish} wish
 * @param {Selector} selector
 */
function lacks({ without }, selector) {
  return without.some((each) => covers(each, selector));
}

/**
 * Leave out what others cover.
 *
 * @param {Selector[]} selectors
 * @returns {Selector[]}
 */
function widest(selectors) {
  const distinct = [...new Map(selectors.map((each) => [each.text, each])).values()];
  return distinct.filter((each) => !distinct.some((other) => other !== each && covers(other, each)));
}
