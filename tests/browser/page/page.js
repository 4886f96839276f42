/**
 * A page with a session: it selects, publishes, sets properties, and records everything that the client tells it.
 *
 * It behaves as an application would: after its session has ended it opens a new one. What it shall do is in `/config/<tab>`.
 *
 * @module
 */

import { connect } from "/client/index.js";
import { Board } from "./board.js";
import { describe, PageRecord } from "./record.js";
import { badManners, badPath, badStore, twice } from "./sabotage.js";

/**
 * @typedef {object} Config
 * @property {string[]} urls - Of the gateway.
 * @property {string} principal
 * @property {string} secret
 * @property {string} keep - Name of the kept token.
 * @property {number} window - In seconds.
 * @property {{selector: string, listen: boolean}[]} selections - With a listener, or with an iteration.
 * @property {string[]} roots - Under each it publishes to a topic of its own.
 * @property {number} publishEvery - Milliseconds.
 * @property {number} inFlight - Publishes of a topic that may wait for their receipts.
 * @property {number} propertiesEvery - Milliseconds.
 * @property {import("./sabotage.js").Sabotage} sabotage
 */

/** Milliseconds before the next session, if one ended or could not be opened. */
const PAUSE = 500;

const tab = location.pathname.split("/").at(-1) ?? "";
const record = new PageRecord(tab);
const board = new Board();
/** Last value published by topic, and the publishes that wait for their receipt. */
const counts = new Map();
const waiting = new Map();
let properties = 0;
let paused = false;
/** Whether the end of the record is sent: timers may run on while the document goes away, and nobody would hear of it. */
let gone = false;
let reopens = true;
/** @type {import("/client/index.js").Session | null} */
let current = null;

/** @param {number} milliseconds @returns {Promise<void>} */
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// --- The document -----------------------------------------------------------------------------------------------------

/** @param {string} where @param {unknown} error */
function failed(where, error) {
  const facts = { where, ...describe(error) };
  record.add("error", facts);
  board.message(`${where}: ${facts.name} ${facts.message}`);
}

addEventListener("error", (event) => failed("uncaught", event.error ?? event.message));
addEventListener("unhandledrejection", (event) => failed("unhandled rejection", event.reason));
for (const kind of ["online", "offline"]) addEventListener(kind, () => record.add(kind));
addEventListener("pageshow", ({ persisted }) => record.add("pageshow", { persisted }));
addEventListener("pagehide", ({ persisted }) => {
  record.add("pagehide", { persisted });
  if (persisted) return;
  gone = true;
  record.sendTail();
});
document.addEventListener("visibilitychange", () => record.add("visibility", { state: document.visibilityState }));
document.addEventListener("freeze", () => record.add("freeze"));
document.addEventListener("resume", () => record.add("resume"));

// --- What it does with a session --------------------------------------------------------------------------------------

/**
 * @param {import("/client/index.js").Session} session
 * @param {Config} config
 */
async function subscribe(session, config) {
  for (const { selector, listen } of config.selections) {
    const stream = `${session.id} ${selector}`;
    const deliver = badPath(config.sabotage, (update) => {
      const { topic, version, value, eventId, snapshot, folded = 0 } = update;
      record.add("update", { stream, topic, version, value, event: eventId, snapshot, folded });
      board.update(update);
    });
    record.add("subscribing", { stream, selector });
    const updates = await session.subscribe(selector, listen ? { listener: deliver } : {});
    record.add("subscribed", { stream, selector });
    if (!listen) void follow(session, updates, deliver);
  }
}

/**
 * @param {import("/client/index.js").Session} session
 * @param {AsyncIterable<unknown>} values - Of the session; their iteration ends with it.
 * @param {(value: any) => void} deliver
 */
async function follow(session, values, deliver) {
  try {
    for await (const value of values) deliver(value);
  } catch (error) {
    if (error !== session.closedReason) failed("iteration", error);
  }
}

/**
 * @param {import("/client/index.js").Session} session
 * @param {Config} config
 * @param {string} topic
 */
