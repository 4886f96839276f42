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
 * @property {(callback: () => void) => () => void} [awakened] - Calls back whenever the platform says that the network may
 *   have changed or the page may have slept; returns what stops it.
 */

/** Milliseconds of the longest timer that platforms have; with more they would fire at once. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** Events of a page after which its connection may be another one than it seems. */
const PAGE_EVENTS = ["online", "offline", "pageshow"];

/** Events of a document, likewise; it is hidden or frozen at some of them, and nothing is to be done then. */
const DOCUMENT_EVENTS = ["visibilitychange", "resume"];

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
    after,
    awakened,
    WebSocket,
    ...(typeof location === "object" && location !== null ? { base: location.href } : {}),
  };
}

/**
 * Call back once, after any time: `Infinity` is never.
 *
 * @param {() => void} callback
 * @param {number} seconds
 * @returns {() => void} Cancels it.
 */
export function after(callback, seconds) {
  let left = seconds * 1000;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const wait = () => {
    const part = Math.min(left, LONGEST_TIMER);
    left -= part;
    timer = setTimeout(left > 0 ? wait : callback, part);
  };
  if (left !== Infinity) wait();
  return () => clearTimeout(timer);
}

/**
 * @param {() => void} callback
 * @returns {() => void}
 */
function awakened(callback) {
  if (typeof document !== "object" || typeof addEventListener !== "function") return () => {};
  const seen = () => {
    if (document.visibilityState === "visible") callback();
  };
  for (const name of PAGE_EVENTS) addEventListener(name, callback);
  for (const name of DOCUMENT_EVENTS) document.addEventListener(name, seen);
  return () => {
    for (const name of PAGE_EVENTS) removeEventListener(name, callback);
    for (const name of DOCUMENT_EVENTS) document.removeEventListener(name, seen);
  };
}

/**
 * Check a length of time that an application gave.
 *
 * @param {string} name
 * @param {unknown} seconds - `Infinity` is as long as it takes.
 * @param {{zero?: boolean}} [options] - Whether 0 makes sense.
 * @throws {TypeError}
 */
export function checkSeconds(name, seconds, { zero = true } = {}) {
  if (seconds === null || seconds === undefined) return;
  if (typeof seconds !== "number" || !(zero ? seconds >= 0 : seconds > 0)) {
    throw new TypeError(`${name} is a number of seconds${zero ? "" : " above 0"}, not ${String(seconds)}`);
  }
}

/**
 * Check a length of time that a node keeps; JSON has no number for one without an end.
 *
 * @param {string} name
 * @param {unknown} seconds
 * @throws {TypeError}
 */
export function checkDuration(name, seconds) {
  checkSeconds(name, seconds);
  if (seconds === Infinity) throw new TypeError(`${name} is a number of seconds, and not infinite`);
}

/**
 * Check a signal that an application gave.
 *
 * @param {unknown} signal
 * @throws {TypeError} It is none.
 * @throws {unknown} Its reason, if it is aborted already.
 */
export function checkSignal(signal) {
  if (signal === undefined || signal === null) return;
  // One of another frame of the page is no instance of this frame's class.
  const { aborted, reason, addEventListener: listen } = /** @type {AbortSignal} */ (signal);
  if (typeof aborted !== "boolean" || typeof listen !== "function") throw new TypeError("signal is an AbortSignal");
  if (aborted) throw reason;
}

/**
 * Wait for a promise, but not for ever.
 *
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal | null | undefined} signal - Ends the wait.
 * @returns {Promise<T>} Rejected with the signal's reason if it comes first; then nobody hears of the promise.
 */
export function unlessAborted(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/**
 * Wait.
 *
 * @param {Environment} environment
 * @param {number} seconds
 * @param {...AbortSignal} signals - Each ends the wait early.
 * @returns {Promise<void>}
 */
export function sleep(environment, seconds, ...signals) {
  return new Promise((resolve) => {
    if (signals.some(({ aborted }) => aborted)) {
      resolve();
      return;
    }
    const cancel = environment.after(finish, seconds);
    for (const signal of signals) signal.addEventListener("abort", finish, { once: true });

    function finish() {
      cancel();
      for (const signal of signals) signal.removeEventListener("abort", finish);
      resolve();
    }
  });
}
