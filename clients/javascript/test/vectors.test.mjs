/**
 * The client does what the machine of `gateway/core/client` does, input by input.
 *
 * The vectors are made from that machine, and make each of its transitions (`python -m tests.clients.machine_vectors`). The
 * whole client plays them, with a clock, a network and a wallet that the vectors move; what can be seen of it from outside
 * is compared after every step: connections that are made and closed, packets that are written, secrets that are asked
 * for, calls that are answered, and what the application is told.
 */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { connect } from "../src/index.js";
import { Network, settle } from "../testing/support.mjs";

const FOLDER = new URL("vectors/", import.meta.url);

/** What stands for a connection that was lost without a close frame (RFC 6455 section 7.1.5). */
const ABNORMAL = 1006;

const CONNECTED = new Set(["attached", "leaving", "finishing"]);

/** One client that plays a scenario. */
class Player {
  constructor(url, options) {
    this.url = url;
    this.options = options;
    this.network = new Network();
    // A vector says when a connection is made.
    this.network.hangs = true;
    this.stop = new AbortController();
    this.session = null;
    this.fetches = [];
    this.written = new Map();
    /** Connections that were made: others cannot be closed, only given up. */
    this.made = new Set();
    /** Connections that are over; closing them again means nothing. */
    this.closed = new Set();
    this.forget();
  }

  /** Begin to collect what comes of the next step. */
  forget() {
    this.seen = { connect: [], disconnect: [], fetch: 0, resolved: [], rejected: [], recovered: [], noticed: [], ended: [] };
  }

  start() {
    const { principal, secret, renewable, properties, window } = this.options;
    const { connect_timeout: connectTimeout, ack_packets: ackPackets } = this.options;
    const fetch = () => {
      this.seen.fetch += 1;
      return new Promise((resolve, reject) => this.fetches.push({ resolve, reject }));
    };
    const given = { principal, secret: renewable ? fetch : secret, properties, window, connectTimeout, ackPackets };
    const known = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
    const { environment } = this.network;
    this.opening = connect(this.url, { ...known, environment, signal: this.stop.signal }).then(
      (session) => this.opened(session),
      (error) => this.seen.ended.push(error === this.stop.signal.reason ? "SessionClosed" : error.constructor.name),
    );
  }

  opened(session) {
    this.session = session;
    session.addEventListener("recovery", ({ detail }) => this.seen.recovered.push(detail));
    session.addEventListener("notice", ({ detail }) => this.seen.noticed.push(detail.code));
    void session.closed.then(() => this.seen.ended.push(session.closedReason.constructor.name));
  }

  call(name, answer) {
    answer.then(
      (receipt) => this.seen.resolved.push(resolved({ call: name, event: receipt?.eventId, ...receipt })),
      (error) => this.seen.rejected.push([name, error.constructor.name]),
    );
  }

  drop(code) {
    this.closed.add(this.network.last);
    this.network.last.drop(code);
  }

  /** Read a page, and tell it as the vectors do. */
  async values({ selector, after, limit }) {
    const { values, next } = await this.session.values(selector, { after, ...(limit === null ? {} : { limit }) });
    return { value: [values.map(({ topic, version, eventId, value }) => [topic, version, eventId, value]), next] };
  }

  /** Play one input. */
  async play(input) {
    const { network } = this;
    const plays = {
      start: () => this.start(),
      connected: () => {
        this.made.add(network.last);
        network.last.open("gateway.v1.json");
      },
      unreachable: () => this.drop(ABNORMAL),
      drop: () => this.drop(input.code ?? ABNORMAL),
      say: () => network.last.say(...input.packets),
      wait: () => network.clock.pass(input.seconds),
      publish: () => this.call(input.call, this.session.publish(input.topic, input.value)),
      request: () => this.call(input.call, this.session.request(input.path, input.value).then((value) => ({ value }))),
      values: () => this.call(input.call, this.values(input)),
      subscribe: () => this.call(input.call, this.session.subscribe(input.selector).then(() => null)),
      set_properties: () => this.call(input.call, this.session.setProperties(input.changes)),
      close: () => void this.session.close({ timeout: input.seconds }),
      give_up: () => {
        this.stop.abort(new Error("enough"));
        if (this.opening === undefined) this.start();
      },
      fetched: () => this.fetches.shift().resolve(input.secret),
      not_fetched: () => this.fetches.shift().reject(new Error("none")),
    };
    await plays[input.type]();
    await settle();
  }

