/**
 * A reader of topics with history: every event behind a position, once, in order, from pages and from live updates
 * (protocol 6.6.3).
 *
 * ```text
 *             ask a page                complete, and all that is selected comes live from there
 *  reading ───────────────▶ reading ───────────────────────────────────────────────────────────▶ live
 *     ▲                                                                                            │
 *     └──── an update that is a snapshot or took the place of others; too many wait; a failover ───┘
 * ```
 *
 * Everything is told apart by event ids, which rise within a partition and are the same at every node for ever.
 *
 * @module
 */

import { InvalidPosition } from "./errors.js";

/** Partitions of topics. */
const PARTITIONS = 64;

const EVENT = /^(0|[1-9]\d?)-(\d+)-(\d+)$/;

/**
 * @typedef {import("./streams.js").Update} Update
 * @typedef {import("./packets.js").HistoryPart} HistoryPart
 * @typedef {{partition: string, generation: number, sequence: number}} Place
 */

/**
 * Read where an event is; null if it is none.
 *
 * @param {string} event
 * @returns {Place | null}
 */
function placeOf(event) {
  const found = EVENT.exec(event);
  if (found === null || Number(found[1]) >= PARTITIONS) return null;
  return { partition: String(found[1]), generation: Number(found[2]), sequence: Number(found[3]) };
}

/**
 * @param {Place} place
 * @param {Place | undefined} other - Of the same partition.
 */
function isBehind(place, other) {
  if (other === undefined || place.generation !== other.generation) {
    return other === undefined || place.generation > other.generation;
  }
  return place.sequence > other.sequence;
}

/**
 * Read a position: an event id, or several of different partitions with commas between them.
 *
 * @param {unknown} text
 * @returns {Map<string, string>}
 * @throws {InvalidPosition} It is none.
 */
export function parsePosition(text) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const each of typeof text === "string" ? text.split(",") : [""]) {
    const place = placeOf(each.trim());
    if (place === null || found.has(place.partition)) {
      throw new InvalidPosition(
        `${JSON.stringify(text)} is no position; give "earliest", "now", an event id, or what the position of a stream was`,
      );
    }
    found.set(place.partition, each.trim());
  }
  return found;
}

/** Puts the events of one stream in order. */
export class LogReader {
  /** Up to where everything has been read, by partition. @type {Map<string, string>} */
  #read;
  /** @type {Map<string, Place>} */
  #places = new Map();
  /** Up to where the application has had everything. @type {Map<string, string>} */
  #consumed;
  /** @type {Update[]} */
  #ready = [];
  /** Live updates that may follow the last page. @type {Update[]} */
  #later = [];
  /** What came live and has to be read. @type {Map<string, Place>} */
  #needed = new Map();
  /** @type {Update | null} */
  #last = null;
  #gap = false;
  #size;