async function publish(session, config, topic) {
  while (session.closedReason === null) {
    if (paused || gone || (waiting.get(topic) ?? 0) >= config.inFlight) {
      await sleep(config.publishEvery);
      continue;
    }
    const value = (counts.get(topic) ?? 0) + 1;
    counts.set(topic, value);
    waiting.set(topic, (waiting.get(topic) ?? 0) + 1);
    record.add("publish", { session: session.id, topic, value });
    board.count("published");
    session
      .publish(topic, value)
      .then(({ eventId, version }) => {
        record.add("receipt", { topic, value, event: eventId, version });
        board.count("acknowledged");
      })
      .catch((error) => record.add("refusal", { topic, value, ...describe(error) }))
      .finally(() => waiting.set(topic, waiting.get(topic) - 1));
    if (twice(config.sabotage, value)) session.publish(topic, value).catch(() => {});
    await sleep(config.publishEvery);
  }
}

/**
 * @param {import("/client/index.js").Session} session
 * @param {Config} config
 */
async function setProperties(session, config) {
  while (session.closedReason === null) {
    await sleep(config.propertiesEvery);
    if (paused || gone) continue;
    properties += 1;
    const value = `${record.life} ${properties}`;
    try {
      record.add("properties", { session: session.id, value });
      await session.setProperties({ mark: value });
      record.add("properties_set", { session: session.id, value });
    } catch (error) {
      record.add("properties_refused", { session: session.id, value, ...describe(error) });
    }
  }
}

/** @param {import("/client/index.js").Session} session */
function listen(session) {
  session.addEventListener("state", (/** @type {any} */ { detail }) => {
    record.add("state", { session: session.id, state: detail });
    board.session(session);
  });
  // By iteration: what happened before anybody could listen is among them.
  void follow(session, session.recoveries, (recovery) => {
    record.add("recovery", { session: session.id, ...recovery });
    board.recovery(recovery);
    board.session(session);
  });
  void follow(session, session.notices, ({ code, message }) => {
    record.add("notice", { session: session.id, code });
    board.message(`${code}: ${message}`);
  });
}

/** @param {Config} config */
async function live(config) {
  record.add("connecting");
  const { urls, principal, secret, keep, window } = config;
  const session = await connect(urls, { principal, secret, keep, window, ...badStore(config.sabotage) });
  current = session;
  listen(session);
  const { id, node, replicated } = session;
  const { resumed, selections } = /** @type {any} */ (session);
  record.add("opened", { session: id, principal: session.principal, node, replicated, resumed, selections });
  board.session(session);
  badManners(config.sabotage, `session-gateway:${keep}`);
  const tasks = [];
  try {
    await subscribe(session, config);
    for (const root of config.roots) tasks.push(publish(session, config, `${root}/${record.life}`));
    tasks.push(setProperties(session, config));
  } catch (error) {
    record.add("subscribe_failed", describe(error)); // the end of the session follows, and says why
  }
  await session.closed;
  record.add("ended", { session: id, ...describe(session.closedReason) });
  board.session(session);
  await Promise.all(tasks);
}

async function main() {
  /** @type {Config} */
  const config = await (await fetch(`/config/${tab}`)).json();
  record.add("begun", { selections: config.selections.length });
  while (reopens) {
    try {
      await live(config);
    } catch (error) {
      record.add("connect_failed", describe(error));
    }
    await sleep(PAUSE);
  }
}

// --- For the reader outside -------------------------------------------------------------------------------------------

Object.assign(globalThis, {
  account: {
    /** @param {string} life @param {number} known */
    take: (life, known) => record.take(life, known),
    /** @param {boolean} wanted */
    pause: (wanted) => {
      paused = wanted;
    },
    /** Let the end of the session be the last of it. */
    finish: () => {
      reopens = false;
    },
    /** End the session on purpose. */
    close: async () => {
      reopens = false;
      await current?.close();
    },
    /** Keep the main thread busy. @param {number} milliseconds */
    block: (milliseconds) => {
      const end = performance.now() + milliseconds;
      while (performance.now() < end);
    },
  },
});

main().catch((error) => failed("main", error));