  /** What was written since the last step. */
  sent() {
    return this.network.connections.flatMap((connection) => {
      const before = this.written.get(connection) ?? 0;
      this.written.set(connection, connection.packets.length);
      return connection.packets.slice(before).map(comparable);
    });
  }

  /** Collect the connections that were made, and closed from this side. */
  look() {
    for (const connection of this.network.connections) {
      if (!this.written.has(connection)) this.seen.connect.push(connection.url);
      if (connection.closed !== undefined && this.made.has(connection) && !this.closed.has(connection)) {
        this.closed.add(connection);
        this.seen.disconnect.push(connection.closed.code);
      }
    }
  }
}

/** A packet without what each client says in its own words. */
function comparable({ client, message, reason, ...packet }) {
  return packet.supports ? { ...packet, supports: packet.supports.toSorted() } : packet;
}

/** Acknowledgements are cumulative: the same one twice says no more than once. */
function withoutRepetition(packets) {
  return packets.filter((packet, index) => packet.type !== "ack" || packets[index - 1]?.received !== packet.received);
}

/** What became of a call: of a request of the application its answer, of others what the receipt says. */
function resolved({ call, version, event, value }) {
  if (value !== undefined) return [call, value];
  return version === undefined ? [call] : [call, version, event];
}

/** What a step's effects say that can be seen from outside. */
function expected({ input, effects }) {
  const of = (type) => effects.filter((effect) => effect.type === type);
  // A connection that the other side has ended needs no closing here; the machine has its shell release it all the same.
  const over = ["drop", "unreachable"].includes(input.type);
  return {
    connect: of("connect").map(({ url }) => url),
    disconnect: over ? [] : of("disconnect").map(({ code }) => code),
    fetch: of("fetch_credentials").length,
    resolved: of("resolved").map(resolved),
    rejected: of("rejected").map(({ call, error }) => [call, error]),
    recovered: of("recovered"),
    noticed: of("noticed").map(({ code }) => code),
    ended: of("ended").map(({ error }) => error),
  };
}

/** A recovery as the client tells it, in the words of the vectors. */
function recoveryOf({ outcome, numbering, reason, node, gapSeconds, resent, lost, conflated, attempts, ...rest }) {
  const gap = Math.round(gapSeconds * 1e6) / 1e6;
  const { replayed, notReplayed } = rest;
  const counts = { resent, lost, conflated, replayed, not_replayed: notReplayed, attempts };
  return { type: "recovered", outcome, numbering, reason, node, gap_seconds: gap, ...counts };
}

for (const file of readdirSync(FOLDER).sort()) {
  const { url, scenarios } = JSON.parse(readFileSync(new URL(file, FOLDER), "utf8"));
  for (const { name, options, steps, not_javascript: skip = false } of scenarios) {
    test(`${file}: ${name}`, { skip }, async () => {
      const player = new Player(url, options);
      for (const [index, step] of steps.entries()) {
        const what = `step ${index}, ${JSON.stringify(step.input)}`;
        player.forget();
        await player.play(step.input);
        player.look();
        const seen = { ...player.seen, recovered: player.seen.recovered.map(recoveryOf) };
        assert.deepEqual(seen, expected(step), what);
        assert.deepEqual(withoutRepetition(player.sent()), withoutRepetition(step.sent.map(comparable)), what);
        if (player.session === null) continue;
        const state = step.state === "ended" ? "closed" : CONNECTED.has(step.state) ? "connected" : "recovering";
        assert.equal(player.session.state, state, what);
      }
    });
  }
}
