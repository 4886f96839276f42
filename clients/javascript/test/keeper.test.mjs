import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "../src/index.js";
import { Network, open, settle, Store, URL, WELCOME } from "../testing/support.mjs";

const KEPT = "session-gateway:tab";

/** The first packet of a client that connects with what an earlier one has kept. */
async function firstPacket(store, options, url = URL) {
  const network = new Network();
  const stop = new AbortController();
  const opening = connect(url, { environment: network.environment, keep: "tab", store, signal: stop.signal, ...options });
  await network.until(() => network.last?.sent.length > 0, "a first packet");
  stop.abort();
  await opening.catch(() => {});
  return network.last.packets[0];
}

function jwt(claims) {
  const part = (content) => Buffer.from(JSON.stringify(content)).toString("base64url");
  return `${part({ alg: "EdDSA" })}.${part(claims)}.c2lnbmF0dXJl`;
}

const ALICE = { principal: "alice", secret: "s3cret" };

test("a kept token is used by the same principal with the same credentials at the same gateway", async () => {
  const store = new Store();
  await open(new Network(), { ...ALICE, keep: "tab", store });
  const resume = await firstPacket(store, ALICE);
  assert.deepEqual([resume.type, resume.token], ["resume", "token-1"]);
  assert.equal("secret" in resume, false);
});

for (const [what, options, url] of [
  ["another principal", { ...ALICE, principal: "bob" }, URL],
  ["another secret", { ...ALICE, secret: "other" }, URL],
  ["no secret", { principal: "alice" }, URL],
  ["another host", ALICE, "wss://elsewhere.example"],
  ["another port", ALICE, "wss://gateway.example:8443"],
  ["no encryption", ALICE, "ws://gateway.example"],
  ["another host among others", ALICE, [URL, "wss://elsewhere.example"]],
]) {
  test(`a kept token is never sent with ${what}`, async () => {
    const store = new Store();
    await open(new Network(), { ...ALICE, keep: "tab", store });
    const hello = await firstPacket(store, options, url);
    assert.equal(hello.type, "hello");
    assert.equal(JSON.stringify(hello).includes("token-1"), false);
  });
}

test("a session without a secret belongs to its principal", async () => {
  const store = new Store();
  await open(new Network(), { principal: "alice", keep: "tab", store });
  assert.equal((await firstPacket(store, { principal: "alice" })).type, "resume");
  assert.equal((await firstPacket(store, { principal: "bob" })).type, "hello");
  assert.equal((await firstPacket(store, ALICE)).type, "hello");
});

test("a record that does not say whose it is is not used", async () => {
  const store = new Store();
  store.setItem(KEPT, JSON.stringify({ token: "token-1", attempt: 1, request: 1 }));
  assert.equal((await firstPacket(store, { principal: "alice" })).type, "hello");
});

test("what is kept holds no secret, and differs for equal secrets", async () => {
  const [one, other] = [new Store(), new Store()];
  await open(new Network(), { ...ALICE, keep: "tab", store: one });
  await open(new Network(), { ...ALICE, keep: "tab", store: other });
  assert.equal(one.getItem(KEPT).includes("s3cret"), false);
  assert.notEqual(JSON.parse(one.getItem(KEPT)).proof.digest, JSON.parse(other.getItem(KEPT)).proof.digest);
});

test("a renewed JSON Web Token of the same subject goes on, and is shown to the server", async () => {
  const store = new Store();
  await open(new Network(), { secret: () => jwt({ iss: "i", sub: "alice", exp: 1 }), principal: "", keep: "tab", store });
  const renewed = jwt({ iss: "i", sub: "alice", exp: 2 });
  const resume = await firstPacket(store, { secret: () => renewed, principal: "" });
  assert.deepEqual([resume.type, resume.secret], ["resume", renewed]);
  const bobs = jwt({ iss: "i", sub: "bob", exp: 2 });
  assert.equal((await firstPacket(store, { secret: () => bobs, principal: "" })).type, "hello");
  const strange = jwt({ iss: "other", sub: "alice", exp: 2 });
  assert.equal((await firstPacket(store, { secret: () => strange, principal: "" })).type, "hello");
});

test("the end of one session does not forget the token of another", async () => {
  const store = new Store();
  const [first, second] = [new Network(), new Network()];
  const one = await open(first, { keep: "tab", store }, { session: "s-1", token: "token-one" });
  store.removeItem(KEPT);
  await open(second, { keep: "tab", store }, { session: "s-2", token: "token-two" });
  first.last.say({ type: "ping", token: "token-one-b" });
  void one.publish("a", 1).catch(() => {});
  await settle();
  assert.equal(JSON.parse(store.getItem(KEPT)).token, "token-two", "nor overwrites it");
  const closing = one.close();
  await settle();
  first.last.drop(1000);
  await closing;
  assert.equal(JSON.parse(store.getItem(KEPT)).token, "token-two");
});

