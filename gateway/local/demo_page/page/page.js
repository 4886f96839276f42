/**
 * The demo page: values of one session, what can be done to it, and what became of it.
 *
 * @module
 */

import { connect, GatewayError } from "/client/index.js";
import { CuttableWebSocket, cut } from "/page/cuttable.js";
import { Numbers } from "/page/numbers.js";
import { showProcesses } from "/page/processes.js";
import { describeRecovery } from "/page/recoveries.js";

const SELECTOR = "demo/prices/**";

/** Prices that a curve shows. */
const SHOWN = 60;

/** Recoveries that are listed. */
const LISTED = 50;

/** Seconds of the long cut: some attempts to come back fail meanwhile, and each price misses about ten values. */
const LONG_CUT = 5;

/** Milliseconds between looks at which processes there are, and before a session is opened anew that has ended. */
const LOOK = 1000;

/** @typedef {import("/page/processes.js").Stack} Stack */

/** @param {string} id */
const find = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const numbers = new Numbers();

/** @type {Map<string, {value: HTMLElement, number: HTMLElement, line: SVGElement, prices: number[]}>} */
const rows = new Map();

/** @param {string} symbol */
function rowOf(symbol) {
  const known = rows.get(symbol);
  if (known !== undefined) return known;
  const item = document.createElement("li");
  const name = document.createElement("div");
  name.className = "name";
  const label = document.createElement("span");
  label.textContent = symbol;
  const number = document.createElement("span");
  name.append(label, number);
  const value = document.createElement("div");
  value.className = "value";
  const curve = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  curve.setAttribute("viewBox", `0 0 ${SHOWN - 1} 10`);
  curve.setAttribute("preserveAspectRatio", "none");
  curve.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  curve.append(line);
  item.append(name, value, curve);
  const row = { value, number, line, prices: [] };
  rows.set(symbol, row);
  // By name, whatever comes first.
  const after = [...rows.keys()].sort()[[...rows.keys()].sort().indexOf(symbol) + 1];
  find("prices").insertBefore(item, (after && rows.get(after)?.value.parentElement) || null);
  return row;
}

/** @param {import("/page/numbers.js").PriceUpdate} update */
function show(update) {
  numbers.take(update);
  const row = rowOf(update.topic.split("/").at(-1) ?? "");
  row.value.textContent = update.value.price.toFixed(2);
  row.number.textContent = `no. ${update.value.number}`;
  row.prices.push(update.value.price);
  if (row.prices.length > SHOWN) row.prices.shift();
  const low = Math.min(...row.prices);
  const high = Math.max(...row.prices, low + 0.01);
  const left = SHOWN - row.prices.length;
  const points = row.prices.map((price, place) => `${left + place},${(9.5 - (9 * (price - low)) / (high - low)).toFixed(2)}`);
  row.line.setAttribute("points", points.join(" "));
  find("received").textContent = String(numbers.received);
  for (const [id, count] of [["missed", numbers.missed], ["twice", numbers.twice]]) {
    const place = find(String(id));
    place.textContent = String(count);
    place.classList.toggle("bad", count !== 0);
  }
  find("left-out").textContent = String(numbers.leftOut);
}

/**
 * @param {string} state
 * @param {string} kind
 */
function showState(state, kind) {
  const badge = find("state");
  badge.textContent = state;
  badge.className = `badge ${kind}`;
  for (const id of ["cut", "cut-long"]) /** @type {HTMLButtonElement} */ (find(id)).disabled = state !== "connected";
}

/**
 * @param {string} outcome
 * @param {string} kind
 * @param {string} told
 */
function tell(outcome, kind, told) {
  find("nothing").hidden = true;
  const item = document.createElement("li");
  const time = document.createElement("time");
  time.textContent = new Date().toLocaleTimeString("en-GB");
  const place = document.createElement("span");
  const badge = document.createElement("span");
  badge.className = `badge ${kind}`;
  badge.textContent = outcome;
  place.append(badge);
  const words = document.createElement("span");
  words.className = "told";
  words.textContent = told;
  item.append(time, place, words);
  const list = find("recoveries");
  list.prepend(item);
  while (list.childElementCount > LISTED) list.lastElementChild?.remove();
}

/**
 * Hold one session, until it ends.
 *
 * @param {string} url
 */
async function follow(url) {
  const session = await connect(url, { principal: "demo-visitor", WebSocket: CuttableWebSocket });
  let node = session.node;
  const showSession = () => {
    find("node").textContent = session.node;
    find("session").textContent = session.id;
    showState(session.state, session.state === "connected" ? "good" : "warn");
  };
  session.addEventListener("state", showSession);
  session.addEventListener("recovery", (event) => {
    const recovery = /** @type {CustomEvent} */ (event).detail;
    const { name, kind, told } = describeRecovery(recovery, node);
    node = recovery.node;
    showSession();
    tell(name, kind, told);
  });
  showSession();
  await session.subscribe(SELECTOR, { listener: show });
  await session.closed;
  showState("ended", "bad");
  tell("ended", "bad", `The session is over: ${session.closedReason?.message ?? "nobody said why"}. The page opens a new one.`);
}

/** @returns {Promise<Stack>} */
async function readStack() {
  const response = await fetch("/stack.json");
  if (!response.ok) throw new TypeError(`the page's server answers ${response.status}`);
  return response.json();
}

/** Show which processes there are, for as long as the page lives. */
async function watchProcesses() {
  for (;;) {
    try {
      showProcesses(await readStack(), find("node").textContent ?? "");
    } catch {
      // `make down` has stopped the page's server, too; what is shown stays.
    }
    await pause();
  }
}

/** @returns {Promise<void>} */
const pause = () => new Promise((resolve) => setTimeout(resolve, LOOK));

find("cut").addEventListener("click", () => cut(0));
find("cut-long").addEventListener("click", () => cut(LONG_CUT));
showState("connecting", "");
void watchProcesses();
for (;;) {
  try {
    await follow((await readStack()).clients);
  } catch (error) {
    if (!(error instanceof GatewayError || error instanceof TypeError)) throw error;
    showState("out of reach", "bad");
  }
  await pause();
}
