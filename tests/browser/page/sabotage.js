/**
 * Mistakes that a page or a client could make. The account of a run must find each of them.
 *
 * @module
 */

/** Of so many updates one is dropped, or swapped with the next one of its stream. */
const RARELY = 1_000;

/** Of so many publishes one is sent twice. */
const SELDOM = 10;

/**
 * @typedef {{drop?: boolean, swap?: boolean, forget?: boolean, repeat?: boolean, reject?: boolean, leak?: boolean}} Sabotage
 * @typedef {(update: any) => void} Deliver
 */

/**
 * Make the path of updates from the client to the record as bad as it shall be.
 *
 * @param {Sabotage} sabotage
 * @param {Deliver} deliver
 * @returns {Deliver}
 */
export function badPath({ drop, swap }, deliver) {
  let count = 0;
  /** @type {any} */
  let held = null;
  if (drop) {
    return (update) => {
      count += 1;
      if (count % RARELY !== 0) deliver(update);
    };
  }
  if (!swap) return deliver;
  return (update) => {
    count += 1;
    if (held === null && count % RARELY === 0) {
      held = update;
      return;
    }
    deliver(update);
    if (held?.topic === update.topic) {
      deliver(held);
      held = null;
    }
  };
}

/**
 * Give the store of the kept token, which may forget it.
 *
 * @param {Sabotage} sabotage
 */
export function badStore({ forget }) {
  if (!forget) return {};
  const store = {
    getItem: () => null,
    setItem: (/** @type {string} */ name, /** @type {string} */ text) => sessionStorage.setItem(name, text),
    removeItem: (/** @type {string} */ name) => sessionStorage.removeItem(name),
  };
  return { store };
}

/**
 * Do what an opened session is not to suffer.
 *
 * @param {Sabotage} sabotage
 * @param {string} kept - Name of the record with the token.
 */
export function badManners({ reject, leak }, kept) {
  if (reject) void Promise.reject(new Error("nobody waits for this"));
  if (leak) history.replaceState({ copy: sessionStorage.getItem(kept) }, "");
}

/**
 * Tell whether a publish is to be sent twice.
 *
 * @param {Sabotage} sabotage
 * @param {number} value - That is published, counted from 1.
 */
export function twice({ repeat }, value) {
  return Boolean(repeat) && value % SELDOM === 0;
}
