/** Transactions: what is asked of the server for them, and what becomes of the messages that they settle. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { NoSuchTransaction, NotHeld, QueueFull, RequestRefused } from "../src/errors.js";
import { comeBack, Network, open, settle } from "../testing/support.mjs";

const SUPPORTS = ["queues", "transactions"];
const QUEUE = "jobs/in";

/** A session at a node that answers every request, unless the test says otherwise. */
class Node {
  network = new Network();
  packets = 0;
  /** Code of the refusal, by what is asked. */
  refuses = new Map();
  /** What is asked in vain. */
  ignores = new Set();

  async open() {
    const { network } = this;
    this.session = await open(network, {}, { supports: SUPPORTS });
    this.seen = network.last.packets.length;
    return this.session;
  }

  /** Answer what was asked since the last time. */
  async answer() {
    await settle();
    const asked = this.network.last.packets.slice(this.seen).filter(({ request }) => request !== undefined);
    this.seen = this.network.last.packets.length;
    for (const { type, request, operation } of asked) {
      const what = operation?.type ?? type;
      if (this.ignores.has(what)) continue;
      const code = this.refuses.get(what);
      const error = code === undefined ? {} : { error: { code, message: `no ${what}` } };
      this.say({ type: "reply", request, ...error });
    }
    await settle();
  }

  /** Go on answering until a call settles. */
  async during(call) {
    let over = false;
    const end = () => (over = true);
    call.then(end, end);
    while (!over) await this.answer();
    return call;
  }

  say(packet) {
    this.packets += 1;
    this.network.last.say({ id: this.packets, ...packet });
  }

  deliver(delivery) {
    const message = { type: "message", queue: QUEUE, message: 100 + delivery, delivery, sent: 5, value: delivery };
    this.say({ ...message, headers: {} });
  }

  /** Requests about transactions, without their numbers. */
  get asked() {
    const wanted = new Set(["begin", "stage", "commit", "rollback"]);
    const all = this.network.connections.flatMap(({ packets }) => packets);
    return all.filter(({ type }) => wanted.has(type)).map(({ id: _, received: __, request: ___, ...others }) => others);
  }

  /** A message that the application has to settle. */
  async message(delivery = 1) {
    this.consumer ??= await this.during(this.session.consume(QUEUE, { ack: "each" }));
    this.deliver(delivery);
    await settle();
    return (await this.consumer[Symbol.asyncIterator]().next()).value;
  }
}

async function begun() {
  const node = new Node();
  const session = await node.open();
  return { node, session };
}

test("work is committed at its end, and its result is passed on", async () => {
  const { node, session } = await begun();
  const message = await node.message();
  const result = await node.during(
    session.transaction(async (t) => {
      await t.publish("orders/7", { state: "shipped" });
      await t.send("jobs/out", "parcel", { headers: { kind: "a" }, delay: 2 });
      await t.accept(message);
      return 5;
    }),
  );
  assert.equal(result, 5);
  const [begin, ...others] = node.asked;
  assert.deepEqual(begin, { type: "begin" });
  const [{ transaction }] = others;
  assert.ok(transaction > 0);
  assert.deepEqual(others, [
    { type: "stage", transaction, operation: { type: "publish", topic: "orders/7", value: { state: "shipped" } } },
    {
      type: "stage",
      transaction,
      operation: { type: "send", queue: "jobs/out", headers: { kind: "a" }, delay: 2, value: "parcel" },
    },
    { type: "stage", transaction, operation: { type: "settle", queue: QUEUE, as: "accept", messages: [[101, 1]] } },
    { type: "commit", transaction },
  ]);
  await assert.rejects(message.accept(), NotHeld);
});

test("work that fails is rolled back, and its own error is told", async () => {
  const { node, session } = await begun();
  const message = await node.message();
  let transaction;
  const failing = session.transaction(async (t) => {
    transaction = t;
    await t.accept(message);
    throw new RangeError("no");
  });
  await assert.rejects(node.during(failing), RangeError);
  assert.equal(node.asked.at(-1).type, "rollback");
  await assert.rejects(transaction.publish("a", 1), NoSuchTransaction);
  await assert.rejects(transaction.commit(), NoSuchTransaction);
  await node.during(message.accept());
});

test("without work it is the caller's to end", async () => {
  const { node, session } = await begun();
  const one = await node.during(session.transaction());
  await node.during(one.publish("a", 1));
  await node.during(one.commit());
  assert.equal(one.isOver, true);
  const other = await node.during(session.transaction());
  await node.during(other.rollback());
  assert.deepEqual(node.asked.map(({ type }) => type), ["begin", "stage", "commit", "begin", "rollback"]);
});

