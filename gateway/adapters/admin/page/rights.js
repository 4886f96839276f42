/**
 * What the token permits at this moment: asked for again and again, because a reload of the policy or of the file of
 * administrators changes it. The nodes decide; this is for what the page offers.
 *
 * @module
 */

/** Milliseconds between two questions. */
const INTERVAL = 2000;

/** The rights. Event: `change`. */
export class Rights extends EventTarget {
  #api;
  /** @type {Set<string>} */
  #actions = new Set();
  #timer = 0;
  #looking = false;
  #over = false;
  #failed;

  /**
   * @param {import("./api.js").Api} api
   * @param {(error: unknown) => void} failed - Told why they cannot be known.
   */
  constructor(api, failed) {
    super();
    this.#api = api;
    this.#failed = failed;
    // Whatever was refused had been offered: by mistake, or as of some moments ago.
    api.refused = () => {
      if (!this.#looking) void this.look();
    };
  }

  /**
   * @param {string} action - As permissions name it.
   */
  may(action) {
    return this.#actions.has(action);
  }

  /** Ask now, and every few seconds from then on. */
  async look() {
    this.#looking = true;
    try {
      const { actions } = await this.#api.access();
      if (this.#over) return;
      const changed = actions.length !== this.#actions.size || actions.some((each) => !this.may(each));
      this.#actions = new Set(actions);
      if (changed) this.dispatchEvent(new Event("change"));
    } catch (error) {
      // Without an answer, what was known stays.
      if (!this.#over) this.#failed(error);
    }
    this.#looking = false;
    clearTimeout(this.#timer);
    if (!this.#over) this.#timer = setTimeout(() => void this.look(), INTERVAL);
  }

  /** Ask no more. */
  stop() {
    this.#over = true;
    clearTimeout(this.#timer);
  }

  /**
   * Show elements only while an action is permitted.
   *
   * @param {string} action
   * @param {HTMLElement[]} elements
   * @param {AbortSignal} signal - Ends it.
   */
  guard(action, elements, signal) {
    const show = () => {
      for (const element of elements) element.hidden = !this.may(action);
    };
    this.addEventListener("change", show, { signal });
    show();
  }
}
