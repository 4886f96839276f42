/**
 * The cluster at a glance: nodes, recoveries, slow consumers, and what happens.
 *
 * @module
 */

import { confirm } from "../dialogs.js";
import { RecoveryChart } from "../chart.js";
import { badge, el, say } from "../dom.js";
import { bytes, clock, count, duration, plain } from "../format.js";
import { rungInWords, rungsOf, sumOf } from "../rungs.js";

/** Happenings shown. */
const SHOWN = 60;

/** How a node stands, in words. @type {Record<import("../live.js").Standing, [string, "good" | "warn" | "bad" | "quiet"]>} */
const STANDINGS = {
  ready: ["ready", "good"],
  "not ready": ["not ready", "warn"],
  draining: ["draining", "warn"],
  "not heard yet": ["no report yet", "quiet"],
  silent: ["not reporting", "bad"],
  suspected: ["suspected of failure", "bad"],
  "taken over": ["being taken over", "bad"],
  expired: ["lease expired", "bad"],
  left: ["stopped", "quiet"],
};

/** What happened to a session, in words. @type {Record<string, [string, import("../rungs.js").Kind]>} */
const WORDS = {
  opened: ["opened", "info"],
  disconnected: ["disconnected", "quiet"],
  ended: ["ended", "quiet"],
  fenced: ["moved to another node", "quiet"],
  too_slow: ["closed: too slow", "bad"],
};

