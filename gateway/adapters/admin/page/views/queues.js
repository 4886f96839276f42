/**
 * The queues: how each one is, what comes and goes, and its dead letters, which can be put back.
 *
 * @module
 */

import { badge, el } from "../dom.js";
import { bytes, count, duration, moment, momentOrNone, oneLine, plain } from "../format.js";
import { RecordView } from "./records.js";

/** Queues per page. */
const PAGE = 1000;

/** Dead letters that are shown of a queue: as many as a page of the admin API has. */
const LETTERS = 100;

/** Milliseconds between two looks that tell a rate, at least: less would be mostly noise. */
const SPAN = 1500;

/** Characters of a value in the list. */
const SHOWN = 80;

/** @type {Record<string, string>} Why a message is a dead letter. */
const REASONS = {
  rejected: "rejected by a consumer",
  deliveries: "failed too often",
  expired: "expired",
  overflow: "the queue was full",
};

/**
 * @typedef {{queue: string, ready: number, delayed: number, held: number, dead: number, bytes: number, consumers: number, oldest: number | null, sent: number}} Queue
 * @typedef {{id: number, reason: string, deliveries: number, sent: number, since: number, value: unknown, size: number}} Letter
 * @typedef {{at: number, sent: number, left: number, sending: number | null, leaving: number | null}} Look - What was seen of a queue, and the rates by then.
 */

/** @extends {RecordView<Queue>} */
export class Queues extends RecordView {
  /** @type {Map<string, Look>} What was seen last, by queue. */
  #looks = new Map();
  #letters = el("div", { class: "letters" });
  #asked = new AbortController();

  /** @param {import("../main.js").Context} context */
  constructor(context) {
    super(context, {
      one: "queue",
      many: "queues",
      title: "Queues",
      placeholder: "part of a path",
      none: "There are no queues: nothing is in one, and nobody consumes.",
      columns: ["Queue", "Ready", "Held", "Dead", "Consumers", "Waits since"],
      numbers: ["Ready", "Held"],
      action: "",
      danger: false,
      right: "queues:write",
    });
  }

  /**
   * @override
   * @param {string} cursor
   * @param {AbortSignal} signal
   */
  async page(cursor, signal) {
    const page = await this.context.api.queues({ cursor, limit: PAGE, signal });
    for (const each of page.items) this.#look(each);
    return page;
  }

  /**
   * @override
   * @param {Queue} item
   */
  text({ queue }) {
    return queue;
  }

  /**
   * @override
   * @param {Queue} one
   * @param {Queue} other
   */
  isSame(one, other) {
    return one.queue === other.queue;
  }

  /**
   * @override
   * @param {Queue} item
   */
  cells(item) {
    const { queue, ready, held, dead, consumers, oldest } = item;
    const unattended = consumers === 0 && ready > 0;
    return [
      el("span", { class: "mono cut" }, plain(queue)),
      el("span", { class: "number" }, count(ready)),
      el("span", { class: "number" }, count(held)),
      el("span", {}, dead === 0 ? "" : badge(count(dead), "bad")),
      el("span", {}, unattended ? badge("nobody", "warn") : count(consumers)),
      el("span", { class: "quiet cut" }, momentOrNone(oldest)),
    ];
  }

  /**
   * @override
   * @param {Queue} item
   */
  details(item) {
    return { title: plain(item.queue), actions: [], about: "" };
  }

  /**
   * @override
   * @param {Queue} item
   */
  more(item) {
    this.#letters = el("div", { class: "letters" });
    if (item.dead > 0) void this.#load(item);
    return this.#letters;
  }

  /**
   * @override
   * @param {Queue | null} now
   * @param {Queue} shown
   */
  renew(now, shown) {
    super.renew(now, shown);
    if (now !== null && now.dead !== shown.dead) void this.#load(now);
  }

  /** @override */
  stop() {
    this.#asked.abort();
    super.stop();
  }

  /**
   * @override
   * @param {Queue} item
   */
  facts(item) {
    const look = this.#looks.get(item.queue);
    const age = item.oldest === null ? "–" : `${moment(item.oldest)}, ${duration(Math.max(0, Date.now() / 1000 - item.oldest))} ago`;
    return [
      ["Ready", count(item.ready)],
      ["Held by consumers", count(item.held)],
      ["Delayed", count(item.delayed)],
      ["Dead letters", count(item.dead)],
      ["Consumers", count(item.consumers)],
      ["The oldest waits since", age],
      ["Sent", rate(look?.sending)],
      ["Accepted or dropped", rate(look?.leaving)],
      ["Size", bytes(item.bytes)],
    ];
  }

