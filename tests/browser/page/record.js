/**
 * What happens in a page, one entry after the other, for a reader outside of it.
 *
 * Entries are numbered from 1 for the life of the document and kept until the reader says that it has them. What is left
 * when the document goes away is sent to where it came from.
 *
 * @module
 */

/** Bytes that a browser takes along from a document that goes away. */
const TAIL_BYTES = 60_000;

/**
 * @typedef {{n: number, at: number, kind: string} & Record<string, unknown>} Entry - `at` is in milliseconds since 1970.
 */

/** The record of one document. */
export class PageRecord {
  /** @type {Entry[]} */
  #entries = [];
  #count = 0;
  #tab;

  /** @param {string} tab - Its name. */
  constructor(tab) {
    this.#tab = tab;
    /** Tells this document from the one before and after it in the same tab. */
    this.life = crypto.randomUUID();
  }

  /**
   * @param {string} kind
   * @param {Record<string, unknown>} [facts]
   */
  add(kind, facts = {}) {
    this.#count += 1;
    this.#entries.push({ n: this.#count, at: performance.timeOrigin + performance.now(), kind, ...facts });
  }

  /**
   * Give what is not known yet.
   *
   * @param {string} life - Of which the reader knows entries.
   * @param {number} known - Up to which; they are dropped here.
   */
  take(life, known) {
    if (life === this.life) this.#entries = this.#entries.filter(({ n }) => n > known);
    return { life: this.life, tab: this.#tab, entries: this.#entries };
  }

  /** Send the oldest entries that fit to where the document came from. */
  sendTail() {
    const { life } = this;
    let entries = this.#entries;
    const text = () => JSON.stringify({ life, tab: this.#tab, entries });
    while (entries.length > 0 && text().length > TAIL_BYTES) entries = entries.slice(0, entries.length / 2);
    navigator.sendBeacon("/tail", text());
  }
}

/**
 * Describe an error without its message, which is for people.
 *
 * @param {any} error
 */
export function describe(error) {
  return { name: error?.name ?? typeof error, code: error?.code ?? null, message: String(error?.message ?? error) };
}
