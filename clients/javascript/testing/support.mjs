/** Time that tests move, and a node that tests play. */

import { connect } from "../src/index.js";

export const URL = "wss://gateway.example";

/** Open a session of a network. */
export async function open(network, options = {}, welcome = {}) {
  const before = network.connections.length;
  const opening = connect(URL, { environment: network.environment, ...options });
  await network.until(() => network.connections.length > before && network.last.sent.length > 0, "a first packet");
  network.last.say({ ...WELCOME, ...welcome });
  const session = await opening;
  await settle();
  return session;
}

/** Wait until the client has come back, and welcome it. */
export async function comeBack(network, welcome) {
  const before = network.last;
  await network.until(() => network.last !== before && network.last.sent.length > 0, "a resume");
  network.last.say({ ...WELCOME, ...welcome });
  await settle();
  return network.last;
}

/** What `sessionStorage` is to a page. */
export class Store {
  items = new Map();
  getItem = (name) => this.items.get(name) ?? null;
  setItem = (name, value) => this.items.set(name, value);
  removeItem = (name) => this.items.delete(name);
}

/** A clock that stands still until it is moved. */
export class Clock {
  constructor() {
    this.now = 1000;
    this.timers = new Set();
  }

  after(callback, seconds) {
    const timer = { at: this.now + seconds, callback };
    this.timers.add(timer);
    return () => this.timers.delete(timer);
  }

  /** Let time pass; what is due happens in order. */
  async pass(seconds) {
    const end = this.now + seconds;
    for (;;) {
      await settle();
      const due = [...this.timers].filter(({ at }) => at <= end).sort((one, other) => one.at - other.at)[0];
      if (due === undefined) break;
      this.timers.delete(due);
      this.now = Math.max(this.now, due.at);
      due.callback();
    }
    this.now = end;
    await settle();
  }
}

/** Let everything happen that waits for nothing. */
export async function settle() {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

export const WELCOME = {
  type: "welcome",
  session: "s-1",
  principal: "alice",
  node: "n1",
  token: "token-1",
  outcome: "created",
  received: 0,
  resent: 0,
  lost: 0,
  conflated: 0,
  window: 60,
  ping_interval: 20,
  ping_timeout: 45,
  replicated: true,
  limits: { message_bytes: 65536, value_bytes: 32768, requests: 256, selections: 1000, resend_packets: 8, resend_bytes: 1048576 },
  backoff: { initial: 0.25, maximum: 10, stable_after: 10 },
  properties: { $session: "s-1" },
  selections: [],
};

/** A place where nodes can be reached; each connection made there is in `connections`, and the test plays the node. */
export class Network {
  constructor() {
    const network = this;
    this.connections = [];
    this.down = false;
    this.clock = new Clock();
    this.random = 0.5;
    this.environment = {
      now: () => this.clock.now,
      wall: () => 1_795_000_000_000 + this.clock.now * 1000,
      random: () => this.random,
      after: (callback, seconds) => this.clock.after(callback, seconds),
      WebSocket: class extends EventTarget {
        constructor(url, protocols) {
          super();
          this.url = url;
          this.protocol = "";
          this.readyState = 0;
          this.bufferedAmount = 0;
          this.sent = [];
          network.connections.push(this);
          queueMicrotask(() => {
            if (network.down) this.drop(1006);
            else if (!network.hangs) this.open(protocols[0]);
          });
        }

        open(protocol) {
          this.protocol = protocol;
          this.readyState = 1;
          this.dispatchEvent(new Event("open"));
        }

        send(data) {
          this.sent.push(data);
        }

        close(code, reason) {
          this.readyState = 3;
          this.closed = { code, reason };
        }

        /** The node says something. */
        say(...packets) {
          const event = new Event("message");
          event.data = JSON.stringify(packets.length === 1 ? packets[0] : packets);
          this.dispatchEvent(event);
        }

        /** The connection ends. */
        drop(code = 1006, reason = "") {
          this.readyState = 3;
          const event = new Event("close");
          Object.assign(event, { code, reason });
          if (code === 1006) this.dispatchEvent(new Event("error"));
          this.dispatchEvent(event);
        }

        /** All packets that the client sent. */
        get packets() {
          return this.sent.map((each) => JSON.parse(each)).flat();
        }
      },
    };
  }

  /** Let time pass until something is true; what takes real time, as a digest does, goes on meanwhile. */
  async until(condition, what = String(condition)) {
    const deadline = Date.now() + 20_000;
    while (!condition()) {
      if (Date.now() > deadline) throw new Error(`not in time: ${what}`);
      await this.clock.pass(0.01);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  /** The newest connection. */
  get last() {
    return this.connections.at(-1);
  }
}
