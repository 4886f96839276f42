/**
 * A list of records with a filter, and a panel beside it about the one that is selected: what destinations, queues and
 * revocations have in common.
 *
 * @module
 */

import { confirm } from "../dialogs.js";
import { el, factRows, panel, say } from "../dom.js";
import { count, counted } from "../format.js";
import { NO_MATCH, VirtualList, fillRow } from "../virtual.js";

/** Pixels. */
const ROW_HEIGHT = 34;

/** Milliseconds between two looks, while all of them fit on one page: others write, too. */
const LOOK = 2000;

/**
 * @typedef {object} Words
 * @property {string} one - Prefix of ids and classes, such as `revocation`, and the noun of the count below the list.
 * @property {string} many - Class of the view.
 * @property {string} title - Heading.
 * @property {string} placeholder - Of the filter.
 * @property {string} none - Said while there is nothing.
 * @property {string[]} columns - Headings of the list.
 * @property {string[]} numbers - Those of them that stand above numbers.
 * @property {string} action - On the button that opens the dialog which writes one; empty for none.
 * @property {boolean} danger - Whether that does harm.
 * @property {string} right - What an administrator needs for it.
 */

/**
 * The view. A subclass says what the records are.
 *
 * @template {object} T
 */
export class RecordView {
  /** @type {T[]} */
  #items = [];
  /** What follows the last page that is here; null if that is all. @type {string | null} */
  #cursor = null;
  #loading = false;
  /** Whether the items are all that there are. */
  #complete = false;
  /** Whether the last question had no answer: what there is not, is not known then. */
  #failed = false;
  #asked = new AbortController();
  #timer = 0;
  #words;
  /** @type {HTMLInputElement} */
  #filter;
  #problem = el("p", { class: "problem", role: "alert" });
  #summary = el("p", { class: "quiet", role: "status" });
  #side = el("div", { class: "side" });
  #list;
  /** The one that the panel is about. @type {T | null} */
  selected = null;
  stopped = new AbortController();

