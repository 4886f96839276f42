/**
 * How far a client has come in the streams of topics: what it tells a node that has to replay what it missed (protocol
 * 10.6).
 *
 * A live update that took the place of none leaves in the order of the stream; what is folded runs ahead, and snapshots come
 * in no order. So everything up to the event of a live update without `folded` has come before it, or something newer has
 * in its place. From when on that holds is said by the server, by the notice `snapshots_complete`, which names the place.
 *
 * @module
 */

/** Subscribes named whose snapshots have not all come: as many as a server takes up at a time for one session. */
export const MOST_UNFINISHED = 16;

/** Bytes of their selectors: a sixteenth of what the first message of a connection may have. */
const MOST_UNFINISHED_BYTES = 4096;

/** Such subscribes that are kept in mind. A node that sends no notices never ends one. */
const MOST_KNOWN = 64;

const encoder = new TextEncoder();

const EVENT = /^[^-]*-(\d+)-(\d+)$/;

/** Where a client is in each topic partition. */
export class Positions {
  /** The event of the last live update that took the place of none, by partition. @type {Map<string, string>} */
  #latest = new Map();
  /** From where on positions hold, as servers have said. @type {Map<string, string>} */
  #since = new Map();
  /** Selectors by request. @type {Map<number, string>} */
  #unfinished = new Map();
  #tooMany = false;
  #named = false;
  /** @type {() => void} */
  #interrupted = () => {};
  /** @type {() => void} */
  #settled = () => {};
  /** How often live updates might not follow what came before. */
  interruptions = 0;

  /**
   * Be told.
   *
   * @param {{interrupted: () => void, settled: () => void}} listener - Of live updates that might not follow what came
   *   before; and that all current values of a subscribe, or after that, have come.
   */
  watch({ interrupted, settled }) {
    this.#interrupted = interrupted;
    this.#settled = settled;
  }

  /**
   * The partitions of which all current values have come, so that what is selected comes live and in order; none while
   * those of a subscribe have yet to come. @returns {Set<string>}
   */
  get settled() {
    return new Set(this.#unfinished.size > 0 || this.#tooMany ? [] : this.#since.keys());
  }

  /** @param {string} event - Of a live update that took the place of none. */
  updated(event) {
    this.#latest.set(event.slice(0, event.indexOf("-")), event);
  }

  /**
   * A subscribe was executed: its snapshots begin to come.
   *
   * @param {number} request
   * @param {string} selector
   */
  subscribed(request, selector) {
    if (this.#unfinished.size >= MOST_KNOWN) this.#tooMany = true;
    else this.#unfinished.set(request, selector);
  }

  /**
   * The server says that all current values have been sent that were due.
   *
   * @param {import("./packets.js").NoticeBody} notice
   */
  completed({ request, positions }) {
    if (request !== null) this.#unfinished.delete(request);
    for (const [partition, event] of Object.entries(positions)) this.#since.set(partition, event);
    this.#settled();
  }

  /**
   * The server sends current values in place of each update between, until it says that they are complete.
   *
   * @param {number[] | null} partitions - Of which; null for all.
   */
  reread(partitions) {
    this.#forget(partitions === null ? [...this.#since.keys()] : partitions.map(String));
  }

  /** Say nothing in the resume that follows. */
  unnamed() {
    this.#named = false;
    return {};
  }

  /**
   * Tell what a resume says: nothing if there is nothing to say, or there are too many subscribes that are not complete.
   *
   * One without an answer is named with them: it may have been executed, and then it brings no snapshots when it is asked
   * again.
   *
   * @param {Map<number, string>} unanswered - Selectors of subscribes that have no answer yet, by request.
   * @returns {{positions?: Record<string, string>, unfinished?: Record<string, string>}}
   */
  named(unanswered) {
    const selectors = new Map([...this.#unfinished, ...unanswered]);
    const size = [...selectors.values()].reduce((sum, selector) => sum + encoder.encode(selector).length, 0);
    const tooMany = this.#tooMany || selectors.size > MOST_UNFINISHED || size > MOST_UNFINISHED_BYTES;
    if (tooMany || this.#since.size === 0) return this.unnamed();
    this.#named = true;
    const positions = Object.fromEntries([...this.#since].map(([each, since]) => [each, this.#position(each, since)]));
    return selectors.size === 0 ? { positions } : { positions, unfinished: Object.fromEntries(selectors) };
  }

  /**
   * The session goes on at a node that had no buffers of it.
   *
   * @param {true | Record<string, string> | null} replayed - Of the welcome.
   * @returns {boolean} Whether everything that was missed follows, and no current values in its place.
   */
  restarted(replayed) {
    if (this.#named && replayed === true) return true;
    if (this.#named && replayed !== null && replayed !== true) {
      this.#forget(Object.keys(replayed));
    } else {
      this.#since.clear();
      this.#latest.clear();
      this.#unfinished.clear();
      this.#tooMany = false;
      this.#interrupt();
    }
    return false;
  }

  /**
   * @param {string} partition
   * @param {string} since
   */
  #position(partition, since) {
    const latest = this.#latest.get(partition);
    return latest === undefined || isBefore(latest, since) ? since : latest;
  }

  /** @param {string[]} partitions */
  #forget(partitions) {
    for (const each of partitions) {
      this.#since.delete(each);
      this.#latest.delete(each);
    }
    this.#interrupt();
  }

  #interrupt() {
    this.interruptions += 1;
    this.#interrupted();
  }
}

/**
 * Tell whether one event is before another one of its partition; what is no event is before all.
 *
 * @param {string} event
 * @param {string} other
 */
function isBefore(event, other) {
  const [generation, sequence] = placeOf(event);
  const [otherGeneration, otherSequence] = placeOf(other);
  return generation < otherGeneration || (generation === otherGeneration && sequence < otherSequence);
}

/**
 * @param {string} event
 * @returns {[number, number]}
 */
function placeOf(event) {
  const found = EVENT.exec(event);
  return found === null ? [-1, -1] : [Number(found[1]), Number(found[2])];
}
