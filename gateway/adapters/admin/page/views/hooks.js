/**
 * The event hooks: how their receivers are, and trying one at once.
 *
 * @module
 */

import { badge, el } from "../dom.js";
import { count, momentOrNone, plain } from "../format.js";
import { RecordView } from "./records.js";

/** @type {Record<string, "good" | "bad" | "warn">} How states are shown; others are those of later releases. */
const KINDS = { delivering: "good", failing: "bad", suspended: "bad", unheld: "warn" };

/** @type {Record<string, string>} What the states mean. */
const STATES = {
  delivering: "The receiver takes what comes, or nothing has come yet.",
  failing: "The receiver did not take what came last, and is tried again. What comes meanwhile waits in the journal.",
  suspended: "The receiver said that it is gone. Nothing is sent until its URL is changed, or somebody has it tried.",
  unheld: "No node delivers: none has the hook in its file any more, or one is about to take it.",
};

/**
 * @typedef {{name: string, url: string, events: string[], state: string, node: string | null, behind: number, failures: number, error: string, failed: number | null, delivered: number | null, failing: number | null, attempt: number | null}} Hook
 */

/** @extends {RecordView<Hook>} */
export class Hooks extends RecordView {
  /** @param {import("../main.js").Context} context */
  constructor(context) {
    super(context, {
      one: "hook",
      many: "hooks",
      title: "Hooks",
      placeholder: "part of a name or of a receiver",
      none: "There are no event hooks.",
      columns: ["Hook", "State", "Receiver", "Behind", "Last delivery"],
      numbers: ["Behind"],
      action: "",
      danger: false,
      right: "hooks:retry",
    });
  }

  /**
   * @override
   * @param {string} _cursor - There is one page only.
   * @param {AbortSignal} signal
   */
  async page(_cursor, signal) {
    const { items } = await this.context.api.hooks({ signal });
    return { items, cursor: null };
  }

  /**
   * @override
   * @param {Hook} item
   */
  text({ name, url }) {
    return `${name} ${url}`;
  }

  /**
   * @override
   * @param {Hook} one
   * @param {Hook} other
   */
  isSame(one, other) {
    return one.name === other.name;
  }

  /**
   * @override
   * @param {Hook} item
   */
  cells({ name, state, url, behind, delivered }) {
    return [
      el("span", { class: "mono cut" }, plain(name)),
      el("span", {}, badge(plain(state), KINDS[state] ?? "info")),
      el("span", { class: "mono cut" }, plain(url) || "–"),
      el("span", { class: "number" }, count(behind)),
      el("span", { class: "quiet cut" }, momentOrNone(delivered)),
    ];
  }

  /**
   * @override
   * @param {Hook} item
   */
  details(item) {
    const retry = el("button", { type: "button", class: "small", onclick: () => this.#retry(item) }, "Try now…");
    this.guard([retry]);
    return { title: plain(item.name), actions: [retry], about: STATES[item.state] ?? "" };
  }

  /**
   * @override
   * @param {Hook} item
   */
  shape({ state }) {
    return state;
  }

  /**
   * @override
   * @param {Hook} item
   */
  facts(item) {
    return [
      ["State", plain(item.state)],
      ["Receiver", plain(item.url) || "–"],
      ["Events", item.events.map(plain).join(", ") || "–"],
      ["Node that delivers", item.node === null ? "none" : plain(item.node)],
      ["Events behind", count(item.behind)],
      ["Last delivery", momentOrNone(item.delivered)],
      ["Failures in a row", count(item.failures)],
      ["Fails since", momentOrNone(item.failing)],
      ["Next attempt", momentOrNone(item.attempt)],
      ["Last failure", momentOrNone(item.failed)],
      ["Last error", plain(item.error) || "–"],
    ];
  }

  /** @param {Hook} item */
  #retry({ name }) {
    this.confirm({
      title: "Try the receiver?",
      text: `The node that delivers for ${plain(name)} does not wait for the next attempt, also if the receiver said that it is gone.`,
      action: "Try",
      act: () => this.context.api.retryHook(name),
      done: "The receiver is tried within a few seconds",
    });
  }
}
