import assert from "node:assert/strict";
import { test } from "node:test";
import {
  ConnectFailed,
  connect,
  Forbidden,
  InvalidProperties,
  InvalidValue,
  RequestTimedOut,
  SessionClosed,
  SessionExpired,
  SessionFailed,
  SessionRefused,
  Unauthenticated,
  ValueTooLarge,
} from "../src/index.js";
import { checkUrls, warnOfClearText } from "../src/reconnect.js";
import { Network, settle, WELCOME } from "../testing/support.mjs";

const URL = "wss://gateway.example";

async function open(network, options = {}, welcome = {}) {
  const opening = connect(URL, { environment: network.environment, ...options });
  await network.clock.pass(0.2);
  network.last.say({ ...WELCOME, ...welcome });
  const session = await opening;
  await settle();
  return session;
}

/** Wait until the client has come back, and welcome it. */
async function comeBack(network, welcome) {
  const before = network.last;
  for (let step = 0; step < 200 && (network.last === before || network.last.sent.length === 0); step += 1) {
    await network.clock.pass(0.05);
  }
  network.last.say({ ...WELCOME, ...welcome });
  await settle();
  return network.last;
}

test("a session is opened with a hello and proves at once that it holds its token", async () => {
  const network = new Network();
  const session = await open(network, { principal: "alice", secret: "s3cret", properties: { team: "fx" }, window: 30 });
  const [hello, proof] = network.last.packets;
  assert.deepEqual({ ...hello, client: "" }, {
    type: "hello", principal: "alice", secret: "s3cret", properties: { team: "fx" }, client: "", window: 30,
    supports: ["handed_over", "mirrored", "replay", "queues", "questions", "topology"],
  });
  assert.deepEqual(proof, { type: "ack", received: 0 });
  assert.equal(network.last.url, "wss://gateway.example/v1/connect");
  assert.deepEqual([session.id, session.node, session.state, session.replicated], ["s-1", "n1", "connected", true]);
});

test("the secret is never part of a URL, an error or what is kept", async () => {
  const network = new Network();
  const store = new Map();
  const opening = connect(URL, {
    environment: network.environment,
    secret: "s3cret",
    keep: "tab",
    store: { getItem: (name) => store.get(name) ?? null, setItem: (name, value) => store.set(name, value), removeItem: (name) => store.delete(name) },
  });
  await network.until(() => network.last?.sent.length > 0);
  network.last.say({ type: "error", code: "unauthenticated", message: "not accepted" });
  network.last.drop(4201);
  const error = await opening.catch((each) => each);
  assert.ok(error instanceof Unauthenticated);
  assert.ok(!JSON.stringify([error.message, error.stack, [...store], network.connections.map(({ url }) => url)]).includes("s3cret"));
});

test("nothing is kept unless it is asked for", async () => {
  const network = new Network();
  globalThis.sessionStorage = { setItem: () => assert.fail("kept"), getItem: () => assert.fail("read"), removeItem: () => {} };
  const session = await open(network);
  delete globalThis.sessionStorage;
  assert.equal(session.state, "connected");
});

test("packets are acknowledged after a number of them", async () => {
  for (const ackPackets of [0, -1, 1.5, true, "7"]) {
    await assert.rejects(connect(URL, { environment: new Network().environment, ackPackets }), TypeError);
  }
});

test("the node that has a copy is told", async () => {
  const session = await open(new Network(), {}, { backup: "n2", mirror: "sync" });
  assert.deepEqual([session.node, session.backup, session.mirror], ["n1", "n2", "sync"]);
  const alone = await open(new Network());
  assert.deepEqual([alone.backup, alone.mirror], [null, null]);
});

test("connecting gives up in time, and says what was last", async () => {
  const network = new Network();
  network.down = true;
  const opening = connect(URL, { environment: network.environment, connectTimeout: 3 }).catch((error) => error);
  await network.clock.pass(4);
  const error = await opening;
  assert.ok(error instanceof ConnectFailed && error.retryable);
  assert.match(error.message, /no session within 3 s; last: wss:\/\/gateway\.example\/v1\/connect cannot be reached/);
  assert.ok(network.connections.length >= 3);
});

