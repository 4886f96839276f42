import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidValue, RequestFailed, RequestRefused, SessionFailed, SessionRefused } from "../src/index.js";
import { comeBack, Network, open, settle, WELCOME } from "../testing/support.mjs";

const FAILED_OVER = { outcome: "failed_over", numbering: "restarted", reason: "gap" };

test("a request that the node names when it closes is dropped and refused, and the session goes on", async () => {
  const network = new Network();
  const session = await open(network);
  const [before, bad, after] = [1, 2, 3].map((value) => session.publish("t", value).catch((error) => error));
  await settle();
  network.last.say({ type: "error", code: "bad_value", message: "too deep", request: 2 });
  network.last.drop(4200);
  const error = await bad;
  assert.ok(error instanceof InvalidValue);
  assert.equal(error.message, "too deep");
  await comeBack(network, { ...FAILED_OVER, token: "token-2" });
  const [resume, , ...again] = network.last.packets;
  assert.deepEqual([resume.type, resume.oldest], ["resume", 3], "its packet is missing");
  assert.deepEqual(again.map(({ request, resubmitted }) => [request, resubmitted]), [[1, true], [3, true]]);
  network.last.say({ id: 1, type: "reply", request: 1 }, { type: "reply", request: 3 });
  await Promise.all([before, after]);
  assert.equal(session.state, "connected");
});

test("every request says its type and its number before anything that may be long", async () => {
  const network = new Network();
  const long = "x".repeat(200);
  const session = await open(network, { principal: "alice", secret: () => long }, { supports: ["keep"] });
  const stream = session.subscribe(`${long}/**`, { listener: () => {} });
  const inner = session.subscribe(`${long}/a`, { listener: () => {} });
  await settle();
  network.last.say({ id: 1, type: "reply", request: 1 }, { type: "reply", request: 2 });
  await Promise.all([stream, inner]);
  const calls = [session.publish(long, long), session.setProperties({ [long.slice(0, 60)]: long }), session.unsubscribe(`${long}/**`)];
  for (const call of calls) call.catch(() => {});
  network.last.say({ id: 3, type: "notice", code: "credentials_expiring", message: "soon" });
  await settle();
  const asked = network.last.sent.flatMap((text) => (text.startsWith("[") ? text.slice(1, -1).split(/(?<=\}),(?=\{)/) : [text]));
  const requests = asked.filter((text) => text.includes('"request"'));
  const types = requests.map((text) => /^\{("id":\d+,)?("received":\d+,)?"type":"(\w+)","request":\d+[,}]/.exec(text)?.[3] ?? text);
  assert.deepEqual(types, ["subscribe", "subscribe", "publish", "properties", "unsubscribe", "authenticate"]);
});

test("a node that names one request after the other ends no session", async () => {
  const network = new Network();
  const session = await open(network);
  for (let turn = 1; turn <= 4; turn += 1) {
    const bad = session.publish("t", turn).catch((error) => error);
    await settle();
    const { request } = network.last.packets.at(-1);
    network.last.say({ type: "error", code: "message_too_big", message: "no", request });
    network.last.drop(1009);
    assert.equal((await bad).code, "message_too_big");
    await comeBack(network, { ...FAILED_OVER, token: `token-${turn + 1}` });
  }
  assert.equal(session.state, "connected");
});

test("a request that was received before its node closed for it may stay out of a reattached session", async () => {
  const network = new Network();
  const session = await open(network);
  const bad = session.publish("t", 1).catch((error) => error);
  await settle();
  network.last.say({ type: "error", code: "internal", message: "no", request: 1 });
  network.last.drop(1011);
  await bad;
  await comeBack(network, { outcome: "reattached", numbering: "kept", received: 1, token: "token-2" });
  assert.deepEqual(network.last.packets.slice(1).map(({ type }) => type), ["ack"]);
  assert.equal(session.state, "connected");
});

for (const code of [1009, 4200]) {
  test(`a request that was the oldest at two closes with ${code} in a row is dropped`, async () => {
    const network = new Network();
    const session = await open(network);
    const bad = session.publish("t", 1).catch((error) => error);
    const good = session.publish("t", 2);
    await settle();
    network.last.drop(code, "no");
    await comeBack(network, { outcome: "reattached", numbering: "kept", received: 0, token: "token-2" });
    assert.equal(network.last.packets.filter(({ type }) => type === "publish").length, 2);
    network.last.drop(code, "no");
    const error = await bad;
    assert.ok(error instanceof RequestRefused);
    assert.equal(error.code, code === 1009 ? "message_too_big" : "protocol_error");
    await comeBack(network, { ...FAILED_OVER, token: "token-3" });
    const again = network.last.packets.filter(({ type }) => type === "publish");
    assert.deepEqual(again.map(({ value }) => value), [2]);
    network.last.say({ id: 1, type: "reply", request: again[0].request });
    await good;
    assert.equal(session.state, "connected");
  });
}

