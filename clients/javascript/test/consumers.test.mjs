/** Messages of queues: none is passed on twice, and what is asked of the server for them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Calls } from "../src/calls.js";
import { Consumers } from "../src/consumers.js";
import { Forbidden, NotHeld, RequestRefused } from "../src/errors.js";

const QUEUE = "jobs/render";

/** What is asked in one way, whatever the limit. */
const calls = (request) => new Calls({ after: () => () => {} }, request, null);

/** A message as a server sends it. */
function message(delivery, { value = delivery, redelivered = false } = {}) {
  return { type: "message", queue: QUEUE, message: 100 + delivery, delivery, sent: 5, deliveries: 0, redelivered, headers: {}, value };
}

async function consuming(details = {}) {
  const asks = [];
  const consumers = new Consumers(calls(async (ask) => {
    asks.push(ask);
    return { type: "reply", request: 1, version: null, event: null, sent: null, error: null };
  }));
  const consumer = await consumers.consume(QUEUE, { credit: 4, ack: "each", ...details }, {});
  const values = consumer[Symbol.asyncIterator]();
  return { asks, consumers, consumer, next: async () => (await values.next()).value };
}

test("messages come in order and are settled by id and delivery", async () => {
  const { asks, consumers, next } = await consuming();
  consumers.received(message(7));
  consumers.received(message(8));
  const first = await next();
  const second = await next();
  await first.accept();
  await second.release({ delay: 2 });
  assert.deepEqual(asks, [
    { type: "consume", queue: QUEUE, credit: 4, mode: "each" },
    { type: "settle", queue: QUEUE, as: "accept", messages: [[107, 7]] },
    { type: "settle", queue: QUEUE, as: "release", messages: [[108, 8]], delay: 2 },
  ]);
  await assert.rejects(first.accept(), NotHeld);
});

test("a message cannot be held back without an end", async () => {
  const { asks, consumers, next } = await consuming();
  consumers.received(message(7));
  const first = await next();
  for (const delay of [Infinity, NaN, -1]) await assert.rejects(first.release({ delay }), TypeError);
  assert.equal(asks.length, 1);
  await first.release();
});

test("acceptance of one accepts all before it", async () => {
  const { asks, consumers, next } = await consuming({ ack: "client" });
  for (const delivery of [1, 2, 3]) consumers.received(message(delivery));
  await next();
  await (await next()).accept();
  assert.deepEqual(asks.at(-1).messages, [
    [101, 1],
    [102, 2],
  ]);
});

test("where packet numbers go on, what is sent again is not passed on", async () => {
  const { asks, consumers, consumer, next } = await consuming();
  consumers.received(message(1));
  consumers.recovered(false);
  assert.deepEqual(asks.at(-1), { type: "consume", queue: QUEUE, credit: 4, mode: "each" });
  consumers.received(message(1));
  consumers.received(message(2));
  assert.equal(consumer.waiting, 2);
  assert.equal((await next()).redelivered, false);
});

test("what is being settled is not passed on until there is an answer", async () => {
  let answer = () => {};
  const consumers = new Consumers(calls(async (ask) => {
    if (ask.type === "settle") await new Promise((resolve) => (answer = resolve));
    return { type: "reply", request: 1, version: null, event: null, sent: null, error: null };
  }));
  const consumer = await consumers.consume(QUEUE, { credit: 4, ack: "each" }, {});
  const values = consumer[Symbol.asyncIterator]();
  consumers.received(message(1));
  const settled = (await values.next()).value.accept();
  consumers.recovered(true);
  consumers.received(message(1));
  assert.equal(consumer.waiting, 0);
  answer();
  await settled;
  consumers.received(message(1));
  assert.equal((await values.next()).value.redelivered, true);
});

test("where they begin anew, what is not settled comes once more, marked", async () => {
  const { consumers, consumer, next } = await consuming();
  for (const delivery of [1, 2]) consumers.received(message(delivery));
  await (await next()).accept();
  const held = await next();
  consumers.recovered(true);
  consumers.received(message(2));
  consumers.received(message(2));
  assert.equal(consumer.waiting, 1);
  const again = await next();
  assert.deepEqual([again.id, again.redelivered], [held.id, true]);
  await again.accept();
  await assert.rejects(held.accept(), NotHeld);
});

test("what settles itself is acknowledged before its time, and never passed on twice", async () => {
  const { consumers, consumer } = await consuming({ ack: "auto" });
  assert.equal(consumers.received(message(1)), false);
  assert.equal(consumers.received(message(2)), true);
  consumers.recovered(true);
  assert.equal(consumers.received(message(2)), false);
  assert.equal(consumer.waiting, 2);
});

test("a slow reader asks for no more until it has read", async () => {
  const { asks, consumers, next } = await consuming({ ack: "auto", credit: 2 });
  for (const delivery of [1, 2, 3, 4]) consumers.received(message(delivery));
  assert.equal(asks.at(-1).credit, 0);
  for (let read = 0; read < 3; read += 1) await next();
  assert.equal(asks.at(-1).credit, 2);
});

test("a consumer that is refused elsewhere ends with the reason", async () => {
  let refuse = false;
  const consumers = new Consumers(calls(async () => {
    if (refuse) throw new RequestRefused("no more", "forbidden");
    return { type: "reply", request: 1, version: null, event: null, sent: null, error: null };
  }));
  const consumer = await consumers.consume(QUEUE, { credit: 4, ack: "each" }, {});
  refuse = true;
  consumers.recovered(true);
  await assert.rejects(consumer[Symbol.asyncIterator]().next(), /no more/);
  assert.equal(consumer.closed, true);
});

test("what the grid may have lost with a queue that nobody describes is asked for again", async () => {
  const asks = [];
  const refused = new RequestRefused("there is no such subscription", "no_such_durable");
  let lost = false;
  const consumers = new Consumers(calls(async (ask) => {
    asks.push(ask);
    if (lost) throw refused;
    return { type: "reply", request: 1, version: null, event: null, sent: null, error: null };
  }));
  await consumers.consume(QUEUE, { credit: 4, ack: "each" }, {});
  const shared = await consumers.consume("$shared-a/b", { credit: 4, ack: "each" }, {});
  const next = shared[Symbol.asyncIterator]().next();
  asks.length = 0;
  lost = true;
  consumers.doubt();
  await assert.rejects(next, refused);
  assert.deepEqual(asks, [{ type: "consume", queue: "$shared-a/b", credit: 4, mode: "each" }]);
});

test("a queue from which the session may not consume any more ends its consumer, and no other one", async () => {
  const { consumers, consumer, next } = await consuming();
  const other = await consumers.consume("kept", { credit: 4, ack: "each" }, {});
  consumers.received(message(1));
  consumers.lost(QUEUE, new Forbidden("not any more"));
  consumers.lost("unknown", new Forbidden("not any more"));
  assert.equal((await next()).id, 101);
  await assert.rejects(next(), Forbidden);
  consumers.received(message(2));
  assert.equal(consumer.waiting, 0);
  consumers.received({ ...message(1), queue: "kept" });
  assert.equal(other.waiting, 1);
});