test("a place that does not speak the protocol is not tried again", async () => {
  const network = new Network();
  network.hangs = true;
  const opening = connect(URL, { environment: network.environment }).catch((error) => error);
  await network.clock.pass(0.2);
  network.last.open("other.v1");
  const error = await opening;
  assert.ok(error instanceof ConnectFailed && !error.retryable);
});

test("a subscription is answered, and its values come through a loop and through a listener", async () => {
  const network = new Network();
  const session = await open(network);
  const heard = [];
  const subscribing = session.subscribe("prices/**", { listener: ({ value }) => heard.push(value) });
  await settle();
  const { id, request, selector } = network.last.packets.at(-1);
  assert.deepEqual([id, request, selector], [1, 1, "prices/**"]);
  network.last.say({ id: 1, received: 1, type: "reply", request: 1 }, { type: "update", topic: "prices/A", version: 7, event: "e", snapshot: true, value: 1 });
  await subscribing;
  const second = session.subscribe("prices/*");
  await settle();
  network.last.say({ id: 3, type: "reply", request: 2 }, { type: "update", topic: "prices/A", version: 8, event: "e", value: 2 });
  const stream = await second;
  const { value } = await stream[Symbol.asyncIterator]().next();
  assert.deepEqual([value.topic, value.value, value.version, value.snapshot], ["prices/A", 2, 8, false]);
  assert.deepEqual(heard, [1, 2]);
});

test("versions never go back, and a failover brings each value once more", async () => {
  const network = new Network();
  const session = await open(network);
  const heard = [];
  const subscribing = session.subscribe("a", { listener: ({ version }) => heard.push(version) });
  await settle();
  const update = (id, version, snapshot = false) => ({ id, type: "update", topic: "a", version, event: "e", value: 0, snapshot });
  network.last.say({ id: 1, type: "reply", request: 1 }, update(2, 5, true), update(3, 4), update(4, 5, true), update(5, 6));
  await subscribing;
  network.last.drop();
  await comeBack(network, { outcome: "failed_over", token: "token-2", node: "n2", selections: ["+a"] });
  network.last.say(update(1, 6, true), update(2, 6, true));
  assert.deepEqual(heard, [5, 6, 6]);
});

test("a cut connection is taken up where it was: the same numbers, once", async () => {
  const network = new Network();
  const session = await open(network);
  const [first, second] = [session.publish("t", 1), session.publish("t", 2)];
  await settle();
  network.last.say({ id: 1, received: 1, type: "reply", request: 1, version: 1, event: "e-1" });
  assert.deepEqual(await first, { eventId: "e-1", version: 1 });
  network.last.drop();
  await settle();
  assert.equal(session.state, "recovering");
  const third = session.publish("t", 3);
  const recovered = new Promise((resolve) => session.addEventListener("recovery", ({ detail }) => resolve(detail), { once: true }));
  const connection = await comeBack(network, { outcome: "reattached", token: "token-2", received: 1, resent: 2 });
  assert.equal(connection.url, "wss://gateway.example/v1/connect?node=n1");
  const { away, supports, ...resume } = connection.packets[0];
  assert.deepEqual(supports, ["handed_over", "mirrored", "replay", "queues", "questions", "topology"]);
  assert.deepEqual(resume, { type: "resume", token: "token-1", attempt: 1, received: 1, oldest: 2 });
  assert.ok(Number.isInteger(away) && away > 0 && away < 60_000, `milliseconds since the loss, not ${away}`);
  assert.deepEqual(connection.packets.slice(1), [
    { type: "ack", received: 1 },
    { id: 2, type: "publish", request: 2, topic: "t", value: 2 },
    { type: "publish", request: 3, topic: "t", value: 3 },
  ]);
  const recovery = await recovered;
  assert.deepEqual([recovery.outcome, recovery.resent, recovery.lost, recovery.attempts], ["reattached", 3, 0, 1]);
  connection.say({ id: 2, received: 3, type: "reply", request: 2 }, { type: "reply", request: 3, version: 3, event: "e-3" });
  assert.deepEqual([await second, await third], [{ eventId: "", version: 0 }, { eventId: "e-3", version: 3 }]);
});

