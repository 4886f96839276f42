import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, InvalidProperties, InvalidSelector, InvalidTopic, InvalidValue, RequestRefused, ValueTooLarge } from "../src/index.js";
import { comeBack, Network, open, settle, URL, WELCOME } from "../testing/support.mjs";

const LONE = "\ud83d";

function nested(levels) {
  let value = 0;
  for (let level = 0; level < levels; level += 1) value = level % 2 ? [value] : { a: value };
  return value;
}

const circle = {};
circle.self = circle;

for (const [what, value] of [
  ["undefined", undefined],
  ["a function", () => 1],
  ["a symbol", Symbol("s")],
  ["a bigint", 1n],
  ["a Map", new Map([["a", 1]])],
  ["a Set", new Set([1])],
  ["a Blob", new Blob(["x"])],
  ["bytes", new Uint8Array(3)],
  ["a buffer", new ArrayBuffer(3)],
  ["a promise", Promise.resolve(1)],
  ["an expression", /a/],
  ["NaN", NaN],
  ["an infinity", -Infinity],
  ["a lone surrogate", LONE],
  ["a Map within", { deep: [new Map()] }],
  ["a function within", { f() {} }],
  ["a bigint within", [1n]],
  ["NaN within", { a: [NaN] }],
  ["a lone surrogate within", { a: [`x${LONE}y`] }],
  ["a lone surrogate in a name", { [LONE]: 1 }],
  ["a circle", circle],
  ["129 levels", nested(129)],
  ["1024 levels", nested(1024)],
  ["levels without end", nested(200_000)],
]) {
  test(`a value that JSON cannot say is refused with a sentence: ${what}`, async () => {
    const network = new Network();
    const session = await open(network);
    const before = network.last.sent.length;
    const error = await session.publish("t", value).catch((each) => each);
    assert.ok(error instanceof InvalidValue, String(error));
    assert.equal(error.code, "bad_value");
    assert.match(error.message, /\w+ \w+ \w+/);
    await settle();
    assert.equal(network.last.sent.length, before, "nothing was numbered or sent");
    assert.equal(session.state, "connected");
  });
}

test("what JSON can say is sent as it is", async () => {
  const network = new Network();
  const session = await open(network);
  class Price {
    bid = 1.5;
  }
  const values = [null, "[{\"", "\\ud83d", "😀", new Price(), new Date(0), [undefined], { a: undefined }, nested(128), new String("s")];
  for (const value of values) {
    void session.publish("t", value).catch(() => {});
    await settle();
    assert.deepEqual(network.last.packets.at(-1).value, JSON.parse(JSON.stringify(value)));
    network.last.say({ type: "ack", received: network.last.packets.filter(({ type }) => type === "publish").length });
  }
});

test("a value is taken as it was when it was published", async () => {
  const network = new Network();
  const session = await open(network);
  network.last.drop();
  const value = { a: 1 };
  void session.publish("t", value).catch(() => {});
  value.a = 2;
  await comeBack(network, { outcome: "reattached", token: "token-2" });
  assert.deepEqual(network.last.packets.at(-1).value, { a: 1 });
});

