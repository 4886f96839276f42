/**
 * The client's end of a session: reliability over any number of connections (protocol section 5).
 *
 * ```text
 * submit ─▶ waiting ──number──▶ kept until acknowledged ──▶ messages        receive ─▶ every packet once, in order
 *                       (flush, as far as transport and bounds have room)
 * ```
 *
 * It has three inputs, the application (`submit` and the changes of state), the network (`receive`) and the timer (`tick`),
 * and does no I/O: what is to be written comes out of `flush` as messages, when to call `tick` comes out of `nextDeadline`.
 * Times are seconds of any monotonic clock.
 *
 * @module
 */

import { CloseCode } from "./codes.js";
import { RemoteProtocolError } from "./errors.js";
import { byteLength, MAX_NUMBER } from "./packets.js";

/** Packets received after which an acknowledgement is sent alone (protocol 5.3.2). */
export const ACK_PACKETS = 256;

/** ... and at the latest after this part of the node's resend buffer, so that the node never waits for it. */
export const ACK_SHARE = 4;

/** Seconds after which an acknowledgement is sent alone. */
export const ACK_DELAY = 0.5;

/** Bytes around a body in its message: brackets, commas and two numbers with their names. */
const OVERHEAD_BYTES = 64;

/**
 * @typedef {"fresh" | "attached" | "detached" | "resuming"} State
 *
 * @typedef {object} Policy - The numbers to work with, from the welcome.
 * @property {number} resendPackets
 * @property {number} resendBytes
 * @property {number} messageBytes
 * @property {number} ackPackets
 * @property {number} pingTimeout
 *
 * @typedef {{body: string, size: number, request: number | null}} Outgoing - A session packet without `id` and `received`;
 *   the number of the request that it carries.
 *
 * @typedef {import("./packets.js").SessionBody | import("./packets.js").Ping | import("./packets.js").GoAway
 *   | import("./packets.js").Bye | import("./packets.js").Topology | import("./packets.js").ErrorPacket} Received
 */

/**
 * Take the numbers to work with from a welcome.
 *
 * @param {import("./packets.js").Welcome} welcome
 * @param {number | null} [ackPackets] - Packets received after which the application wants an acknowledgement to be sent.
 * @returns {Policy}
 */
export function policyOf({ limits, ping_timeout: pingTimeout }, ackPackets = null) {
  return {
    resendPackets: limits.resend_packets,
    resendBytes: limits.resend_bytes,
    messageBytes: limits.message_bytes,
    ackPackets: Math.max(1, Math.min(ackPackets ?? ACK_PACKETS, Math.floor(limits.resend_packets / ACK_SHARE))),
    pingTimeout,
  };
}

/** One session's packets, in both directions. */
export class SessionMachine {
  /** @type {State} */
  #state = "fresh";
  /** @type {Policy} */
  #policy;
  /** @type {string[]} */
  #links = [];
  /** @type {Outgoing[]} */
  #waiting = [];
  /** Numbered and not acknowledged, contiguous, the last one with the id before `#next`. @type {Outgoing[]} */
  #kept = [];
  #keptBytes = 0;
  #next = 1;
  /** Id of the last packet written on this connection; behind `#next` after a reattach. */
  #sent = 0;
  #received = 0;
  /** Id of the last received packet that the node has been told of. */
  #told = 0;
  /** When the node counts as silent. */
  #silentAt = 0;
  /** Seconds of silence that are too long while a probe has no answer; null if there is none. @type {number | null} */
  #patience = null;
  /** @type {number | null} */
  #ackDue = null;
  #ackOwed = false;
  #pongOwed = false;
  /** A client whose process or page was started again has the token, but not the buffers (protocol 5.4.4). */
  #forgetful;

  /**
   * @param {Policy} policy
   * @param {{forgetful?: boolean}} [options] - Forgetful: the buffers of the session are lost, so it can only fail over.
   */
  constructor(policy, { forgetful = false } = {}) {
    this.#policy = policy;
    this.#forgetful = forgetful;
    if (forgetful) this.#state = "detached";
  }

