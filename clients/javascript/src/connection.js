/**
 * One attached connection: it carries what the session machine has to say until it ends, and then says how it ended.
 *
 * It decides nothing about the session: it feeds the machine with what is read, writes once per turn of the event loop, and
 * keeps one timer for the machine's next deadline.
 *
 * @module
 */

import { CloseCode, reconnectFor } from "./codes.js";
import { RemoteProtocolError } from "./errors.js";
import { decode } from "./packets.js";

/** Bytes that the network may hold back before nothing more is numbered. */
const WRITE_ROOM = 256 * 1024;

/** Seconds between two looks whether a network that pushed back takes more: WebSockets do not tell. */
const POLL_BLOCKED = 0.05;

/** Seconds that a node has to answer where there is reason to doubt that it is still there. */
export const PROBE_PATIENCE = 3;

/** Seconds between two such questions; more would be impolite (protocol 5.6.3). */
const PROBE_PAUSE = 1;

/** Seconds by which a timer fires late if the page or the machine has slept. */
const LATE = 2;

/**
 * @typedef {import("./reconnect.js").Ending} Ending
 */

/** A connection that a welcome has been received on. */
export class Connection {
  #environment;
  #transport;
  #machine;
  #handle;
  /** @type {(ending: Ending) => void} */
  #settle = () => {};
  /** @type {(bug: unknown) => void} */
  #fail = () => {};
  #over = false;
  #woken = false;
  /** @type {(() => void) | null} */
  #cancelTimer = null;
  #timerAt = 0;
  #probedAt = -Infinity;
  /** @type {(() => void) | null} */
  #cancelPoll = null;
  /** @type {(() => void) | null} */
  #cancelLook = null;

  /**
   * @param {import("./environment.js").Environment} environment
   * @param {import("./connector.js").Reached} reached
   * @param {import("./machine.js").SessionMachine} machine - The session's, attached.
   * @param {(received: import("./machine.js").Received) => void} handle - Takes what the machine hands on, in order.
   */
  constructor(environment, { transport, early }, machine, handle) {
    this.#environment = environment;
    this.#transport = transport;
    this.#machine = machine;
    this.#handle = handle;
    /** How it ended; rejected only by a bug of this client. @type {Promise<Ending>} */
    this.ended = new Promise((resolve, reject) => {
      this.#settle = resolve;
      this.#fail = reject;
    });
    // In a task of its own, so that whoever made this knows it before it hands anything on.
    queueMicrotask(() => {
      this.#takeIn(() => early);
      this.#transport.listen({
        message: (data) => this.#takeIn(() => decode(data)),
        end: (ending) => this.#finish(ending),
      });
      this.wake();
    });
  }

  /** Have what the machine wants to write written in this turn of the event loop. */
  wake() {
    if (this.#woken || this.#over) return;
    this.#woken = true;
    queueMicrotask(() => {
      this.#woken = false;
      this.#write();
    });
  }

  /**
   * Find out in a short time whether the node is still there.
   *
   * One question at a time, because a pong does not say which ping it answers. Whoever doubts meanwhile is right to: since
   * the last question the network may have become another one, so the question is put again.
   */
  look() {
    if (this.#over) return;
    const now = this.#environment.now();
    const wait = this.#machine.isProbing ? PROBE_PAUSE : this.#probedAt + PROBE_PAUSE - now;
    if (wait > 0) {
      this.#cancelLook ??= this.#environment.after(() => {
        this.#cancelLook = null;
        this.look();
      }, wait);
      return;
    }
    this.#probedAt = now;
    this.#machine.probe(now, PROBE_PATIENCE);
    this.wake();
    this.#watch();
  }

  /**
   * End the connection from this side, after what waits to be written; the first ending counts.
   *
   * @param {Ending} ending
   */
  end(ending) {
    if (this.#over) return;
    for (const message of this.#machine.flush(WRITE_ROOM)) this.#transport.send(message);
    this.#transport.close(ending.code ?? CloseCode.GOING_AWAY, ending.message);
    this.#finish(ending);
  }

  /** @param {Ending} ending */
  #finish(ending) {
    if (this.#over) return;
    this.#over = true;
    this.#cancelTimer?.();
    this.#cancelPoll?.();
    this.#cancelLook?.();
    this.#transport.listen(null);
    this.#settle(ending);
  }

  /** @param {() => import("./packets.js").Packet[]} read */
  #takeIn(read) {
    if (this.#over) return;
    try {
      this.#machine.receive(read(), this.#environment.now(), (received) => {
        if (!this.#over) this.#handle(received);
      });
    } catch (error) {
      if (error instanceof RemoteProtocolError) {
        this.#violated(error);
      } else {
        this.#fail(error);
        this.end({ message: "the client failed" });
      }
    }
    this.#watch();
    if (this.#machine.hasOutput) this.wake();
  }

  /** @param {RemoteProtocolError} violation */
  #violated(violation) {
    this.#machine.sendLink({ type: "error", code: violation.code, message: violation.message });
    // What resuming mends is no violation that counts: a skipped packet is asked for again.
    const counts = reconnectFor(violation.closeCode) === "never";
    this.end({ message: violation.message, code: violation.closeCode, violation: counts });
  }

  #write() {
    while (!this.#over && this.#machine.hasOutput) {
      const messages = this.#machine.flush(WRITE_ROOM - this.#transport.backlog);
      if (messages.length === 0) {
        this.#cancelPoll ??= this.#environment.after(() => {
          this.#cancelPoll = null;
          this.wake();
        }, POLL_BLOCKED);
        return;
      }
      for (const message of messages) this.#transport.send(message);
    }
  }

  /** Do what is due, and have the timer fire when the next thing is. */
  #watch() {
    if (this.#over) return;
    const now = this.#environment.now();
    let deadline = this.#machine.nextDeadline();
    while (deadline !== null && deadline <= now) {
      if (this.#machine.tick(now)) {
        this.end({ message: "the node was silent for too long", code: CloseCode.PING_TIMEOUT, hung: true });
        return;
      }
      this.wake();
      deadline = this.#machine.nextDeadline();
    }
    // Deadlines mostly move into the future; a timer that fires early is cheaper than a new one per message.
    if (deadline === null || (this.#cancelTimer !== null && this.#timerAt <= deadline)) return;
    this.#cancelTimer?.();
    this.#timerAt = deadline;
    this.#cancelTimer = this.#environment.after(() => {
      this.#cancelTimer = null;
      // Who has slept could not hear: what the node said may be about to be read.
      if (this.#environment.now() - this.#timerAt > LATE) this.look();
      this.#watch();
    }, deadline - now);
  }
}
