/**
 * From the decision to connect to a node's welcome: attempts, one after the other, until one succeeds or none can.
 *
 * @module
 */

import { CloseCode } from "./codes.js";
import { sleep, unlessAborted } from "./environment.js";
import { RemoteProtocolError } from "./errors.js";
import { decode } from "./packets.js";
import { AttemptFailed, openTransport } from "./transport.js";

/** Seconds for one attempt to reach a node, up to the end of the HTTP upgrade. */
export const ATTEMPT_TIMEOUT = 5;

/** Seconds to wait for the welcome after that. */
export const WELCOME_TIMEOUT = 5;

/** Seconds that an attempt has even if it begins at the very end of the window. */
const LEAST_ATTEMPT = 0.25;

/** Seconds within which an attempt is made at random, once the network seems to be back. */
const HURRY_SPREAD = 0.25;

/**
 * Who wants a welcome: the opening of a session, or a session that resumes.
 *
 * @typedef {object} HandshakeRole
 * @property {() => object} firstPacket - Makes the packet that a new connection begins with.
 * @property {(welcome: import("./packets.js").Welcome) => void} accept - Takes a welcome on, before any packet that follows
 *   it; throws a `RemoteProtocolError` if it is no answer to what was sent.
 * @property {() => void} rejected - No acceptable welcome came on the connection for which `firstPacket` was made.
 * @property {() => Promise<void>} [prepare] - Makes ready for an attempt; throws an `AttemptFailed` if it cannot.
 * @property {(ending: import("./reconnect.js").Ending) => import("./reconnect.js").Ending} [refused] - Judges how an attempt
 *   ended: it may know a way on where others would give up.
 *
 * @typedef {object} Reached - A node has welcomed who asked.
 * @property {import("./transport.js").Transport} transport
 * @property {import("./packets.js").Welcome} welcome
 * @property {import("./packets.js").Packet[]} early - What came in the same message after it.
 */

/**
 * Try until a node welcomes who asks.
 *
 * @param {import("./environment.js").Environment} environment
 * @param {import("./reconnect.js").ReconnectPlan} plan
 * @param {HandshakeRole} role
 * @param {AbortSignal} signal - Gives up.
 * @param {() => AbortSignal | null} [hurry] - What is aborted when waiting longer makes no sense.
 * @returns {Promise<Reached>}
 * @throws {Error} What the plan says if it cannot be done; `AbortError` if it was given up.
 */
export async function reach(environment, plan, role, signal, hurry = () => null) {
  for (;;) {
    const following = plan.next(environment.now(), environment.random());
    if (following instanceof Error) throw following;
    if (following.delay > 0) {
      await pause(environment, following.delay, plan.leastDelay, signal, hurry());
      if (plan.remaining(environment.now()) === 0) continue;
    }
    signal.throwIfAborted();
    try {
      return await attempt(environment, plan, following.url, role, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof AttemptFailed)) throw error;
      plan.failed(role.refused?.(error.ending) ?? error.ending, environment.now());
    }
  }
}

/**
 * Wait before an attempt. Whoever is in a hurry waits no longer than a node has asked for, and a moment that is drawn.
 *
 * @param {import("./environment.js").Environment} environment
 * @param {number} delay
 * @param {number} advised - The part of it that a node has asked for.
 * @param {AbortSignal} signal
 * @param {AbortSignal | null} hurry
 */
async function pause(environment, delay, advised, signal, hurry) {
  const begin = environment.now();
  await sleep(environment, delay, signal, ...(hurry === null ? [] : [hurry]));
  const passed = environment.now() - begin;
  if (!hurry?.aborted || signal.aborted || passed >= delay) return;
  const rest = Math.max(0, advised - passed) + environment.random() * HURRY_SPREAD;
  await sleep(environment, Math.min(delay - passed, rest), signal);
}

