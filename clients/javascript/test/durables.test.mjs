/** Streams of durable subscriptions, with a session that is played: what is acknowledged, and when (protocol 14). */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Calls } from "../src/calls.js";
import { DurableStream } from "../src/durablestream.js";
import { HistoryStream } from "../src/historystream.js";
import { DurableInUse } from "../src/index.js";
import { Positions } from "../src/positions.js";
import { parseSelector } from "../src/selectors.js";

const packet = (number) => ({
  type: "update",
  topic: "log/a",
  value: number,
  version: number,
  event: `17-1-${number}`,
  snapshot: false,
  removed: false,
  folded: 0,
});

function opened({ ack = "auto", refuse = null } = {}) {
  const asked = [];
  const part = { events: [1, 2, 3].map(packet), positions: { 17: "17-1-3" }, complete: true, gap: false, missing: [] };
  const source = { readHistory: async () => part, positions: new Positions() };
  const stream = new HistoryStream(parseSelector("log/**"), source, { start: "earliest" });
  const request = async (ask) => {
    asked.push(ask);
    if (refuse !== null && ask.type === "durable-advance") throw refuse;
    return {};
  };
  return { asked, stream: new DurableStream(new Calls({ after: () => () => {} }, request, null), "billing", stream, { ack, created: true }) };
}

async function take(stream, count) {
  const values = [];
  const updates = stream[Symbol.asyncIterator]();
  while (values.length < count) values.push((await updates.next()).value.value);
  return values;
}

test("what is acknowledged by itself is all but the last that was taken", async () => {
  const { asked, stream } = opened();
  assert.deepEqual(await take(stream, 3), [1, 2, 3]);
  await stream.flush();
  assert.deepEqual(asked.at(-1), { type: "durable-advance", name: "billing", positions: { 17: "17-1-2" } });
  const before = asked.length;
  await stream.close();
  assert.deepEqual(asked.slice(before), [{ type: "durable-release", name: "billing" }]);
  await stream.close();
  assert.equal(asked.length, before + 1);
});

test("with client nothing is, until it is said", async () => {
  const { asked, stream } = opened({ ack: "client" });
  await take(stream, 2);
  await stream.flush();
  assert.deepEqual(asked, []);
  await stream.acknowledge();
  await stream.acknowledge();
  assert.deepEqual(asked, [{ type: "durable-advance", name: "billing", positions: { 17: "17-1-2" } }]);
  await stream.close();
});

test("a reader whose subscription was taken is told, and gets nothing more", async () => {
  const { stream } = opened({ ack: "client", refuse: new DurableInUse("another session uses it now") });
  await take(stream, 1);
  await assert.rejects(stream.acknowledge(), DurableInUse);
  assert.ok(stream.closed);
  await assert.rejects(take(stream, 1), DurableInUse);
});
