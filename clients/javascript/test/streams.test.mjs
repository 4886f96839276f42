import assert from "node:assert/strict";
import { test } from "node:test";
import { History, KEPT } from "../src/history.js";
import { parseSelector } from "../src/selectors.js";
import { UpdateStream } from "../src/streams.js";

const update = (topic, version, snapshot = false) => ({ topic, version, snapshot, value: version, eventId: "e", folded: 0 });

test("beyond its size a stream keeps the newest of each topic", async () => {
  const stream = new UpdateStream(parseSelector("**"), { queueSize: 2 });
  for (let version = 1; version <= 3; version += 1) for (const topic of ["a", "b"]) stream.offer(update(topic, version));
  assert.equal(stream.waiting, 2);
  assert.equal(stream.conflated, 4);
  stream.end(null);
  const seen = [];
  for await (const { topic, version } of stream) seen.push([topic, version]);
  assert.deepEqual(seen, [["a", 3], ["b", 3]]);
});

test("a stream that ends with an error gives what waits first", async () => {
  const stream = new UpdateStream(parseSelector("a"));
  stream.offer(update("a", 1));
  stream.end(new Error("over"));
  const seen = [];
  await assert.rejects(async () => {
    for await (const { version } of stream) seen.push(version);
  }, /over/);
  assert.deepEqual(seen, [1]);
});

test("leaving the loop closes the stream", async () => {
  const stream = new UpdateStream(parseSelector("a"));
  stream.offer(update("a", 1));
  for await (const each of stream) if (each.version === 1) break;
  assert.ok(stream.closed);
});

test("a history tells what was before, and skips what is no longer kept", async () => {
  const history = new History();
  for (let value = 0; value < KEPT + 5; value += 1) history.append(value);
  history.end(null);
  const seen = [];
  for await (const value of history) seen.push(value);
  assert.deepEqual([seen.length, seen[0], seen.at(-1)], [KEPT, 5, KEPT + 4]);
});
