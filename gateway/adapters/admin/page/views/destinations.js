/**
 * The destinations: what is said of paths, by whom, and saying it.
 *
 * @module
 */

import { badge, el, say } from "../dom.js";
import { bytes, count, moment, plain } from "../format.js";
import { RecordView } from "./records.js";

/** Destinations per page: as many as a cluster can have. */
const PAGE = 1000;

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

/** @extends {RecordView<Destination>} */
export class Destinations extends RecordView {
  /** @param {import("../main.js").Context} context */
  constructor(context) {
    super(context, {
      one: "destination",
      many: "destinations",
      title: "Destinations",
      placeholder: "part of a selector",
      none: "Nothing is said of any path: all are plain values.",
      columns: ["Kind", "Selector", "By", "Limits"],
      action: "Describe…",
      danger: false,
      right: "destinations:declare",
    });
  }

  /**
   * @override
   * @param {string} _cursor - There is one page only: it holds as many as a cluster can have.
   * @param {AbortSignal} signal
   */
  page(_cursor, signal) {
    return this.context.api.destinations({ limit: PAGE, signal });
  }

  /**
   * @override
   * @param {Destination} item
   */
  text({ selector }) {
    return selector;
  }

  /**
   * @override
   * @param {Destination} one
   * @param {Destination} other
   */
  isSame(one, other) {
    return one.selector === other.selector && one.origin === other.origin;
  }

  /**
   * @override
   * @param {Destination} item
   */
  cells(item) {
    return [
      el("span", {}, badge(plain(item.kind), item.kind === "value" ? "info" : "good")),
      el("span", { class: "mono cut" }, plain(item.selector)),
      el("span", { class: "cut" }, item.in_force ? plain(item.origin) : `${plain(item.origin)} (replaced)`),
      el("span", { class: "cut quiet" }, limitsOf(item) || "–"),
    ];
  }

  /**
   * @override
   * @param {Destination} item
   */
  details(item) {
    const change = el("button", { type: "button", class: "small", onclick: () => this.#describe(item) }, "Change…");
    const remove = el("button", { type: "button", class: "small danger", onclick: () => this.#remove(item) }, "Remove…");
    const actions = item.kind in KINDS ? [change] : [];
    if (item.origin === "administrator") actions.push(remove);
    this.guard(actions);
    return {
      title: plain(item.selector),
      actions,
      facts: [
        ["Kind", plain(item.kind)],
        ["Said by", item.origin === "file" ? "the file that nodes read" : "an administrator"],
        ["Since", moment(item.made)],
        ["In force", item.in_force ? "yes" : "no: what an administrator says counts"],
        ...Object.entries(item.limits).map(([name, value]) => [plain(name), limitText(name, value)]),
      ],
      about: KINDS[item.kind] ?? "",
    };
  }

  /** @override */
  write() {
    this.#describe(null);
  }

  /** @param {Destination} item */
  #remove(item) {
    this.confirm({
      title: "Remove it?",
      text: `What administrators say of ${plain(item.selector)} is taken back. Histories that are not kept any more are lost.`,
      action: "Remove",
      danger: true,
      act: () => this.context.api.removeDestination(item.selector),
      done: "Removed; every node follows within a second",
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
    this.confirm({
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
        return this.context.api.setDestination(selector.value.trim(), { kind: kind.value, limits: kind.value === "history" ? given : {} });
      },
      done: "Described; every node follows within a second",
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
