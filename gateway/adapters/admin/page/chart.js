/**
 * Recoveries by outcome over time: stacked columns, drawn by hand, with a table for those who cannot see them.
 *
 * @module
 */

import { el, svg } from "./dom.js";
import { clock, count } from "./format.js";

/** Pixels. */
const HEIGHT = 190;
const LEFT = 34;
const BOTTOM = 18;
const TOP = 8;

/** Seconds that one column stands for: three intervals of the nodes, so that a column is wide enough to be pointed at. */
const STEP = 15;

/** Seconds shown. */
const SPAN = 900;

/** In the order of the columns' numbers. */
const RUNGS = /** @type {const} */ ([
  { name: "reattached", meaning: "nothing was lost" },
  { name: "handed over", meaning: "another node took the session over from the one that served it, and nothing was lost" },
  { name: "failed over", meaning: "another node took the session over from the grid, and current values were sent" },
  { name: "refused", meaning: "the session had ended, or its token was not accepted" },
]);

/** The chart and its legend; `draw` shows the present. */
export class RecoveryChart {
  #plot = svg("svg", { class: "chart", role: "img" });
  #width = 0;
  #table = el("tbody");
  #drawn = "";

  constructor() {
    this.element = el(
      "div",
      {},
      el(
        "ul",
        { class: "legend" },
        ...RUNGS.map(({ name, meaning }, index) =>
          el("li", { title: meaning }, el("span", { class: `swatch rung-${index}`, "aria-hidden": "true" }), name),
        ),
      ),
      this.#plot,
      el(
        "details",
        { class: "as-table" },
        el("summary", {}, "As a table"),
        el(
          "table",
          {},
          el("thead", {}, el("tr", {}, el("th", {}, "Since"), ...RUNGS.map(({ name }) => el("th", { class: "number" }, name)))),
          this.#table,
        ),
      ),
    );
  }

  /**
   * @param {Map<number, number[]>} history - Counts by rung, by the beginning of an interval.
   * @param {number} now - Seconds since 1970.
   */
  draw(history, now) {
    const end = Math.ceil(now / STEP) * STEP;
    const begin = end - SPAN;
    /** @type {Map<number, number[]>} */
    const columns = new Map();
    for (const [at, counts] of history) {
      if (at < begin) continue;
      const column = Math.floor(at / STEP) * STEP;
      const sum = columns.get(column) ?? RUNGS.map(() => 0);
      columns.set(
        column,
        sum.map((each, index) => each + (counts[index] ?? 0)),
      );
    }
    // As wide as the page has it, so that its text is as large as all other text.
    this.#width = this.#plot.clientWidth || 600;
    const drawn = JSON.stringify([end, this.#width, [...columns]]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.#plotColumns(columns, begin);
    this.#tell(columns);
  }

  /**
   * @param {Map<number, number[]>} columns
   * @param {number} begin
   */
  #plotColumns(columns, begin) {
    const most = Math.max(1, ...[...columns.values()].map(total));
    const scale = niceScale(most);
    const height = HEIGHT - TOP - BOTTOM;
    const width = (this.#width - LEFT) / (SPAN / STEP);
    /** @param {number} value */
    const y = (value) => TOP + height - (value / scale) * height;
    const parts = [];
    for (const value of [0, scale / 2, scale]) {
      if (!Number.isInteger(value)) continue;
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: this.#width, y1: y(value), y2: y(value) }));
      parts.push(svg("text", { class: "axis", x: LEFT - 6, y: y(value) + 3.5, "text-anchor": "end" }, count(value)));
    }
    for (let at = begin; at <= begin + SPAN; at += 300) {
      const x = LEFT + ((at - begin) / STEP) * width;
      const anchor = at === begin ? "start" : at === begin + SPAN ? "end" : "middle";
      parts.push(svg("text", { class: "axis", x, y: HEIGHT - 4, "text-anchor": anchor }, clock(at).slice(0, 5)));
    }
    for (const [at, counts] of columns) {
      const x = LEFT + ((at - begin) / STEP) * width + 1;
      let base = 0;
      const column = svg("g", {}, svg("title", {}, `${clock(at)}: ${inWords(counts)}`));
      for (const [index, each] of counts.entries()) {
        if (each === 0) continue;
        const rect = { class: `rung-${index}`, x, width: width - 2, y: y(base + each), height: y(base) - y(base + each) };
        column.append(svg("rect", rect));
        base += each;
      }
      parts.push(column);
    }
    this.#plot.replaceChildren(...parts);
  }

  /** @param {Map<number, number[]>} columns */
  #tell(columns) {
    const sums = RUNGS.map((_, index) => [...columns.values()].reduce((sum, each) => sum + (each[index] ?? 0), 0));
    this.#plot.setAttribute("aria-label", `Recoveries in the last quarter of an hour: ${inWords(sums)}`);
    this.#table.replaceChildren(
      ...[...columns]
        .sort(([one], [other]) => other - one)
        .map(([at, counts]) =>
          el("tr", {}, el("td", {}, clock(at)), ...counts.map((each) => el("td", { class: "number" }, count(each)))),
        ),
    );
  }
}

/** @param {number[]} counts */
function total(counts) {
  return counts.reduce((sum, each) => sum + each, 0);
}

/** @param {number[]} counts */
function inWords(counts) {
  return RUNGS.map(({ name }, index) => `${count(counts[index])} ${name}`).join(", ");
}

/**
 * Round up to a number whose half is whole, too, so that the axis reads well.
 *
 * @param {number} most
 */
function niceScale(most) {
  const magnitude = 10 ** Math.floor(Math.log10(most));
  const step = [1, 2, 4, 6, 8, 10].find((each) => each * magnitude >= most) ?? 10;
  return Math.max(2, step * magnitude);
}
