/**
 * Sessions: found by the filter language, looked at, and acted upon.
 *
 * @module
 */

import { badge, el, say } from "../dom.js";
import { counted, oneLine, plain } from "../format.js";
import { VirtualList, fillRow } from "../virtual.js";
import { SessionPanel } from "./session_panel.js";

/** Sessions per page. */
const PAGE = 500;

/** Said in place of sessions. */
const NONE = "No session matches.";

/** Milliseconds after the last key until a filter is applied. */
const PAUSE = 250;

/** Pixels. */
const ROW_HEIGHT = 34;

const EXAMPLES = ["$principal is 'alice'", "team is 'fx' and not $node is 'n1'", "$node is 'n2'"];

/** The view. */
export class Sessions {
  #context;
  /** @type {any[]} */
  #items = [];
  /** @type {string | null} */
  #cursor = null;
  #loading = false;
  /** Whether the last question had no answer: what there is not, is not known then. */
  #failed = false;
  #asked = new AbortController();
  #stop = new AbortController();
  #timer = 0;
  /** @type {SessionPanel | null} */
  #panel = null;
  #filter = el("input", {
    id: "filter",
    type: "search",
    spellcheck: "false",
    autocomplete: "off",
    placeholder: EXAMPLES[0],
    "aria-describedby": "filter-problem filter-hint",
    oninput: () => this.#later(),
  });
  #problem = el("p", { id: "filter-problem", class: "problem", role: "alert" });
  #summary = el("p", { class: "quiet", role: "status" });
  #side = el("div", { class: "side" });
  #list;

  /** @param {import("../main.js").Context} context */
  constructor(context) {
    this.#context = context;
    this.#list = new VirtualList({
      role: "listbox",
      rowRole: "option",
      label: "Sessions",
      rowHeight: ROW_HEIGHT,
      fill: (row, item) => this.#fill(row, item),
      open: (item) => context.go(`#/sessions/${encodeURIComponent(item.session)}`),
      nearEnd: () => void this.#more(),
    });
    this.element = el(
      "div",
      { class: "view sessions" },
      el("h1", { class: "visually-hidden" }, "Sessions"),
      el(
        "form",
        {
          class: "search",
          role: "search",
          onsubmit: (/** @type {Event} */ event) => {
            event.preventDefault();
            void this.#search();
          },
        },
        el("label", { for: "filter" }, "Filter"),
        this.#filter,
        el("button", { type: "submit", class: "primary" }, "Find"),
        el("button", { type: "button", onclick: () => void this.#search() }, "Refresh"),
      ),
      el(
        "p",
        { id: "filter-hint", class: "quiet hint" },
        "For example ",
        ...EXAMPLES.map((each) => el("button", { type: "button", class: "example", onclick: () => this.#use(each) }, each)),
      ),
      this.#problem,
      el(
        "div",
        { class: "split" },
        el(
          "div",
          { class: "main-side card flush" },
          el(
            "div",
            { class: "list-head session-columns", "aria-hidden": "true" },
            ...["Session", "Principal", "Node", "State", "Properties"].map((each) => el("span", {}, each)),
          ),
          this.#list.element,
        ),
        this.#side,
      ),
      this.#summary,
    );
  }

  /** @param {string[]} path - Of the address: the id of a session that is open. */
  start(path) {
    const { signal } = this.#stop;
    this.#context.live.addEventListener("happenings", (event) => this.#happened(/** @type {CustomEvent} */ (event).detail), { signal });
    void this.#search();
    this.open(path);
  }

  stop() {
    this.#stop.abort();
    this.#asked.abort();
    clearTimeout(this.#timer);
    this.#panel?.stop();
  }

  /** Put the cursor where a filter is written. */
  focusSearch() {
    this.#filter.focus();
    this.#filter.select();
  }

  /**
   * Show a session beside the list, or none.
   *
   * @param {string[]} path
   */
  open([id]) {
    this.#panel?.stop();
    this.#panel = null;
    this.element.classList.toggle("has-panel", id !== undefined);
    if (id === undefined) {
      this.#side.replaceChildren();
    } else {
      this.#panel = new SessionPanel(this.#context, id, () => {
        this.#context.go("#/sessions");
        this.#list.element.focus();
      });
      this.#side.replaceChildren(this.#panel.element);
      this.#panel.start();
    }
    this.#list.refresh();
  }

  /** @param {string} filter */
  #use(filter) {
    this.#filter.value = filter;
    this.#filter.focus();
    void this.#search();
  }

  #later() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#search(), PAUSE);
  }

  async #search() {
    clearTimeout(this.#timer);
    this.#asked.abort();
    this.#asked = new AbortController();
    this.#loading = false;
    this.#cursor = "";
    this.#items = [];
    await this.#more();
  }

  /** Load the next page. */
  async #more() {
    if (this.#loading || this.#cursor === null) return;
    this.#loading = true;
    const { signal } = this.#asked;
    try {
      const page = await this.#context.api.sessions({ filter: this.#filter.value.trim(), cursor: this.#cursor, limit: PAGE, signal });
      if (signal.aborted) return;
      this.#items = [...this.#items, ...page.items];
      this.#cursor = page.cursor;
      this.#failed = false;
      say(this.#problem, "");
      this.#filter.removeAttribute("aria-invalid");
    } catch (error) {
      if (signal.aborted) return;
      this.#cursor = null;
      this.#failed = true;
      say(this.#problem, error instanceof Error ? error.message : String(error));
      this.#filter.setAttribute("aria-invalid", "true");
    }
    this.#loading = false;
    const complete = this.#cursor === null && !this.#failed;
    const none = complete ? NONE : "";
    this.#list.show(this.#items, none);
    const more = complete ? "" : ", and more";
    say(this.#summary, this.#items.length === 0 ? none : `${counted(this.#items.length, "session")}${more}`);
    // A page may be short though more follows: filters look at so many sessions at a time.
    if (this.#items.length < PAGE && this.#cursor !== null) void this.#more();
  }

  /**
   * Keep what is shown up to date: which node has a session, and whether it has a client.
   *
   * @param {{news: import("../live.js").Happening[], more: number}} happened
   */
  #happened({ news }) {
    const byId = new Map(this.#items.map((each) => [each.session, each]));
    for (const { session, what, node } of news) {
      const item = byId.get(session);
      if (item === undefined) continue;
      if (what === "resumed") Object.assign(item, { node, connected: true, ended: false });
      if (what === "disconnected" || what === "too_slow") item.connected = false;
      if (what === "ended") item.ended = true;
    }
    this.#list.refresh();
  }

  /**
   * @param {HTMLElement} row
   * @param {any} item
   */
  #fill(row, item) {
    const selected = this.#panel?.id === item.session;
    const { $client: client, ...properties } = item.properties;
    const cells = () => [
      el("span", { class: "mono cut" }, plain(item.session)),
      el("span", { class: "cut" }, plain(item.principal)),
      el("span", { class: "cut" }, plain(item.node)),
      el("span", {}, item.ended ? badge("ended", "quiet") : item.connected ? badge("connected", "good") : badge("disconnected", "warn")),
      el("span", { class: "cut quiet", title: plain(client ?? "") }, Object.keys(properties).length > 0 ? oneLine(properties) : "–"),
    ];
    fillRow(row, item, { selected, columns: "session-columns", cells });
  }
}
