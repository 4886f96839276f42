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

/** Trees with presence of which the panel tells how many are there. */
const TREES = 100;

/** Milliseconds between two looks at how many are there. */
const LOOK = 2000;

const MINUTE = 60;
const HOUR = 3600;
const KIB = 1024;

/** @type {Record<string, string>} What the paths are. */
const KINDS = {
  value: "Topics of which the newest value is kept, and nothing else. Every topic is this if nobody says otherwise.",
  history: "Topics whose events are kept, each topic within the limits.",
  queue: "Messages, each of which is given to one consumer until it is settled. The selector is one path.",
};

/** What can be said of a kind: the limit, how it is asked for, and in which unit. @type {Record<string, [string, string, number][]>} */
const FIELDS = {
  value: [],
  history: [
    ["count", "Most events of one topic", 1],
    ["age", "Hours that an event is kept", HOUR],
    ["bytes", "KiB of one topic", KIB],
  ],
  queue: [
    ["count", "Most messages", 1],
    ["bytes", "KiB of all messages", KIB],
    ["deliveries", "Failed deliveries that make a dead letter", 1],
    ["ack_within", "Seconds in which a message is settled", 1],
    ["expires", "Hours that a message waits", HOUR],
    ["dead_count", "Most dead letters", 1],
  ],
};

/**
 * @typedef {{selector: string, kind: string, limits: Record<string, unknown>, origin: string, made: number, in_force: boolean}} Destination
 */

/** @extends {RecordView<Destination>} */
export class Destinations extends RecordView {
  #asked = new AbortController();
  #trees = el("div", { class: "trees" });

  /** @param {import("../main.js").Context} context */
  constructor(context) {
    super(context, {
      one: "destination",
      many: "destinations",
      title: "Destinations",
      placeholder: "part of a selector",
      none: "Nothing is said of any path: all are plain values.",
      columns: ["Kind", "Selector", "By", "Limits"],
      numbers: [],
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
    const change = el("button", { type: "button", class: "small", onclick: () => this.#describe(this.selected) }, "Change…");
    const remove = el("button", { type: "button", class: "small danger", onclick: () => this.#remove(item) }, "Remove…");
    const actions = item.kind in KINDS ? [change] : [];
    if (item.origin === "administrator") actions.push(remove);
    this.guard(actions);
    return { title: plain(item.selector), actions, about: KINDS[item.kind] ?? "" };
  }

  /**
   * @override
   * @param {Destination} item
   */
  facts(item) {
    return [
      ["Kind", plain(item.kind)],
      ["Said by", item.origin === "file" ? "the file that nodes read" : "an administrator"],
      ["Since", moment(item.made)],
      ["In force", item.in_force ? "yes" : "no: what an administrator says counts"],
      ...Object.entries(item.limits).map(([name, value]) => [plain(name), limitText(name, value)]),
    ];
  }

  /**
   * @override
   * @param {Destination} item
   */
  shape(item) {
    return [item.kind, hasTrees(item)];
  }

  /**
   * @override
   * @param {Destination} item
   */
  more(item) {
    this.#asked.abort();
    this.#trees = el("div", { class: "trees" });
    if (hasTrees(item)) {
      this.#asked = new AbortController();
      void this.#count(item, this.#trees, this.#asked.signal);
    }
    return this.#trees;
  }

  /** @override */
  stop() {
    this.#asked.abort();
    super.stop();
  }

  /** @override */
  write() {
    this.#describe(null);
  }

  /**
   * Tell how many are in the trees that it marks, as long as the panel is there.
   *
   * @param {Destination} item
   * @param {HTMLElement} trees
   * @param {AbortSignal} signal
   */
  async #count(item, trees, signal) {
    for (;;) {
      try {
        const { items, cursor } = await this.context.api.trees(item.selector, { limit: TREES, signal });
        if (signal.aborted) return;
        showTrees(trees, items, cursor !== null);
      } catch (error) {
        if (signal.aborted) return;
        trees.replaceChildren(el("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK));
      if (signal.aborted || !trees.isConnected) return;
    }
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
    const selector = el("input", { id: "destination-selector", type: "text", required: true, maxlength: "1024", spellcheck: "false", autocomplete: "off", value: item?.selector ?? "" });
    selector.readOnly = item !== null;
    const kind = el("select", { id: "destination-kind", onchange: () => offer() }, ...Object.keys(KINDS).map((each) => el("option", { value: each }, each)));
    kind.value = item?.kind ?? "history";
    const about = el("p", { class: "quiet", "aria-live": "polite" });
    const fields = el("div", { class: "fields" });
    /** @type {[string, number, HTMLInputElement][]} */
    let inputs = [];
    const limits = () => (item?.kind === kind.value ? item.limits : {});
    const offer = () => {
      say(about, KINDS[kind.value] ?? "");
      inputs = (FIELDS[kind.value] ?? []).map(([name, , unit]) => {
        const value = amount(limits()[name], unit);
        return [name, unit, el("input", { id: `destination-${name}`, type: "number", min: "0", step: "any", autocomplete: "off", placeholder: "as by default", value: value === null ? "" : String(value) })];
      });
      const labels = (FIELDS[kind.value] ?? []).map(([name, label]) => el("label", { for: `destination-${name}` }, label));
      fields.replaceChildren(...inputs.flatMap(([, , input], at) => [/** @type {HTMLElement} */ (labels[at]), input]));
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
        fields,
      ),
      act: () => {
        // What is not asked for here stays as it is.
        const said = { ...limits() };
        for (const [name, unit, input] of inputs) {
          if (input.value === "") delete said[name];
          else said[name] = Number(input.value) * unit;
        }
        return this.context.api.setDestination(selector.value.trim(), { kind: kind.value, limits: said });
      },
      done: "Described; every node follows within a second",
    });
  }
}

/** @param {Destination} item */
function hasTrees(item) {
  return item.in_force && item.limits.presence === true;
}

/**
 * @param {HTMLElement} place
 * @param {{tree: string, members: number}[]} trees
 * @param {boolean} more
 */
function showTrees(place, trees, more) {
  const members = trees.reduce((sum, each) => sum + each.members, 0);
  const rows = [...trees].sort((one, other) => other.members - one.members);
  place.replaceChildren(
    el("h3", {}, `Who is there: ${count(members)} in ${count(trees.length)} ${trees.length === 1 ? "tree" : "trees"}${more ? ", and more" : ""}`),
    el("ul", { class: "plain-list" }, ...rows.map((each) => el("li", {}, el("span", { class: "mono cut" }, plain(each.tree)), ` ${count(each.members)}`))),
  );
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
  if (["age", "ack_within", "redelivery_delay", "expires", "dead_age"].includes(name)) return time(value);
  return count(value);
}

/** @param {number} seconds - Told as exactly as they were said. */
function time(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds % HOUR === 0) return `${count(seconds / HOUR)} h`;
  return seconds % MINUTE === 0 ? `${count(seconds / MINUTE)} min` : `${seconds} s`;
}

/**
 * @param {unknown} value
 * @param {number} unit
 */
function amount(value, unit) {
  return typeof value === "number" ? value / unit : null;
}
