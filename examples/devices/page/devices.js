/**
 * All devices with their states and readings. What a device cannot say any more, the gateway says: its last will takes the
 * place of its state, and its reading ends.
 *
 * @module
 */

import { connect } from "/client/index.js";

const rows = /** @type {HTMLTableSectionElement} */ (document.querySelector("tbody"));

/** @type {Map<string, HTMLTableRowElement>} */
const shown = new Map();

/** @param {string} device */
function rowOf(device) {
  let row = shown.get(device);
  if (row === undefined) {
    row = document.createElement("tr");
    const name = document.createElement("th");
    name.scope = "row";
    name.textContent = device;
    row.append(name, document.createElement("td"), document.createElement("td"));
    shown.set(device, row);
    rows.append(...[...shown].sort(([one], [other]) => one.localeCompare(other)).map(([, each]) => each));
  }
  return row;
}

/** @param {import("../../../clients/javascript/src/streams.js").Update} update */
function show({ topic, value, removed }) {
  const [, device = "", what] = topic.split("/");
  const [, state, temperature] = rowOf(device).cells;
  if (state === undefined || temperature === undefined) return;
  if (what === "state") {
    state.textContent = removed ? "" : String(value);
    state.className = String(value);
  } else if (what === "temperature") {
    temperature.textContent = removed || typeof value !== "number" ? "none" : `${value.toFixed(1)} °C`;
  }
}

const connection = /** @type {HTMLElement} */ (document.getElementById("connection"));
try {
  const { gateway } = await (await fetch("/gateway.json")).json();
  const session = await connect(gateway, { principal: "overview" });
  const tell = () => (connection.textContent = `${session.state} at ${session.node}`);
  for (const event of ["state", "recovery"]) session.addEventListener(event, tell);
  tell();
  await session.subscribe("devices/*/*", { listener: show });
} catch (error) {
  connection.textContent = "not connected";
  /** @type {HTMLElement} */ (document.getElementById("error")).textContent = /** @type {Error} */ (error).message;
}
