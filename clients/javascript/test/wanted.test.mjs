import assert from "node:assert/strict";
import { test } from "node:test";
import { Selections } from "../src/selections.js";
import { parseSelector } from "../src/selectors.js";
import { Wanted } from "../src/wanted.js";
import { comeBack, Network, open, settle } from "../testing/support.mjs";

function wanted(...selectors) {
  const wishes = new Wanted(Selections.fromWire([]));
  for (const each of selectors) wishes.add(parseSelector(each), { name: each });
  return wishes;
}

const after = (wishes, ended) => wishes.after(parseSelector(ended)).map(({ selector, keep }) => [selector, ...keep].join(" "));

test("what is taken out of a stream that stays is deselected when it was the last to want it", () => {
  const wishes = wanted("p/**");
  wishes.takeOut(parseSelector("p/s/**"));
  const later = {};
  wishes.add(parseSelector("p/**"), later);
  wishes.remove(later);
  assert.deepEqual(after(wishes, "p/**"), ["p/s/**"]);
});

test("what is taken out of one that stays comes back with it, and is deselected again", () => {
  const wishes = wanted("*/b");
  wishes.takeOut(parseSelector("x/b"));
  assert.deepEqual(after(wishes, "*/*"), ["*/* */b", "x/b"]);
});

test("more than can be named stays until less does", () => {
  const many = Array.from({ length: 65 }, (_, index) => `p/${index}`);
  assert.deepEqual(after(wanted(...many), "p/**"), []);
  assert.equal(after(wanted(...many.slice(1)), "p/**").length, 1);
});

test("of what may not be selected any more, only what is left stays", () => {
  const wishes = wanted("p/**", "q/*");
  wishes.withdrawn(["p/**"], Selections.fromWire(["+p/public/**", "+q/*"]));
  assert.deepEqual(after(wishes, "**"), ["** p/public/** q/*"]);
});

test("selections from before a reload are wanted, without what was taken out of them", () => {
  const wishes = new Wanted(Selections.fromWire(["+p/**", "-p/s/**"]));
  assert.deepEqual(after(wishes, "p/s/x"), ["p/s/x"]);
  assert.deepEqual(after(wishes, "p/x"), []);
});

test("circles of what overlaps come to an end", () => {
  const wishes = wanted("a/*", "*/b", "a/**");
  for (const each of ["a/b", "x/b", "a/x/*", "a/c"]) wishes.takeOut(parseSelector(each));
  assert.ok(after(wishes, "**").length < 10);
});

test("a node that takes the session over and does not know what stays is asked for it anew", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: ["keep"] });
  const streams = Promise.all([session.subscribe("p/**"), session.subscribe("p/A")]);
  await settle();
  network.last.say({ id: 1, type: "reply", request: 1 }, { type: "reply", request: 2 });
  (await streams)[0].close();
  await settle();
  assert.deepEqual(network.last.packets.at(-1).keep, ["p/A"]);
  network.last.drop();
  await comeBack(network, { outcome: "failed_over", token: "token-2", selections: ["+p/**"] });
  const asked = network.last.packets.slice(2).map(({ type, selector, keep, resubmitted }) => [type, selector, keep, resubmitted]);
  assert.deepEqual(asked, [["unsubscribe", "p/**", undefined, true], ["subscribe", "p/A", undefined, undefined]]);
});
