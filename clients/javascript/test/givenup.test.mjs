/** Calls that are given up before their answer: nothing of them stays at the node that nobody here takes care of. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { DurableInUse, HandlerFailed, NotHeld, RequestRefused, RequestTimedOut } from "../src/index.js";
import { comeBack, Network, open, settle } from "../testing/support.mjs";

const SUPPORTS = ["questions", "queues", "durables", "history", "transactions", "temporary"];
const QUEUE = "jobs/render";

/** A session, and the node that serves it. */
class Scene {
  network = new Network();
  said = 0;
  seen = 0;

  async open(options = {}) {
    this.session = await open(this.network, options, { supports: SUPPORTS });
    return this;
  }

  say(packet) {
    this.said += 1;
    this.network.last.say({ id: this.said, ...packet });
  }

  /** What the client has asked since the last time. */
  async asked() {
    await settle();
    const asked = this.network.last.packets.filter(({ request }) => request > this.seen);
    for (const { request } of asked) this.seen = Math.max(this.seen, request);
    return asked;
  }

  /** The one thing that it has asked. */
  async one(type) {
    const asked = await this.asked();
    assert.deepEqual(asked.map((each) => each.type), [type]);
    return asked[0];
  }

  async answer({ request }, fields = {}) {
    this.say({ type: "reply", request, ...fields });
    await settle();
  }

  async refuse(ask, code) {
    await this.answer(ask, { error: { code, message: `declined: ${code}` } });
  }

  /** Do something whose request is answered. */
  async answered(call, type, fields) {
    await this.answer(await this.one(type), fields);
    return call;
  }

  async lose() {
    this.received = this.network.last.packets.filter(({ id }) => id !== undefined).at(-1)?.id ?? 0;
    this.network.down = true;
    this.network.last.drop();
    await settle();
  }

  async reattach() {
    this.network.down = false;
    await comeBack(this.network, { outcome: "reattached", token: "token-2", received: this.received, supports: SUPPORTS });
  }

  async consume(options) {
    return this.answered(this.session.consume(QUEUE, options), "consume");
  }

  deliver(delivery) {
    this.say({ type: "message", queue: QUEUE, message: 100 + delivery, delivery, sent: 5, value: delivery, headers: {} });
  }

  /** A message that is held. */
  async held(consumer) {
    this.deliver(1);
    return (await consumer[Symbol.asyncIterator]().next()).value;
  }

  /** Let the time of a call pass. */
  async late(call) {
    const told = assert.rejects(call, (error) => error instanceof RequestTimedOut && error.sent);
    await this.network.clock.pass(0.5);
    await told;
  }
}

/** Give a call up by its signal. */
async function aborted(call) {
  const controller = new AbortController();
  const called = call({ signal: controller.signal });
  await settle();
  controller.abort(new Error("given up"));
  await assert.rejects(called, /given up/);
}

test("a handler whose registration is given up is taken back", async () => {
  const scene = await new Scene().open();
  await scene.late(scene.session.handle("quotes/**", () => 1, { timeout: 0.5 }));
  assert.deepEqual((await scene.asked()).map(({ type, selector }) => [type, selector]), [
    ["handle", "quotes/**"],
    ["unhandle", "quotes/**"],
  ]);
  await aborted((how) => scene.session.handle("quotes/**", () => 1, how));
  assert.deepEqual((await scene.asked()).map(({ type }) => type), ["handle", "unhandle"]);
});

test("a handler that is refused, or makes no sense, needs not be taken back", async () => {
  const scene = await new Scene().open();
  const refused = assert.rejects(scene.session.handle("quotes/**", () => 1), RequestRefused);
  await scene.refuse(await scene.one("handle"), "forbidden");
  await refused;
  await assert.rejects(scene.session.handle("quotes/**", () => 1, { timeout: "5" }), TypeError);
  await assert.rejects(scene.session.consume(QUEUE, { timeout: "5" }), TypeError);
  await assert.rejects(scene.session.subscribeDurable("billing", "log/**", { timeout: "5" }), TypeError);
  assert.deepEqual(await scene.asked(), []);
});

test("a durable subscription whose opening is given up is released, at whatever point", async () => {
  const scene = await new Scene().open();
  await scene.late(scene.session.subscribeDurable("billing", "log/**", { timeout: 0.5 }));
  assert.deepEqual((await scene.asked()).map(({ type }) => type), ["durable-open", "durable-release"]);
  const controller = new AbortController();
  const opening = scene.session.subscribeDurable("billing", "log/**", { signal: controller.signal });
  await scene.answer(await scene.one("durable-open"), { durable: { positions: {}, created: true } });
  await scene.one("subscribe");
  controller.abort(new Error("given up"));
  await assert.rejects(opening, /given up/);
  assert.deepEqual((await scene.asked()).map(({ type }) => type), ["unsubscribe", "durable-release"]);
  const refused = assert.rejects(scene.session.subscribeDurable("billing", "log/**"), DurableInUse);
  await scene.refuse(await scene.one("durable-open"), "durable_in_use");
  await refused;
  assert.deepEqual(await scene.asked(), []);
});

test("a consumer that is cancelled while the session recovers is cancelled then, once", async () => {
  const scene = await new Scene().open();
  const consumer = await scene.consume();
  await scene.lose();
  await scene.late(consumer.cancel({ timeout: 0.5 }));
  const again = consumer.cancel();
  await scene.reattach();
  await scene.answered(again, "cancel");
  await scene.consume();
  await consumer.cancel();
  assert.deepEqual(await scene.asked(), []);
});

