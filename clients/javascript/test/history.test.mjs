/** Streams of topics with history, with a source that is played: every event once, in order (protocol 6.6.3). */

import assert from "node:assert/strict";
import { test } from "node:test";

import { InvalidPosition, PositionGone } from "../src/index.js";
import { HistoryStream } from "../src/historystream.js";
import { LogReader, parsePosition } from "../src/logreader.js";
import { Positions } from "../src/positions.js";
import { parseSelector } from "../src/selectors.js";

const event = (number) => `17-1-${number}`;

const live = (number, more = {}) => ({
  topic: "log/a",
  value: number,
  version: number,
  eventId: event(number),
  snapshot: false,
  removed: false,
  folded: 0,
  gap: false,
  ...more,
});

const packet = (number) => ({
  type: "update",
  topic: "log/a",
  value: number,
  version: number,
  event: event(number),
  snapshot: false,
  removed: false,
  folded: 0,
});

const part = (numbers, upto, more = {}) => ({
  events: numbers.map(packet),
  positions: { 17: event(upto) },
  complete: true,
  gap: false,
  missing: [],
  ...more,
});

function had(reader) {
  const values = [];
  reader.consume();
  for (let update = reader.take(); update !== undefined; update = reader.take()) {
    values.push(update.value);
    reader.consume();
  }
  return values;
}

test("pages come first, and what came live meanwhile follows", () => {
  const reader = new LogReader("earliest", 100);
  reader.offer(live(3));
  reader.offer(live(4));
  reader.answered(part([1, 2], 2, { complete: false }), true);
  assert.equal(reader.isLive, false);
  reader.answered(part([3], 3), true);
  reader.offer(live(5));
  assert.equal(reader.isLive, true);
  assert.deepEqual(had(reader), [1, 2, 3, 4, 5]);
  assert.equal(reader.position, event(5));
});

test("an update that is not the next event is read from the history", () => {
  for (const hint of [live(7, { snapshot: true }), live(7, { folded: 2 })]) {
    const reader = new LogReader(event(4), 100);
    reader.answered(part([], 4), true);
    reader.offer(live(5));
    reader.offer(hint);
    reader.offer(live(8));
    assert.deepEqual(had(reader), [5]);
    assert.deepEqual(reader.after, { 17: event(5) });
    reader.answered(part([6], 6), true);
    assert.equal(reader.isLive, false);
    reader.answered(part([7], 7), true);
    assert.deepEqual(had(reader), [6, 7, 8]);
  }
});

test("what finds no room is read later", () => {
  const reader = new LogReader(event(0), 2);
  reader.answered(part([], 0), true);
  for (let number = 1; number < 10; number += 1) reader.offer(live(number));
  assert.deepEqual(had(reader), [1, 2]);
  reader.answered(part([3, 4, 5, 6, 7, 8, 9], 9), true);
  assert.deepEqual(had(reader), [3, 4, 5, 6, 7, 8, 9]);
});

test("live is what follows a page that holds", () => {
  const reader = new LogReader(event(0), 100);
  reader.answered(part([1], 1), false);
  assert.equal(reader.isWaiting, true);
  reader.offer(live(3));
  assert.equal(reader.isWaiting, false);
  reader.answered(part([2, 3], 3), true);
  reader.interrupt();
  reader.offer(live(5));
  reader.answered(part([4, 5], 5), true);
  assert.deepEqual(had(reader), [1, 2, 3, 4, 5]);
});

test("positions are event ids of different partitions", () => {
  assert.deepEqual([...parsePosition("3-1-5, 17-2-88")], [["3", "3-1-5"], ["17", "17-2-88"]]);
  assert.equal(new LogReader("17-2-88,3-1-5", 1).position, "3-1-5,17-2-88");
  for (const wrong of ["", "x", "3", "3-1", "3-1-5,3-1-6", "64-1-1", "03-1-1", "3-1-x", null]) {
    assert.throws(() => parsePosition(wrong), InvalidPosition);
  }
});

/** A session whose pages are played. */
function played(pages) {
  const positions = new Positions();
  positions.completed({ request: null, positions: { 17: event(0) } });
  const asked = [];
  const readHistory = async (ask, options) => {
    asked.push({ ...ask, timeout: options?.timeout });
    const page = pages.shift();
    if (page instanceof Error) throw page;
    return page ?? part([], 0);
  };
  return { positions, asked, readHistory };
}