test("after a failover what is unanswered is asked again with its numbers, before anything new", async () => {
  const network = new Network();
  const session = await open(network);
  const answers = Promise.all([session.publish("t", 1), session.publish("t", 2)]);
  await settle();
  network.last.drop();
  await settle();
  const later = session.publish("t", 3);
  const connection = await comeBack(network, { outcome: "failed_over", token: "token-2", node: "n2", lost: null });
  assert.deepEqual(connection.packets.slice(2), [
    { id: 1, type: "publish", request: 1, resubmitted: true, topic: "t", value: 1 },
    { type: "publish", request: 2, resubmitted: true, topic: "t", value: 2 },
    { type: "publish", request: 3, topic: "t", value: 3 },
  ]);
  connection.say({ id: 1, type: "reply", request: 1 }, { type: "reply", request: 2 }, { type: "reply", request: 3 });
  await Promise.all([answers, later]);
  assert.equal(session.node, "n2");
});

test("a request that is refused for now is asked again later under a new number, and the others wait behind it", async () => {
  const network = new Network();
  const session = await open(network);
  const first = session.publish("t", 1);
  await settle();
  network.last.say({ id: 1, type: "reply", request: 1, error: { code: "grid_unavailable", message: "later", retry_after: 1 } });
  const second = session.publish("t", 2);
  await network.clock.pass(0.9);
  assert.equal(network.last.packets.filter(({ type }) => type === "publish").length, 1);
  await network.clock.pass(1.1);
  const again = network.last.packets.at(-1);
  assert.deepEqual([again.request, again.value, again.resubmitted], [2, 1, undefined]);
  network.last.say({ id: 2, type: "reply", request: 2 });
  await first;
  await settle();
  assert.deepEqual(network.last.packets.at(-1).value, 2);
  network.last.say({ id: 3, type: "reply", request: 3 });
  await second;
});

test("a refusal fails its request and nothing else", async () => {
  const network = new Network();
  const session = await open(network);
  const asking = session.subscribe("secret").catch((error) => error);
  await settle();
  network.last.say({ id: 1, type: "reply", request: 1, error: { code: "forbidden", message: "you may not" } });
  assert.ok((await asking) instanceof Forbidden);
  assert.equal(session.state, "connected");
});

test("what cannot be is refused before it is sent", async () => {
  const network = new Network();
  const session = await open(network);
  await assert.rejects(session.publish("t", "x".repeat(40_000)), ValueTooLarge);
  await assert.rejects(session.publish("t", undefined), InvalidValue);
  await assert.rejects(session.setProperties({ $node: "n9" }), InvalidProperties);
  await assert.rejects(session.setProperties({ a: 1 }), InvalidProperties);
  await assert.rejects(connect("ftp://gateway.example", { environment: network.environment }), TypeError);
  await assert.rejects(connect(["ws://a.example", "wss://b.example"], { environment: network.environment }), /TLS/);
});

test("a request has the time that its caller gives it", async () => {
  const network = new Network();
  const session = await open(network);
  const asking = session.publish("t", 1, { timeout: 2 }).catch((error) => error);
  await network.clock.pass(3);
  const error = await asking;
  assert.ok(error instanceof RequestTimedOut && error.sent);
});

test("a node that drains is left when nothing is under way, and its hint is not used", async () => {
  const network = new Network();
  const session = await open(network);
  const publishing = session.publish("t", 1);
  await settle();
  const old = network.last;
  old.say({ type: "go-away", reason: "the node drains", delay: 2 });
  await network.clock.pass(1.1);
  assert.equal(old.closed, undefined);
  old.say({ id: 1, received: 1, type: "reply", request: 1 });
  await publishing;
  await network.clock.pass(0.1);
  assert.equal(old.closed.code, 4000);
  assert.equal(network.last.url, "wss://gateway.example/v1/connect");
  assert.notEqual(network.last, old);
});