test("a node that closes twice with nothing under way has another quarrel, and the session is given up", async () => {
  const network = new Network();
  const session = await open(network);
  network.last.drop(4200);
  await comeBack(network, { outcome: "reattached", numbering: "kept", token: "token-2" });
  network.last.drop(4200);
  await session.closed;
  assert.ok(session.closedReason instanceof SessionFailed);
});

test("closes for different requests are not in a row", async () => {
  const network = new Network();
  const session = await open(network);
  for (let number = 1; number <= 3; number += 1) {
    const publishing = session.publish("t", number);
    await settle();
    network.last.drop(4200, "no");
    await comeBack(network, { outcome: "reattached", received: number - 1, token: `token-${number + 1}` });
    network.last.say({ id: number, received: number, type: "reply", request: number, version: number, event: "e" });
    assert.equal((await publishing).version, number);
  }
  assert.equal(session.state, "connected");
});

test("all of several bad requests are found out, one after the other", async () => {
  const network = new Network();
  const session = await open(network);
  const calls = [1, 2, 3].map((value) => session.publish("t", value).catch((error) => error));
  await settle();
  for (const call of calls) {
    network.last.drop(4200, "no");
    await comeBack(network, { outcome: "reattached", numbering: "kept", received: network.last.received ?? 0, token: "token-2" });
    network.last.drop(4200, "no");
    assert.match((await call).message, /two connections in a row/);
    await comeBack(network, { ...FAILED_OVER, token: "token-3" });
  }
  assert.equal(session.state, "connected");
});

test("an error code of a later release counts as internal", async () => {
  const network = new Network();
  const session = await open(network);
  const asking = session.publish("t", 1).catch((error) => error);
  await settle();
  network.last.say({ type: "error", code: "out_of_cheese", message: "no close follows" }, { id: 1, type: "reply", request: 1, error: { code: "out_of_cheese", message: "wait", retry_after: 1 } });
  const error = await asking;
  assert.ok(error instanceof RequestFailed);
  assert.equal(error.code, "internal");
  assert.equal(session.state, "connected");
});

/** What a later release may add to any packet. */
const NEW_FIELDS = { weather: { wind: [1, 2, null] }, gateway2: "yes", Type: 7 };

test("fields of later releases are ignored everywhere", async () => {
  const network = new Network();
  const { limits, backoff } = WELCOME;
  const strange = { limits: { ...limits, nesting: 3, weather: null }, backoff: { ...backoff, mood: "good" } };
  const session = await open(network, {}, { ...NEW_FIELDS, ...strange, numbering: "restarted" });
  const told = [];
  session.addEventListener("notice", ({ detail }) => told.push(detail.code));
  session.addEventListener("recovery", ({ detail }) => told.push(detail.outcome));
  const subscribing = session.subscribe("a/**", { listener: ({ value }) => told.push(value) });
  await settle();
  network.last.say(
    { id: 1, type: "reply", request: 1, ...NEW_FIELDS },
    { id: 2, type: "update", topic: "a/1", version: 1, event: "e", value: "one", ...NEW_FIELDS },
    { type: "ping", ...NEW_FIELDS },
    { id: 3, type: "notice", code: "moon_landing", message: "It has landed.", ...NEW_FIELDS },
  );
  await subscribing;
  await settle();
  assert.deepEqual(told, ["one", "moon_landing"]);
  assert.equal(network.last.packets.at(-1).type, "pong");
  const refused = session.publish("a/1", 2).catch((error) => error);
  await settle();
  const error = { code: "bad_value", message: "no", ...NEW_FIELDS };
  network.last.say({ id: 4, type: "reply", request: 2, error, ...NEW_FIELDS });
  assert.ok((await refused) instanceof InvalidValue);
  network.last.say({ type: "go-away", reason: "spring", delay: 0, ...NEW_FIELDS });
  await network.until(() => network.last.closed !== null || network.connections.length > 1, "a leave");
  await comeBack(network, { ...NEW_FIELDS, outcome: "reattached", numbering: "kept", received: 2, token: "token-2" });
  assert.deepEqual(told, ["one", "moon_landing", "reattached"]);
  assert.equal(session.state, "connected");
});

for (const code of [4042, 4099, 4142, 4999, 3042]) {
  test(`a close with ${code}, of a later release, means what its range says`, async () => {
    const network = new Network();
    const session = await open(network);
    network.last.say({ type: "error", code: "out_of_cheese", message: "come again", ...NEW_FIELDS });
    network.last.drop(code, "as of 2031");
    const before = network.last;
    await network.until(() => network.last !== before && network.last.sent.length > 0, "a resume");
    network.last.say({ type: "error", code: "out_of_cheese", message: "not yet", retry_after: 0.01 });
    network.last.drop(4177);
    await comeBack(network, { outcome: "reattached", numbering: "kept", token: "token-2" });
    assert.deepEqual([session.state, network.connections.length], ["connected", 3]);
  });
}

