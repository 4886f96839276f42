import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, ConnectFailed, RequestTimedOut, SessionClosed } from "../src/index.js";
import { checkSeconds, platform } from "../src/environment.js";
import { comeBack, Network, open, settle, URL, WELCOME } from "../testing/support.mjs";

const last = (network) => network.last.packets.at(-1);
const answer = (network, id) => network.last.say({ id, type: "reply", request: last(network).request });

// --- Listeners that throw ---------------------------------------------------------------------------------------------

/** What is reported, and what would end the process, while *body* runs. */
async function reported(body) {
  const [said, unhandled] = [[], []];
  const { error } = console;
  console.error = (each) => said.push(each.message);
  const collect = (each) => unhandled.push(each);
  const before = ["uncaughtException", "unhandledRejection"].map((name) => [name, process.listeners(name)]);
  for (const [name] of before) process.removeAllListeners(name).on(name, collect);
  try {
    await body();
    await settle();
  } finally {
    console.error = error;
    for (const [name, listeners] of before) {
      process.removeAllListeners(name);
      for (const each of listeners) process.on(name, each);
    }
  }
  assert.deepEqual(unhandled, [], "nothing is left to end a process of Node.js");
  return said;
}

test("what listeners throw, at once or later, is reported and ends nothing", async () => {
  const network = new Network();
  const session = await open(network);
  const bug = (name) => () => {
    throw new Error(name);
  };
  const said = await reported(async () => {
    session.addEventListener("notice", bug("event"));
    session.addEventListener("notice", async () => bug("late event")());
    session.addEventListener("notice", { handleEvent: bug("object") });
    const one = session.subscribe("a", { listener: bug("update") });
    await settle();
    answer(network, 1);
    await one;
    const two = session.subscribe("a", { listener: async () => bug("late update")() });
    await settle();
    answer(network, 2);
    await two;
    network.last.say({ id: 3, type: "notice", code: "c", message: "m" }, { type: "update", topic: "a", version: 1, event: "e", value: 0 });
  });
  assert.deepEqual(said.sort(), ["event", "late event", "late update", "object", "update"]);
  assert.equal(session.state, "connected");
});

test("a listener can be removed, and options count", async () => {
  const network = new Network();
  const session = await open(network);
  const heard = [];
  const [kept, removed, once] = ["kept", "removed", "once"].map((name) => () => heard.push(name));
  for (const each of [kept, kept, removed]) session.addEventListener("notice", each);
  session.addEventListener("notice", once, { once: true });
  session.removeEventListener("notice", removed);
  session.removeEventListener("notice", () => {});
  network.last.say({ id: 1, type: "notice", code: "c", message: "m" }, { type: "notice", code: "c", message: "m" });
  assert.deepEqual(heard, ["kept", "once", "kept"]);
});

// --- Times ------------------------------------------------------------------------------------------------------------

test("a timer of the platform means what it is asked for, however long", async () => {
  const { after } = platform(class {});
  const fired = [];
  const cancel = [Infinity, 2 ** 31 / 1000, 1e12].map((seconds) => after(() => fired.push(seconds), seconds));
  const soon = new Promise((resolve) => after(resolve, 0.03));
  await soon;
  for (const each of cancel) each();
  assert.deepEqual(fired, []);
});

test("a time is a number that is not negative, or none at all", () => {
  for (const good of [undefined, null, 0, 1.5, Infinity]) checkSeconds("timeout", good);
  for (const bad of ["1", NaN, -1, -Infinity, {}, true]) assert.throws(() => checkSeconds("timeout", bad), TypeError);
});

test("a request may wait for as long as its session lives, whatever the default is", async () => {
  const network = new Network();
  const session = await open(network, { requestTimeout: 1 }, { window: 10_000 });
  const patient = session.publish("t", 1, { timeout: Infinity });
  const other = session.publish("t", 2).catch((error) => error);
  for (let turn = 0; turn < 10; turn += 1) {
    await network.clock.pass(40);
    network.last.say({ type: "ping" });
  }
  assert.ok((await other) instanceof RequestTimedOut);
  network.last.say({ id: 1, type: "reply", request: 1, version: 4, event: "e" });
  assert.equal((await patient).version, 4);
});

