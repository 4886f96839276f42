/**
 * What the application wants to see: the selections of its living streams and its deselections, in the order in which they
 * were made; and what to ask for when one of them ends.
 *
 * ```text
 * streams, deselections ──▶ wanted list ─┐
 *                                        ├──▶ requests that turn the one into the other
 * promised and asked for ──▶ held list ──┘
 * ```
 *
 * A selection lasts as long as one stream that asked for it, and a stream that has ended counts as if it had never been. As
 * the last entry of a node's list that matches a topic decides (protocol 6.3), what ends is deselected, and what others want
 * of it is selected again behind it, all in one message.
 *
 * @module
 */

import { Selections } from "./selections.js";
import { covers, overlaps, parseSelector } from "./selectors.js";

/**
 * @typedef {import("./selectors.js").Selector} Selector
 * @typedef {import("./selections.js").Entry} Entry
 * @typedef {{type: "subscribe" | "unsubscribe", selector: string}} SelectionAsk
 *
 * @typedef {object} Wish - A stream's selection, a deselection, or a selection that was there before this client was.
 * @property {boolean} selects
 * @property {Selector} selector
 * @property {object | null} owner - Who asked for it; null if nobody here did.
 * @property {readonly Selector[]} actual - What nodes hold of it: less than `selector` if a right was withdrawn.
 */

/** The wishes of one session. */
export class Wanted {
  /** In the order in which they were made. @type {Wish[]} */
  #wishes;

  /** @param {Selections} inherited - What the session selects already when this client begins. */
  constructor(inherited) {
    this.#wishes = inherited.entries.map(({ selects, selector }) => ({ selects, selector, owner: null, actual: [selector] }));
  }

  /**
   * A stream wants what *selector* matches; it takes over a selection that was there before.
   *
   * @param {Selector} selector
   * @param {object} owner - The stream.
   */
  add(selector, owner) {
    this.#wishes = this.#wishes.filter((each) => !(each.selects && each.owner === null && each.selector.text === selector.text));
    this.#wishes.push({ selects: true, selector, owner, actual: [selector] });
  }

  /**
   * Nothing that *selector* matches is wanted any more, until something selects it again.
   *
   * @param {Selector} selector
   * @returns {() => void} Takes it back.
   */
  deselect(selector) {
    const owner = {};
    this.#wishes.push({ selects: false, selector, owner, actual: [selector] });
    this.#tidy();
    return () => this.remove(owner);
  }

  /**
   * A stream has ended.
   *
   * @param {object} owner
   */
  remove(owner) {
    this.#wishes = this.#wishes.filter((each) => each.owner !== owner);
    this.#tidy();
  }

  /**
   * Forget a selection that nobody here asked for.
   *
   * @param {Selector} selector
   * @returns {boolean} Whether there was one.
   */
  disinherit(selector) {
    const before = this.#wishes.length;
    this.#wishes = this.#wishes.filter((each) => !(each.selects && each.owner === null && each.selector.text === selector.text));
    this.#tidy();
    return this.#wishes.length < before;
  }

  /**
   * A right was withdrawn: of these selectors no more is wanted than the node has left.
   *
   * @param {readonly string[]} withdrawn - Selectors, as they stood in the node's list.
   * @param {Selections} left - The node's list since then.
   */
  withdrawn(withdrawn, left) {
    const gone = withdrawn.map(parseSelector);
    for (const wish of this.#wishes) {
      if (!wish.selects || !wish.actual.some((each) => gone.some((other) => overlaps(each, other)))) continue;
      const rest = left.entries.filter((each) => each.selects).map(({ selector }) => selector);
      wish.actual = wish.actual.flatMap((each) =>
        rest.some((other) => covers(other, each)) ? [each] : rest.filter((other) => covers(each, other)),
      );
    }
  }

  /** The list that a node should hold. */
  get list() {
    let list = new Selections();
    for (const { selects, actual } of this.#wishes) for (const selector of actual) list = list.with({ selects, selector });
    return list;
  }

  /**
   * Tell what to ask for, now that something has ended.
   *
   * @param {Selector} ended - What ended.
   * @param {Selections} held - What the node holds once it has executed all that it was asked for.
   * @returns {SelectionAsk[]} In order; as little as is seen to suffice, and none if others want all of it.
   */
  after(ended, held) {
    const wanted = this.list;
    const deselect = { selects: false, selector: ended };
    const entries =
      [missing(held, wanted), [deselect, ...missing(held.with(deselect), wanted)]].find((each) =>
        appended(held, each).means(wanted),
      ) ?? [deselect, ...affected(ended, wanted)];
    return entries.map(({ selects, selector }) => ({ type: selects ? "subscribe" : "unsubscribe", selector: selector.text }));
  }

  /** Forget deselections that have nothing before them to cut out of. */
  #tidy() {
    this.#wishes = this.#wishes.filter(
      (each, index) =>
        each.selects ||
        this.#wishes.slice(0, index).some((other) => other.selects && overlaps(other.selector, each.selector)),
    );
  }
}

/**
 * @param {Selections} list
 * @param {readonly Entry[]} entries
 */
function appended(list, entries) {
  return entries.reduce((before, entry) => before.with(entry), list);
}

/**
 * @param {Selections} held
 * @param {Selections} wanted
 * @returns {Entry[]} The entries that are wanted and not held.
 */
function missing(held, wanted) {
  const there = new Set(held.toWire());
  const texts = wanted.toWire();
  return wanted.entries.filter((_, index) => !there.has(/** @type {string} */ (texts[index])));
}

/**
 * Tell what must be said again after *ended* was deselected: what selects some of it, and whatever decided after that.
 *
 * @param {Selector} ended
 * @param {Selections} wanted
 * @returns {Entry[]}
 */
function affected(ended, wanted) {
  /** @type {Entry[]} */
  const again = [];
  for (const entry of wanted.entries) {
    const undone = entry.selects && overlaps(entry.selector, ended);
    if (undone || again.some((each) => each.selects !== entry.selects && overlaps(each.selector, entry.selector))) {
      again.push(entry);
    }
  }
  return again;
}
