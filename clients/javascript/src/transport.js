/**
 * One WebSocket to a node. Nothing else in the client touches a WebSocket.
 *
 * Scripts in browsers see neither the HTTP status of a refused upgrade nor why a connection could not be made; both count
 * as a lost transport (protocol 1.3).
 *
 * @module
 */

import { CloseCode } from "./codes.js";
import { describeUrl } from "./reconnect.js";
import { SUBPROTOCOL } from "./packets.js";

/** Longest reason in a close frame, in bytes (RFC 6455 section 5.5). */
const MAX_REASON_BYTES = 123;

/** What platforms report for a close frame without a code, and for a connection that ended without a close frame. */
const NO_CODE = new Set([1005, 1006]);

/** `WebSocket.CLOSING`: from here on nothing can be sent. */
const CLOSING = 2;

/**
 * @typedef {import("./reconnect.js").Ending} Ending
 * @typedef {{message: (data: unknown) => void, end: (ending: Ending) => void}} TransportListener
 */

/** A connection could not be made, or its handshake did not end with a welcome. */
export class AttemptFailed extends Error {
  /** @param {Ending} ending */
  constructor(ending) {
    super(ending.message);
    this.ending = ending;
  }
}

/** An open WebSocket. */
export class Transport {
  #socket;
  /** @type {TransportListener | null} */
  #listener = null;
  /** What came while nobody listened. @type {unknown[]} */
  #early = [];
  /** @type {Ending | null} */
  #ending = null;

  /** @param {import("./environment.js").WebSocketLike} socket */
  constructor(socket) {
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => {
      if (this.#listener === null) this.#early.push(data);
      else this.#listener.message(data);
    });
    socket.addEventListener("close", ({ code, reason }) => {
      if (this.#ending !== null) return;
      const coded = !NO_CODE.has(code);
      this.#ending = {
        code: coded ? code : null,
        message: coded
          ? `the node closed the connection with code ${code}: ${reason || "no reason given"}`
          : "the connection was lost",
      };
      this.#listener?.end(this.#ending);
    });
  }

  /** Bytes written and not yet taken by the network. */
  get backlog() {
    return this.#socket.bufferedAmount;
  }

  /**
   * Hand everything to *listener* from now on, what came before first; null keeps it for the next one.
   *
   * @param {TransportListener | null} listener
   */
  listen(listener) {
    this.#listener = listener;
    while (this.#early.length > 0 && this.#listener !== null) this.#listener.message(this.#early.shift());
    if (this.#ending !== null) this.#listener?.end(this.#ending);
  }

  /** @param {string} message */
  send(message) {
    if (this.#socket.readyState < CLOSING) this.#socket.send(message);
  }

  /**
   * Close with a code that does not end the session; what is still under way is lost. Does not wait.
   *
   * @param {number} code
   * @param {string} reason
   */
  close(code, reason) {
    this.#listener = null;
    this.#ending ??= { message: "this side closed the connection" };
    // Scripts may only send 1000 and codes of applications.
    const allowed = code === CloseCode.NORMAL || code >= 3000;
    this.#socket.close(allowed ? code : CloseCode.PROTOCOL_ERROR, cut(reason));
  }
}

/**
 * Cut a text to what fits into a close frame.
 *
 * @param {string} reason
 */
function cut(reason) {
  const { read } = new TextEncoder().encodeInto(reason, new Uint8Array(MAX_REASON_BYTES));
  return reason.slice(0, read);
}

/**
 * @param {import("./environment.js").Environment} environment
 * @param {string} url
 * @throws {AttemptFailed} The platform does not take the URL, as browsers do with `ws:` in a page of `https:`.
 */
function make(environment, url) {
  try {
    return new environment.WebSocket(url, [SUBPROTOCOL]);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new AttemptFailed({ message: `${describeUrl(url)} is not a usable URL: ${why}`, permanent: true });
  }
}

/**
 * Open a WebSocket that speaks this protocol.
 *
 * @param {import("./environment.js").Environment} environment
 * @param {string} url - With the route hint.
 * @param {number} seconds - Time for the name look-up, TCP, TLS and the HTTP upgrade together.
 * @param {AbortSignal} signal - Gives up.
 * @returns {Promise<Transport>}
 * @throws {AttemptFailed}
 */
export function openTransport(environment, url, seconds, signal) {
  const where = describeUrl(url);
  return new Promise((resolve, reject) => {
    const socket = make(environment, url);
    let settled = false;

    /** @param {Ending} ending */
    const fail = (ending) => {
      if (settled) return;
      settled = true;
      stopWaiting();
      reject(new AttemptFailed(ending));
    };
    const abort = () => {
      fail({ message: "the client stops" });
      socket.close();
    };
    const stopWaiting = () => {
      cancel();
      signal.removeEventListener("abort", abort);
    };
    signal.addEventListener("abort", abort);
    const cancel = environment.after(() => {
      fail({ message: `${where} did not answer within ${seconds} s`, hung: true });
      socket.close();
    }, seconds);

    socket.addEventListener("open", () => {
      if (settled) return;
      if (socket.protocol !== SUBPROTOCOL) {
        fail({ message: `${where} is not a gateway: it did not accept ${SUBPROTOCOL}`, permanent: true });
        socket.close();
        return;
      }
      settled = true;
      stopWaiting();
      resolve(new Transport(socket));
    });
    // The event tells nothing, so that scripts cannot find out about a network behind the browser.
    socket.addEventListener("error", () => fail({ message: `${where} cannot be reached` }));
    socket.addEventListener("close", () => fail({ message: `${where} cannot be reached` }));
  });
}