  /** @param {Queue} item */
  #look(item) {
    const at = performance.now();
    const left = item.sent - item.ready - item.delayed - item.held - item.dead;
    const before = this.#looks.get(item.queue);
    if (before !== undefined && at - before.at < SPAN) return;
    // A queue that was gone meanwhile has begun to count anew.
    const told = before !== undefined && item.sent >= before.sent && left >= before.left;
    const seconds = before === undefined ? 1 : (at - before.at) / 1000;
    this.#looks.set(item.queue, {
      at,
      sent: item.sent,
      left,
      sending: told ? (item.sent - before.sent) / seconds : null,
      leaving: told ? (left - before.left) / seconds : null,
    });
  }

  // --- Dead letters -------------------------------------------------------------------------------------------------

  /** @param {Queue} item */
  async #load(item) {
    this.#asked.abort();
    this.#asked = new AbortController();
    const { signal } = this.#asked;
    try {
      const { items, cursor } = await this.context.api.deadLetters(item.queue, { limit: LETTERS, signal });
      if (!signal.aborted) this.#showLetters(item, items, cursor !== null);
    } catch (error) {
      if (signal.aborted) return;
      this.#letters.replaceChildren(el("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
    }
  }

  /**
   * @param {Queue} item
   * @param {Letter[]} letters
   * @param {boolean} more
   */
  #showLetters(item, letters, more) {
    const focused = this.#letters.contains(document.activeElement);
    const title = el("h3", { tabindex: "-1" }, `Dead letters (${count(letters.length)}${more ? " and more" : ""})`);
    const ids = letters.map(({ id }) => id);
    const all = letters.length === 0 ? [] : [this.#button("Put all of these back…", item, ids, false), this.#button("Drop all of these…", item, ids, true)];
    const rows = letters.map((each) => {
      const buttons = [this.#button("Put back…", item, [each.id], false), this.#button("Drop…", item, [each.id], true)];
      const failed = each.deliveries === 0 ? "" : ` after ${count(each.deliveries)} failed deliveries`;
      return [
        el(
          "li",
          {},
          el("div", {}, el("span", { class: "mono" }, String(each.id)), ` ${REASONS[each.reason] ?? plain(each.reason)}${failed}, ${moment(each.since)}`),
          el("div", { class: "mono cut" }, each.value === null && each.size > 4 ? `${bytes(each.size)}, too large to be shown` : oneLine(each.value, SHOWN)),
          el("div", { class: "buttons start" }, ...buttons),
        ),
        buttons,
      ];
    });
    const guarded = [...all, ...rows.flatMap(([, buttons]) => /** @type {HTMLButtonElement[]} */ (buttons))];
    this.context.rights.guard("queues:write", guarded, this.#asked.signal);
    this.#letters.replaceChildren(title, el("div", { class: "buttons start" }, ...all), el("ul", { class: "plain-list" }, ...rows.map(([row]) => /** @type {HTMLElement} */ (row))));
    if (focused) title.focus({ preventScroll: true });
  }

  /**
   * @param {string} text
   * @param {Queue} item
   * @param {number[]} ids
   * @param {boolean} drop
   */
  #button(text, item, ids, drop) {
    const ask = () => {
      const what = ids.length === 1 ? "This message" : `${count(ids.length)} messages`;
      this.confirm({
        title: drop ? "Drop for good?" : "Put back?",
        text: drop
          ? `${what} of ${plain(item.queue)} will be gone.`
          : `${what} of ${plain(item.queue)} will be given to consumers again, as if no delivery had failed, and will not expire any more.`,
        action: drop ? "Drop" : "Put back",
        danger: drop,
        act: () => this.context.api.mendDeadLetters(item.queue, ids, drop ? "drop" : "requeue"),
        done: (/** @type {{messages: number}} */ { messages }) => `${count(messages)} ${drop ? "dropped" : "put back"}`,
      });
    };
    return el("button", { type: "button", class: drop ? "small danger" : "small", onclick: ask }, text);
  }
}

/** @param {number | null | undefined} value - Messages a second. */
function rate(value) {
  return value === null || value === undefined ? "–" : `${value < 10 ? value.toFixed(1) : count(Math.round(value))} a second`;
}
