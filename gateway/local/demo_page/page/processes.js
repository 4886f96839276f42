/**
 * The processes of the stack, with the commands that kill them.
 *
 * @module
 */

/**
 * @typedef {{name: string, pid: number, alive: boolean, node: boolean}} Process
 * @typedef {{clients: string, start: string, processes: Process[]}} Stack
 */

/** What was shown last: the list is touched only when something changes, so that text in it can be selected. */
let shown = "";

/**
 * @param {Stack} stack
 * @param {string} mine - The node that this page's session is at.
 */
export function showProcesses({ processes, start }, mine) {
  const news = JSON.stringify([processes, start, mine]);
  if (news === shown) return;
  shown = news;
  const list = /** @type {HTMLElement} */ (document.getElementById("processes"));
  list.replaceChildren(...processes.map((each) => item(each, mine)));
  /** @type {HTMLElement} */ (document.getElementById("start")).textContent = start;
  /** @type {HTMLElement} */ (document.getElementById("again")).hidden = processes.every(({ alive }) => alive);
}

/**
 * @param {Process} process
 * @param {string} mine
 */
function item({ name, pid, alive, node }, mine) {
  const line = document.createElement("li");
  line.dataset["name"] = name;
  const label = document.createElement("span");
  label.className = "name";
  label.textContent = name;
  const badge = document.createElement("span");
  badge.className = alive ? "badge good" : "badge bad";
  badge.textContent = !alive ? "dead" : name === mine ? "serves you" : "runs";
  line.append(label, badge);
  if (alive) {
    line.append(command(`kill -9 ${pid}`));
    // A planned stop means nothing to the others: HAProxy and Redis just end.
    if (node) line.append(command(`kill -TERM ${pid}`));
  }
  return line;
}

/** @param {string} text */
function command(text) {
  const place = document.createElement("span");
  place.className = "command";
  const code = document.createElement("code");
  code.textContent = text;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${text}`);
  button.addEventListener("click", () => {
    void navigator.clipboard?.writeText(text).then(() => {
      button.textContent = "Copied";
    });
  });
  place.append(code, button);
  return place;
}
