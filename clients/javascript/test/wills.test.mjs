/** What ends, and what is left: the time to live of a published value, and last wills. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { RequestRefused } from "../src/errors.js";
import { comeBack, Network, open, settle } from "../testing/support.mjs";

const SUPPORTS = ["ttl", "wills", "transactions"];

const asked = (network) => network.last.packets.filter(({ request }) => request !== undefined);

test("a publish says when its value ends, and says nothing unless it is told to", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: SUPPORTS });
  for (const options of [{ ttl: 30 }, { ttl: 0 }, {}]) session.publish("offers/17", { price: 1 }, options).catch(() => {});
  await settle();
  assert.deepEqual(asked(network).map(({ topic, value, ttl }) => [topic, value, ttl]), [
    ["offers/17", { price: 1 }, 30],
    ["offers/17", { price: 1 }, 0],
    ["offers/17", { price: 1 }, undefined],
  ]);
});

test("a time that no value can live is refused before it is sent", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: SUPPORTS });
  for (const ttl of [-1, 1e9, NaN, "30", 0.0001]) {
    await assert.rejects(session.publish("a", 1, { ttl }), TypeError, String(ttl));
  }
  assert.deepEqual(asked(network), []);
});

test("wills are written as they are when they are set", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: SUPPORTS });
  const value = { state: "lost" };
  session
    .setWills([
      { topic: "status/a", value },
      { topic: "status/a", value: null, when: ["removed", "closed"], ttl: 60 },
    ])
    .catch(() => {});
  value.state = "changed";
  await settle();
  const [{ type, wills }] = asked(network);
  assert.equal(type, "wills");
  assert.deepEqual(wills, [
    { topic: "status/a", when: ["expired", "removed"], value: { state: "lost" } },
    { topic: "status/a", when: ["closed", "removed"], ttl: 60, value: null },
  ]);
});

test("wills that cannot be are refused before they are sent", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: SUPPORTS });
  const will = { topic: "status/a", value: 1 };
  for (const wills of [Array(9).fill(will), [{ ...will, when: [] }], [{ ...will, when: ["never"] }], will]) {
    await assert.rejects(session.setWills(wills), TypeError);
  }
  await assert.rejects(session.setWills([{ topic: "a//b", value: 1 }]));
  assert.deepEqual(asked(network), []);
});

test("a node of an older release is not asked for what it would not do", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: [] });
  await assert.rejects(session.publish("a", 1, { ttl: 30 }), RequestRefused);
  await assert.rejects(session.setWills([]), RequestRefused);
  session.publish("a", 1).catch(() => {});
  await settle();
  assert.deepEqual(asked(network).map(({ topic }) => topic), ["a"]);
});

test("what waits when a session goes to an older node is refused there", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: SUPPORTS });
  const waiting = [session.publish("a", 1, { ttl: 30 }), session.setWills([{ topic: "a", value: 1 }])];
  await settle();
  network.last.drop();
  const refusals = Promise.all(waiting.map((each) => assert.rejects(each, RequestRefused)));
  await comeBack(network, { outcome: "failed_over", numbering: "restarted", supports: [] });
  await settle();
  await refusals;
});
