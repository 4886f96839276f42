/**
 * What a stream keeps: updates for a reader that is slow, and the versions that it has delivered.
 *
 * @module
 */

/** Bytes that a text has about it in memory and on the wire, and a number or another plain value altogether. */
const VALUE_BYTES = 8;

/** Topics delivered last whose versions are remembered; there may be twice as many for a while. */
export const VERSIONS_KEPT = 32_768;

/**
 * @typedef {import("./streams.js").Update} Update
 */

/**
 * First in, first out up to two bounds; beyond either, the newest update per topic until it has been emptied. So it holds at
 * most its bounds or one update per topic, whichever is more.
 */
export class ConflatingQueue {
  #packets;
  #limit;
  /** @type {{update: Update, bytes: number}[]} */
  #queue = [];
  #first = 0;
  #bytes = 0;
  /** @type {Map<string, Update> | null} */
  #folded = null;

  /**
   * @param {number} packets - Updates to keep before they are folded.
   * @param {number} bytes - Likewise, about as many as they have as JSON text.
   */
  constructor(packets, bytes) {
    this.#packets = packets;
    this.#limit = bytes;
    /** Updates that were replaced here. */
    this.conflated = 0;
  }

  get length() {
    return this.#queue.length - this.#first + (this.#folded?.size ?? 0);
  }

  /** @param {Update} update */
  push(update) {
    if (this.#folded !== null) {
      this.#fold(update);
      return;
    }
    const bytes = sizeOf(update.value) + update.topic.length;
    this.#queue.push({ update, bytes });
    this.#bytes += bytes;
    if (this.length <= this.#packets && this.#bytes <= this.#limit) return;
    this.#folded = new Map();
    for (const each of this.#queue.slice(this.#first)) this.#fold(each.update);
    this.#empty();
  }

  /** @returns {Update | null} Null if there is none. */
  take() {
    if (this.#folded !== null) {
      const [[topic, update]] = /** @type {[[string, Update]]} */ ([this.#folded.entries().next().value]);
      this.#folded.delete(topic);
      if (this.#folded.size === 0) this.#folded = null;
      return update;
    }
    const taken = this.#queue[this.#first];
    if (taken === undefined) return null;
    this.#first += 1;
    this.#bytes -= taken.bytes;
    // What has been taken is cut off seldom, as that costs as much as what is left is long.
    if (this.#first * 2 > this.#queue.length) {
      this.#queue = this.#queue.slice(this.#first);
      this.#first = 0;
    }
    return taken.update;
  }

  clear() {
    this.#empty();
    this.#folded = null;
  }

  #empty() {
    this.#queue = [];
    this.#first = this.#bytes = 0;
  }

  /**
   * The newest takes the place of the oldest in line, and says how many it stands for. If one of them was no successor of
   * what was delivered before, it is none either.
   *
   * @param {Update} update
   */
  #fold(update) {
    const folded = /** @type {Map<string, Update>} */ (this.#folded);
    const before = folded.get(update.topic);
    if (before === undefined) {
      folded.set(update.topic, update);
      return;
    }
    this.conflated += 1;
    folded.set(update.topic, {
      ...update,
      snapshot: before.snapshot || update.snapshot,
      folded: before.folded + 1 + update.folded,
    });
  }
}

/**
 * Tell about how many bytes a value has as JSON text.
 *
 * @param {unknown} value - As `JSON.parse` made it.
 * @returns {number}
 */
export function sizeOf(value) {
  let size = 0;
  const waiting = [value];
  while (waiting.length > 0) {
    const each = waiting.pop();
    size += VALUE_BYTES;
    if (typeof each === "string") {
      size += each.length;
    } else if (Array.isArray(each)) {
      for (const inner of each) waiting.push(inner);
    } else if (typeof each === "object" && each !== null) {
      for (const [name, inner] of Object.entries(each)) {
        size += name.length;
        waiting.push(inner);
      }
    }
  }
  return size;
}

/**
 * The versions of the topics that were delivered last, so that none goes back (protocol 6.4). It forgets those that were not
 * delivered for longest: a stream of ever new topics must not grow for ever.
 */
export class Versions {
  /** @type {Map<string, {version: number, epoch: number}>} */
  #recent = new Map();
  /** @type {Map<string, {version: number, epoch: number}>} */
  #older = new Map();
  #kept;
  #epoch = 0;

  /** @param {number} [kept] */
  constructor(kept = VERSIONS_KEPT) {
    this.#kept = kept;
  }

  /** Let one snapshot of each topic pass again, also with the version delivered last. */
  failedOver() {
    this.#epoch += 1;
  }

  /** Topics that are remembered. */
  get size() {
    return this.#recent.size + this.#older.size;
  }

  /**
   * Tell whether an update is to be delivered; if so, it counts as delivered.
   *
   * @param {Update} update
   * @returns {boolean}
   */
  passes({ topic, version, snapshot }) {
    const seen = this.#recent.get(topic) ?? this.#older.get(topic);
    if (seen !== undefined) {
      if (version < seen.version) return false;
      if (version === seen.version && !(snapshot && seen.epoch < this.#epoch)) return false;
    }
    if (this.#recent.size >= this.#kept && !this.#recent.has(topic)) {
      this.#older = this.#recent;
      this.#recent = new Map();
    }
    this.#recent.set(topic, { version, epoch: this.#epoch });
    return true;
  }

  /** Forget everything. */
  clear() {
    this.#recent.clear();
    this.#older.clear();
  }
}
