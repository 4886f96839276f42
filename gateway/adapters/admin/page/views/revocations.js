/**
 * The revocations: listed, added and unblocked.
 *
 * @module
 */

import { confirm } from "../dialogs.js";
import { badge, el, panel, say } from "../dom.js";
import { count, moment, plain } from "../format.js";
import { VirtualList } from "../virtual.js";

/** Revocations per page. */
const PAGE = 500;

/** Pixels. */
const ROW_HEIGHT = 34;

/** Milliseconds between two looks, while all of them fit on one page: others revoke, too. */
const LOOK = 2000;

/** @type {Record<string, string>} What a value is, and what its revocation does. */
const KINDS = {
  principal: "Every session of the principal ends within a second on every node that reaches the grid, and the principal cannot open a new one.",
  session: "Only this session ends, within a second, and it cannot be resumed. Its principal may open another one.",
  credential: "Every session that was opened with this credential (the jti of a JSON Web Token) ends within a second, and the credential cannot open a new one.",
};

/** How long one may last. @type {[string, number | null][]} In seconds; null for ever. */
const LASTS = [
  ["until it is unblocked", null],
  ["one hour", 3600],
  ["one day", 86400],
  ["seven days", 7 * 86400],
  ["thirty days", 30 * 86400],
];

/**
 * @typedef {{kind: string, value: string, reason: string, made: number, until: number | null}} Revocation
 */