test("a window without end is asked for by a number", async () => {
  const network = new Network();
  await open(network, { window: Infinity });
  assert.equal(network.last.packets[0].window, Number.MAX_SAFE_INTEGER);
});

// --- Giving up --------------------------------------------------------------------------------------------------------

test("connect is given up by its signal, at every stage", async () => {
  for (const stage of ["before", "secret", "upgrade", "welcome", "pause"]) {
    const network = new Network();
    network.hangs = stage === "upgrade";
    network.down = stage === "pause";
    const stop = new AbortController();
    if (stage === "before") stop.abort(new Error("no more"));
    const secret = stage === "secret" ? () => new Promise(() => {}) : "s";
    const opening = connect(URL, { environment: network.environment, signal: stop.signal, secret }).catch((error) => error);
    await network.clock.pass(0.4);
    stop.abort(new Error("no more"));
    assert.equal((await opening).message, "no more", stage);
    const [tried] = [network.connections.length];
    await network.clock.pass(30);
    assert.equal(network.connections.length, tried, `nothing goes on after it was given up: ${stage}`);
  }
});

test("connect ends in time though secret() never answers", async () => {
  const network = new Network();
  const secret = () => new Promise(() => {});
  const opening = connect(URL, { environment: network.environment, connectTimeout: 3, secret }).catch((error) => error);
  await network.clock.pass(3.1);
  const error = await opening;
  assert.ok(error instanceof ConnectFailed);
  assert.match(error.message, /3 s/);
  assert.equal(network.connections.length, 0);
});

test("a request is given up by its signal: unsent it is never sent, sent its answer is dropped", async () => {
  const network = new Network();
  const session = await open(network);
  const [one, two] = [new AbortController(), new AbortController()];
  const sent = session.publish("t", 1, { signal: one.signal }).catch((error) => error);
  await settle();
  one.abort();
  assert.equal((await sent).name, "AbortError");
  network.last.say({ id: 1, received: 1, type: "reply", request: 1, version: 1, event: "e" });
  network.last.drop();
  await settle();
  const unsent = session.publish("t", 2, { signal: two.signal }).catch((error) => error);
  two.abort(new Error("mine"));
  assert.equal((await unsent).message, "mine");
  await comeBack(network, { outcome: "reattached", token: "token-2", received: 1 });
  assert.equal(network.last.packets.some(({ type }) => type === "publish"), false);
  assert.equal((await session.publish("t", 3, { signal: AbortSignal.abort() }).catch((error) => error)).name, "AbortError");
  assert.equal(session.state, "connected");
});

test("a subscribe that is given up leaves no selection behind", async () => {
  const network = new Network();
  const session = await open(network);
  const stop = new AbortController();
  const subscribing = session.subscribe("a", { signal: stop.signal }).catch((error) => error);
  await settle();
  stop.abort();
  assert.equal((await subscribing).name, "AbortError");
  await settle();
  assert.deepEqual([last(network).type, last(network).selector], ["unsubscribe", "a"]);
});

test("the signal of a subscribe ends its stream later on, and the selection with it", async () => {
  const network = new Network();
  const session = await open(network);
  const stop = new AbortController();
  const subscribing = session.subscribe("a", { signal: stop.signal });
  await settle();
  answer(network, 1);
  const stream = await subscribing;
  stop.abort();
  assert.equal(stream.closed, true);
  await settle();
  assert.equal(last(network).type, "unsubscribe");
});

// --- Ends -------------------------------------------------------------------------------------------------------------

test("leaving a loop ends the stream and its selection at once, though a next() waits", async () => {
  const network = new Network();
  const session = await open(network);
  const subscribing = session.subscribe("a");
  await settle();
  answer(network, 1);
  const iterator = (await subscribing)[Symbol.asyncIterator]();
  const waiting = iterator.next();
  await settle();
  assert.deepEqual(await iterator.return("left"), { done: true, value: "left" });
  assert.deepEqual(await waiting, { done: true, value: undefined });
  await settle();
  assert.deepEqual([last(network).type, last(network).selector], ["unsubscribe", "a"]);
});