test("a stream asks for pages as it is read, and goes on live", async () => {
  const source = played([part([1, 2], 2, { complete: false }), part([3], 3)]);
  const stream = new HistoryStream(parseSelector("log/**"), source, { start: "earliest" });
  const values = [];
  for await (const update of stream) {
    values.push(update.value);
    if (update.value === 3) stream.offer(live(4));
    if (update.value === 4) break;
  }
  assert.deepEqual(values, [1, 2, 3, 4]);
  assert.equal(stream.position, event(3), "the last one was not asked past");
  assert.equal(stream.closed, true);
  assert.deepEqual(
    source.asked.map(({ after }) => after),
    [{}, { 17: event(2) }],
  );
});

test("a gap is told by the first update that follows it, or refused", async () => {
  const page = () => part([5, 6], 6, { gap: true, missing: ["log/a"] });
  const told = new HistoryStream(parseSelector("log/**"), played([page()]), { start: event(1) });
  const updates = told[Symbol.asyncIterator]();
  assert.deepEqual([(await updates.next()).value.gap, (await updates.next()).value.gap], [true, false]);
  const refused = new HistoryStream(parseSelector("log/**"), played([page()]), { start: event(1), onGap: "refuse" });
  await assert.rejects(refused[Symbol.asyncIterator]().next(), PositionGone);
  refused.done();
  assert.equal(refused.position, event(1), "nobody has had what came behind the gap");
});

test("what a page cannot be had for is thrown, and the session's end ends the stream", async () => {
  const failing = new HistoryStream(parseSelector("log/**"), played([new Error("no")]), { start: "earliest" });
  await assert.rejects(failing[Symbol.asyncIterator]().next(), /no/);
  const ended = new HistoryStream(parseSelector("log/**"), played([part([1], 1)]), { start: "earliest" });
  const updates = ended[Symbol.asyncIterator]();
  assert.equal((await updates.next()).value.value, 1);
  const next = updates.next();
  ended.end(new Error("over"));
  await assert.rejects(next, /over/);
});

test("what came live while a page was under way is asked for, though nothing more comes", () => {
  const reader = new LogReader(event(0), 100);
  reader.offer(live(2));
  reader.answered(part([1], 1), false);
  assert.equal(reader.isWaiting, false);
  reader.answered(part([2], 2), false);
  assert.equal(reader.isWaiting, true);
  assert.deepEqual(had(reader), [1, 2]);
});

test("what a stream would wait for may come while a page is under way", async () => {
  const source = played([part([2], 2)]);
  source.positions.reread([17]);
  const { readHistory } = source;
  source.readHistory = async (ask) => {
    // Before the answer, which was made before that.
    source.positions.completed({ request: null, positions: { 17: event(1) } });
    stream.settled();
    return source.asked.length === 0 ? (source.asked.push(ask), part([1], 1)) : readHistory(ask);
  };
  const stream = new HistoryStream(parseSelector("log/**"), source, { start: "earliest" });
  const updates = stream[Symbol.asyncIterator]();
  assert.equal((await updates.next()).value.value, 1);
  assert.equal((await updates.next()).value.value, 2);
});

test("a page is waited for as long as the session lives, that of subscribe as long as this may take", async () => {
  const source = played([part([], 1, { complete: false }), part([2], 2)]);
  const stream = new HistoryStream(parseSelector("log/**"), source, { start: "now" });
  await stream.begin({ timeout: 3 });
  assert.equal((await stream[Symbol.asyncIterator]().next()).value.value, 2);
  assert.deepEqual(source.asked.map(({ timeout }) => timeout), [3, Infinity]);
});

test("after a close nothing of a page comes any more, and it has not been had", async () => {
  const stream = new HistoryStream(parseSelector("log/**"), played([part([1, 2, 3], 3)]), { start: "earliest" });
  const values = [];
  for await (const update of stream) {
    values.push(update.value);
    stream.close();
  }
  assert.deepEqual(values, [1]);
  assert.deepEqual([stream.waiting, stream.position], [0, event(1)]);
  stream.done();
  assert.equal(stream.position, event(1));
});

test("what waits is delivered if the session ends", async () => {
  const stream = new HistoryStream(parseSelector("log/**"), played([part([1, 2], 2)]), { start: "earliest" });
  const values = [];
  for await (const update of stream) {
    values.push(update.value);
    stream.end(null);
  }
  assert.deepEqual(values, [1, 2]);
});
