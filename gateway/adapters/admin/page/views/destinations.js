/**
 * The destinations: what is said of paths, by whom, and saying it.
 *
 * @module
 */

import { confirm } from "../dialogs.js";
import { badge, el, panel, say } from "../dom.js";
import { bytes, count, moment, plain } from "../format.js";
import { VirtualList } from "../virtual.js";

/** Destinations per page: as many as a cluster can have. */
const PAGE = 1000;

/** Pixels. */
const ROW_HEIGHT = 34;

/** Milliseconds between two looks: others describe, too. */
const LOOK = 2000;

const HOUR = 3600;
const KIB = 1024;

/** @type {Record<string, string>} What the paths are. */
const KINDS = {
  value: "Topics of which the newest value is kept, and nothing else. Every topic is this if nobody says otherwise.",
  history: "Topics whose events are kept, each topic within the limits.",
};

/**
 * @typedef {{selector: string, kind: string, limits: Record<string, unknown>, origin: string, made: number, in_force: boolean}} Destination
 */

/** The view. */
export class Destinations {
  #context;
  /** @type {Destination[]} */
  #items = [];
  #asked = new AbortController();
  #stop = new AbortController();
  #timer = 0;
  /** @type {Destination | null} */
  #selected = null;
  #filter = el("input", {
    id: "destination-filter",
    type: "search",
    spellcheck: "false",
    autocomplete: "off",
    placeholder: "part of a selector",
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
      label: "Destinations",
      rowHeight: ROW_HEIGHT,
      fill: (row, item) => this.#fill(row, item),
      open: (item) => this.#select(item),
    });
    const describe = el("button", { type: "button", onclick: () => this.#describe(null) }, "Describe…");
    context.rights.guard("destinations:declare", [describe], this.#stop.signal);
    this.element = el(
      "div",
      { class: "view destinations" },
      el("h1", { class: "visually-hidden" }, "Destinations"),
      el(
        "div",
        { class: "search" },
        el("label", { for: "destination-filter" }, "Filter"),
        this.#filter,
        describe,
        el("button", { type: "button", onclick: () => void this.#load() }, "Refresh"),
      ),
      this.#problem,
      el(
        "div",
        { class: "split" },
        el(
          "div",
          { class: "main-side card flush" },
          el("div", { class: "list-head destination-columns", "aria-hidden": "true" }, ...["Kind", "Selector", "By", "Limits"].map((each) => el("span", {}, each))),
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

  /** Load all of it; what is shown stays until the answer is there. */
  async #load() {
    clearTimeout(this.#timer);
    this.#asked.abort();
    this.#asked = new AbortController();
    const { signal } = this.#asked;
    try {
      const page = await this.#context.api.destinations({ limit: PAGE, signal });
      if (signal.aborted) return;
      this.#items = page.items;
      say(this.#problem, "");
    } catch (error) {
      if (signal.aborted) return;
      say(this.#problem, error instanceof Error ? error.message : String(error));
    }
    this.#show();
    if (!this.#stop.signal.aborted) this.#timer = setTimeout(() => void this.#load(), LOOK);
  }

  #show() {
    const text = this.#filter.value.trim().toLowerCase();
    const found = this.#items.filter(({ selector }) => selector.toLowerCase().includes(text));
    this.#list.show(found);
    const what = text === "" ? "" : `${count(found.length)} of `;
    say(this.#summary, this.#items.length === 0 ? "Nothing is said of any path: all are plain values." : `${what}${count(this.#items.length)} destinations`);
    const selected = this.#selected;
    if (selected !== null) {
      const now = this.#items.find((each) => isSame(each, selected)) ?? null;
      if (JSON.stringify(now) !== JSON.stringify(selected)) this.#select(now);
    }
    this.#list.refresh();
  }

  /**
   * @param {HTMLElement} row
   * @param {Destination} item
   */
  #fill(row, item) {
    const selected = this.#selected !== null && isSame(item, this.#selected);
    const shown = JSON.stringify([item, selected]);
    if (row.dataset.shown === shown) return;
    row.dataset.shown = shown;
    row.setAttribute("aria-selected", String(selected));
    row.classList.toggle("selected", selected);
    row.classList.add("destination-columns");
    row.replaceChildren(
      el("span", {}, badge(plain(item.kind), item.kind === "value" ? "info" : "good")),
      el("span", { class: "mono cut" }, plain(item.selector)),
      el("span", { class: "cut" }, item.in_force ? plain(item.origin) : `${plain(item.origin)} (replaced)`),
      el("span", { class: "cut quiet" }, limitsOf(item) || "–"),
    );
  }

  // --- One of them --------------------------------------------------------------------------------------------------

  /** @param {Destination | null} item */
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
    const title = el("h2", { class: "mono wrap", tabindex: "-1", id: "panel-title" }, plain(item.selector));
    const change = el("button", { type: "button", class: "small", onclick: () => this.#describe(item) }, "Change…");
    const remove = el("button", { type: "button", class: "small danger", onclick: () => this.#remove(item) }, "Remove…");
    const actions = item.kind in KINDS ? [change] : [];
    if (item.origin === "administrator") actions.push(remove);
    this.#context.rights.guard("destinations:declare", actions, this.#stop.signal);
    const facts = [
      ["Kind", plain(item.kind)],
      ["Said by", item.origin === "file" ? "the file that nodes read" : "an administrator"],
      ["Since", moment(item.made)],
      ["In force", item.in_force ? "yes" : "no: what an administrator says counts"],
      ...Object.entries(item.limits).map(([name, value]) => [plain(name), limitText(name, value)]),
    ];
    this.#side.replaceChildren(
      panel(
        { title, close: () => this.#select(null) },
        el("div", { class: "buttons start" }, ...actions),
        el("dl", { class: "facts" }, ...facts.map(([name, text]) => el("div", {}, el("dt", {}, name ?? ""), el("dd", {}, text ?? "")))),
        el("p", { class: "quiet about" }, KINDS[item.kind] ?? ""),
      ),
    );
    title.focus({ preventScroll: true });
  }

  /** @param {Destination} item */
  #remove(item) {
    void confirm({
      title: "Remove it?",
      text: `What administrators say of ${plain(item.selector)} is taken back. Histories that are not kept any more are lost.`,
      action: "Remove",
      danger: true,
      act: () => this.#context.api.removeDestination(item.selector),
      done: "Removed; every node follows within a second",
    }).then((done) => {
      if (done) void this.#load();
    });
  }

  /** @param {Destination | null} item - What is changed; null for another one. */
  #describe(item) {
    const limits = item?.kind === "history" ? item.limits : {};
    const selector = el("input", { id: "destination-selector", type: "text", required: true, maxlength: "1024", spellcheck: "false", autocomplete: "off", value: item?.selector ?? "" });
    selector.readOnly = item !== null;
    const kind = el("select", { id: "destination-kind", onchange: () => offer() }, ...Object.keys(KINDS).map((each) => el("option", { value: each }, each)));
    kind.value = item?.kind ?? "history";
    const about = el("p", { class: "quiet", "aria-live": "polite" });
    const number = (/** @type {string} */ id, /** @type {number | null} */ value) =>
      el("input", { id, type: "number", min: "0", step: "any", autocomplete: "off", placeholder: "as by default", value: value === null ? "" : String(value) });
    const most = number("destination-count", amount(limits.count, 1));
    const age = number("destination-age", amount(limits.age, HOUR));
    const size = number("destination-bytes", amount(limits.bytes, KIB));
    const offer = () => {
      say(about, KINDS[kind.value] ?? "");
      for (const each of [most, age, size]) each.disabled = kind.value !== "history";
    };
    offer();
    void confirm({
      title: item === null ? "Describe paths" : "Change it?",
      text: "It counts more than what the file says of the same selector. The most specific selector that matches a path counts.",
      action: "Describe",
      field: el(
        "div",
        { class: "fields" },
        el("label", { for: "destination-selector" }, "Selector"),
        selector,
        el("label", { for: "destination-kind" }, "Kind"),
        kind,
        about,
        el("label", { for: "destination-count" }, "Most events of one topic"),
        most,
        el("label", { for: "destination-age" }, "Hours that an event is kept"),
        age,
        el("label", { for: "destination-bytes" }, "KiB of one topic"),
        size,
      ),
      act: () => {
        const given = Object.fromEntries(
          [["count", most.value, 1], ["age", age.value, HOUR], ["bytes", size.value, KIB]].filter(([, text]) => text !== "").map(([name, text, unit]) => [name, Number(text) * Number(unit)]),
        );
        return this.#context.api.setDestination(selector.value.trim(), { kind: kind.value, limits: kind.value === "history" ? given : {} });
      },
      done: "Described; every node follows within a second",
    }).then((done) => {
      if (done) void this.#load();
    });
  }
}

/**
 * @param {Destination} item
 */
function limitsOf(item) {
  return Object.entries(item.limits)
    .filter(([, value]) => value !== null && value !== false)
    .map(([name, value]) => `${plain(name)} ${limitText(name, value)}`)
    .join(", ");
}

/**
 * @param {string} name
 * @param {unknown} value
 */
function limitText(name, value) {
  if (typeof value !== "number") return value === null ? "no limit" : plain(String(value));
  if (name === "bytes") return bytes(value);
  if (["age", "ack_within", "redelivery_delay", "expires", "dead_age"].includes(name)) return value >= HOUR ? `${count(value / HOUR)} h` : `${value} s`;
  return count(value);
}

/**
 * @param {unknown} value
 * @param {number} unit
 */
function amount(value, unit) {
  return typeof value === "number" ? value / unit : null;
}

/**
 * @param {Destination} one
 * @param {Destination} other
 */
function isSame(one, other) {
  return one.selector === other.selector && one.origin === other.origin;
}