test("of two that go on with one token, the one that is superseded leaves it to the other", async () => {
  const store = new Store();
  await open(new Network(), { keep: "tab", store });
  const [first, second] = [new Network(), new Network()];
  const one = await open(first, { keep: "tab", store }, { outcome: "failed_over", token: "token-2" });
  await open(second, { keep: "tab", store }, { outcome: "failed_over", token: "token-3" });
  first.last.drop(4203);
  await one.closed;
  assert.equal(one.closedReason.code, "superseded");
  assert.equal(JSON.parse(store.getItem(KEPT)).token, "token-3");
});

test("... also if it learns of it only when it comes back, at another node", async () => {
  const network = new Network();
  const session = await open(network);
  network.last.drop(4004);
  await network.until(() => network.connections.length === 2 && network.last.sent.length > 0, "a resume");
  network.last.say({ type: "error", code: "token_superseded", message: "A newer token has been used already." });
  network.last.drop(4202);
  await session.closed;
  assert.equal(session.closedReason.name, "SessionRefused");
  assert.equal(session.closedReason.code, "superseded");
});

test("what the application has removed from the storage does not come back", async () => {
  const store = new Store();
  const network = new Network();
  await open(network, { keep: "tab", store });
  store.removeItem(KEPT);
  network.last.say({ type: "ping", token: "token-2" });
  await settle();
  assert.equal(store.getItem(KEPT), null);
});

test("after a reload the application learns what happened", async () => {
  const store = new Store();
  const first = await open(new Network(), { keep: "tab", store });
  assert.deepEqual([first.resumed, first.selections], [false, []]);
  const welcome = { outcome: "failed_over", reason: "gap", token: "token-2", lost: 3, selections: ["+prices/**", "-prices/secret/**"] };
  const session = await open(new Network(), { keep: "tab", store }, welcome);
  assert.equal(session.resumed, true);
  assert.deepEqual(session.selections, ["+prices/**", "-prices/secret/**"]);
  const { value } = await session.recoveries[Symbol.asyncIterator]().next();
  assert.deepEqual([value.outcome, value.reason, value.lost, value.gapSeconds, value.attempts], ["failed_over", "gap", 3, null, 1]);
});

test("a selection from before a reload ends with the stream that takes it over, or by its name", async () => {
  const store = new Store();
  await open(new Network(), { keep: "tab", store });
  const network = new Network();
  const session = await open(network, { keep: "tab", store }, { outcome: "failed_over", token: "token-2", selections: ["+a", "+b/*"] });
  const subscribing = session.subscribe("a");
  await settle();
  network.last.say({ id: 1, type: "reply", request: network.last.packets.at(-1).request });
  (await subscribing).close();
  await settle();
  assert.deepEqual([network.last.packets.at(-1).type, network.last.packets.at(-1).selector], ["unsubscribe", "a"]);
  void session.unsubscribe("b/*").catch(() => {});
  await settle();
  assert.deepEqual([network.last.packets.at(-1).type, network.last.packets.at(-1).selector], ["unsubscribe", "b/*"]);
});

test("where there is nothing to make a digest with, a session with a secret is not kept", async () => {
  const { subtle } = crypto;
  const store = new Store();
  Object.defineProperty(crypto, "subtle", { value: undefined, configurable: true });
  try {
    await open(new Network(), { ...ALICE, keep: "tab", store });
    assert.equal(store.getItem(KEPT), null);
  } finally {
    Object.defineProperty(crypto, "subtle", { value: subtle, configurable: true });
  }
});

test("a session that is over is begun anew with the same secret", async () => {
  const store = new Store();
  let asked = 0;
  const secret = () => `s-${(asked += 1, 1)}`;
  await open(new Network(), { secret, keep: "tab", store });
  const network = new Network();
  const opening = connect(URL, { environment: network.environment, secret, keep: "tab", store });
  await network.until(() => network.last?.sent.length > 0, "a resume");
  network.last.say({ type: "error", code: "session_expired", message: "over" });
  network.last.drop(4202);
  await network.until(() => network.connections.length === 2 && network.last.sent.length > 0, "a hello");
  assert.equal(network.last.packets[0].type, "hello");
  network.last.say(WELCOME);
  const session = await opening;
  assert.equal(session.resumed, false);
  assert.equal(asked, 2);
});
