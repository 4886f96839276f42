/**
 * Messages to packets and back (protocol sections 2 to 4): what a server may send is read and checked here, and nothing
 * behind this module looks at JSON.
 *
 * @module
 */

import { RemoteProtocolError } from "./errors.js";
import { advice, bad, count, counts, flag, list, object, optional, retryAfter, seconds, text, texts } from "./fields.js";
import { valuesPart } from "./values.js";

export { MAX_NUMBER } from "./fields.js";

/** The WebSocket subprotocol (protocol 1.1). */
export const SUBPROTOCOL = "gateway.v1.json";

/**
 * @typedef {any} JsonValue - Whatever `JSON.parse` returns.
 * @typedef {{[name: string]: unknown}} JsonObject
 *
 * @typedef {object} Limits - What the session may use (protocol 9.1).
 * @property {number} message_bytes
 * @property {number} value_bytes
 * @property {number} requests
 * @property {number} selections
 * @property {number} selection_bytes
 * @property {number} resend_packets
 * @property {number} resend_bytes
 * @property {number} questions - 0 if the server does not tell; likewise the next one.
 * @property {number} handlers
 *
 * @typedef {{initial: number, maximum: number, stable_after: number}} BackoffAdvice - Seconds (protocol 8.3).
 *
 * @typedef {object} Welcome - See protocol 4.3.
 * @property {"welcome"} type
 * @property {string} session
 * @property {string} principal
 * @property {string} node
 * @property {string} token
 * @property {string} outcome
 * @property {string | null} numbering - `kept` or `restarted`; null from a server that does not say.
 * @property {string | null} reason
 * @property {number} received
 * @property {number} resent
 * @property {number | null} lost
 * @property {number | null} conflated
 * @property {number} window
 * @property {number} ping_interval
 * @property {number} ping_timeout
 * @property {boolean} replicated
 * @property {Limits} limits
 * @property {BackoffAdvice} backoff
 * @property {Record<string, string>} properties
 * @property {string[]} selections
 * @property {string[]} supports - What the server knows beyond the first release.
 * @property {string[]} withdrawn - Selectors that were taken out, because the session may not select them any more.
 * @property {true | Record<string, string> | null} replayed - After a failover: every update that was missed follows, or why
 *   not, by partition of topics; null if the server does not say.
 * @property {string | null} backup - The node that keeps a copy of the session; null if none does.
 * @property {string | null} mirror - What the server waits for before packets leave; null without a backup.
 * @property {boolean | null} following - Whether the node is the master; null for a client that does not follow it.
 * @property {ClusterList | null} cluster - Where the nodes are; null if none is advertised, or nobody asked.
 *
 * @typedef {{revision: string, nodes: {node: string, urls: string[]}[]}} ClusterList - See protocol 15.2.
 * @typedef {{type: "topology", cluster: ClusterList}} Topology
 *
 * @typedef {{type: "ack" | "pong", received: number}} Ack
 * @typedef {{type: "ping", token: string | null, backoff: BackoffAdvice | null}} Ping
 * @typedef {{type: "go-away", reason: string, delay: number, node: string | null, backoff: BackoffAdvice | null}} GoAway
 * @typedef {{type: "bye", reason: string}} Bye
 * @typedef {{type: "error", code: string, message: string, retryAfter: number | null, request: number | null, node: string | null,
 *   urls: string[]}} ErrorPacket
 *
 * @typedef {object} UpdateBody - See protocol 6.4.
 * @property {"update"} type
 * @property {string} topic
 * @property {number} version
 * @property {string} event
 * @property {boolean} snapshot
 * @property {boolean} removed
 * @property {number} folded
 * @property {JsonValue} value
 *
 * @typedef {object} MessageBody - See protocol 13.3.
 * @property {"message"} type
 * @property {string} queue
 * @property {number} message
 * @property {number} delivery
 * @property {number} sent
 * @property {number} deliveries
 * @property {boolean} redelivered
 * @property {Record<string, string>} headers
 * @property {JsonValue} value
 *
 * @typedef {object} QuestionBody - See protocol 18.4.
 * @property {"question"} type
 * @property {string} question
 * @property {string} path
 * @property {number} timeout
 * @property {string} principal
 * @property {string} session
 * @property {boolean} redelivered
 * @property {JsonValue} value
 *
 * @typedef {{type: "answered", ask: number, value: JsonValue, error: {code: string, message: string} | null,
 *   uncertain: boolean}} AnsweredBody - See protocol 18.5.
 *
 * @typedef {object} ReplyBody - See protocol 5.2.2.
 * @property {"reply"} type
 * @property {number} request
 * @property {number | null} version
 * @property {string | null} event
 * @property {number | null} sent
 * @property {{code: string, message: string, retryAfter: number | null} | null} error
 * @property {HistoryPart | null} history - Of a reading of history.
 * @property {import("./values.js").ValuesPart | null} values - Of a reading of values.
 * @property {string | null} queue - Of a declaration.
 * @property {DurablePlace | null} durable - Of the opening of a durable subscription.
 *
 * @typedef {object} DurablePlace - Where a durable subscription goes on (protocol 14.2).
 * @property {Record<string, string>} positions - By partition, up to which event everything was acknowledged.
 * @property {boolean} created - Whether it was made by this request.
 * @property {string | null} queue - Of a shared one: whose messages its events become.
 *
 * @typedef {object} HistoryPart - A part of the history of some topics (protocol 6.6).
 * @property {UpdateBody[]} events
 * @property {Record<string, string>} positions - By partition, up to which event nothing is missing.
 * @property {boolean} complete - Whether that is all.
 * @property {boolean} gap - Whether something before the first of the events is not kept any more.
 * @property {string[]} missing - Topics of which it is, some of them.
 *
 * @typedef {{type: "notice", code: string, message: string, withdrawn: string[], selections: string[],
 *   partitions: number[] | null, positions: Record<string, string>, request: number | null, queues: string[]}} NoticeBody
 * @typedef {UpdateBody | MessageBody | QuestionBody | AnsweredBody | ReplyBody | NoticeBody} SessionBody
 * @typedef {{type: "session", id: number, received: number | null, body: SessionBody}} SessionPacket
 * @typedef {Welcome | Ack | Ping | GoAway | Topology | Bye | ErrorPacket | SessionPacket} Packet
 */

