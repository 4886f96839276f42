import assert from "node:assert/strict";
import { test } from "node:test";
import { History, KEPT } from "../src/history.js";
import { parseSelector } from "../src/selectors.js";
import { StreamOverflow } from "../src/index.js";
import { sizeOf, Versions, VERSIONS_KEPT } from "../src/queue.js";
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

test("what a stream folds is marked, and keeps the place of the oldest", async () => {
  const stream = new UpdateStream(parseSelector("**"), { queueSize: 3 });
  const offer = (topic, version, more = {}) => stream.offer({ ...update(topic, version), ...more });
  offer("a", 1, { snapshot: true });
  offer("b", 1);
  offer("a", 2);
  offer("a", 6, { folded: 3 });
  stream.end(null);
  const seen = [];
  for await (const { topic, version, snapshot, folded } of stream) seen.push([topic, version, snapshot, folded]);
  assert.deepEqual(seen, [["a", 6, true, 5], ["b", 1, false, 0]]);
  assert.equal(stream.conflated, 5);
});

test("a stream that nobody reads is bounded in bytes", () => {
  const stream = new UpdateStream(parseSelector("**"), { queueBytes: 100_000 });
  for (let version = 1; version <= 1000; version += 1) {
    stream.offer({ ...update("a", version), value: { text: "x".repeat(10_000) } });
    assert.ok(stream.waitingBytes <= 110_100, `${stream.waitingBytes} bytes`);
  }
  assert.equal(stream.waiting, 1);
  assert.equal(stream.conflated, 999);
});

test("a stream of which nothing is said keeps 10,000 updates, and no more", () => {
  const stream = new UpdateStream(parseSelector("**"));
  for (let version = 1; version <= 10_000; version += 1) stream.offer(update("a", version));
  assert.deepEqual([stream.waiting, stream.conflated], [10_000, 0]);
  stream.offer(update("a", 10_001));
  assert.deepEqual([stream.waiting, stream.conflated], [1, 10_000]);
});

test("a stream of which nothing is said keeps 64 MiB of updates, and no more", async () => {
  const released = [];
  const stream = new UpdateStream(parseSelector("**"), { released: (each) => released.push(each) });
  const value = "x".repeat(2 ** 20 - 1000);
  for (let number = 1; number <= 64; number += 1) stream.offer({ ...update("a", number), value });
  assert.deepEqual([stream.waiting, stream.conflated], [64, 0]);
  stream.offer({ ...update("a", 65), value });
  assert.deepEqual([stream.waiting, stream.conflated], [1, 64]);
  for (let number = 1; number <= 63; number += 1) stream.offer({ ...update(`b/${number}`, number), value });
  assert.deepEqual([stream.waiting, stream.closed], [64, false]);
  stream.offer({ ...update("c", 1), value });
  assert.ok(stream.closed, "each is the newest of its topic, and nothing can be spared");
  assert.deepEqual(released, [stream]);
});

test("where the newest values alone are too many bytes, the stream ends, and gives what waits first", async () => {
  const released = [];
  const stream = new UpdateStream(parseSelector("**"), { queueBytes: 5000, released: (each) => released.push(each) });
  for (let topic = 0; topic < 10; topic += 1) stream.offer({ ...update(`t/${topic}`, 1), value: "x".repeat(1000) });
  assert.equal(stream.closed, true);
  assert.deepEqual(released, [stream]);
  const seen = [];
  await assert.rejects(async () => {
    for await (const { topic } of stream) seen.push(topic);
  }, StreamOverflow);
  assert.deepEqual(seen, ["t/0", "t/1", "t/2", "t/3", "t/4"]);
});

test("a value that is larger than the bound is delivered alone", async () => {
  const stream = new UpdateStream(parseSelector("a"), { queueBytes: 10 });
  stream.offer({ ...update("a", 1), value: "x".repeat(1000) });
  stream.offer({ ...update("a", 2), value: "x".repeat(1000) });
  assert.equal(stream.closed, false);
  const { value } = await stream[Symbol.asyncIterator]().next();
  assert.deepEqual([value.version, value.folded], [2, 1]);
  assert.equal(stream.waitingBytes, 0);
});

test("the size of a value is about that of its JSON text", () => {
  for (const value of ["x".repeat(5000), Array.from({ length: 1000 }, (_, index) => index), Object.fromEntries(Array.from({ length: 500 }, (_, index) => [`name-${index}`, `value-${index}`]))]) {
    const exact = JSON.stringify(value).length;
    assert.ok(sizeOf(value) > exact * 0.7 && sizeOf(value) < exact * 1.4, `${sizeOf(value)} for ${exact}`);
  }
});

test("versions are remembered of the topics delivered last, and of no more", () => {
  const versions = new Versions();
  const offer = (topic, version) => versions.passes({ topic, version, snapshot: false });
  offer("kept", 5);
  for (let topic = 0; topic < 5 * VERSIONS_KEPT; topic += 1) {
    assert.equal(offer(`t/${topic}`, 1), true);
    if (topic % 1000 === 0) assert.equal(offer("kept", 6 + topic), true);
  }
  assert.ok(versions.size <= 2 * VERSIONS_KEPT, `${versions.size} topics`);
  assert.equal(offer("kept", 5), false);
  assert.equal(offer(`t/${5 * VERSIONS_KEPT - 1}`, 1), false);
});

test("a stream does not deliver what was taken out of it", () => {
  const stream = new UpdateStream(parseSelector("p/**"));
  stream.takeOut(parseSelector("p/s/**"));
  assert.deepEqual(["p", "p/a", "p/s", "p/s/x"].map((topic) => stream.wants(topic)), [true, true, false, false]);
});

test("several iterations share a stream, each update goes to one, and the end to all", async () => {
  const stream = new UpdateStream(parseSelector("a"));
  const iterators = [0, 1, 2].map(() => stream[Symbol.asyncIterator]());
  const waiting = iterators.map((each) => each.next());
  stream.offer(update("a", 1));
  assert.equal((await waiting[0]).value.version, 1);
  stream.end(null);
  assert.deepEqual((await Promise.all(waiting.slice(1))).map(({ done }) => done), [true, true]);
  assert.equal((await iterators[0].next()).done, true);
});