  /** Where it stands. */
  get state() {
    return this.#state;
  }

  /** Id of the last session packet received in order. */
  get received() {
    return this.#forgetful ? 0 : this.#received;
  }

  /** Id of the oldest packet that can be resent; the next id if none is kept. */
  get oldest() {
    return this.#forgetful ? MAX_NUMBER : this.#next - this.#kept.length;
  }

  /** Packets numbered and not yet acknowledged. */
  get unacknowledged() {
    return this.#kept.length;
  }

  /** Whether `flush` may have something to write. */
  get hasOutput() {
    return (
      this.#links.length > 0 ||
      this.#ackOwed ||
      this.#pongOwed ||
      this.#sent < this.#next - 1 ||
      (this.#waiting.length > 0 && !this.#full)
    );
  }

  get #full() {
    return this.#kept.length >= this.#policy.resendPackets || this.#keptBytes >= this.#policy.resendBytes;
  }

  // --- The application ----------------------------------------------------------------------------------------------

  /**
   * Begin numbering on the connection of a new session.
   *
   * @param {number} now
   */
  open(now) {
    this.#attach(now);
  }

  /** The connection is gone: nothing is numbered until there is another one. */
  detach() {
    this.#state = "detached";
    this.#links = [];
    this.#ackDue = null;
    this.#ackOwed = this.#pongOwed = false;
  }

  /** A connection has come back, and the two sides begin to agree on how to go on. */
  resume() {
    this.#state = "resuming";
  }

  /**
   * Go on where both sides are, on the new connection (rung 1).
   *
   * @param {number} received - Id of the last packet the node received; what comes after it is sent again.
   * @param {number} now
   * @returns {number} How many packets will be sent again.
   * @throws {RemoteProtocolError} The packets after it are not kept, or were never numbered (protocol 5.4.3).
   */
  reattach(received, now) {
    if (this.#forgetful || received >= this.#next || received < this.oldest - 1) {
      throw new RemoteProtocolError(
        `cannot resend from packet ${received + 1}: packets ${this.oldest} to ${this.#next - 1} are kept`,
      );
    }
    this.#attach(now);
    this.#acknowledge(received, this.#next - 1);
    this.#sent = received;
    return this.#kept.length;
  }

  /**
   * Begin numbering anew in both directions (rung 4); what waited or was kept is dropped.
   *
   * @param {number} now
   */
  restart(now) {
    this.#forgetful = false;
    this.#waiting = [];
    this.#kept = [];
    this.#keptBytes = 0;
    this.#next = 1;
    this.#sent = this.#received = 0;
    this.#attach(now);
  }

  /**
   * Work with other numbers from now on, as the newest welcome says.
   *
   * @param {Policy} policy
   */
  adopt(policy) {
    this.#policy = policy;
  }

  /**
   * Hand in the body of a session packet; it is numbered when it is first sent.
   *
   * @param {string} body - As it is written, with its `type`, without `id` and `received`.
   * @param {number | null} [request] - The number of the request that it carries.
   */
  submit(body, request = null) {
    this.#waiting.push({ body, size: byteLength(body), request });
  }