test("a session that is moved goes where it is sent", async () => {
  const network = new Network();
  await open(network);
  network.last.say({ type: "go-away", reason: "an administrator", delay: 0, node: "n3" });
  await network.clock.pass(0.1);
  assert.equal(network.last.url, "wss://gateway.example/v1/connect?node=n3");
});

test("a renewed token is used from then on", async () => {
  const network = new Network();
  await open(network);
  network.last.say({ type: "ping", token: "token-1b" });
  await settle();
  assert.deepEqual(network.last.packets.at(-1), { type: "pong", received: 0 });
  network.last.drop();
  await network.clock.pass(1);
  assert.equal(network.last.packets[0].token, "token-1b");
});

test("a silent node is given up", async () => {
  const network = new Network();
  const session = await open(network);
  const old = network.last;
  await network.clock.pass(45.1);
  assert.equal(old.closed.code, 4002);
  assert.equal(session.state, "recovering");
});

test("attempts grow, their bound doubles, and the window ends them", async () => {
  const network = new Network();
  network.random = 0.999;
  const session = await open(network);
  network.last.drop();
  network.down = true;
  const before = network.connections.length;
  await network.clock.pass(59);
  const tries = network.connections.length - before;
  assert.ok(tries >= 7 && tries <= 12, `${tries} attempts in a minute`);
  assert.equal(session.state, "recovering");
  await network.clock.pass(12);
  assert.equal(session.state, "closed");
  assert.ok(session.closedReason instanceof SessionExpired);
  await assert.rejects(session.publish("t", 1), SessionExpired);
});

test("close codes decide whether the session goes on", async () => {
  for (const [code, Kind] of [[4202, SessionRefused], [4203, SessionRefused], [4204, SessionExpired], [4205, SessionClosed], [4206, SessionRefused]]) {
    const network = new Network();
    const session = await open(network);
    network.last.drop(code, "why");
    await session.closed;
    assert.ok(session.closedReason instanceof Kind, `${code} ${session.closedReason}`);
  }
});

test("a broken protocol is forgiven once", async () => {
  const network = new Network();
  const session = await open(network);
  network.last.say({ type: "teleport" });
  assert.equal(network.last.closed.code, 4200);
  assert.equal(network.last.packets.at(-1).code, "unknown_packet_type");
  await comeBack(network, { outcome: "reattached", token: "token-2" });
  network.last.say({ type: "teleport" });
  await session.closed;
  assert.ok(session.closedReason instanceof SessionFailed);
});

test("closing says bye, and waits for the node", async () => {
  const network = new Network();
  const session = await open(network);
  const stream = session.subscribe("a").catch((error) => error);
  await settle();
  const closing = session.close();
  await settle();
  assert.equal(network.last.packets.at(-1).type, "bye");
  network.last.drop(1000);
  await closing;
  assert.ok((await stream) instanceof SessionClosed);
  assert.ok(session.closedReason instanceof SessionClosed);
});

test("who closes, and whose session a node has ended, is told of the end and of nothing before it", async () => {
  for (const [ends, code] of [[(session) => void session.close(), 1000], [(session) => void session.close(), 4205], [() => {}, 4205]]) {
    const network = new Network();
    const session = await open(network);
    const told = [];
    session.addEventListener("state", ({ detail }) => told.push(detail));
    ends(session);
    await settle();
    network.last.drop(code, "it is closed");
    await session.closed;
    assert.deepEqual(told, ["closed"]);
  }
});

test("closing takes no longer than it may", async () => {
  const network = new Network();
  const session = await open(network);
  network.last.drop();
  network.down = true;
  const closing = session.close({ timeout: 2 });
  await network.clock.pass(2.5);
  await closing;
  assert.equal(session.state, "closed");
});