test("an iteration over recoveries ends at once, too", async () => {
  const session = await open(new Network());
  const iterator = session.recoveries[Symbol.asyncIterator]();
  const waiting = iterator.next();
  await iterator.return();
  assert.equal((await waiting).done, true);
});

for (const [where, arrange] of [
  ["while a node hangs in the upgrade", (network) => ((network.hangs = true), network.last.drop())],
  ["while a node does not welcome", (network) => network.last.drop()],
  ["while fresh credentials do not come", (network) => network.last.drop(4006)],
  ["while the node says nothing", () => {}],
]) {
  test(`closing takes no longer than it may ${where}`, async () => {
    const network = new Network();
    let calls = 0;
    const session = await open(network, { secret: () => ((calls += 1), calls === 1 ? "s" : new Promise(() => {})) });
    arrange(network);
    await network.clock.pass(1);
    const closing = session.close({ timeout: 0.5 });
    await network.clock.pass(0.6);
    await closing;
    assert.equal(session.state, "closed");
    assert.ok(session.closedReason instanceof SessionClosed);
    await session.closed;
    const tried = network.connections.length;
    await network.clock.pass(60);
    assert.equal(network.connections.length, tried);
  });
}

// --- Sleep and network ------------------------------------------------------------------------------------------------

/** An environment whose events a test makes. */
function awakening(network) {
  const listeners = new Set();
  network.environment.awakened = (callback) => {
    listeners.add(callback);
    return () => listeners.delete(callback);
  };
  return { listeners, now: () => [...listeners].forEach((each) => each()) };
}

/** How many pings a client has sent on its connection. */
const pings = (network) => network.last.packets.filter(({ type }) => type === "ping").length;

/** A page, as far as the platform tells of it, while *body* runs. */
async function inPage(body) {
  const [page, document] = [new EventTarget(), new EventTarget()];
  document.visibilityState = "visible";
  const given = { document, addEventListener: page.addEventListener.bind(page), removeEventListener: page.removeEventListener.bind(page) };
  Object.assign(globalThis, given);
  try {
    await body({ page, document });
  } finally {
    for (const name of Object.keys(given)) delete globalThis[name];
  }
}

for (const [target, name] of [["page", "online"], ["page", "offline"], ["page", "pageshow"], ["document", "visibilitychange"], ["document", "resume"]]) {
  test(`${name} makes a client look at its connection, until it is over`, async () => {
    await inPage(async (targets) => {
      const network = new Network();
      network.environment.awakened = platform(class {}).awakened;
      const session = await open(network);
      const pings = () => network.connections.flatMap(({ packets }) => packets).filter(({ type }) => type === "ping").length;
      assert.equal(pings(), 0);
      targets[target].dispatchEvent(new Event(name));
      await settle();
      assert.equal(pings(), 1);
      network.last.say({ type: "pong", received: 0 });
      network.last.drop(4204);
      await session.closed;
      targets[target].dispatchEvent(new Event(name));
      await settle();
      assert.deepEqual([pings(), network.connections.length], [1, 1]);
    });
  });
}

test("a page that is hidden or frozen looks at nothing", async () => {
  await inPage(async ({ document }) => {
    const network = new Network();
    network.environment.awakened = platform(class {}).awakened;
    await open(network);
    document.visibilityState = "hidden";
    for (const name of ["visibilitychange", "resume"]) document.dispatchEvent(new Event(name));
    await settle();
    assert.equal(network.last.packets.some(({ type }) => type === "ping"), false);
  });
});

test("a page that wakes up asks its node at once, and goes on if it answers", async () => {
  const network = new Network();
  const events = awakening(network);
  const session = await open(network);
  events.now();
  await settle();
  assert.equal(pings(network), 1);
  await network.clock.pass(1);
  network.last.say({ type: "pong", received: 0 });
  await network.clock.pass(30);
  assert.equal(session.state, "connected");
  assert.equal(network.connections.length, 1);
  assert.equal(pings(network), 1);
});

