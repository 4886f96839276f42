/**
 * Iteration over what comes in time. Generators would not do: their `return()` waits for a `next()` that is under way, and
 * that may wait for ever.
 *
 * @module
 */

/**
 * Iterate over values that come in time.
 *
 * @template T
 * @param {() => IteratorResult<T, undefined> | null} take - The next value, the end, or null if there is neither now; may
 *   throw what the iteration ends with.
 * @param {(wake: () => void) => () => void} wait - Has *wake* called once when `take` may have something; returns what
 *   gives that up.
 * @param {() => void} [leave] - Called once, when the iteration is over: by its end, an error, or because it was left.
 * @returns {AsyncIterableIterator<T>}
 */
export function iterate(take, wait, leave = () => {}) {
  let over = false;
  /** Calls of `next` that wait, in order. @type {{resolve: (result: any) => void, reject: (error: unknown) => void}[]} */
  const waiting = [];
  /** @type {(() => void) | null} */
  let giveUp = null;

  const finish = () => {
    if (over) return;
    over = true;
    giveUp?.();
    giveUp = null;
    leave();
    for (const { resolve } of waiting.splice(0)) resolve({ done: true, value: undefined });
  };

  const serve = () => {
    giveUp = null;
    while (waiting.length > 0) {
      const [first] = waiting;
      try {
        const result = take();
        if (result === null) {
          giveUp = wait(serve);
          return;
        }
        if (result.done) {
          finish();
          return;
        }
        waiting.shift();
        first?.resolve(result);
      } catch (error) {
        waiting.shift();
        first?.reject(error);
        finish();
      }
    }
  };

  return {
    next: () =>
      new Promise((resolve, reject) => {
        if (over) {
          resolve({ done: true, value: undefined });
          return;
        }
        waiting.push({ resolve, reject });
        if (giveUp === null) serve();
      }),
    return: (value) => {
      finish();
      return Promise.resolve(value).then((last) => ({ done: true, value: last }));
    },
    throw: (error) => {
      finish();
      return Promise.reject(error);
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}
