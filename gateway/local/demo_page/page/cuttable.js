/**
 * A WebSocket whose connection a button can cut, and keep cut for a while.
 *
 * @module
 */

/** @type {Set<WebSocket>} */
const open = new Set();
let cutUntil = 0;

/** How long a WebSocket that has to fail takes for it, in milliseconds. */
const FAILS_AFTER = 50;

/** Fails as one whose server is out of reach. */
class Unreachable extends EventTarget {
  protocol = "";
  bufferedAmount = 0;
  /** @type {number} */
  readyState = WebSocket.CONNECTING;

  constructor() {
    super();
    setTimeout(() => {
      this.readyState = WebSocket.CLOSED;
      this.dispatchEvent(new Event("error"));
      this.dispatchEvent(new CloseEvent("close", { code: 1006 }));
    }, FAILS_AFTER);
  }

  send() {}

  close() {}
}

/** To be given to `connect` as `WebSocket`. */
export const CuttableWebSocket = /** @type {typeof WebSocket} */ (
  /** @type {unknown} */ (
    class {
      /**
       * @param {string} url
       * @param {string[]} protocols
       */
      constructor(url, protocols) {
        if (performance.now() < cutUntil) return new Unreachable();
        const socket = new WebSocket(url, protocols);
        open.add(socket);
        socket.addEventListener("close", () => open.delete(socket));
        return socket;
      }
    }
  )
);

/**
 * Cut all connections without a goodbye of the session, and let none be made for a while.
 *
 * @param {number} seconds
 */
export function cut(seconds) {
  cutUntil = performance.now() + seconds * 1000;
  for (const socket of open) socket.close();
  // As the browser says it when the network is back; the client then makes its next attempt at once.
  if (seconds > 0) setTimeout(() => dispatchEvent(new Event("online")), seconds * 1000);
}