  /**
   * Never send a request again; where the node waits for its packet, resuming leads to a failover (protocol 4.8.1).
   *
   * @param {number} request
   */
  drop(request) {
    this.#waiting = this.#waiting.filter((each) => each.request !== request);
    const index = this.#kept.findIndex((each) => each.request === request);
    for (const each of this.#kept.splice(0, index + 1)) this.#keptBytes -= each.size;
  }

  /** The node's numbering is not known: resume like a client without its buffers (protocol 5.4.4). */
  forget() {
    this.#forgetful = true;
  }

  /**
   * Have a link packet written before everything else that waits.
   *
   * @param {object} packet
   */
  sendLink(packet) {
    this.#links.push(JSON.stringify(packet));
  }

  // --- Output -------------------------------------------------------------------------------------------------------

  /**
   * Number what may be numbered, and hand out what is to be written now.
   *
   * @param {number} room - Bytes that the transport would like to take; with none, only link packets are written.
   * @returns {string[]} Messages, none larger than the node accepts unless it is a single packet.
   */
  flush(room) {
    const links = this.#links;
    this.#links = [];
    if (this.#state !== "attached") return links;
    if (this.#pongOwed && room > 0) {
      this.#pongOwed = false;
      links.push(JSON.stringify({ type: "pong", received: this.#tell() }));
    }
    const first = this.#sent + 1;
    const bodies = this.#choose(room);
    if (this.#ackOwed && bodies.length === 0 && room > 0) {
      links.push(JSON.stringify({ type: "ack", received: this.#tell() }));
    }
    const received = bodies.length > 0 && this.#received !== this.#told ? this.#tell() : null;
    return compose(links, first, received, bodies, this.#policy.messageBytes);
  }

  /**
   * Choose what is sent again and what is sent for the first time, as far as there is room.
   *
   * @param {number} room
   * @returns {Outgoing[]}
   */
  #choose(room) {
    /** @type {Outgoing[]} */
    const chosen = [];
    for (const each of this.#kept.slice(this.#sent + 1 - this.oldest)) {
      if (room <= 0) return chosen;
      chosen.push(each);
      room -= each.size;
      this.#sent += 1;
    }
    let taken = 0;
    while (taken < this.#waiting.length && room > 0 && !this.#full) {
      const each = /** @type {Outgoing} */ (this.#waiting[taken]);
      taken += 1;
      chosen.push(each);
      room -= each.size;
      this.#kept.push(each);
      this.#keptBytes += each.size;
      this.#next += 1;
      this.#sent += 1;
    }
    this.#waiting.splice(0, taken);
    return chosen;
  }

  #tell() {
    this.#told = this.#received;
    this.#ackDue = null;
    this.#ackOwed = false;
    return this.#received;
  }

  // --- The network --------------------------------------------------------------------------------------------------

  /**
   * Take in what came over the attached connection.
   *
   * @param {import("./packets.js").Packet[]} packets
   * @param {number} now
   * @param {(received: Received) => void} handOn - Gets what concerns the application, in order; every session packet
   *   exactly once.
   * @throws {RemoteProtocolError} A packet had no place here, or one in between is missing. What came before counts.
   */
  receive(packets, now, handOn) {
    this.#heard(now);
    for (const packet of packets) {
      switch (packet.type) {
        case "session":
          if (this.#takeIn(packet, now)) handOn(packet.body);
          break;
        case "pong":
          this.#patience = null;
          this.#heard(now);
          this.#acknowledge(packet.received, this.#sent);
          break;
        case "ack":
          this.#acknowledge(packet.received, this.#sent);
          break;
        case "ping":
          this.#pongOwed = true;
          handOn(packet);
          break;
        case "go-away":
        case "topology":
        case "bye":
        case "error":
          handOn(packet);
          break;
        default:
          throw new RemoteProtocolError(`a ${packet.type} packet has no place on a connection that is attached already`);
      }
    }
  }

  /**
   * @param {import("./packets.js").SessionPacket} packet
   * @param {number} now
   * @returns {boolean} Whether it is new.
   */
  #takeIn(packet, now) {
    if (packet.received !== null) this.#acknowledge(packet.received, this.#sent);
    if (packet.id <= this.#received) return false;
    if (packet.id > this.#received + 1) {
      throw new RemoteProtocolError(
        `packet ${packet.id} came after packet ${this.#received}: one in between is missing`,
        { closeCode: CloseCode.OUT_OF_ORDER },
      );
    }
    this.#received = packet.id;
    this.#ackDue ??= now + ACK_DELAY;
    if (packet.id - this.#told >= this.#policy.ackPackets) this.#ackDue = now;
    return true;
  }

  /**
   * @param {number} received
   * @param {number} sent - The last packet of which the node may know.
   */
  #acknowledge(received, sent) {
    if (received > sent) {
      throw new RemoteProtocolError(`packet ${received} is acknowledged, but ${sent} is the last that was sent`);
    }
    const acknowledged = received - this.oldest + 1;
    if (acknowledged <= 0) return;
    for (const each of this.#kept.splice(0, acknowledged)) this.#keptBytes -= each.size;
  }

  // --- The timer ----------------------------------------------------------------------------------------------------

  /**
   * Tell when `tick` has something to do; null for never in this state.
   *
   * @returns {number | null}
   */
  nextDeadline() {
    if (this.#state !== "attached") return null;
    return this.#ackDue === null ? this.#silentAt : Math.min(this.#silentAt, this.#ackDue);
  }

  /**
   * Ask the node for a sign of life; whether it was silent before counts no more. What the network held back while the
   * page slept comes all the same, and says nothing of the node: only the pong ends the probe.
   *
   * @param {number} now
   * @param {number} patience - Seconds of silence, until the pong, after which the node counts as silent.
   */
  probe(now, patience) {
    if (this.#state !== "attached") return;
    this.#patience = patience;
    this.#heard(now);
    this.sendLink({ type: "ping" });
  }

  /** Whether a probe has no answer yet. */
  get isProbing() {
    return this.#patience !== null;
  }

  /** @param {number} now */
  #heard(now) {
    this.#silentAt = now + (this.#patience ?? this.#policy.pingTimeout);
  }

  /**
   * Do what is due.
   *
   * @param {number} now
   * @returns {boolean} True if the node has been silent for too long and the connection should be given up.
   */
  tick(now) {
    if (this.#state !== "attached") return false;
    if (now >= this.#silentAt) return true;
    if (this.#ackDue !== null && now >= this.#ackDue) {
      this.#ackDue = null;
      this.#ackOwed = true;
    }
    return false;
  }

  /** @param {number} now */
  #attach(now) {
    this.#state = "attached";
    this.#patience = null;
    this.#heard(now);
    this.#pongOwed = false;
    // What was received before was told by the resume packet itself.
    this.#tell();
  }
}

/**
 * Write messages: link packets, then bodies; the first session packet carries what there is to acknowledge, and what
 * follows it in the same message needs no number (protocol 5.1).
 *
 * @param {string[]} links
 * @param {number} first - Id of the first body.
 * @param {number | null} received
 * @param {Outgoing[]} bodies
 * @param {number} limit - Bytes of one message.
 * @returns {string[]}
 */
function compose(links, first, received, bodies, limit) {
  /** @type {string[]} */
  const messages = [];
  /** @type {string[]} */
  let parts = [];
  let size = 0;
  let numbered = false;

  /** @param {number} more - Bytes that the next packet adds. */
  const makeRoom = (more) => {
    if (parts.length > 0 && size + more > limit) {
      messages.push(joined(parts));
      parts = [];
      size = 0;
      numbered = false;
    }
    size += more;
  };

  for (const link of links) {
    makeRoom(link.length + OVERHEAD_BYTES);
    parts.push(link);
  }
  let id = first;
  for (const { body, size: bytes } of bodies) {
    makeRoom(bytes + OVERHEAD_BYTES);
    if (numbered) {
      parts.push(body);
    } else {
      const acknowledgement = received === null ? "" : `"received":${received},`;
      received = null;
      parts.push(`{"id":${id},${acknowledgement}${body.slice(1)}`);
      numbered = true;
    }
    id += 1;
  }
  if (parts.length > 0) messages.push(joined(parts));
  return messages;
}

/** @param {string[]} parts */
function joined(parts) {
  return parts.length === 1 ? /** @type {string} */ (parts[0]) : `[${parts.join(",")}]`;
}
