/**
 * What a stream keeps: updates for a reader that is slow, and the versions that it has delivered.
 *
 * @module
 */

/** Bytes of a value besides its texts: of a number all, of others what is round them; about as many as on the wire. */
const VALUE_BYTES = 4;

/** Topics delivered last whose versions are remembered; there may be twice as many for a while. */
export const VERSIONS_KEPT = 50_000;

/**
 * @typedef {import("./streams.js").Update} Update
 * @typedef {{update: Update, bytes: number}} Kept
 */

/**
 * First in, first out up to two bounds; beyond either, the newest update per topic until it has been emptied.
 */
export class ConflatingQueue {
  #packets;
  /** @type {Kept[]} */
  #queue = [];
  #first = 0;
  /** @type {Map<string, Kept> | null} */
  #folded = null;

  /**
   * @param {number} packets - Updates to keep before they are folded.
   * @param {number} limit - Bytes of them, likewise.
   */
  constructor(packets, limit) {
    this.#packets = packets;
    this.limit = limit;
    /** Bytes of what is kept. */
    this.bytes = 0;
    /** Updates that others took the place of here. */
    this.conflated = 0;
  }

  get length() {
    return this.#queue.length - this.#first + (this.#folded?.size ?? 0);
  }

  /** Whether the newest updates alone are more bytes than may be kept; a single one always may. */
  get overflows() {
    return this.#folded !== null && this.#folded.size > 1 && this.bytes > this.limit;
  }

  /** @param {Update} update */
  push(update) {
    const kept = { update, bytes: sizeOf(update.value) + update.topic.length };
    this.bytes += kept.bytes;
    if (this.#folded !== null) {
      this.#fold(this.#folded, kept);
      return;
    }
    this.#queue.push(kept);
    if (this.length <= this.#packets && this.bytes <= this.limit) return;
    this.#folded = new Map();
    for (const each of this.#queue.slice(this.#first)) this.#fold(this.#folded, each);
    this.#queue = [];
    this.#first = 0;
  }

  /** @returns {Update | null} Null if there is none. */
  take() {
    const taken = this.#folded === null ? this.#next() : this.#newest(this.#folded);
    if (taken === undefined) return null;
    this.bytes -= taken.bytes;
    return taken.update;
  }

  clear() {
    this.#queue = [];
    this.#first = this.bytes = 0;
    this.#folded = null;
  }

  #next() {
    const taken = this.#queue[this.#first];
    if (taken === undefined) return undefined;
    this.#first += 1;
    // What has been taken is cut off seldom, as that costs as much as what is left is long.
    if (this.#first * 2 > this.#queue.length) {
      this.#queue = this.#queue.slice(this.#first);
      this.#first = 0;
    }
    return taken;
  }

  /** @param {Map<string, Kept>} folded */
  #newest(folded) {
    const [[topic, taken]] = /** @type {[[string, Kept]]} */ ([folded.entries().next().value]);
    folded.delete(topic);
    if (folded.size === 0) this.#folded = null;
    return taken;
  }

  /**
   * The newest takes the place of the oldest in line, and says how many it stands for. If one of them was no successor of
   * what was delivered before, it is none either.
   *
   * @param {Map<string, Kept>} folded
   * @param {Kept} kept
   */
  #fold(folded, kept) {
    const { update } = kept;
    const before = folded.get(update.topic);
    if (before === undefined) {
      folded.set(update.topic, kept);
      return;
    }
    this.conflated += 1;
    this.bytes -= before.bytes;
    kept.update = {
      ...update,
      snapshot: before.update.snapshot || update.snapshot,
      folded: before.update.folded + 1 + update.folded,
    };
    folded.set(update.topic, kept);
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