test("what is not waited for belongs to it all the same, and its failure rolls all back", async () => {
  const { node, session } = await begun();
  const stray = [];
  await node.during(
    session.transaction((t) => {
      stray.push(t.publish("a", 1), t.publish("b", 2));
    }),
  );
  await Promise.all(stray);
  assert.deepEqual(node.asked.map(({ type }) => type), ["begin", "stage", "stage", "commit"]);
  node.refuses.set("publish", "forbidden");
  const failing = session.transaction((t) => {
    stray.push(t.publish("secret", 1));
    stray.at(-1).catch(() => {});
  });
  await assert.rejects(node.during(failing), { code: "forbidden" });
  assert.equal(node.asked.at(-1).type, "rollback");
});

test("what is refused leaves the rest, and the message that it was to settle", async () => {
  const { node, session } = await begun();
  const message = await node.message();
  node.refuses.set("settle", "transaction_too_large");
  await node.during(
    session.transaction(async (t) => {
      await t.send("jobs/out", 1);
      await assert.rejects(t.accept(message), RequestRefused);
    }),
  );
  assert.equal(node.asked.at(-1).type, "commit");
  node.refuses.clear();
  await node.during(message.accept());
});

test("a commit that is refused gives back what it was to settle", async () => {
  const { node, session } = await begun();
  const message = await node.message();
  node.refuses.set("commit", "queue_full");
  await assert.rejects(node.during(session.transaction((t) => t.accept(message))), QueueFull);
  assert.equal(node.asked.at(-1).type, "commit", "there is nothing to roll back");
  await node.during(message.accept());
});

test("a transaction that the node has rolled back is told by its own error", async () => {
  const { node, session } = await begun();
  node.refuses.set("commit", "no_such_transaction");
  await assert.rejects(node.during(session.transaction((t) => t.publish("a", 1))), NoSuchTransaction);
});

for (const outcome of ["reattached", "handed_over", "mirrored", "failed_over"]) {
  test(`it goes on where its session is ${outcome}`, async () => {
    const { node, session } = await begun();
    const message = await node.message();
    const t = await node.during(session.transaction());
    await node.during(t.accept(message));
    node.ignores.add("commit");
    const committing = t.commit();
    await node.answer();
    const sent = node.network.last.packets.filter(({ id }) => id !== undefined).at(-1);
    node.network.last.drop();
    const numbering = outcome === "failed_over" ? "restarted" : "kept";
    const received = numbering === "kept" ? sent.id - 1 : 0;
    await comeBack(node.network, { supports: SUPPORTS, outcome, numbering, received, token: "token-2" });
    if (numbering === "restarted") node.packets = 0;
    const again = node.network.last.packets.find(({ type }) => type === "commit");
    assert.equal(again.request, sent.request, "the same commit is asked for again");
    // What it settles is sent again by whoever holds it, and nothing new.
    node.deliver(1);
    await settle();
    assert.equal(node.consumer.waiting, 0);
    node.ignores.clear();
    node.seen = 0;
    await node.during(committing);
    assert.deepEqual(node.asked.filter(({ type }) => type === "commit").map(({ transaction }) => transaction > 0), [true, true]);
  });
}

test("a node of an older release is not asked", async () => {
  const node = new Node();
  const session = await open(node.network);
  await assert.rejects(session.transaction(), { code: "unknown_packet_type" });
});

test("what waits for a node of an older release is given up", async () => {
  const { node, session } = await begun();
  const t = await node.during(session.transaction());
  node.ignores.add("publish");
  const publishing = t.publish("a", 1);
  await node.answer();
  node.network.last.drop();
  const rejected = assert.rejects(publishing, { code: "bad_request" });
  await comeBack(node.network, { outcome: "failed_over", token: "token-2" });
  await rejected;
});

test("values and arguments are judged before anything is asked", async () => {
  const { node, session } = await begun();
  const t = await node.during(session.transaction());
  const asked = node.asked.length;
  await assert.rejects(t.publish("a", "x".repeat(40_000)), { code: "value_too_large" });
  await assert.rejects(t.publish("a/*", 1), { code: "bad_topic" });
  await assert.rejects(t.send(QUEUE, undefined), { code: "bad_value" });
  for (const bad of [-1, Infinity, NaN, "1"]) {
    await assert.rejects(t.send(QUEUE, 1, { delay: bad }), TypeError);
    await assert.rejects(t.send(QUEUE, 1, { expires: bad }), TypeError);
    await assert.rejects(t.release({}, { delay: bad }), TypeError);
    await assert.rejects(session.send(QUEUE, 1, { delay: bad }), TypeError);
    await assert.rejects(session.send(QUEUE, 1, { expires: bad }), TypeError);
    await assert.rejects(session.subscribeDurable("billing", "orders/**", { expires: bad }), TypeError);
  }
  assert.equal(node.asked.length, asked);
});

test("a signal gives the work up without waiting for the node", async () => {
  const { node, session } = await begun();
  const abort = new AbortController();
  node.ignores.add("publish").add("rollback");
  const working = session.transaction((t) => t.publish("a", 1), { signal: abort.signal });
  await node.answer();
  await node.answer();
  abort.abort(new Error("enough"));
  await assert.rejects(working, /enough/);
  await settle();
  assert.equal(node.asked.at(-1).type, "rollback");
});