test("a close code of a later release that says not to come back is obeyed", async () => {
  const network = new Network();
  const session = await open(network);
  network.last.say({ type: "error", code: "out_of_cheese", message: "never again" });
  network.last.drop(4277, "as of 2031");
  await session.closed;
  assert.ok(session.closedReason instanceof SessionRefused);
});

for (const strange of [{ type: "teleport" }, { id: 2, type: "histogram", topic: "a" }, { type: "publish", id: 2, request: 1, topic: "a", value: 1 }]) {
  test(`a packet ${strange.type} that no server of this release sends is named, and the session goes on`, async () => {
    const network = new Network();
    const session = await open(network);
    const subscribing = session.subscribe("a");
    await settle();
    network.last.say({ id: 1, type: "reply", request: 1 });
    await subscribing;
    network.last.say(strange);
    await settle();
    const error = network.last.packets.at(-1);
    assert.deepEqual([network.last.closed.code, error.code], [4200, "unknown_packet_type"]);
    assert.ok(error.message.includes(strange.type));
    await comeBack(network, { outcome: "reattached", numbering: "kept", received: 1, token: "token-2" });
    assert.deepEqual([network.last.packets[0].received, session.state], [1, "connected"]);
  });
}

test("an outcome of the future is taken by its numbering, and shown as it is", async () => {
  const network = new Network();
  const session = await open(network);
  const publishing = session.publish("t", 1);
  await settle();
  network.last.drop();
  const outcomes = [];
  session.addEventListener("recovery", ({ detail }) => outcomes.push(detail.outcome));
  await comeBack(network, { outcome: "mirrored", numbering: "kept", received: 0, token: "token-2" });
  const [again] = network.last.packets.filter(({ type }) => type === "publish");
  assert.deepEqual([again.id, again.resubmitted], [1, undefined]);
  network.last.drop();
  await comeBack(network, { outcome: "beamed_up", numbering: "restarted", token: "token-3" });
  const [asked] = network.last.packets.filter(({ type }) => type === "publish");
  assert.deepEqual([asked.id, asked.resubmitted], [1, true]);
  network.last.say({ id: 1, type: "reply", request: 1 });
  await publishing;
  assert.deepEqual(outcomes, ["mirrored", "beamed_up"]);
});

for (const strange of [{ outcome: "beamed_up" }, { outcome: "beamed_up", numbering: "sideways" }, { outcome: "reattached", numbering: "sideways" }]) {
  test(`a welcome whose numbering cannot be known ends no session: ${JSON.stringify(strange)}`, async () => {
    const network = new Network();
    const session = await open(network);
    const publishing = session.publish("t", 1);
    await settle();
    network.last.drop();
    const unknown = await comeBack(network, { ...strange, token: "token-2" });
    assert.equal(unknown.closed.code, 4000);
    assert.equal(session.state, "recovering");
    await comeBack(network, { ...FAILED_OVER, token: "token-3" });
    const [resume, , again] = network.last.packets;
    assert.deepEqual([resume.token, resume.received, resume.oldest], ["token-2", 0, Number.MAX_SAFE_INTEGER]);
    assert.deepEqual([again.request, again.resubmitted], [1, true]);
    network.last.say({ id: 1, type: "reply", request: 1 });
    await publishing;
    assert.equal(session.state, "connected");
  });
}

test("a hello may be answered by an outcome of the future", async () => {
  const session = await open(new Network(), {}, { outcome: "conjured", numbering: "restarted" });
  assert.equal(session.state, "connected");
});

test("updates say how many they took the place of, and streams count them", async () => {
  const network = new Network();
  const session = await open(network);
  const heard = [];
  const subscribing = session.subscribe("a", { listener: ({ folded }) => heard.push(folded) });
  await settle();
  const update = (id, version, more = {}) => ({ id, type: "update", topic: "a", version, event: "e", value: 0, ...more });
  network.last.say({ id: 1, type: "reply", request: 1 }, update(2, 1), update(3, 5, { folded: 3 }), update(4, 5, { folded: 9 }), update(5, 8, { folded: 2, snapshot: true }));
  assert.deepEqual(heard, [0, 3, 2]);
  assert.equal((await subscribing).conflated, 5);
});

test("a notice tells the partitions that it is about", async () => {
  const network = new Network();
  const session = await open(network);
  const notices = [];
  session.addEventListener("notice", ({ detail }) => notices.push(detail));
  network.last.say({ id: 1, type: "notice", code: "values_reread", message: "m", partitions: [3, 4] }, { type: "notice", code: "x", message: "m" });
  assert.deepEqual(notices, [{ code: "values_reread", message: "m", partitions: [3, 4] }, { code: "x", message: "m" }]);
});