test("what the grid has forgotten is asked again and declared", async () => {
  const network = new Network();
  const session = await open(network);
  const asking = Promise.all([session.subscribe("a/**"), session.setProperties({ team: "fx" })]);
  await settle();
  network.last.say({ id: 1, type: "reply", request: 1 }, { type: "reply", request: 2 });
  await asking;
  const notices = [];
  session.addEventListener("notice", ({ detail }) => notices.push(detail.code));
  network.last.drop();
  const connection = await comeBack(network, { outcome: "failed_over", token: "token-2" });
  assert.deepEqual(connection.packets.slice(2).map(({ type, selector, set }) => [type, selector ?? set]), [
    ["subscribe", "a/**"],
    ["properties", { team: "fx" }],
  ]);
  assert.deepEqual(notices, ["promises_restored"]);
});

test("rights that are withdrawn are not asked for again", async () => {
  const network = new Network();
  const session = await open(network);
  const asking = session.subscribe("a/**");
  await settle();
  network.last.say({ id: 1, type: "reply", request: 1 });
  await asking;
  const notices = [];
  session.addEventListener("notice", ({ detail }) => notices.push(detail));
  network.last.say({ id: 2, type: "notice", code: "permissions_withdrawn", message: "no", withdrawn: ["a/**"], selections: ["+a/b"] });
  assert.deepEqual(notices[0].withdrawn, ["a/**"]);
  network.last.drop();
  const connection = await comeBack(network, { outcome: "failed_over", token: "token-2", selections: ["+a/b"] });
  assert.equal(connection.packets.length, 2);
});

test("a consumer ends from whose queue the session may not consume any more", async () => {
  const network = new Network();
  const session = await open(network, {}, { supports: ["queues"] });
  const asking = session.consume("jobs");
  await settle();
  network.last.say({ id: 1, type: "reply", request: 1 });
  const consumer = await asking;
  network.last.say({ id: 2, type: "notice", code: "permissions_withdrawn", message: "no", withdrawn: [], selections: [], queues: ["jobs"] });
  await assert.rejects(consumer[Symbol.asyncIterator]().next(), { name: "Forbidden", message: "no" });
});

test("a page that is loaded again goes on with its session, as one without its buffers", async () => {
  const network = new Network();
  const kept = new Map();
  const store = { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value), removeItem: (name) => kept.delete(name) };
  const session = await open(network, { keep: "tab", store });
  void session.publish("t", 1).catch(() => {});
  await settle();
  const reloaded = new Network();
  const opening = connect(URL, { environment: reloaded.environment, keep: "tab", store });
  await reloaded.clock.pass(0.2);
  const resume = reloaded.last.packets[0];
  assert.deepEqual([resume.type, resume.token, resume.received, resume.oldest], ["resume", "token-1", 0, Number.MAX_SAFE_INTEGER]);
  assert.ok(resume.attempt > 1_795_000_000_000);
  assert.equal("away" in resume, false, "a page that was loaded anew has measured nothing");
  reloaded.last.say({ ...WELCOME, outcome: "failed_over", token: "token-9", selections: ["+a"] });
  const again = await opening;
  void again.publish("t", 2);
  await settle();
  assert.ok(reloaded.last.packets.at(-1).request > 1_795_000_000_000);
});

test("a bug of a listener harms nobody else", async () => {
  const network = new Network();
  const session = await open(network);
  const bugs = [];
  globalThis.reportError = (error) => bugs.push(error.message);
  const asking = session.subscribe("a", { listener: () => { throw new Error("a bug of the application"); } });
  await settle();
  network.last.say({ id: 1, type: "reply", request: 1 }, { type: "update", topic: "a", version: 1, event: "e", value: 0 });
  await asking;
  await settle();
  delete globalThis.reportError;
  assert.deepEqual(bugs, ["a bug of the application"]);
  assert.equal(session.state, "connected");
});

const EXPIRING = { type: "notice", code: "credentials_expiring", message: "soon" };

