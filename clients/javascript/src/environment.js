/**
 * What the client takes from its surroundings: clock, timers, chance, WebSocket. Replaceable, so that tests need not wait.
 *
 * @module
 */

/**
 * The part of the standard `WebSocket` that is used.
 *
 * @typedef {object} WebSocketLike
 * @property {string} protocol
 * @property {number} bufferedAmount
 * @property {number} readyState
 * @property {(data: string) => void} send
 * @property {(code?: number, reason?: string) => void} close
 * @property {(type: string, listener: (event: any) => void) => void} addEventListener
 *
 * @typedef {new (url: string, protocols: string[]) => WebSocketLike} WebSocketConstructor
 *
 * @typedef {object} Environment
 * @property {() => number} now - Seconds of a monotonic clock.
 * @property {() => number} wall - Milliseconds since 1970.
 * @property {() => number} random - Uniform in [0, 1).
 * @property {(callback: () => void, seconds: number) => () => void} after - Calls back once; returns what cancels it.
 * @property {WebSocketConstructor} WebSocket
 * @property {string} [base] - What relative URLs are relative to.
 */

/**
 * Take what the platform has.
 *
 * @param {WebSocketConstructor} [WebSocket] - Needed where there is no global one, as in Node.js 20.
 * @returns {Environment}
 */
export function platform(WebSocket = /** @type {any} */ (globalThis).WebSocket) {
  if (typeof WebSocket !== "function") {
    throw new TypeError("there is no global WebSocket here (Node.js has one since version 22); give options.WebSocket");
  }
  return {
    now: () => performance.now() / 1000,
    wall: () => Date.now(),
    random: () => Math.random(),
    after: (callback, seconds) => {
      const timer = setTimeout(callback, seconds * 1000);
      return () => clearTimeout(timer);
    },
    WebSocket,
    ...(typeof location === "object" && location !== null ? { base: location.href } : {}),
  };
}

/**
 * Wait.
 *
 * @param {Environment} environment
 * @param {number} seconds
 * @param {AbortSignal} [signal] - Ends the wait early.
 * @returns {Promise<void>}
 */
export function sleep(environment, seconds, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const cancel = environment.after(finish, seconds);
    signal?.addEventListener("abort", finish, { once: true });

    function finish() {
      cancel();
      signal?.removeEventListener("abort", finish);
      resolve();
    }
  });
}