  /**
   * @param {import("../main.js").Context} context
   * @param {Words} words
   */
  constructor(context, words) {
    this.context = context;
    this.#words = words;
    const write = el("button", { type: "button", class: words.danger && "danger", onclick: () => this.write() }, words.action);
    this.guard([write]);
    this.#filter = el("input", {
      id: `${words.one}-filter`,
      type: "search",
      spellcheck: "false",
      autocomplete: "off",
      placeholder: words.placeholder,
      oninput: () => this.#show(),
    });
    this.#list = new VirtualList({
      role: "listbox",
      rowRole: "option",
      label: words.title,
      rowHeight: ROW_HEIGHT,
      fill: (row, item) => this.#fill(row, item),
      open: (item) => this.select(item),
      nearEnd: () => void this.#more(),
    });
    this.element = el(
      "div",
      { class: `view ${words.many}` },
      el("h1", { class: "visually-hidden" }, words.title),
      el(
        "div",
        { class: "search" },
        el("label", { for: `${words.one}-filter` }, "Filter"),
        this.#filter,
        words.action !== "" && write,
        el("button", { type: "button", onclick: () => void this.load() }, "Refresh"),
      ),
      this.#problem,
      el(
        "div",
        { class: "split" },
        el(
          "div",
          { class: "main-side card flush" },
          el("div", { class: `list-head ${words.one}-columns`, "aria-hidden": "true" }, ...words.columns.map((each) => el("span", { class: words.numbers.includes(each) && "number" }, each))),
          this.#list.element,
        ),
        this.#side,
      ),
      this.#summary,
    );
  }

  // --- What the records are -----------------------------------------------------------------------------------------

  /**
   * Ask for a page.
   *
   * @param {string} _cursor - What follows the page before; empty for the first one.
   * @param {AbortSignal} _signal
   * @returns {Promise<{items: T[], cursor: string | null}>}
   */
  page(_cursor, _signal) {
    throw new Error("a subclass asks");
  }

  /**
   * Return what the filter looks at.
   *
   * @param {T} _item
   * @returns {string}
   */
  text(_item) {
    throw new Error("a subclass says");
  }

  /**
   * Tell whether two are the same record, though one may be newer.
   *
   * @param {T} _one
   * @param {T} _other
   * @returns {boolean}
   */
  isSame(_one, _other) {
    throw new Error("a subclass tells");
  }

  /**
   * Tell what the panel consists of beside its facts: while that is the same, new facts are all that it has to be told.
   *
   * @param {T} _item
   * @returns {unknown} What JSON can hold.
   */
  shape(_item) {
    return null;
  }

  /**
   * Say how many there are.
   *
   * @param {T[]} found - What the filter leaves of them.
   * @param {T[]} all
   * @returns {string}
   */
  tally(found, all) {
    const what = this.#filter.value.trim() === "" ? "" : `${count(found.length)} of `;
    return what + counted(all.length, this.#words.one);
  }

  /**
   * Have the panel show what became of the one that it is about. Nobody has asked for it: the focus stays where it is.
   *
   * @param {T | null} now - Null if it is gone.
   * @param {T} shown
   */
  renew(now, shown) {
    this.selected = now;
    if (now === null) this.select(null);
    else if (JSON.stringify(this.shape(now)) === JSON.stringify(this.shape(shown))) this.#tell(this.facts(now));
    else this.#draw(now);
  }

  /**
   * Have the panel tell newer facts, and touch nothing else of it.
   *
   * @param {string[][]} facts
   */
  #tell(facts) {
    const list = this.#side.querySelector(".facts");
    const names = [...(list?.querySelectorAll("dt") ?? [])].map(({ textContent }) => textContent);
    if (names.length !== facts.length || facts.some(([name], at) => name !== names[at])) list?.replaceChildren(...factRows(facts));
    const values = list?.querySelectorAll("dd") ?? [];
    for (const [at, [, value]] of facts.entries()) if (values[at]) say(values[at], /** @type {string} */ (value));
  }

  /**
   * Make what the panel shows behind the facts; null for nothing.
   *
   * @param {T} _item
   * @returns {HTMLElement | null}
   */
  more(_item) {
    return null;
  }

  /** Open the dialog that writes another one. */
  write() {
    throw new Error("a subclass opens it");
  }

  /**
   * Make the cells of a row.
   *
   * @param {T} _item
   * @returns {HTMLElement[]}
   */
  cells(_item) {
    throw new Error("a subclass makes them");
  }

  /**
   * Say what the panel shows beside the facts. What its buttons do is about `selected`, which may be newer.
   *
   * @param {T} _item
   * @returns {{title: string, actions: HTMLButtonElement[], about: string}}
   */
  details(_item) {
    throw new Error("a subclass says");
  }

  /**
   * Say what is known of one, as pairs of a name and a value.
   *
   * @param {T} _item
   * @returns {string[][]}
   */
  facts(_item) {
    throw new Error("a subclass says");
  }

  // --- The view -----------------------------------------------------------------------------------------------------

  /**
   * Have buttons work only for whoever may write.
   *
   * @param {HTMLButtonElement[]} buttons
   */
  guard(buttons) {
    this.context.rights.guard(this.#words.right, buttons, this.stopped.signal);
  }

  /**
   * Ask before something is written, and look again when it was.
   *
   * @param {Parameters<typeof confirm>[0]} question
   */
  confirm(question) {
    void confirm(question).then((done) => {
      if (done) void this.load();
    });
  }

  start() {
    void this.load();
  }

  stop() {
    this.stopped.abort();
    this.#asked.abort();
    clearTimeout(this.#timer);
  }

  focusSearch() {
    this.#filter.focus();
    this.#filter.select();
  }

  /** Load it from its beginning; what is shown stays until the answer is there. */
  async load() {
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
      const page = await this.page(this.#cursor, signal);
      if (signal.aborted) return;
      this.#items = first ? page.items : [...this.#items, ...page.items];
      this.#cursor = page.cursor;
      this.#complete = page.cursor === null;
      this.#failed = false;
      say(this.#problem, "");
    } catch (error) {
      if (signal.aborted) return;
      this.#cursor = null;
      this.#failed = true;
      say(this.#problem, error instanceof Error ? error.message : String(error));
    }
    this.#loading = false;
    this.#show();
    if (first && this.#cursor === null && !this.stopped.signal.aborted) this.#timer = setTimeout(() => void this.load(), LOOK);
  }

  #show() {
    const text = this.#filter.value.trim().toLowerCase();
    const found = this.#items.filter((each) => this.text(each).toLowerCase().includes(text));
    const nothing = this.#items.length === 0;
    // Only who has had an answer, and a whole one, knows what there is not.
    const known = this.#complete && !this.#failed;
    const none = known ? this.#words.none : "";
    this.#list.show(found, nothing ? none : known ? NO_MATCH : "");
    const more = this.#complete ? "" : ", and more";
    say(this.#summary, nothing ? none : this.tally(found, this.#items) + more);
    this.#summary.classList.toggle("visually-hidden", nothing);
    const selected = this.selected;
    if (selected !== null && known) {
      const now = this.#items.find((each) => this.isSame(each, selected)) ?? null;
      this.renew(now, selected);
    }
    this.#list.refresh();
    // A filter looks at what is here: all of it has to come.
    if (text !== "") void this.#more();
  }

  /**
   * @param {HTMLElement} row
   * @param {T} item
   */
  #fill(row, item) {
    const selected = this.selected !== null && this.isSame(item, this.selected);
    fillRow(row, item, { selected, columns: `${this.#words.one}-columns`, cells: () => this.cells(item) });
  }

  /**
   * Show one in the panel, because somebody wants to see it, or none.
   *
   * @param {T | null} item
   */
  select(item) {
    this.selected = item;
    this.element.classList.toggle("has-panel", item !== null);
    this.#list.refresh();
    if (item === null) {
      const focused = this.#side.contains(document.activeElement);
      this.#side.replaceChildren();
      if (focused) this.#list.element.focus();
      return;
    }
    this.#draw(item).focus({ preventScroll: true });
  }

  /**
   * Draw the panel. Who was in it with the keyboard stays in it.
   *
   * @param {T} item
   */
  #draw(item) {
    const focused = this.#side.contains(document.activeElement);
    const { title: text, actions, about } = this.details(item);
    const title = el("h2", { class: "mono wrap", tabindex: "-1", id: "panel-title" }, text);
    this.#side.replaceChildren(
      panel(
        { title, close: () => this.select(null) },
        el("div", { class: "buttons start" }, ...actions),
        el("dl", { class: "facts" }, ...factRows(this.facts(item))),
        el("p", { class: "quiet about" }, about),
        this.more(item),
      ),
    );
    if (focused) title.focus({ preventScroll: true });
    return title;
  }
}
