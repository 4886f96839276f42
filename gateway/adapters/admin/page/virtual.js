/**
 * A list of any length of which only what is seen is in the page; one row has the focus, and the keyboard moves it.
 *
 * @module
 */

import { el, say } from "./dom.js";

/** What a list says if a filter leaves nothing of it. */
export const NO_MATCH = "Nothing matches the filter.";

/** Rows drawn above and below what is seen, so that scrolling does not show a gap. */
const MARGIN = 8;

/**
 * @template T
 * @typedef {object} ListOptions
 * @property {string} role - Of the list: `listbox`, `tree`.
 * @property {string} label
 * @property {number} rowHeight - In pixels; the same for all rows.
 * @property {string} rowRole - Of a row: `option`, `treeitem`.
 * @property {(row: HTMLElement, item: T) => void} fill - Says in a row what the item is; the row may have shown another one.
 * @property {(item: T) => void} [open] - Enter, space or a click on a row.
 * @property {(item: T, key: string) => boolean} [key] - Other keys; true if it was used.
 * @property {() => void} [nearEnd] - The last rows are seen: more may be loaded.
 */

/** @template T */
export class VirtualList {
  #options;
  /** @type {readonly T[]} */
  #items = [];
  #focused = 0;
  #rows = el("div", { class: "rows", role: "presentation" });
  /** Readers of screens hear it where the view says how many there are. */
  #empty = el("p", { class: "empty quiet", "aria-hidden": "true" });
  /** The rows in the page, by the place of their items. They stay while they are seen: a click must find what it began at. @type {Map<number, HTMLElement>} */
  #seen = new Map();
  #scheduled = false;

  /** @param {ListOptions<T>} options */
  constructor(options) {
    this.#options = options;
    this.element = el(
      "div",
      {
        class: "virtual",
        role: options.role,
        "aria-label": options.label,
        tabindex: "0",
        onscroll: () => this.#schedule(),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event),
        onfocus: () => this.#draw(),
        onclick: (/** @type {MouseEvent} */ event) => this.#onClick(event),
      },
      this.#empty,
      this.#rows,
    );
    new ResizeObserver(() => this.#schedule()).observe(this.element);
  }

  /** The row that the keyboard is at. */
  get focused() {
    return this.#items[this.#focused] ?? null;
  }

  /**
   * Show other items; the focus stays at its place.
   *
   * @param {readonly T[]} items
   * @param {string} empty - What is said in place of rows, if there are none.
   */
  show(items, empty) {
    this.#items = items;
    say(this.#empty, items.length === 0 ? empty : "");
    this.#focused = Math.max(0, Math.min(this.#focused, items.length - 1));
    this.#rows.style.height = `${items.length * this.#options.rowHeight}px`;
    this.#draw();
  }

  /** Draw again what is seen, because the items have changed. */
  refresh() {
    this.#schedule();
  }

  /**
   * Move the focus to a row.
   *
   * @param {number} index
   */
  moveTo(index) {
    if (this.#items.length === 0) return;
    this.#focused = Math.max(0, Math.min(index, this.#items.length - 1));
    const { rowHeight } = this.#options;
    const top = this.#focused * rowHeight;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + rowHeight > scrollTop + clientHeight) this.element.scrollTop = top + rowHeight - clientHeight;
    this.#draw();
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#draw();
    });
  }

  #draw() {
    const { rowHeight, nearEnd } = this.#options;
    const first = Math.max(0, Math.floor(this.element.scrollTop / rowHeight) - MARGIN);
    const seen = Math.ceil((this.element.clientHeight || rowHeight * 10) / rowHeight);
    const last = Math.min(this.#items.length, first + seen + 2 * MARGIN);
    for (const [index, row] of this.#seen) {
      if (index < first || index >= last) {
        row.remove();
        this.#seen.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      const row = this.#seen.get(index) ?? this.#makeRow(index);
      const focused = index === this.#focused;
      row.classList.toggle("focused", focused);
      row.setAttribute("aria-setsize", String(this.#items.length));
      if (focused) this.element.setAttribute("aria-activedescendant", row.id);
      this.#options.fill(row, /** @type {T} */ (this.#items[index]));
    }
    if (nearEnd && last >= this.#items.length - MARGIN) nearEnd();
  }

  /** @param {number} index */
  #makeRow(index) {
    const { role, rowRole, rowHeight } = this.#options;
    const row = el("div", { id: `${role}-row-${index}`, class: "row", role: rowRole, "aria-posinset": index + 1 });
    row.dataset.index = String(index);
    row.style.top = `${index * rowHeight}px`;
    row.style.height = `${rowHeight}px`;
    this.#seen.set(index, row);
    this.#rows.append(row);
    return row;
  }

  /** @param {MouseEvent} event */
  #onClick(event) {
    const row = /** @type {Element} */ (event.target).closest(".row");
    if (!(row instanceof HTMLElement)) return;
    this.#focused = Number(row.dataset.index);
    this.#draw();
    const item = this.focused;
    if (item !== null) this.#options.open?.(item);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.#options.rowHeight) - 1);
    /** @type {Record<string, number>} */
    const moves = {
      ArrowDown: this.#focused + 1,
      ArrowUp: this.#focused - 1,
      j: this.#focused + 1,
      k: this.#focused - 1,
      PageDown: this.#focused + page,
      PageUp: this.#focused - page,
      Home: 0,
      End: this.#items.length - 1,
    };
    const item = this.focused;
    const move = moves[event.key];
    if (move !== undefined) this.moveTo(move);
    else if ((event.key === "Enter" || event.key === " ") && item !== null) this.#options.open?.(item);
    else if (!(item !== null && this.#options.key?.(item, event.key))) return;
    event.preventDefault();
  }
}

/**
 * Say in a row of columns what a record is, unless the row says so already: what has the focus or is hovered over stays.
 *
 * @param {HTMLElement} row
 * @param {unknown} item - Whose JSON tells whether anything has changed.
 * @param {{selected: boolean, columns: string, cells: () => HTMLElement[]}} how - `columns` is the class that lays them out.
 */
export function fillRow(row, item, { selected, columns, cells }) {
  const shown = JSON.stringify([item, selected]);
  if (row.dataset.shown === shown) return;
  row.dataset.shown = shown;
  row.setAttribute("aria-selected", String(selected));
  row.classList.toggle("selected", selected);
  row.classList.add(columns);
  row.replaceChildren(...cells());
}