/**
 * @param {import("./environment.js").Environment} environment
 * @param {import("./reconnect.js").ReconnectPlan} plan
 * @param {string} url
 * @param {HandshakeRole} role
 * @param {AbortSignal} signal
 * @returns {Promise<Reached>}
 */
async function attempt(environment, plan, url, role, signal) {
  /** Cut a time limit down to what is left of the window, but not to nothing. @param {number} seconds */
  const within = (seconds) => {
    const remaining = plan.remaining(environment.now());
    return remaining === null ? seconds : Math.min(seconds, Math.max(LEAST_ATTEMPT, remaining));
  };

  await unlessAborted(Promise.resolve(role.prepare?.()), signal);
  const transport = await openTransport(environment, url, within(ATTEMPT_TIMEOUT), signal);
  const first = { ...role.firstPacket(), ...plan.following };
  try {
    signal.throwIfAborted();
    const { welcome, early } = await shakeHands(environment, transport, first, within(WELCOME_TIMEOUT), signal);
    try {
      role.accept(welcome);
    } catch (error) {
      if (!(error instanceof RemoteProtocolError)) throw error;
      throw new AttemptFailed({
        message: `the welcome does not fit: ${error.message}`,
        code: CloseCode.PROTOCOL_ERROR,
        violation: true,
      });
    }
    return { transport, welcome, early };
  } catch (error) {
    role.rejected();
    const ending = error instanceof AttemptFailed ? error.ending : { message: "the client stops" };
    transport.close(ending.code ?? CloseCode.GOING_AWAY, ending.message);
    throw error;
  }
}

/**
 * Send the first packet and wait for the welcome.
 *
 * @param {import("./environment.js").Environment} environment
 * @param {import("./transport.js").Transport} transport
 * @param {object} first
 * @param {number} seconds
 * @param {AbortSignal} signal
 * @returns {Promise<{welcome: import("./packets.js").Welcome, early: import("./packets.js").Packet[]}>}
 * @throws {AttemptFailed} There was none. If the node told why in an error packet, the ending says so.
 */
function shakeHands(environment, transport, first, seconds, signal) {
  return new Promise((resolve, reject) => {
    /** @type {import("./packets.js").ErrorPacket | null} */
    let refusal = null;

    /** @param {import("./reconnect.js").Ending} ending */
    const fail = (ending) => finish(() => reject(new AttemptFailed(ending)));

    /** @param {() => void} settle */
    const finish = (settle) => {
      cancel();
      signal.removeEventListener("abort", abort);
      transport.listen(null);
      settle();
    };
    const abort = () => fail({ message: "the client stops" });
    signal.addEventListener("abort", abort);
    const cancel = environment.after(() => {
      if (refusal !== null) fail(refused(refusal, null));
      else fail({ message: `no welcome came within ${seconds} s`, hung: true });
    }, seconds);

    transport.send(JSON.stringify(first));
    transport.listen({
      message: (data) => {
        try {
          const packets = decode(data);
          for (const [index, packet] of packets.entries()) {
            if (packet.type === "welcome") {
              finish(() => resolve({ welcome: packet, early: packets.slice(index + 1) }));
              return;
            }
            if (packet.type !== "error") {
              throw new RemoteProtocolError(`the node began with ${packet.type} and not with a welcome`);
            }
            // Its close code comes next and says when to try again.
            refusal = packet;
          }
        } catch (error) {
          if (!(error instanceof RemoteProtocolError)) throw error;
          fail({ message: error.message, code: error.closeCode, violation: true });
        }
      },
      end: (ending) => fail(refusal === null ? ending : refused(refusal, ending.code ?? null)),
    });
  });
}

/**
 * @param {import("./packets.js").ErrorPacket} refusal
 * @param {number | null} code
 * @returns {import("./reconnect.js").Ending}
 */
function refused(refusal, code) {
  return {
    message: `the node refused: ${refusal.message} (${refusal.code})`,
    code,
    error: refusal.code,
    retryAfter: refusal.retryAfter,
    node: refusal.node,
    urls: refusal.urls,
  };
}
