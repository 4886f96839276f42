/**
 * The outcomes of resumes in words and colours: the same in the chart, in the tables, in the feed of events and at a session.
 *
 * @module
 */

import { plain } from "./format.js";

/**
 * @typedef {"good" | "warn" | "bad" | "quiet" | "info"} Kind - Of a badge.
 * @typedef {Record<string, number>} Counts - By outcome, as nodes call it.
 *
 * @typedef {object} Rung
 * @property {string} outcome - As nodes call it.
 * @property {string} name - In words.
 * @property {string} meaning
 * @property {Kind} kind
 * @property {string} style - The class that has its colour.
 */

/** In the order of the recovery ladder. @type {Rung[]} */
const RUNGS = [
  { outcome: "reattached", name: "reattached", meaning: "nothing was lost", kind: "good", style: "rung-reattached" },
  {
    outcome: "handed_over",
    name: "handed over",
    meaning: "another node took the session over from the one that served it, and nothing was lost",
    kind: "good",
    style: "rung-handed-over",
  },
  {
    outcome: "mirrored",
    name: "mirrored",
    meaning: "a backup of the lost node had a copy of the session, and nothing was lost",
    kind: "good",
    style: "rung-mirrored",
  },
  {
    outcome: "failed_over",
    name: "failed over",
    meaning: "another node took the session over from the grid; what was missed was replayed, or current values were sent",
    kind: "warn",
    style: "rung-failed-over",
  },
  {
    outcome: "refused",
    name: "refused",
    meaning: "the session had ended, or its token was not accepted",
    kind: "bad",
    style: "rung-refused",
  },
];

/** Shown also where nobody has met them. */
const USUAL = ["reattached", "failed_over", "refused"];

/**
 * List the rungs to show.
 *
 * @param {Iterable<string>} outcomes - That have to be among them, as nodes call them.
 * @returns {Rung[]} In the order of the ladder; at the end those that this page does not know, as the nodes call them.
 */
export function rungsOf(outcomes) {
  const wanted = new Set([...USUAL, ...outcomes]);
  const known = RUNGS.filter(({ outcome }) => wanted.has(outcome));
  const others = [...wanted].filter((outcome) => !RUNGS.some((each) => each.outcome === outcome));
  return [...known, ...others.map(unknown)];
}

/**
 * Add up.
 *
 * @param {Counts[]} several
 * @returns {Counts}
 */
export function sumOf(several) {
  /** @type {Counts} */
  const sum = {};
  for (const counts of several) for (const [outcome, each] of Object.entries(counts)) sum[outcome] = (sum[outcome] ?? 0) + each;
  return sum;
}

/**
 * Say how a session was resumed.
 *
 * @param {string | null} outcome
 * @param {boolean | null | undefined} replayed - After a failover: whether every update that was missed follows; null of a
 *   session that selects nothing. Nodes of earlier releases do not tell.
 * @returns {[string, Kind]}
 */
export function rungInWords(outcome, replayed) {
  if (outcome === null) return ["resumed", "info"];
  const { name, kind } = RUNGS.find((each) => each.outcome === outcome) ?? unknown(outcome);
  if (outcome !== "failed_over" || replayed === undefined) return [name, kind];
  if (replayed === null) return [name, "info"];
  return replayed ? [`${name}, all replayed`, "good"] : [`${name}, current values`, kind];
}

/**
 * @param {string} outcome
 * @returns {Rung}
 */
function unknown(outcome) {
  return { outcome, name: plain(outcome), meaning: "an outcome that this page does not know", kind: "info", style: "rung-unknown" };
}
