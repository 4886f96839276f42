/**
 * The tree of topics: its branches, and what follows them.
 *
 * @module
 */

/** Values that are subscribed to until it is closed, also if that is before the subscription is there. */
export class Following {
  /** @type {import("../client/streams.js").UpdateStream | null} */
  #stream = null;
  #over = false;

  /**
   * @param {import("../live.js").Session} session
   * @param {string} selector
   * @param {(update: import("../client/streams.js").Update) => void} updated
   * @param {(error: Error) => void} failed
   */
  constructor(session, selector, updated, failed) {
    void session
      .subscribe(selector, { listener: (update) => this.#over || updated(update) })
      .then((stream) => {
        if (this.#over) stream.close();
        else this.#stream = stream;
      })
      .catch((error) => this.#over || failed(error));
  }

  close() {
    this.#over = true;
    this.#stream?.close();
  }
}

/** One segment of the tree. */
export class Branch {
  /**
   * @param {string} name
   * @param {Branch | null} parent
   */
  constructor(name, parent) {
    this.name = name;
    this.parent = parent;
    /** @type {string} */
    this.path = parent === null || parent.name === "" ? name : `${parent.path}/${name}`;
    /** @type {number} */
    this.depth = parent === null ? -1 : parent.depth + 1;
    /** @type {Map<string, Branch>} */
    this.children = new Map();
    this.open = false;
    /** Topics at and below it. */
    this.topics = 0;
    this.isTopic = false;
    /** The last load that listed it, or during which it was published. */
    this.load = 0;
    /** What came last; null unless something follows the topic, as an older value may not be the current one. @type {import("../client/streams.js").Update | null} */
    this.update = null;
    this.freshUntil = 0;
    /** Follows the topic itself. @type {Following | null} */
    this.own = null;
    /** Follows the topics right below it. @type {Following | null} */
    this.below = null;
  }

  /** Whether something follows the topic. */
  get isFollowed() {
    return this.own !== null || (this.parent !== null && this.parent.below !== null);
  }

  /** Whether it can be opened or folded. */
  get isInner() {
    return this.children.size > 0 || this.open;
  }
}

/**
 * List what is shown: the branches of one, and those of each that is open.
 *
 * @param {Branch} branch
 * @param {Branch[]} rows
 */
export function collect(branch, rows) {
  for (const child of sorted(branch)) {
    rows.push(child);
    if (child.open) collect(child, rows);
  }
}

/** @param {Branch} branch */
function sorted(branch) {
  // The system's own topics come last: nobody looks for them first.
  const rank = (/** @type {Branch} */ { name, depth }) => (depth === 0 && name.startsWith("$") ? 1 : 0);
  return [...branch.children.values()].sort(
    (one, other) => rank(one) - rank(other) || compare.compare(one.name, other.name),
  );
}

const compare = new Intl.Collator("en", { numeric: true });

/**
 * Give a branch and those that it is in.
 *
 * @param {Branch} branch
 * @returns {Generator<Branch>}
 */
export function* upwards(branch) {
  yield branch;
  if (branch.parent !== null) yield* upwards(branch.parent);
}

/**
 * Give all that is in a branch, without itself.
 *
 * @param {Branch} branch
 * @returns {Generator<Branch>}
 */
export function* walk(branch) {
  for (const child of branch.children.values()) {
    yield child;
    yield* walk(child);
  }
}