const encoder = new TextEncoder();

/**
 * Count the bytes of a text in UTF-8.
 *
 * @param {string} text
 * @returns {number}
 */
export function byteLength(text) {
  return encoder.encode(text).length;
}

/**
 * Read one message that a server sent.
 *
 * @param {unknown} message - JSON text, one packet or an array of packets.
 * @returns {Packet[]} The packets in order.
 * @throws {RemoteProtocolError} It is not what the protocol allows.
 */
export function decode(message) {
  if (typeof message !== "string") {
    throw new RemoteProtocolError("a message must be text");
  }
  let content;
  try {
    content = JSON.parse(message);
  } catch (error) {
    throw new RemoteProtocolError(`the message is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (!Array.isArray(content)) return [readPacket(content, null)];
  /** @type {number | null} */
  let following = null;
  return content.map((each) => {
    const packet = readPacket(each, following);
    if (packet.type === "session") following = packet.id + 1;
    return packet;
  });
}

/**
 * @param {unknown} content
 * @param {number | null} following - The number of a session packet that has none of its own (protocol 5.1).
 * @returns {Packet}
 */
function readPacket(content, following) {
  if (typeof content !== "object" || content === null || Array.isArray(content)) {
    throw new RemoteProtocolError("a packet must be a JSON object");
  }
  const packet = /** @type {JsonObject} */ (content);
  const type = packet.type;
  if (typeof type !== "string") throw new RemoteProtocolError("a packet must have a string 'type'");
  const readBody = BODIES.get(type);
  if (readBody) {
    const id = packet.id === undefined || packet.id === null ? following : count(packet, "id", 1);
    if (id === null) throw new RemoteProtocolError(`${type} packet: 'id' is missing`);
    return { type: "session", id, received: optional(packet, "received", count), body: readBody(packet) };
  }
  const readLink = LINKS.get(type);
  if (readLink) return readLink(packet);
  throw new RemoteProtocolError(`unknown packet type ${JSON.stringify(type.slice(0, 40))}`, {
    code: "unknown_packet_type",
  });
}

/** @type {ReadonlyMap<string, (packet: JsonObject) => SessionBody>} */
const BODIES = new Map(
  /** @type {[string, (packet: JsonObject) => SessionBody][]} */ ([
    ["update", update],
    [
      "message",
      (packet) => {
        if (packet.value === undefined) throw bad(packet, "'value' is missing");
        return {
          type: "message",
          queue: text(packet, "queue"),
          message: count(packet, "message", 1),
          delivery: count(packet, "delivery", 1),
          sent: count(packet, "sent"),
          deliveries: optional(packet, "deliveries", count) ?? 0,
          redelivered: optional(packet, "redelivered", flag) ?? false,
          headers: texts(packet, "headers"),
          value: packet.value,
        };
      },
    ],
    [
      "question",
      (packet) => {
        if (packet.value === undefined) throw bad(packet, "'value' is missing");
        return {
          type: "question",
          question: text(packet, "question"),
          path: text(packet, "path"),
          timeout: seconds(packet, "timeout"),
          principal: text(packet, "principal"),
          session: text(packet, "session"),
          redelivered: optional(packet, "redelivered", flag) ?? false,
          value: packet.value,
        };
      },
    ],
    [
      "answered",
      (packet) => {
        const error = optional(packet, "error", object);
        if (error === null && packet.value === undefined) throw bad(packet, "there must be either 'value' or 'error'");
        return {
          type: "answered",
          ask: count(packet, "ask", 1),
          value: error === null ? packet.value : null,
          error: error === null ? null : { code: text(error, "code"), message: text(error, "message") },
          uncertain: optional(packet, "uncertain", flag) ?? false,
        };
      },
    ],
    [
      "reply",
      (packet) => ({
        type: "reply",
        request: count(packet, "request", 1),
        version: optional(packet, "version", count),
        event: optional(packet, "event", text),
        sent: optional(packet, "sent", count),
        error: optional(packet, "error", (_, name) => {
          const error = object(packet, name);
          return { code: text(error, "code"), message: text(error, "message"), retryAfter: retryAfter(error) };
        }),
        history: optional(packet, "history", history),
        values: optional(packet, "values", valuesPart),
        queue: optional(packet, "queue", text),
        durable: optional(packet, "durable", durable),
      }),
    ],
    [
      "notice",
      (packet) => ({
        type: "notice",
        code: text(packet, "code"),
        message: text(packet, "message"),
        withdrawn: list(packet, "withdrawn"),
        selections: list(packet, "selections"),
        partitions: optional(packet, "partitions", counts),
        positions: texts(packet, "positions"),
        request: optional(packet, "request", (_, name) => count(packet, name, 1)),
        queues: list(packet, "queues"),
      }),
    ],
  ]),
);

/** @type {ReadonlyMap<string, (packet: JsonObject) => Packet>} */
const LINKS = new Map(
  /** @type {[string, (packet: JsonObject) => Packet][]} */ ([
    ["welcome", readWelcome],
    ["ack", (packet) => ({ type: "ack", received: count(packet, "received") })],
    ["pong", (packet) => ({ type: "pong", received: count(packet, "received") })],
    [
      "ping",
      (packet) => ({ type: "ping", token: optional(packet, "token", text), backoff: optional(packet, "backoff", advice) }),
    ],
    [
      "go-away",
      (packet) => ({
        type: "go-away",
        reason: text(packet, "reason"),
        delay: seconds(packet, "delay"),
        node: optional(packet, "node", text),
        backoff: optional(packet, "backoff", advice),
      }),
    ],
    [
      "topology",
      (packet) => {
        const cluster = clusterList(packet);
        if (cluster === null) throw bad(packet, "'cluster' must be a list of nodes");
        return { type: "topology", cluster };
      },
    ],
    ["bye", (packet) => ({ type: "bye", reason: optional(packet, "reason", text) ?? "" })],
    [
      "error",
      (packet) => ({
        type: "error",
        code: text(packet, "code"),
        message: text(packet, "message"),
        retryAfter: retryAfter(packet),
        request: optional(packet, "request", (_, name) => count(packet, name, 1)),
        node: optional(packet, "node", text),
        urls: list(packet, "urls"),
      }),
    ],
  ]),
);

/**
 * @param {JsonObject} packet
 * @returns {Welcome}
 */
function readWelcome(packet) {
  const limits = object(packet, "limits");
  return {
    type: "welcome",
    session: text(packet, "session"),
    principal: text(packet, "principal"),
    node: text(packet, "node"),
    token: text(packet, "token"),
    outcome: text(packet, "outcome"),
    numbering: optional(packet, "numbering", text),
    reason: optional(packet, "reason", text),
    received: count(packet, "received"),
    resent: count(packet, "resent"),
    // Here null means "unknown" and not "absent" (protocol 2.3).
    lost: packet.lost === undefined ? 0 : optional(packet, "lost", count),
    conflated: packet.conflated === undefined ? 0 : optional(packet, "conflated", count),
    window: seconds(packet, "window"),
    ping_interval: seconds(packet, "ping_interval"),
    ping_timeout: seconds(packet, "ping_timeout"),
    replicated: flag(packet, "replicated"),
    limits: {
      message_bytes: count(limits, "message_bytes", 1),
      value_bytes: count(limits, "value_bytes", 1),
      requests: count(limits, "requests", 1),
      selections: count(limits, "selections", 1),
      // A limit of a later release: servers of the first do not tell it.
      selection_bytes: optional(limits, "selection_bytes", count) ?? 0,
      resend_packets: count(limits, "resend_packets", 1),
      resend_bytes: count(limits, "resend_bytes", 1),
      questions: optional(limits, "questions", count) ?? 0,
      handlers: optional(limits, "handlers", count) ?? 0,
    },
    backoff: advice(packet, "backoff"),
    properties: texts(packet, "properties"),
    selections: list(packet, "selections"),
    withdrawn: list(packet, "withdrawn"),
    backup: optional(packet, "backup", text),
    mirror: optional(packet, "mirror", text),
    cluster: clusterList(packet),
    following: typeof packet.following === "boolean" ? packet.following : null,
    replayed: packet.replayed === true ? true : optional(packet, "replayed", texts),
    // Words for what this client may know nothing of; whatever else is there says nothing to it.
    supports: Array.isArray(packet.supports) ? packet.supports.filter((each) => typeof each === "string") : [],
  };
}

/** Nodes of a list of the cluster that are read: more than any cluster has. */
const MOST_LISTED = 256;

/** URLs of one node that are read: as many as a node has interfaces. */
const MOST_URLS = 16;

/**
 * Read the list of the cluster; null for anything else, and what is no node in it does not count.
 *
 * @param {JsonObject} packet
 * @returns {ClusterList | null}
 */
function clusterList({ cluster }) {
  const { revision, nodes } = /** @type {Record<string, unknown>} */ (cluster ?? {});
  if (typeof revision !== "string" || !Array.isArray(nodes)) return null;
  const listed = nodes.slice(0, MOST_LISTED).filter((each) => typeof each?.node === "string" && Array.isArray(each.urls));
  return {
    revision,
    nodes: listed.map(({ node, urls }) => ({
      node,
      urls: urls.slice(0, MOST_URLS).filter((/** @type {unknown} */ url) => typeof url === "string"),
    })),
  };
}

/**
 * @param {JsonObject} packet
 * @returns {UpdateBody}
 */
function update(packet) {
  if (packet.value === undefined) throw bad(packet, "'value' is missing");
  return {
    type: "update",
    topic: text(packet, "topic"),
    version: count(packet, "version", 1),
    event: text(packet, "event"),
    snapshot: optional(packet, "snapshot", flag) ?? false,
    removed: optional(packet, "removed", flag) ?? false,
    folded: optional(packet, "folded", (_, name) => count(packet, name, 1)) ?? 0,
    value: packet.value,
  };
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {HistoryPart}
 */
function history(packet, name) {
  const part = object(packet, name);
  const { events } = part;
  if (!Array.isArray(events) || !events.every((each) => typeof each === "object" && each !== null && !Array.isArray(each))) {
    throw bad(packet, "'events' must be an array of objects");
  }
  return {
    events: events.map((each) => update(/** @type {JsonObject} */ (each))),
    positions: texts(part, "positions"),
    complete: flag(part, "complete"),
    gap: optional(part, "gap", flag) ?? false,
    missing: list(part, "missing"),
  };
}

/**
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {DurablePlace}
 */
function durable(packet, name) {
  const part = object(packet, name);
  const created = optional(part, "created", flag) ?? false;
  return { positions: texts(part, "positions"), created, queue: optional(part, "queue", text) };
}