/** A function that fetches `fresh-1`, `fresh-2`, … */
function wallet() {
  let calls = 0;
  return () => {
    calls += 1;
    return Promise.resolve(`fresh-${calls}`);
  };
}

test("credentials that end soon are refreshed over the same connection, again if it cannot be told, and nothing waits for it", async () => {
  const network = new Network();
  const session = await open(network, { principal: "alice", secret: wallet() });
  network.last.say({ id: 1, ...EXPIRING }, { id: 2, ...EXPIRING });
  await settle();
  const shown = network.last.packets.filter(({ type }) => type === "authenticate");
  assert.deepEqual(shown.map(({ secret, principal }) => [secret, principal]), [["fresh-2", "alice"]]);

  const error = { code: "authentication_unavailable", message: "later", retry_after: 5 };
  network.last.say({ id: 3, type: "reply", request: shown[0].request, error });
  const publishing = session.publish("a", 1);
  await settle();
  const published = network.last.packets.find(({ type }) => type === "publish");
  network.last.say({ id: 4, type: "reply", request: published.request, version: 1, event: "1-1-1" });
  assert.equal((await publishing).version, 1);
  await network.clock.pass(2);
  await settle();
  const again = network.last.packets.filter(({ type }) => type === "authenticate").at(-1);
  assert.equal(again.secret, "fresh-3");
  network.last.say({ id: 5, type: "reply", request: again.request });
  await network.clock.pass(5);
  await settle();
  assert.equal(network.last.packets.filter(({ type }) => type === "authenticate").length, 2);
  assert.equal(network.connections.length, 1);
});

test("after the end the resume carries fresh credentials, and only then", async () => {
  const network = new Network();
  const session = await open(network, { principal: "alice", secret: wallet() });
  network.last.drop(4006);
  let socket = await comeBack(network, { outcome: "reattached", token: "token-2" });
  assert.deepEqual([socket.packets[0].secret, socket.packets[0].principal], ["fresh-2", "alice"]);

  socket.drop(1006);
  socket = await comeBack(network, { outcome: "reattached", token: "token-3" });
  assert.equal(socket.packets[0].secret, undefined);
  assert.equal(session.state, "connected");
});

test("credentials that ended while the client was away are noticed by the refusal", async () => {
  const network = new Network();
  const session = await open(network, { secret: wallet() });
  const before = network.last;
  before.drop(1006);
  while (network.last === before || network.last.sent.length === 0) await network.clock.pass(0.05);
  assert.equal(network.last.packets[0].secret, undefined);
  network.last.say({ type: "error", code: "credentials_expired", message: "they have ended" });
  network.last.drop(4202);
  await settle();
  const socket = await comeBack(network, { outcome: "failed_over", reason: "other_node", token: "token-2" });
  assert.equal(socket.packets[0].secret, "fresh-2");
  assert.equal(session.state, "connected");
});

test("a session whose credentials ended is over where there are no fresh ones", async () => {
  const network = new Network();
  const session = await open(network, { secret: "for good" });
  const before = network.last;
  before.drop(4006);
  while (network.last === before || network.last.sent.length === 0) await network.clock.pass(0.05);
  network.last.say({ type: "error", code: "credentials_expired", message: "they have ended" });
  network.last.drop(4202);
  await settle();
  assert.ok(session.closedReason instanceof SessionRefused);
});

test("clear text to another host is warned of, once for each", () => {
  const told = [];
  const warn = (text) => told.push(text);
  const ofUrls = (...urls) => warnOfClearText(checkUrls(urls), warn);

  ofUrls("wss://first.example");
  ofUrls("ws://127.0.0.1:8100", "ws://localhost", "ws://[::1]:8100", "ws://a.localhost");
  assert.deepEqual(told, []);

  ofUrls("ws://first.example:8100/path?secret=x");
  ofUrls("ws://first.example", "ws://second.example");
  assert.deepEqual(
    told.map((text) => /go to (\S+) in clear text; use wss/.exec(text)?.[1]),
    ["first.example", "second.example"],
  );
  assert.ok(!told.join().includes("secret=x"));
});