test("a page that is offline and online at once asks again, because the answer may be of the network before", async () => {
  const network = new Network();
  const events = awakening(network);
  await open(network);
  const old = network.last;
  events.now();
  events.now();
  events.now();
  await settle();
  old.say({ type: "pong", received: 0 });
  await network.clock.pass(0.9);
  assert.equal(pings(network), 1, "more than one a second would be impolite");
  await network.clock.pass(0.2);
  assert.equal(pings(network), 2);
  await network.clock.pass(3);
  assert.equal(old.closed.code, 4002);
});

test("... but only once the first question is answered, because pongs do not say which ping they answer", async () => {
  const network = new Network();
  const events = awakening(network);
  await open(network);
  events.now();
  events.now();
  await network.clock.pass(2.5);
  assert.equal(pings(network), 1);
  network.last.say({ type: "pong", received: 0 });
  await network.clock.pass(1);
  assert.equal(pings(network), 2);
  network.last.say({ type: "pong", received: 0 });
  await network.clock.pass(30);
  assert.deepEqual([pings(network), network.connections.length], [2, 1]);
});

test("a page that wakes up beside a dead connection resumes in seconds", async () => {
  const network = new Network();
  const events = awakening(network);
  const session = await open(network);
  const old = network.last;
  events.now();
  await network.clock.pass(4);
  assert.equal(old.closed.code, 4002);
  assert.notEqual(network.last, old);
  network.last.say({ ...WELCOME, outcome: "reattached", numbering: "kept", token: "token-2" });
  await settle();
  assert.equal(session.state, "connected");
});

test("a client that waits for its next attempt does not wait when the network is back", async () => {
  const network = new Network();
  const events = awakening(network);
  network.random = 0.999;
  await open(network);
  network.down = true;
  network.last.drop();
  await network.clock.pass(20);
  network.down = false;
  const before = network.connections.length;
  events.now();
  await network.clock.pass(0.3);
  assert.equal(network.connections.length, before + 1);
});

test("... but as long as a node has asked it to", async () => {
  const network = new Network();
  const events = awakening(network);
  await open(network);
  network.last.drop();
  await network.until(() => network.connections.length === 2 && network.last.sent.length > 0, "a resume");
  network.last.say({ type: "error", code: "try_later", message: "later", retry_after: 8 });
  network.last.drop(4101);
  await network.clock.pass(1);
  events.now();
  await network.clock.pass(6.5);
  assert.equal(network.connections.length, 2);
  await network.clock.pass(1);
  assert.equal(network.connections.length, 3);
});

test("a clock that jumped makes the client look, whichever of the two it is", async () => {
  for (const jump of ["now", "wall"]) {
    const network = new Network();
    let ahead = 0;
    const { now, wall } = network.environment;
    if (jump === "now") network.environment.now = () => now() + ahead;
    else network.environment.wall = () => wall() + ahead * 1000;
    await open(network);
    await network.clock.pass(6);
    assert.equal(network.last.packets.some(({ type }) => type === "ping"), false);
    ahead = 20;
    await network.clock.pass(6);
    assert.equal(network.last.packets.some(({ type }) => type === "ping"), true, jump);
  }
});

test("who has slept for longer than the node may be silent looks before it gives the connection up", async () => {
  const network = new Network();
  const session = await open(network);
  network.clock.now += 300;
  await network.clock.pass(0.1);
  assert.equal(session.state, "connected");
  network.last.say({ type: "pong", received: 0 });
  // Both the timer that was late and the clocks that were compared tell of the sleep.
  await network.clock.pass(1);
  assert.equal(pings(network), 2);
  network.last.say({ type: "pong", received: 0 });
  await network.clock.pass(10);
  assert.equal(network.connections.length, 1);
});

test("a session that is over listens to nothing any more", async () => {
  const network = new Network();
  const events = awakening(network);
  const session = await open(network);
  assert.equal(events.listeners.size, 1);
  network.last.drop(4204);
  await session.closed;
  assert.equal(events.listeners.size, 0);
  assert.equal(network.clock.timers.size, 0);
});
