// Streams over HTTP whose network is lost without a word: `fetch` is played, and gives what a node would.

import assert from "node:assert/strict";
import { test } from "node:test";
import { follow } from "../src/index.js";

const GATEWAY = "http://gateway.example";
const OPEN = 'retry: 1\nevent: open\nid: p-1\ndata: {"node": "n1"}\n\n';
const SILENCE = 0.05;

/** A `fetch` whose answers are taken from a list of bodies; an answer goes on for ever once it has said all. */
function played(...bodies) {
  const calls = [];
  const play = async (address, { headers, signal }) => {
    const call = { headers, signal, cancelled: false };
    calls.push(call);
    const chunks = bodies.shift();
    if (chunks === undefined) return new Promise(() => {});
    const body = new ReadableStream({
      async start(controller) {
        for (const [delay, text] of chunks) {
          if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay));
          if (!call.cancelled) controller.enqueue(new TextEncoder().encode(text));
        }
      },
      cancel() {
        call.cancelled = true;
      },
    });
    return new Response(body, { status: 200 });
  };
  return { calls, play };
}

/** How many timers of the platform wait. */
const timers = () => process.getActiveResourcesInfo().filter((each) => each === "Timeout").length;

async function first(count, events) {
  const found = [];
  for await (const event of events) {
    found.push(event);
    if (found.length === count) break;
  }
  return found;
}

test("an answer that is silent has been lost, and the next request goes on behind it", { timeout: 20_000 }, async () => {
  const { calls, play } = played([[0, OPEN]], [[0, OPEN.replaceAll("1", "2")]]);
  const before = timers();
  const events = await first(2, follow(GATEWAY, "a", { fetch: play, silence: SILENCE }));
  assert.deepEqual(events.map(({ data }) => data.node), ["n1", "n2"]);
  assert.deepEqual(calls.map(({ headers }) => headers["Last-Event-ID"]), [undefined, "p-1"]);
  assert.ok(calls.every(({ cancelled, signal }) => cancelled && signal.aborted), "both are hung up on");
  assert.equal(timers(), before);
});

test("so has a request without an answer", { timeout: 20_000 }, async () => {
  const { calls, play } = played();
  const ends = new AbortController();
  const reading = first(1, follow(GATEWAY, "a", { fetch: play, silence: SILENCE, signal: ends.signal }));
  while (calls.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.ok(calls[0].signal.aborted);
  ends.abort();
  assert.deepEqual(await reading, []);
});

test("signs of life are enough, and a slow loop is no silence", { timeout: 20_000 }, async () => {
  const alive = Array.from({ length: 6 }, () => [200, ": alive\n"]);
  const { calls, play } = played([[0, OPEN], ...alive, [0, 'data: {"topic": "a"}\n\n']]);
  const found = [];
  for await (const event of follow(GATEWAY, "a", { fetch: play, silence: 1 })) {
    found.push(event.type);
    if (event.type === "update") break;
    await new Promise((resolve) => setTimeout(resolve, 1100));
  }
  assert.deepEqual(found, ["open", "update"]);
  assert.equal(calls.length, 1);
});

test("whoever aborts while nothing comes is done at once, and without a timer", { timeout: 20_000 }, async () => {
  const { calls, play } = played([[0, OPEN]]);
  const ends = new AbortController();
  const before = timers();
  const events = follow(GATEWAY, "a", { fetch: play, signal: ends.signal });
  await events.next();
  const next = events.next();
  await new Promise((resolve) => setTimeout(resolve, 5));
  ends.abort();
  assert.deepEqual(await next, { done: true, value: undefined });
  assert.ok(calls[0].cancelled);
  assert.equal(timers(), before);
});

test("silence is a length of time", async () => {
  for (const silence of [0, -1, NaN, "1"]) {
    await assert.rejects(follow(GATEWAY, "a", { fetch: played().play, silence }).next(), TypeError);
  }
});