/** The view. */
export class Overview {
  #live;
  #context;
  #tiles = new Map(
    ["Nodes ready", "Sessions connected", "Sessions disconnected", "Consoles", "Updates per second", "Recoveries, 15 min", "Refused, 15 min", "Slow consumers"].map((name) => [
      name,
      el("dd", {}, "–"),
    ]),
  );
  #chart = new RecoveryChart();
  #heads = el("thead");
  #nodes = el("tbody");
  /** @type {Map<string, NodeRow>} */
  #rows = new Map();
  /** The outcomes of resumes that have a column in the table of nodes. @type {string[]} */
  #outcomes = [];
  /** Whether a node has told of a backup: then there is a column for it. */
  #backups = false;
  #slow = el("tbody");
  #slowBox;
  #feed = el("ol", { class: "feed" });
  #empty = el("p", { class: "quiet" }, "No events within the last quarter of an hour.");
  #stop = new AbortController();

  /**
   * @param {import("../main.js").Context} context
   */
  constructor(context) {
    this.#live = context.live;
    this.#context = context;
    this.#slowBox = el(
      "section",
      { class: "card", "aria-labelledby": "slow-title", hidden: true },
      el("h2", { id: "slow-title" }, "Slow consumers"),
      el(
        "div",
        { class: "scroll-x", tabindex: "0", role: "region", "aria-labelledby": "slow-title" },
        el(
          "table",
          {},
          el("thead", {}, headRow(["Session", "Principal", "Node", "Waiting#", "Bytes#", "Unacknowledged#"])),
          this.#slow,
        ),
      ),
    );
    this.element = el(
      "div",
      { class: "view overview" },
      el("h1", { class: "visually-hidden" }, "Overview"),
      el("dl", { class: "tiles" }, ...[...this.#tiles].map(([name, value]) => el("div", { class: "tile" }, el("dt", {}, name), value))),
      el(
        "section",
        { class: "card", "aria-labelledby": "nodes-title" },
        el("h2", { id: "nodes-title" }, "Nodes"),
        el(
          "div",
          { class: "scroll-x", tabindex: "0", role: "region", "aria-labelledby": "nodes-title" },
          el(
            "table",
            {},
            this.#heads,
            this.#nodes,
          ),
        ),
      ),
      el(
        "div",
        { class: "columns" },
        el(
          "section",
          { class: "card", "aria-labelledby": "recoveries-title" },
          el("h2", { id: "recoveries-title" }, "Recoveries by outcome"),
          this.#chart.element,
        ),
        el(
          "section",
          { class: "card", "aria-labelledby": "feed-title" },
          el("h2", { id: "feed-title" }, "Events"),
          this.#empty,
          this.#feed,
        ),
      ),
      this.#slowBox,
    );
  }

  start() {
    const { signal } = this.#stop;
    this.#live.addEventListener("change", () => this.#show(), { signal });
    this.#live.addEventListener("happenings", () => this.#showFeed(), { signal });
    this.#show();
    this.#showFeed();
  }

  stop() {
    this.#stop.abort();
  }

  #show() {
    const nodes = this.#live.list();
    const serving = this.#live.serving();
    const history = this.#live.history();
    const recent = [...history].filter(([at]) => at > Date.now() / 1000 - 900).map(([, counts]) => counts);
    const { refused = 0, ...recovered } = sumOf(recent);
    this.#tile("Nodes ready", `${nodes.filter((each) => this.#live.standing(each) === "ready").length} of ${nodes.length}`);
    this.#tile("Sessions connected", count(add(serving, (each) => each.sessions.connected)));
    this.#tile("Sessions disconnected", count(add(serving, (each) => each.sessions.disconnected)));
    this.#tile("Consoles", count(add(serving, (each) => each.consoles ?? 0)));
    this.#tile("Updates per second", count(Math.round(add(serving, ({ node }) => this.#live.rates.get(node) ?? 0))));
    this.#tile("Recoveries, 15 min", count(Object.values(recovered).reduce((sum, each) => sum + each, 0)));
    this.#tile("Refused, 15 min", count(refused));
    this.#tile("Slow consumers", count(add(serving, (each) => each.slow.blocked)));
    this.#showNodes(nodes);
    this.#chart.draw(history, Date.now() / 1000);
    this.#showSlow();
  }

  /**
   * @param {string} name
   * @param {string} text
   */
  #tile(name, text) {
    say(/** @type {Element} */ (this.#tiles.get(name)), text);
  }

  /** @param {import("../live.js").NodeState[]} nodes */
  #showNodes(nodes) {
    this.#showHeads(nodes);
    for (const [name, row] of this.#rows) {
      if (!nodes.some(({ node }) => node === name)) {
        row.element.remove();
        this.#rows.delete(name);
      }
    }
    nodes.forEach((state, index) => {
      let row = this.#rows.get(state.node);
      if (row === undefined) {
        row = new NodeRow(state.node, this.#outcomes, this.#backups, this.#context, this.#stop.signal);
        this.#rows.set(state.node, row);
      }
      row.show(state, this.#live.standing(state));
      if (this.#nodes.children[index] !== row.element) this.#nodes.insertBefore(row.element, this.#nodes.children[index] ?? null);
    });
  }

  /**
   * Name the columns. Nodes of different releases may tell of different outcomes, and some of no backup; when one tells of
   * a new one, all rows are made anew.
   *
   * @param {import("../live.js").NodeState[]} nodes
   */
  #showHeads(nodes) {
    const rungs = rungsOf([...this.#outcomes, ...nodes.flatMap(({ resumes }) => Object.keys(resumes ?? {}))]);
    const backups = this.#backups || nodes.some(({ backup }) => backup !== undefined);
    if (rungs.length === this.#outcomes.length && backups === this.#backups) return;
    this.#backups = backups;
    this.#outcomes = rungs.map(({ outcome }) => outcome);
    const names = rungs.map(({ name }) => `${name.charAt(0).toUpperCase()}${name.slice(1)}#`);
    const columns = ["Node", "State", "Connected#", "Disconnected#", ...names, "Slow#", "Loop lag#", ...(backups ? ["Backup"] : []), "Grid", "Up", "Version", ""];
    this.#heads.replaceChildren(headRow(columns));
    this.#nodes.replaceChildren();
    this.#rows.clear();
  }

  #showSlow() {
    const names = new Set(this.#live.serving().map(({ node }) => node));
    const slow = [...this.#live.slow].filter(([node]) => names.has(node)).flatMap(([node, { sessions }]) => sessions.map((each) => ({ ...each, node })));
    this.#slowBox.hidden = slow.length === 0;
    this.#slow.replaceChildren(
      ...slow.map((each) =>
        el(
          "tr",
          {},
          el("td", {}, el("a", { href: `#/sessions/${encodeURIComponent(each.session)}`, class: "mono" }, plain(each.session))),
          el("td", {}, plain(each.principal)),
          el("td", {}, each.node),
          el("td", { class: "number" }, count(each.waiting_packets)),
          el("td", { class: "number" }, bytes(each.waiting_bytes)),
          el("td", { class: "number" }, count(each.resend_packets)),
        ),
      ),
    );
  }

  #showFeed() {
    const { happenings } = this.#live;
    this.#empty.hidden = happenings.length > 0;
    this.#feed.replaceChildren(...happenings.slice(0, SHOWN).map(describe));
  }
}

/** One node's row; its cells stay, so that a focus in it does, too. */
class NodeRow {
  #context;
  #name;
  #outcomes;
  #backups;
  /** @type {HTMLElement[]} */
  #cells;
  #state = el("td");
  #button = el("button", { type: "button", class: "small", onclick: () => this.#act() }, "Drain");
  /** Hidden without the right to it; the button itself, while there is nothing to drain. */
  #offer = el("span", {}, this.#button);
  #draining = false;
  #standing = "";

  /**
   * @param {string} name
   * @param {string[]} outcomes - Of resumes: each has a column.
   * @param {boolean} backups - Whether there is a column for the node that has copies.
   * @param {import("../main.js").Context} context
   * @param {AbortSignal} signal - The view is left.
   */
  constructor(name, outcomes, backups, context, signal) {
    this.#name = name;
    this.#outcomes = outcomes;
    this.#backups = backups;
    this.#context = context;
    // Connected, disconnected, slow and the lag are numbers as well; the grid's state, the time up and the version are not.
    const numbers = Array.from({ length: outcomes.length + 4 }, () => el("td", { class: "number" }));
    this.#cells = [...numbers, ...(backups ? [el("td")] : []), el("td"), el("td"), el("td")];
    context.rights.guard("nodes:drain", [this.#offer], signal);
    this.element = el("tr", {}, el("th", { scope: "row" }, plain(name)), this.#state, ...this.#cells, el("td", { class: "end" }, this.#offer));
  }

  /**
   * @param {import("../live.js").NodeState} state
   * @param {import("../live.js").Standing} standing
   */
  show(state, standing) {
    if (standing !== this.#standing) {
      this.#standing = standing;
      this.#state.replaceChildren(badge(...STANDINGS[standing]));
    }
    this.#state.title = (state.reasons ?? []).join("; ");
    const gone = state.state !== "serving";
    this.element.classList.toggle("gone", gone || ["silent", "suspected", "taken over", "expired"].includes(standing));
    const texts = gone
      ? this.#cells.map(() => "–")
      : [
          count(state.sessions.connected),
          count(state.sessions.disconnected),
          ...this.#outcomes.map((outcome) => count(state.resumes[outcome] ?? 0)),
          count(state.slow.blocked),
          duration(state.lag),
          ...(this.#backups ? [backupInWords(state.backup)] : []),
          state.grid.state,
          duration(state.at - state.started),
          plain(state.version ?? "–"),
        ];
    texts.forEach((text, index) => say(/** @type {Element} */ (this.#cells[index]), text));
    this.#draining = state.draining ?? false;
    say(this.#button, this.#draining ? "Undrain" : "Drain");
    this.#button.setAttribute("aria-label", `${this.#draining ? "Undrain" : "Drain"} node ${plain(this.#name)}`);
    this.#button.hidden = gone || ["expired", "taken over", "silent", "not heard yet"].includes(standing);
  }

  #act() {
    const what = this.#draining ? "undrain" : "drain";
    void confirm({
      title: `${this.#draining ? "Undrain" : "Drain"} ${plain(this.#name)}?`,
      text: this.#draining
        ? "The node takes new sessions again. Moves that have begun are completed."
        : "The node's clients move to other nodes and keep their sessions. The node takes no new sessions until it is undrained or started again.",
      action: this.#draining ? "Undrain" : "Drain",
      act: () => this.#context.api.nodeAction(this.#name, what),
      done: what === "drain" ? `${plain(this.#name)}: the drain has begun` : `${plain(this.#name)}: the drain has ended`,
    });
  }
}

/**
 * Say which node has copies of a node's sessions, and of how many if not of all.
 *
 * @param {import("../live.js").NodeState["backup"]} backup
 */
function backupInWords(backup) {
  if (backup === undefined) return "–";
  if (backup.node === null) return "none";
  const all = backup.copied === backup.to_copy;
  return all ? plain(backup.node) : `${plain(backup.node)}, ${count(backup.copied)} of ${count(backup.to_copy)}`;
}

/**
 * @param {import("../live.js").Happening} happening
 */
function describe({ at, what, session, detail, replayed, node }) {
  const [word, kind] = what === "resumed" ? rungInWords(detail, replayed) : (WORDS[what] ?? [what, "info"]);
  return el(
    "li",
    {},
    el("time", { datetime: new Date(at * 1000).toISOString() }, clock(at)),
    badge(what === "ended" && detail !== null ? `${word}: ${detail}` : word, kind),
    el("a", { href: `#/sessions/${encodeURIComponent(session)}`, class: "mono" }, plain(session)),
    el("span", { class: "quiet" }, `at ${plain(node)}`),
  );
}

/**
 * Make a head row; `#` at the end of a name means a column of numbers.
 *
 * @param {string[]} names
 */
function headRow(names) {
  return el(
    "tr",
    {},
    ...names.map((name) => el("th", { scope: "col", class: name.endsWith("#") ? "number" : null }, name.replace("#", "") || el("span", { class: "visually-hidden" }, "Actions"))),
  );
}

/**
 * @param {import("../live.js").NodeState[]} nodes
 * @param {(node: import("../live.js").NodeState) => number} pick
 */
function add(nodes, pick) {
  return nodes.reduce((sum, each) => sum + pick(each), 0);
}