test("a handler that is cancelled while the session recovers is cancelled then, once", async () => {
  const scene = await new Scene().open();
  const handling = await scene.answered(scene.session.handle("quotes/**", () => 1), "handle");
  await scene.lose();
  await aborted((how) => handling.cancel(how));
  const again = handling.cancel();
  await scene.reattach();
  await scene.answered(again, "unhandle");
  await handling.cancel();
  assert.deepEqual(await scene.asked(), []);
});

async function durable(scene) {
  const opening = scene.session.subscribeDurable("billing", "log/**");
  await scene.answer(await scene.one("durable-open"), { durable: { positions: { 17: "17-1-0" }, created: true } });
  await scene.answer(await scene.one("subscribe"));
  return opening;
}

test("a durable stream that is closed while the session recovers is released then, once", async () => {
  const scene = await new Scene().open();
  const stream = await durable(scene);
  await scene.asked();
  await scene.lose();
  await scene.late(stream.close({ timeout: 0.5 }));
  const again = stream.close();
  await scene.reattach();
  const asked = await scene.asked();
  const release = asked.filter(({ type }) => type === "durable-release");
  assert.equal(release.length, 1);
  await scene.answer(release[0]);
  await again;
  await stream.close();
});

test("a durable stream that was unsubscribed is released by its close", async () => {
  const scene = await new Scene().open();
  const stream = await durable(scene);
  await scene.asked();
  await scene.answered(scene.session.unsubscribe("log/**"), "unsubscribe");
  assert.equal(stream.closed, true);
  await scene.answered(stream.close(), "durable-release");
});

test("what is unsubscribed while the session recovers is deselected then", async () => {
  const scene = await new Scene().open();
  await scene.answered(scene.session.subscribe("a/**"), "subscribe");
  await scene.lose();
  await scene.late(scene.session.unsubscribe("a/**", { timeout: 0.5 }));
  await scene.reattach();
  await scene.one("unsubscribe");
});

test("what is done beside the application has no limit of its own", async () => {
  const scene = await new Scene().open({ requestTimeout: 0.2 });
  const stream = await scene.answered(scene.session.subscribe("a/**"), "subscribe");
  const consumer = await scene.consume({ credit: 2 });
  let answer = () => {};
  await scene.answered(scene.session.handle("quotes/**", () => new Promise((resolve) => (answer = resolve))), "handle");
  const who = { principal: "bob", session: "s2" };
  scene.say({ type: "question", question: "q1", path: "quotes/ACME", timeout: 60, value: null, ...who });
  for (const each of [1, 2, 3, 4]) scene.deliver(each);
  await scene.asked();
  await scene.lose();
  stream.close();
  answer(1);
  const values = consumer[Symbol.asyncIterator]();
  for (let read = 0; read < 3; read += 1) await values.next();
  await scene.network.clock.pass(1);
  await scene.reattach();
  const asked = await scene.asked();
  assert.deepEqual(asked.map(({ type }) => type).sort(), ["answer", "consume", "unsubscribe"]);
});

test("a settlement that is given up unsent is done, and told by the next call", async () => {
  const scene = await new Scene().open();
  const held = await scene.held(await scene.consume({ ack: "each", credit: 1 }));
  await scene.lose();
  await scene.late(held.accept({ timeout: 0.5 }));
  await assert.rejects(held.release(), NotHeld);
  await scene.reattach();
  const settled = await scene.one("settle");
  assert.deepEqual(settled.messages, [[101, 1]]);
  await scene.answer(settled);
  await held.accept();
  await assert.rejects(held.accept(), NotHeld);
});

test("a settlement that is refused for now is asked again, though nobody waits", async () => {
  const scene = await new Scene().open();
  const held = await scene.held(await scene.consume({ ack: "each", credit: 1 }));
  await aborted((how) => held.accept(how));
  const first = await scene.one("settle");
  await scene.refuse(first, "grid_unavailable");
  await scene.network.clock.pass(1);
  assert.deepEqual((await scene.one("settle")).messages, first.messages);
});

test("a message whose settlement is refused can be settled otherwise", async () => {
  const scene = await new Scene().open();
  const held = await scene.held(await scene.consume({ ack: "each", credit: 1 }));
  const refused = assert.rejects(held.accept(), RequestRefused);
  await scene.refuse(await scene.one("settle"), "forbidden");
  await refused;
  await scene.answered(held.release(), "settle");
  await assert.rejects(held.accept(), NotHeld);
});

async function handled(handler) {
  const scene = await new Scene().open();
  await scene.answered(scene.session.handle("quotes/**", handler), "handle");
  const who = { principal: "bob", session: "s2" };
  scene.say({ type: "question", question: "q1", path: "quotes/ACME", timeout: 60, value: null, ...who });
  return scene;
}

test("why there is no answer is told as far as it can be", async () => {
  for (const [said, told] of [
    ["no file caf\udce9", "no file caf\ufffd"],
    ["x".repeat(100_000), "x".repeat(1024)],
    ["é".repeat(1000), "é".repeat(512)],
    [`x${"é".repeat(1000)}`, `x${"é".repeat(511)}`],
  ]) {
    const scene = await handled(() => {
      throw new HandlerFailed(said);
    });
    assert.equal((await scene.one("answer")).failed, told);
  }
});

test("an answer that the node does not take is that there is none", async () => {
  const scene = await handled(() => 1);
  await scene.refuse(await scene.one("answer"), "value_too_large");
  assert.equal((await scene.one("answer")).failed, "the answer is too large");
});

test("closing while a handler runs reports nothing", async () => {
  const reported = [];
  globalThis.reportError = (error) => reported.push(error);
  try {
    const scene = await handled(() => new Promise(() => {}));
    const closing = scene.session.close();
    await settle();
    scene.network.last.say({ type: "bye", reason: "closed" });
    scene.network.last.drop(1000);
    await closing;
    await settle();
  } finally {
    delete globalThis.reportError;
  }
  assert.deepEqual(reported, []);
});