  /**
   * @param {string} start - A position, `earliest` or `now`.
   * @param {number} size - Live updates kept while the application is slow; beyond, they are read from the history later.
   */
  constructor(start, size) {
    this.#size = size;
    /** Whether partitions without a place are read from the earliest event that is kept. */
    this.earliest = start !== "now";
    /** Whether each update that comes is the next event. */
    this.isLive = false;
    /** Whether there is nothing to read until something comes. */
    this.isWaiting = false;
    /** Topics of which something is missing at the gap that was read last, some of them. @type {string[]} */
    this.missing = [];
    this.#read = start === "earliest" || start === "now" ? new Map() : parsePosition(start);
    this.#consumed = new Map(this.#read);
    for (const [partition, event] of this.#read) this.#places.set(partition, /** @type {Place} */ (placeOf(event)));
  }

  /** Events that wait for the application. */
  get length() {
    return this.#ready.length;
  }

  /** Up to where the application has had everything; null if it has yet to begin at the earliest event. */
  get position() {
    const events = [...this.#consumed].sort(([one], [other]) => Number(one) - Number(other)).map(([, event]) => event);
    return events.length === 0 ? null : events.join(",");
  }

  /** Up to where everything has been read: what the next page is asked for. @returns {Record<string, string>} */
  get after() {
    return Object.fromEntries(this.#read);
  }

  /** The application is done with the update that it took last. */
  consume() {
    const place = this.#last === null ? null : placeOf(this.#last.eventId);
    if (this.#last !== null && place !== null) this.#consumed.set(place.partition, this.#last.eventId);
    this.#last = null;
    // What lies between was not for this stream.
    if (this.#ready.length === 0) for (const [partition, event] of this.#read) this.#consumed.set(partition, event);
  }

  /** Whether events before the next one are not kept any more. */
  get isAtGap() {
    return this.#ready[0]?.gap === true;
  }

  /** Forget what waits: the application shall not have it, and has not had it. */
  drop() {
    if (this.#ready.length > 0) this.#read = new Map(this.#consumed);
    this.#ready.length = this.#later.length = 0;
  }

  /** Take the next event out; undefined if none waits. */
  take() {
    const update = this.#ready.shift();
    if (update !== undefined) this.#last = update;
    return update;
  }

  /** @param {Update} update - That came live. */
  offer(update) {
    const place = placeOf(update.eventId);
    if (place === null || !isBehind(place, this.#places.get(place.partition))) return;
    this.isWaiting = false;
    if (update.snapshot || update.folded > 0) {
      this.#need(place);
    } else if (this.isLive) {
      if (this.#hasRoom) this.#put(place, update);
      else this.#need(place);
    } else if (this.#hasRoom) {
      this.#later.push(update);
    } else {
      for (const each of this.#later.splice(0)) this.#need(/** @type {Place} */ (placeOf(each.eventId)));
      this.#need(place);
    }
  }

  /** What comes live from now on may not be the next event. */
  interrupt() {
    this.isLive = false;
    this.isWaiting = false;
  }

  /** Something has changed that may let it go on. */
  wake() {
    this.isWaiting = false;
  }

  /**
   * Take a page in.
   *
   * @param {HistoryPart} part
   * @param {boolean} holds - Whether everything that is selected comes live from where the page ends.
   */
  answered(part, holds) {
    if (part.gap) {
      this.#gap = true;
      this.missing = part.missing;
    }
    for (const { topic, value, version, event: eventId, snapshot, removed } of part.events) {
      const place = placeOf(eventId);
      if (place !== null && isBehind(place, this.#places.get(place.partition))) {
        this.#put(place, { topic, value, version, eventId, snapshot, removed, folded: 0, gap: false });
      }
    }
    for (const [partition, event] of Object.entries(part.positions)) {
      const place = placeOf(event);
      if (place !== null && isBehind(place, this.#places.get(partition))) {
        this.#places.set(partition, place);
        this.#read.set(partition, event);
      }
    }
    this.#later = this.#later.filter(({ eventId }) => this.#isNews(/** @type {Place} */ (placeOf(eventId))));
    if (!part.complete) return;
    for (const [partition, place] of this.#needed) if (!this.#isNews(place)) this.#needed.delete(partition);
    if (this.#needed.size > 0) return;
    if (!holds) {
      // What came live meanwhile is in the next page: nothing more may come that would have it asked for.
      this.isWaiting = this.#later.length === 0;
      return;
    }
    this.isLive = true;
    for (const update of this.#later.splice(0)) this.offer(update);
  }

  /** @param {Place} place */
  #isNews(place) {
    return isBehind(place, this.#places.get(place.partition));
  }

  /**
   * @param {Place} place
   * @param {Update} update
   */
  #put(place, update) {
    this.#ready.push(this.#gap ? { ...update, gap: true } : update);
    this.#gap = false;
    this.#places.set(place.partition, place);
    this.#read.set(place.partition, update.eventId);
  }

  /** @param {Place} place */
  #need(place) {
    if (isBehind(place, this.#needed.get(place.partition))) this.#needed.set(place.partition, place);
    this.isLive = false;
  }

  get #hasRoom() {
    return this.#ready.length + this.#later.length < this.#size;
  }
}