test("arguments that make no sense are refused with a sentence, and nothing else is harmed", async () => {
  const network = new Network();
  const session = await open(network);
  const before = network.last.sent.length;
  const cases = [
    [() => session.publish(null, 1), InvalidTopic],
    [() => session.publish(undefined, 1), InvalidTopic],
    [() => session.publish({ topic: "a" }, 1), InvalidTopic],
    [() => session.publish(`a/${LONE}`, 1), InvalidTopic],
    [() => session.publish("x".repeat(1025), 1), InvalidTopic],
    [() => session.subscribe(null), InvalidSelector],
    [() => session.subscribe(LONE), InvalidSelector],
    [() => session.unsubscribe(7), InvalidSelector],
    [() => session.subscribe("a", { listener: 5 }), TypeError],
    [() => session.subscribe("a", { queueSize: 0 }), TypeError],
    [() => session.subscribe("a", { queueBytes: "many" }), TypeError],
    [() => session.setProperties("abc"), InvalidProperties],
    [() => session.setProperties(null), InvalidProperties],
    [() => session.setProperties(["a"]), InvalidProperties],
    [() => session.setProperties(new Map([["a", "b"]])), InvalidProperties],
    [() => session.setProperties({ a: 1 }), InvalidProperties],
    [() => session.setProperties({ a: LONE }), InvalidProperties],
    [() => session.setProperties({ "": "x" }), InvalidProperties],
    [() => session.setProperties({ ["n".repeat(65)]: "x" }), InvalidProperties],
    [() => session.setProperties({ a: "x".repeat(1025) }), InvalidProperties],
    [() => session.setProperties({ a: "x".repeat(100_000) }), InvalidProperties],
    [() => session.setProperties(Object.fromEntries(Array.from({ length: 65 }, (_, index) => [`p${index}`, "x"]))), InvalidProperties],
    [() => session.authenticate("s".repeat(100_000)), RequestRefused],
    [() => session.authenticate(LONE), TypeError],
    [() => session.authenticate(5), TypeError],
    [() => session.publish("t", 1, { timeout: "5" }), TypeError],
    [() => session.publish("t", 1, { timeout: NaN }), TypeError],
    [() => session.publish("t", 1, { timeout: -1 }), TypeError],
    [() => session.publish("t", 1, { signal: {} }), TypeError],
    [() => session.publish("t", "x".repeat(40_000)), ValueTooLarge],
    [() => connect(URL, { environment: network.environment, properties: "abc" }), InvalidProperties],
    [() => connect(URL, { environment: network.environment, properties: { a: LONE } }), InvalidProperties],
    [() => connect(URL, { environment: network.environment, principal: LONE }), TypeError],
    [() => connect(URL, { environment: network.environment, secret: 5 }), TypeError],
    [() => connect(URL, { environment: network.environment, connectTimeout: "5" }), TypeError],
    [() => connect(URL, { environment: network.environment, window: NaN }), TypeError],
  ];
  for (const [call, Kind] of cases) {
    const error = await call().then(() => null, (each) => each);
    assert.ok(error instanceof Kind, `${call}: ${error}`);
    assert.ok(error.message.length > 10, error.message);
    assert.equal(error.message.includes("ssssssss"), false);
  }
  await settle();
  assert.equal(network.last.sent.length, before);
  assert.equal(network.connections.length, 1);
  assert.equal(session.state, "connected");
});

test("characters of properties are counted as people count them", async () => {
  const network = new Network();
  const session = await open(network);
  void session.setProperties({ ["😀".repeat(64)]: "😀".repeat(1024) }).catch(() => {});
  await settle();
  assert.equal(network.last.packets.at(-1).type, "properties");
});

test("what the node that takes the session over would not read is not sent to it", async () => {
  const network = new Network();
  const session = await open(network);
  const large = session.publish("t", "x".repeat(20_000)).catch((error) => error);
  await settle();
  network.last.drop();
  const waiting = session.publish("t", "y".repeat(20_000)).catch((error) => error);
  const small = session.publish("t", 1);
  const limits = { ...WELCOME.limits, message_bytes: 10_000, value_bytes: 8_000 };
  await comeBack(network, { outcome: "failed_over", token: "token-2", limits });
  assert.ok((await large) instanceof ValueTooLarge);
  assert.ok((await waiting) instanceof ValueTooLarge);
  const sent = network.last.packets.filter(({ type }) => type === "publish");
  assert.deepEqual(sent.map(({ value }) => value), [1]);
  network.last.say({ id: 1, type: "reply", request: sent[0].request, version: 1, event: "e" });
  await small;
});

test("fresh credentials that are too long are not shown, and the session goes on", async () => {
  const network = new Network();
  const secrets = ["first", "x".repeat(100_000), "third"];
  const session = await open(network, { secret: () => secrets.shift() });
  network.last.say({ id: 1, type: "notice", code: "credentials_expiring", message: "soon" });
  await network.until(() => network.last.packets.at(-1).type === "authenticate", "fresh credentials");
  assert.equal(network.last.packets.at(-1).secret, "third");
  assert.equal(session.state, "connected");
});
