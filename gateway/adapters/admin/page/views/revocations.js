/**
 * The revocations: listed, added and unblocked.
 *
 * @module
 */

import { badge, el, say } from "../dom.js";
import { moment, plain } from "../format.js";
import { RecordView } from "./records.js";

/** Revocations per page. */
const PAGE = 500;

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

/** @extends {RecordView<Revocation>} */
export class Revocations extends RecordView {
  /** @param {import("../main.js").Context} context */
  constructor(context) {
    super(context, {
      one: "revocation",
      many: "revocations",
      title: "Revocations",
      placeholder: "name or reason",
      none: "Nothing is blocked.",
      columns: ["What", "Value", "Since", "Until", "Reason"],
      numbers: [],
      action: "Revoke…",
      danger: true,
      right: "revocations:write",
    });
  }

  /**
   * @override
   * @param {string} cursor
   * @param {AbortSignal} signal
   */
  page(cursor, signal) {
    return this.context.api.revocations({ cursor, limit: PAGE, signal });
  }

  /**
   * @override
   * @param {Revocation} item
   */
  text({ value, reason }) {
    return `${value}\n${reason}`;
  }

  /**
   * @override
   * @param {Revocation} one
   * @param {Revocation} other
   */
  isSame(one, other) {
    return one.kind === other.kind && one.value === other.value;
  }

  /**
   * @override
   * @param {Revocation} item
   */
  cells(item) {
    return [
      el("span", {}, badge(plain(item.kind), item.kind === "principal" ? "bad" : item.kind === "session" ? "info" : "warn")),
      el("span", { class: "mono cut" }, plain(item.value)),
      el("span", { class: "cut" }, moment(item.made)),
      el("span", { class: "cut" }, until(item)),
      el("span", { class: "cut quiet" }, plain(item.reason) || "–"),
    ];
  }

  /**
   * @override
   * @param {Revocation} item
   */
  details(item) {
    const unblock = el("button", { type: "button", class: "small", onclick: () => this.#unblock(item) }, "Unblock…");
    this.guard([unblock]);
    return { title: plain(item.value), actions: [unblock], about: KINDS[item.kind] ?? "" };
  }

  /**
   * @override
   * @param {Revocation} item
   */
  facts(item) {
    return [
      ["What", item.kind],
      ["Since", moment(item.made)],
      ["Until", until(item)],
      ["Reason", plain(item.reason) || "–"],
    ];
  }

  /** @param {Revocation} item */
  #unblock(item) {
    this.confirm({
      title: "Unblock it?",
      text: `The ${item.kind} ${plain(item.value)} is unblocked. Sessions that have ended stay ended.`,
      action: "Unblock",
      act: () => this.context.api.unblock(item.kind, item.value),
      done: "Unblocked; every node that reaches the grid follows within a second",
    });
  }

  /** @override */
  write() {
    const kind = el("select", { id: "revoke-kind", onchange: () => say(about, KINDS[kind.value] ?? "") }, ...Object.keys(KINDS).map((each) => el("option", { value: each }, each)));
    const about = el("p", { class: "quiet", "aria-live": "polite" }, KINDS.principal);
    const value = el("input", { id: "revoke-value", type: "text", required: true, maxlength: "256", spellcheck: "false", autocomplete: "off" });
    const lasts = el("select", { id: "revoke-lasts" }, ...LASTS.map(([name], index) => el("option", { value: index }, name)));
    const reason = el("input", { id: "revoke-reason", type: "text", maxlength: "200", autocomplete: "off" });
    this.confirm({
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
        return this.context.api.revoke({ kind: kind.value, value: value.value, reason: reason.value, ...until });
      },
      done: "Revoked; every node that reaches the grid follows within a second",
    });
  }
}

/** @param {Revocation} item */
function until(item) {
  return item.until === null ? "it is unblocked" : moment(item.until);
}
