/**
 * Recoveries by outcome over time: stacked columns, drawn by hand, with a table for those who cannot see them.
 *
 * @module
 */

import { el, svg } from "./dom.js";
import { clock, count } from "./format.js";
import { rungsOf, sumOf } from "./rungs.js";

/** Pixels. */
const HEIGHT = 190;
const LEFT = 34;
const BOTTOM = 18;
const TOP = 8;

/** Seconds that one column stands for: three intervals of the nodes, so that a column is wide enough to be pointed at. */
const STEP = 15;

/** Seconds shown. */
const SPAN = 900;

/**
 * @typedef {import("./rungs.js").Counts} Counts
 * @typedef {import("./rungs.js").Rung} Rung
 */

/** The chart and its legend; `draw` shows the present. */
export class RecoveryChart {
  #plot = svg("svg", { class: "chart", role: "img" });
  #width = 0;
  #legend = el("ul", { class: "legend" });
  #heads = el("tr");
  #table = el("tbody");
  #drawn = "";

  constructor() {
    this.element = el(
      "div",
      {},
      this.#legend,
      this.#plot,
      el("details", { class: "as-table" }, el("summary", {}, "As a table"), el("table", {}, el("thead", {}, this.#heads), this.#table)),
    );
    this.#name(rungsOf([]));
  }

  /**
   * @param {Map<number, Counts>} history - By the beginning of an interval.
   * @param {number} now - Seconds since 1970.
   */
  draw(history, now) {
    const end = Math.ceil(now / STEP) * STEP;
    const begin = end - SPAN;
    /** @type {Map<number, Counts>} */
    const columns = new Map();
    for (const [at, counts] of history) {
      if (at < begin) continue;
      const column = Math.floor(at / STEP) * STEP;
      columns.set(column, sumOf([columns.get(column) ?? {}, counts]));
    }
    // As wide as the page has it, so that its text is as large as all other text.
    this.#width = this.#plot.clientWidth || 600;
    const drawn = JSON.stringify([end, this.#width, [...columns]]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const all = sumOf([...columns.values()]);
    const rungs = rungsOf(metIn(all));
    this.#name(rungs);
    this.#plotColumns(columns, begin, rungs);
    this.#tell(columns, all, rungs);
  }

  /** @param {Rung[]} rungs */
  #name(rungs) {
    this.#legend.replaceChildren(
      ...rungs.map(({ name, meaning, style }) =>
        el("li", { title: meaning }, el("span", { class: `swatch ${style}`, "aria-hidden": "true" }), name),
      ),
    );
    this.#heads.replaceChildren(el("th", { scope: "col" }, "Since"), ...rungs.map(({ name }) => el("th", { scope: "col", class: "number" }, name)));
  }

  /**
   * @param {Map<number, Counts>} columns
   * @param {number} begin
   * @param {Rung[]} rungs
   */
  #plotColumns(columns, begin, rungs) {
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
      const column = svg("g", {}, svg("title", {}, `${clock(at)}: ${inWords(counts, rungs)}`));
      for (const { outcome, style } of rungs) {
        const each = counts[outcome] ?? 0;
        if (each === 0) continue;
        const rect = { class: style, x, width: width - 2, y: y(base + each), height: y(base) - y(base + each) };
        column.append(svg("rect", rect));
        base += each;
      }
      parts.push(column);
    }
    this.#plot.replaceChildren(...parts);
  }

  /**
   * @param {Map<number, Counts>} columns
   * @param {Counts} all
   * @param {Rung[]} rungs
   */
  #tell(columns, all, rungs) {
    this.#plot.setAttribute("aria-label", `Recoveries in the last quarter of an hour: ${inWords(all, rungs)}`);
    this.#table.replaceChildren(
      ...[...columns]
        .sort(([one], [other]) => other - one)
        .map(([at, counts]) =>
          el("tr", {}, el("td", {}, clock(at)), ...rungs.map(({ outcome }) => el("td", { class: "number" }, count(counts[outcome] ?? 0)))),
        ),
    );
  }
}

/**
 * @param {Counts} counts
 * @returns {string[]}
 */
function metIn(counts) {
  return Object.keys(counts).filter((outcome) => (counts[outcome] ?? 0) > 0);
}

/** @param {Counts} counts */
function total(counts) {
  return Object.values(counts).reduce((all, each) => all + each, 0);
}

/**
 * @param {Counts} counts
 * @param {Rung[]} rungs
 */
function inWords(counts, rungs) {
  return rungs.map(({ outcome, name }) => `${count(counts[outcome] ?? 0)} ${name}`).join(", ");
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
