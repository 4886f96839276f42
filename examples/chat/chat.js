/**
 * A chat: everybody in a room sees every message once, in the order in which the gateway took them, also those of people who
 * were there before, and those that came while the connection was lost.
 *
 * ```text
 * chat/<room>/<author>   a topic with history, whose events are the messages of one author in one room
 * ```
 *
 * Who wrote a message is the last segment of its topic, and not a word in the message: the policy lets everybody publish
 * below the own name alone. See README.md.
 *
 * @module
 */

import { connect } from "/client/index.js";

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
const element = (id) => {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found;
};

/** @param {string} id */
const input = (id) => /** @type {HTMLInputElement} */ (element(id));

const messages = element("messages");

element("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(input("name").value.trim(), input("room").value.trim()).catch((error) => {
    element("error").textContent = error.message;
  });
});

/**
 * @param {string} name
 * @param {string} room
 */
async function enter(name, room) {
  const { gateway } = await (await fetch("/gateway.json")).json();
  const session = await connect(gateway, { principal: name });
  // A position could be stored and gone on with; a room is read from its beginning, as far as it is kept.
  const stream = await session.subscribe(`chat/${room}/*`, { start: "earliest" });

  element("enter").hidden = true;
  element("error").textContent = "";
  document.querySelector("main")?.removeAttribute("hidden");
  element("state").textContent = `${session.state}, in ${room}`;
  input("text").focus();
  session.addEventListener("state", () => (element("state").textContent = `${session.state}, in ${room}`));
  session.addEventListener("recovery", (event) => tell(/** @type {CustomEvent} */ (event).detail));
  element("say").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input("text").value.trim();
    input("text").value = "";
    if (text !== "") say(session, room, text).catch((error) => (element("error").textContent = error.message));
  });
  session.closed.then(() => (element("state").textContent = `closed: ${session.closedReason}`));

  for await (const { topic, value, gap } of stream) {
    if (gap) show("", "Older messages are not kept any more.", "told");
    const author = topic.slice(topic.lastIndexOf("/") + 1);
    // What others publish may be anything.
    if (typeof value?.text === "string") show(author, value.text);
  }
}

/**
 * Publish a message: exactly once, however often the connection is lost meanwhile.
 *
 * @param {import("../../clients/javascript/src/session.js").Session} session
 * @param {string} room
 * @param {string} text
 */
async function say(session, room, text) {
  const unsent = show(session.principal, text, "unsent");
  try {
    await session.publish(`chat/${room}/${session.principal}`, { text });
  } finally {
    // It comes back as everybody else's do, in its place among them.
    unsent.remove();
  }
}

/** @param {{outcome: string, node: string, replayed: boolean, numbering: string}} recovery */
function tell({ outcome, node, replayed, numbering }) {
  const whole = numbering === "kept" || replayed;
  show("", `Back at ${node} (${outcome.replace("_", " ")}): ${whole ? "nothing was missed" : "reading what was missed"}.`, "told");
}

/**
 * @param {string} author
 * @param {string} text
 * @param {string} [kind]
 */
function show(author, text, kind = "") {
  const atEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 40;
  const item = document.createElement("li");
  item.className = kind;
  if (author !== "") item.append(Object.assign(document.createElement("strong"), { textContent: author }));
  item.append(text);
  messages.append(item);
  if (atEnd) messages.scrollTop = messages.scrollHeight;
  return item;
}