/** The view. */
export class Revocations {
  #context;
  /** @type {Revocation[]} */
  #items = [];
  /** @type {string | null} */
  #cursor = null;
  #loading = false;
  #asked = new AbortController();
  #stop = new AbortController();
  #timer = 0;
  /** @type {Revocation | null} */
  #selected = null;
  #filter = el("input", {
    id: "revocation-filter",
    type: "search",
    spellcheck: "false",
    autocomplete: "off",
    placeholder: "part of a name or reason",
    oninput: () => this.#show(),
  });
  #problem = el("p", { class: "problem", role: "alert" });
  #summary = el("p", { class: "quiet", role: "status" });
  #side = el("div", { class: "side" });
  #list;

  /** @param {import("../main.js").Context} context */
  constructor(context) {
    this.#context = context;
    this.#list = new VirtualList({
      role: "listbox",
      rowRole: "option",
      label: "Revocations",
      rowHeight: ROW_HEIGHT,
      fill: (row, item) => this.#fill(row, item),
      open: (item) => this.#select(item),
      nearEnd: () => void this.#more(),
    });
    const revoke = el("button", { type: "button", class: "danger", onclick: () => this.#revoke() }, "Revoke…");
    context.rights.guard("revocations:write", [revoke], this.#stop.signal);
    this.element = el(
      "div",
      { class: "view revocations" },
      el("h1", { class: "visually-hidden" }, "Revocations"),
      el(
        "div",
        { class: "search" },
        el("label", { for: "revocation-filter" }, "Filter"),
        this.#filter,
        revoke,
        el("button", { type: "button", onclick: () => void this.#load() }, "Refresh"),
      ),
      this.#problem,
      el(
        "div",
        { class: "split" },
        el(
          "div",
          { class: "main-side card flush" },
          el("div", { class: "list-head revocation-columns", "aria-hidden": "true" }, ...["What", "Value", "Since", "Until", "Reason"].map((each) => el("span", {}, each))),
          this.#list.element,
        ),
        this.#side,
      ),
      this.#summary,
    );
  }

  start() {
    void this.#load();
  }

  stop() {
    this.#stop.abort();
    this.#asked.abort();
    clearTimeout(this.#timer);
  }

  focusSearch() {
    this.#filter.focus();
    this.#filter.select();
  }

  // --- The list -----------------------------------------------------------------------------------------------------

  /** Load it from its beginning; what is shown stays until the answer is there. */
  async #load() {
    clearTimeout(this.#timer);
    this.#asked.abort();
    this.#asked = new AbortController();
    this.#loading = false;
    this.#cursor = "";
    await this.#more();
  }

  async #more() {
    if (this.#loading || this.#cursor === null) return;
    this.#loading = true;
    const { signal } = this.#asked;
    const first = this.#cursor === "";
    try {
      const page = await this.#context.api.revocations({ cursor: this.#cursor, limit: PAGE, signal });
      if (signal.aborted) return;
      this.#items = first ? page.items : [...this.#items, ...page.items];
      this.#cursor = page.cursor;
      say(this.#problem, "");
    } catch (error) {
      if (signal.aborted) return;
      this.#cursor = null;
      say(this.#problem, error instanceof Error ? error.message : String(error));
    }
    this.#loading = false;
    this.#show();
    if (first && this.#cursor === null && !this.#stop.signal.aborted) this.#timer = setTimeout(() => void this.#load(), LOOK);
  }

  #show() {
    const text = this.#filter.value.trim().toLowerCase();
    const found = this.#items.filter(({ value, reason }) => `${value}\n${reason}`.toLowerCase().includes(text));
    this.#list.show(found);
    const what = text === "" ? "" : `${count(found.length)} of `;
    say(this.#summary, this.#items.length === 0 ? "Nothing is blocked." : `${what}${count(this.#items.length)} revocations${this.#cursor === null ? "" : ", and more"}`);
    const selected = this.#selected;
    if (selected !== null && this.#cursor === null && !this.#items.some((each) => isSame(each, selected))) this.#select(null);
    this.#list.refresh();
    // A filter looks at what is here: all of it has to come.
    if (text !== "") void this.#more();
  }

  /**
   * @param {HTMLElement} row
   * @param {Revocation} item
   */
  #fill(row, item) {
    const selected = this.#selected !== null && isSame(item, this.#selected);
    const shown = JSON.stringify([item, selected]);
    if (row.dataset.shown === shown) return;
    row.dataset.shown = shown;
    row.setAttribute("aria-selected", String(selected));
    row.classList.toggle("selected", selected);
    row.classList.add("revocation-columns");
    row.replaceChildren(
      el("span", {}, badge(plain(item.kind), item.kind === "principal" ? "bad" : item.kind === "session" ? "info" : "warn")),
      el("span", { class: "mono cut" }, plain(item.value)),
      el("span", { class: "cut" }, moment(item.made)),
      el("span", { class: "cut" }, item.until === null ? "it is unblocked" : moment(item.until)),
      el("span", { class: "cut quiet" }, plain(item.reason) || "–"),
    );
  }

  // --- One of them --------------------------------------------------------------------------------------------------

  /** @param {Revocation | null} item */
  #select(item) {
    this.#selected = item;
    this.element.classList.toggle("has-panel", item !== null);
    this.#list.refresh();
    if (item === null) {
      const focused = this.#side.contains(document.activeElement);
      this.#side.replaceChildren();
      if (focused) this.#list.element.focus();
      return;
    }
    const title = el("h2", { class: "mono wrap", tabindex: "-1", id: "panel-title" }, plain(item.value));
    const unblock = el("button", { type: "button", class: "small", onclick: () => this.#unblock(item) }, "Unblock…");
    this.#context.rights.guard("revocations:write", [unblock], this.#stop.signal);
    const facts = [
      ["What", item.kind],
      ["Since", moment(item.made)],
      ["Until", item.until === null ? "it is unblocked" : moment(item.until)],
      ["Reason", plain(item.reason) || "–"],
    ];
    this.#side.replaceChildren(
      panel(
        { title, close: () => this.#select(null) },
        el("div", { class: "buttons start" }, unblock),
        el("dl", { class: "facts" }, ...facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
        el("p", { class: "quiet about" }, KINDS[item.kind] ?? ""),
      ),
    );
    title.focus({ preventScroll: true });
  }

  /** @param {Revocation} item */
  #unblock(item) {
    void confirm({
      title: "Unblock it?",
      text: `The ${item.kind} ${plain(item.value)} is unblocked. Sessions that have ended stay ended.`,
      action: "Unblock",
      act: () => this.#context.api.unblock(item.kind, item.value),
      done: "Unblocked; every node that reaches the grid follows within a second",
    }).then((done) => {
      if (done) void this.#load();
    });
  }

  #revoke() {
    const kind = el("select", { id: "revoke-kind", onchange: () => say(about, KINDS[kind.value] ?? "") }, ...Object.keys(KINDS).map((each) => el("option", { value: each }, each)));
    const about = el("p", { class: "quiet", "aria-live": "polite" }, KINDS.principal);
    const value = el("input", { id: "revoke-value", type: "text", required: true, maxlength: "256", spellcheck: "false", autocomplete: "off" });
    const lasts = el("select", { id: "revoke-lasts" }, ...LASTS.map(([name], index) => el("option", { value: index }, name)));
    const reason = el("input", { id: "revoke-reason", type: "text", maxlength: "200", autocomplete: "off" });
    void confirm({
      title: "Revoke?",
      text: "The value must match exactly. Clients are informed that they are revoked, but not why.",
      action: "Revoke",
      danger: true,
      field: el(
        "div",
        { class: "fields" },
        el("label", { for: "revoke-kind" }, "What"),
        kind,
        about,
        el("label", { for: "revoke-value" }, "Value"),
        value,
        el("label", { for: "revoke-lasts" }, "Lasts"),
        lasts,
        el("label", { for: "revoke-reason" }, "Reason, for administrators"),
        reason,
      ),
      act: () => {
        const [, seconds] = LASTS[Number(lasts.value)] ?? ["", null];
        const until = seconds === null ? {} : { until: Math.round(Date.now() / 1000) + seconds };
        return this.#context.api.revoke({ kind: kind.value, value: value.value, reason: reason.value, ...until });
      },
      done: "Revoked; every node that reaches the grid follows within a second",
    }).then((done) => {
      if (done) void this.#load();
    });
  }
}

/**
 * @param {Revocation} one
 * @param {Revocation} other
 */
function isSame(one, other) {
  return one.kind === other.kind && one.value === other.value;
}
