/** Requests of applications: each answer finds its call, and no question is passed on twice. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Calls } from "../src/calls.js";
import { AnswerLost, HandlerFailed, HandlerLost, RequestRefused, RequestTimedOut } from "../src/errors.js";
import { Exchanges } from "../src/exchanges.js";

const PATH = "quotes/ACME";

/** An environment whose time stands still, and whose timers are fired by hand. */
function still() {
  const timers = [];
  return {
    timers,
    now: () => 0,
    after: (call, seconds) => {
      const timer = { call, seconds, cancelled: false };
      timers.push(timer);
      return () => {
        timer.cancelled = true;
      };
    },
  };
}

function exchanges({ refuse = () => null } = {}) {
  const asks = [];
  const environment = still();
  let request = 0;
  const made = new Exchanges(environment, new Calls(environment, async (ask) => {
    asks.push(ask);
    const error = refuse(ask);
    if (error !== null) throw error;
    request += 1;
    return { type: "reply", request };
  }, null));
  return { asks, environment, made };
}

function answered(ask, { value = null, code = null, uncertain = false } = {}) {
  return { type: "answered", ask, value, error: code === null ? null : { code, message: code }, uncertain };
}

function question(name, { path = PATH, timeout = 3 } = {}) {
  return {
    type: "question",
    question: name,
    path,
    timeout,
    principal: "alice",
    session: "s",
    redelivered: false,
    value: { side: "bid" },
  };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test("an answer finds its call, also if it comes before anybody knows its number", async () => {
  const { asks, made } = exchanges();
  const early = made.request(PATH, { side: "bid" }, {});
  made.answered(answered(1, { value: 1.5 }));
  assert.equal(await early, 1.5);
  const late = made.request(PATH, null, { timeout: 2, principal: "bob", sessionId: "t" });
  await turn();
  made.answered(answered(2, { value: [1] }));
  assert.deepEqual(await late, [1]);
  assert.deepEqual(asks, [
    { type: "ask", path: PATH, text: '{"side":"bid"}', timeout: 5 },
    { type: "ask", path: PATH, text: "null", timeout: 2, principal: "bob", session: "t" },
  ]);
});

test("why there is no answer is told, and whether somebody may have acted", async () => {
  const { made } = exchanges();
  const ends = [
    ["question_timeout", RequestTimedOut],
    ["handler_failed", HandlerFailed],
    ["handler_lost", HandlerLost],
    ["answer_lost", AnswerLost],
  ];
  for (const [index, [code, Kind]] of ends.entries()) {
    const asked = made.request(PATH, null, {});
    await turn();
    made.answered(answered(index + 1, { code, uncertain: true }));
    await assert.rejects(asked, (error) => error instanceof Kind && (error.sent ?? error.mayHaveBeenExecuted ?? true));
  }
});

test("what is waited for is asked for again where the session goes on, and fails with it", async () => {
  const { asks, made } = exchanges();
  const one = made.request(PATH, null, {});
  const two = made.request("quotes/X", null, {});
  await turn();
  made.answered(answered(1));
  await one;
  made.recovered();
  assert.deepEqual(asks.at(-1), { type: "await", asks: [[2, "quotes/X"]] });
  made.end(new Error("over"));
  await assert.rejects(two, /over/);
});

test("a call gives up a moment after its time, and what is refused is", async () => {
  const { environment, made } = exchanges();
  const asked = made.request(PATH, null, { timeout: 2 });
  await turn();
  assert.deepEqual(environment.timers.map(({ seconds }) => seconds), [3]);
  environment.timers[0].call();
  await assert.rejects(asked, (error) => error instanceof RequestTimedOut && error.sent);
  const { made: refusing } = exchanges({ refuse: () => new RequestRefused("nobody", "no_handler") });
  await assert.rejects(refusing.request(PATH, null, {}), /nobody/);
  await assert.rejects(made.request(PATH, null, { timeout: 601 }), TypeError);
  await assert.rejects(made.request("", null, {}), RequestRefused);
});

test("the most particular handler is asked, once, and its answer is told", async () => {
  const { asks, made } = exchanges();
  const given = [];
  await made.handle("quotes/**", () => "wide", { concurrency: 8 });
  await made.handle("quotes/*", (request) => given.push(request) && { bid: 1.5 }, { concurrency: 4 });
  made.given(question("17-1-1-s"));
  made.given(question("17-1-1-s"));
  await turn();
  assert.deepEqual(asks, [
    { type: "handle", selector: "quotes/**", concurrency: 8 },
    { type: "handle", selector: "quotes/*", concurrency: 4 },
    { type: "answer", question: "17-1-1-s", text: '{"bid":1.5}' },
  ]);
  assert.equal(given.length, 1);
  const { path, value, principal, sessionId, timeout, redelivered } = given[0];
  assert.deepEqual([path, value, principal, sessionId, timeout, redelivered], [PATH, { side: "bid" }, "alice", "s", 3, false]);
});

test("a handler that fails says only what it means to, and one that takes too long is answered for", async () => {
  const { asks, environment, made } = exchanges();
  const reported = [];
  globalThis.reportError = (error) => reported.push(error.message);
  try {
    await made.handle(
      "quotes/*",
      ({ path }) => {
        if (path === "quotes/told") throw new HandlerFailed("no such stock");
        if (path === "quotes/late") return new Promise(() => {});
        throw new Error("password=1234");
      },
      { concurrency: 4 },
    );
    for (const name of ["told", "else", "late"]) made.given(question(`17-1-1-${name}`, { path: `quotes/${name}` }));
    made.given(question("17-1-1-nobody", { path: "other" }));
    environment.timers[2].call();
    await turn();
  } finally {
    delete globalThis.reportError;
  }
  const failures = Object.fromEntries(asks.slice(1).map((ask) => [ask.question.split("-")[3], ask.failed]));
  assert.deepEqual(failures, {
    told: "no such stock",
    else: "the handler failed",
    late: "it took too long",
    nobody: "it is handled here no more",
  });
  assert.deepEqual(reported, ["password=1234"]);
});

test("handlers are cancelled once, and there is one for a selector", async () => {
  const { asks, made } = exchanges();
  const handling = await made.handle("quotes/*", () => 1, { concurrency: 1 });
  await assert.rejects(made.handle("quotes/*", () => 1, { concurrency: 1 }), TypeError);
  await assert.rejects(made.handle("quotes/x", "no function", { concurrency: 1 }), TypeError);
  await handling.cancel();
  await handling.cancel();
  assert.deepEqual(asks.slice(1), [{ type: "unhandle", selector: "quotes/*" }]);
  made.given(question("17-1-1-s"));
  await turn();
  assert.equal(asks.at(-1).failed, "it is handled here no more");
});
