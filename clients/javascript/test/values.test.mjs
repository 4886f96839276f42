/** Reading values without a subscription, page by page. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { InvalidSelector, InvalidTopic, RequestRefused } from "../src/errors.js";
import { decode } from "../src/packets.js";
import { Network, open, settle } from "../testing/support.mjs";

const SUPPORTS = ["values"];

const asked = (network) => network.last.packets.filter(({ request }) => request !== undefined);

test("a page is asked for as the caller says, and is what the reply has", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: SUPPORTS });
  const first = session.values("prices/**");
  const second = session.values("prices/**", { after: "prices/a", limit: 2, timeout: 5 });
  await settle();
  assert.deepEqual(asked(network).map(({ type, selector, after, limit }) => [type, selector, after, limit]), [
    ["values", "prices/**", undefined, undefined],
    ["values", "prices/**", "prices/a", 2],
  ]);
  const item = { topic: "prices/a", version: 7, event: "3-1-9", value: { bid: 1 } };
  network.last.say({ type: "reply", id: 1, request: 1, values: { items: [item], next: "prices/a" } });
  network.last.say({ type: "reply", id: 2, request: 2, values: { items: [] } });
  const value = { topic: "prices/a", value: { bid: 1 }, version: 7, eventId: "3-1-9" };
  assert.deepEqual(await first, { values: [value], next: "prices/a" });
  assert.deepEqual(await second, { values: [], next: null });
});

test("the `next` of the last page asks for the first one again, as null does", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: SUPPORTS });
  session.values("a", { after: null }).catch(() => {});
  await settle();
  assert.equal("after" in asked(network)[0], false);
});

test("what makes no sense is refused before it is sent", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: SUPPORTS });
  await assert.rejects(session.values("a//b"), InvalidSelector);
  await assert.rejects(session.values("a", { after: "a/*" }), InvalidTopic);
  for (const limit of [0, -1, 1.5, NaN, "7"]) await assert.rejects(session.values("a", { limit }), TypeError, String(limit));
  assert.deepEqual(asked(network), []);
});

test("a node of an older release is not asked", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: ["history"] });
  await assert.rejects(session.values("a"), (error) => error instanceof RequestRefused && /release/.test(error.message));
  assert.deepEqual(asked(network), []);
});

test("a reply with no page breaks the protocol", () => {
  const item = { topic: "a", version: 1, event: "1-1-1", value: 1 };
  const said = (values) => JSON.stringify({ type: "reply", id: 1, request: 1, values });
  for (const values of [[], {}, { items: {} }, { items: [7] }, { items: [{ ...item, version: 0 }] }, { items: [], next: 7 }]) {
    assert.throws(() => decode(said(values)), JSON.stringify(values));
  }
  const { value: _, ...without } = item;
  assert.throws(() => decode(said({ items: [without] })));
  assert.deepEqual(decode(said({ items: [item], next: "a" }))[0].body.values, { items: [item], next: "a" });
});
