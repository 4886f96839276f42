/**
 * The topic tree with live values. The names come from the admin API; values are subscribed to where a branch is open, and
 * nowhere else.
 *
 * @module
 */

import { confirm } from "../dialogs.js";
import { el, panel, say } from "../dom.js";
import { bytes, count, counted, oneLine, plain } from "../format.js";
import { NO_MATCH, VirtualList } from "../virtual.js";

/** Topics per page of the list of names. */
const PAGE = 1000;

/** Pixels. */
const ROW_HEIGHT = 30;

/** Milliseconds for which a row shows that its value is new. */
const FRESH = 1200;

/** Roots that are listed: the applications' topics, and the gateway's own. */
const ROOTS = ["**", "$gateway/**"];

/** One segment of the tree. */
class Branch {
  /**
   * @param {string} name
   * @param {Branch | null} parent
   */
  constructor(name, parent) {
    this.name = name;
    this.parent = parent;
    /** @type {string} */
    this.path = parent === null || parent.name === "" ? name : `${parent.path}/${name}`;
    /** @type {number} */
    this.depth = parent === null ? -1 : parent.depth + 1;
    /** @type {Map<string, Branch>} */
    this.children = new Map();
    this.open = false;
    /** Topics at and below it. */
    this.topics = 0;
    this.isTopic = false;
    /** @type {import("../client/streams.js").Update | null} */
    this.update = null;
    this.freshUntil = 0;
    /** @type {import("../client/streams.js").UpdateStream | null} */
    this.stream = null;
  }
}

/** The view. */
export class Topics {
  #context;
  #root = new Branch("", null);
  #stop = new AbortController();
  #asked = new AbortController();
  /** @type {Branch | null} */
  #selected = null;
  /** Whom the panel is about. @type {Branch | null} */
  #panelOf = null;
  /** What of the panel changes with each value. */
  #parts = { version: el("dd"), event: el("dd"), size: el("dd"), value: el("pre") };
  #dirty = true;
  #loading = false;
  #filter = el("input", {
    id: "topic-filter",
    type: "search",
    spellcheck: "false",
    autocomplete: "off",
    placeholder: "part of a name",
    oninput: () => this.#rebuild(),
  });
  #summary = el("p", { class: "quiet", role: "status" });
  #side = el("div", { class: "side" });
  #list;

  /** @param {import("../main.js").Context} context */
  constructor(context) {
    this.#context = context;
    this.#list = new VirtualList({
      role: "tree",
      rowRole: "treeitem",
      label: "Topics",
      rowHeight: ROW_HEIGHT,
      fill: (row, branch) => this.#fill(row, branch),
      open: (branch) => this.#toggle(branch),
      key: (branch, key) => this.#onKey(branch, key),
    });
    const create = el("button", { type: "button", onclick: () => this.#set("", null) }, "Set…");
    context.rights.guard("topics:write", [create], this.#stop.signal);
    this.element = el(
      "div",
      { class: "view topics" },
      el("h1", { class: "visually-hidden" }, "Topics"),
      el(
        "div",
        { class: "search" },
        el("label", { for: "topic-filter" }, "Filter"),
        this.#filter,
        create,
        el("button", { type: "button", onclick: () => void this.#load() }, "Refresh"),
      ),
      el("div", { class: "split" }, el("div", { class: "main-side card flush" }, this.#list.element), this.#side),
      this.#summary,
    );
  }

  start() {
    void this.#load();
    const tick = () => {
      if (this.#stop.signal.aborted) return;
      if (this.#dirty) {
        this.#dirty = false;
        this.#list.refresh();
        this.#showSelected();
      }
      setTimeout(tick, 100);
    };
    tick();
  }

  stop() {
    this.#stop.abort();
    this.#asked.abort();
    for (const branch of walk(this.#root)) this.#unfollow(branch);
  }

  open() {}

  focusSearch() {
    this.#filter.focus();
  }

  // --- Names --------------------------------------------------------------------------------------------------------

  async #load() {
    this.#asked.abort();
    this.#asked = new AbortController();
    const { signal } = this.#asked;
    this.#loading = true;
    try {
      for (const selector of ROOTS) {
        /** @type {string | null} */
        let cursor = "";
        while (cursor !== null && !signal.aborted) {
          const page = await this.#context.api.topics({ selector, cursor, limit: PAGE, signal });
          for (const { topic } of page.items) this.#add(topic);
          cursor = page.cursor;
          this.#rebuild();
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      say(this.#summary, error instanceof Error ? error.message : String(error));
      return;
    }
    this.#loading = false;
    this.#rebuild();
  }

  /** @param {string} topic */
  #add(topic) {
    let branch = this.#root;
    for (const segment of topic.split("/")) {
      let child = branch.children.get(segment);
      if (child === undefined) {
        child = new Branch(segment, branch);
        branch.children.set(segment, child);
      }
      branch = child;
    }
    if (!branch.isTopic) {
      branch.isTopic = true;
      for (const each of upwards(branch)) each.topics += 1;
    }
    return branch;
  }

  /** List the rows: what is open, or everything that the filter finds. */
  #rebuild() {
    const text = this.#filter.value.trim().toLowerCase();
    /** @type {Branch[]} */
    const rows = [];
    if (text === "") {
      collect(this.#root, rows);
    } else {
      for (const branch of walk(this.#root)) if (branch.isTopic && branch.path.toLowerCase().includes(text)) rows.push(branch);
    }
    this.#list.show(rows, text !== "" ? NO_MATCH : this.#loading ? "" : "There are no topics.");
    const what = text === "" ? "" : `${count(rows.length)} of `;
    say(this.#summary, `${what}${counted(this.#root.topics, "topic")}${this.#loading ? ", and more" : ""}`);
  }

  // --- Values -------------------------------------------------------------------------------------------------------

  /** @param {Branch} branch */
  #follow(branch) {
    if (branch.stream !== null) return;
    const selector = `${branch.path}/*`;
    void this.#context.live.session
      .subscribe(selector, { listener: (update) => this.#updated(update) })
      .then((stream) => {
        if (branch.open && !this.#stop.signal.aborted) branch.stream = stream;
        else stream.close();
      })
      .catch((error) => say(this.#summary, error.message));
  }

  /** @param {Branch} branch */
  #unfollow(branch) {
    branch.stream?.close();
    branch.stream = null;
  }

  /** @param {import("../client/streams.js").Update} update */
  #updated(update) {
    const known = this.#root.topics;
    const branch = this.#add(update.topic);
    branch.update = update;
    if (!update.snapshot) branch.freshUntil = performance.now() + FRESH;
    if (this.#root.topics !== known) this.#rebuild();
    this.#dirty = true;
    if (!update.snapshot) setTimeout(() => (this.#dirty = true), FRESH);
  }

  // --- Rows ---------------------------------------------------------------------------------------------------------

  /** @param {Branch} branch */
  #toggle(branch) {
    if (branch.children.size > 0) {
      branch.open = !branch.open;
      if (branch.open) this.#follow(branch);
      else for (const each of walk(branch)) this.#fold(each);
      this.#rebuild();
    }
    if (branch.isTopic) {
      this.#selected = branch;
      this.#showSelected();
      if (branch.update === null) this.#followOne(branch);
    }
  }

  /** @param {Branch} branch */
  #fold(branch) {
    branch.open = false;
    this.#unfollow(branch);
  }

  /**
   * A topic that was found by the filter, or that stands at the root: its branch need not be open.
   *
   * @param {Branch} branch
   */
  #followOne(branch) {
    void this.#context.live.session
      .subscribe(branch.path, { listener: (update) => this.#updated(update) })
      .then((stream) => {
        if (branch.stream === null) branch.stream = stream;
        else stream.close();
      })
      .catch((error) => say(this.#summary, error.message));
  }

  /**
   * @param {Branch} branch
   * @param {string} key
   */
  #onKey(branch, key) {
    if (key === "ArrowRight" && branch.children.size > 0 && !branch.open) this.#toggle(branch);
    else if (key === "ArrowLeft" && branch.open) this.#toggle(branch);
    else return key === "ArrowRight" || key === "ArrowLeft";
    return true;
  }

  /**
   * @param {HTMLElement} row
   * @param {Branch} branch
   */
  #fill(row, branch) {
    const flat = this.#filter.value.trim() !== "";
    const fresh = branch.freshUntil > performance.now();
    const selected = branch === this.#selected;
    const shown = [branch.path, branch.open, branch.topics, branch.update?.version, fresh, flat, selected].join("\n");
    if (row.dataset.shown === shown) return;
    row.dataset.shown = shown;
    const hasChildren = branch.children.size > 0 && !flat;
    row.classList.toggle("fresh", fresh);
    row.classList.toggle("selected", selected);
    row.setAttribute("aria-level", String(branch.depth + 1));
    row.setAttribute("aria-selected", String(selected));
    if (hasChildren) row.setAttribute("aria-expanded", String(branch.open));
    else row.removeAttribute("aria-expanded");
    const name = el("span", { class: "topic-name cut" }, plain(flat ? branch.path : branch.name));
    name.style.paddingInlineStart = `${flat ? 0 : branch.depth * 18}px`;
    row.replaceChildren(
      el("span", { class: "twist", "aria-hidden": "true" }, hasChildren ? (branch.open ? "▾" : "▸") : ""),
      name,
      el("span", { class: "topic-value mono cut" }, branch.update === null ? "" : branch.update.removed ? "removed" : oneLine(branch.update.value)),
      el("span", { class: "quiet number" }, hasChildren ? count(branch.topics) : branch.update === null ? "" : `v${branch.update.version}`),
    );
  }

  /** Show what was selected; while it stays the same, only what is new is touched, so that a focus stays. */
  #showSelected() {
    const branch = this.#selected;
    this.element.classList.toggle("has-panel", branch !== null);
    if (branch !== this.#panelOf) {
      this.#panelOf = branch;
      this.#side.replaceChildren(...(branch === null ? [] : [this.#panel(branch)]));
    }
    if (branch === null) return;
    const { update } = branch;
    const text = update === null || update.removed ? null : JSON.stringify(update.value, null, 2);
    const { version, event, size, value } = this.#parts;
    say(version, update === null ? "–" : update.version);
    say(event, update === null ? "–" : plain(update.eventId));
    say(size, text === null ? "–" : bytes(JSON.stringify(update?.value).length));
    say(value, update?.removed ? "removed" : plain(text ?? "").replaceAll("\\u000a", "\n"));
  }

  /** @param {Branch} branch */
  #panel(branch) {
    const close = () => {
      this.#selected = null;
      this.#showSelected();
      this.#list.refresh();
      this.#list.element.focus();
    };
    this.#parts = { version: el("dd"), event: el("dd", { class: "mono" }), size: el("dd"), value: el("pre", { class: "value", tabindex: "0", "aria-label": "Value" }) };
    return panel(
      { title: el("h2", { id: "panel-title", class: "mono wrap" }, plain(branch.path)), close },
      this.#actions(branch),
      el(
        "dl",
        { class: "facts" },
        el("div", {}, el("dt", {}, "Version"), this.#parts.version),
        el("div", {}, el("dt", {}, "Event"), this.#parts.event),
        el("div", {}, el("dt", {}, "Size"), this.#parts.size),
      ),
      el("h3", {}, "Value"),
      this.#parts.value,
      el("div", { class: "subscribers" }, el("button", { type: "button", class: "small", onclick: () => void this.#subscribers(branch) }, "Who is subscribed?")),
    );
  }

  // --- Actions ------------------------------------------------------------------------------------------------------

  /** @param {Branch} branch */
  #actions(branch) {
    const buttons = el("div", { class: "buttons start" });
    // Nodes alone publish there.
    if (branch.path.startsWith("$")) return buttons;
    const set = el("button", { type: "button", class: "small", onclick: () => this.#set(branch.path, branch.update) }, "Set…");
    const remove = el("button", { type: "button", class: "small danger", onclick: () => this.#delete(branch) }, "Delete…");
    this.#context.rights.guard("topics:write", [set, remove], this.#stop.signal);
    buttons.append(set, remove);
    return buttons;
  }

  /**
   * Ask for a value, and publish it.
   *
   * @param {string} path - Empty to ask for the topic, too.
   * @param {import("../client/streams.js").Update | null} update
   */
  #set(path, update) {
    // However often the button is pressed because an answer is missing, it is published once.
    const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    const topic = el("input", { id: "set-topic", type: "text", class: "mono", required: true, maxlength: "1024", spellcheck: "false", autocomplete: "off", value: path, readonly: path !== "" });
    const known = update === null || update.removed ? "" : JSON.stringify(update.value, null, 2);
    const value = el("textarea", { id: "set-value", class: "mono", rows: "8", required: true, spellcheck: "false" }, known);
    void confirm({
      title: "Set this topic?",
      text: "The value is published on behalf of the system. Every subscriber of the topic gets it. The next publish replaces it.",
      action: "Publish",
      field: el("div", { class: "fields" }, el("label", { for: "set-topic" }, "Topic"), topic, el("label", { for: "set-value" }, "Value, as JSON"), value),
      act: async () => {
        await this.#context.api.setTopic(topic.value, read(value.value), key);
        this.#add(topic.value);
        this.#rebuild();
      },
      done: "The value is published",
    });
  }

  /** @param {Branch} branch */
  #delete(branch) {
    void confirm({
      title: "Delete this topic?",
      text: `The topic ${plain(branch.path)} and its value are removed, and its subscribers are informed. The next publish creates the topic again.`,
      action: "Delete topic",
      danger: true,
      act: () => this.#context.api.deleteTopic(branch.path),
      done: "The topic is removed",
    });
  }

  /** @param {Branch} branch */
  async #subscribers(branch) {
    const box = this.#side.querySelector(".subscribers");
    try {
      const { items, cursor } = await this.#context.api.subscribers(branch.path);
      box?.replaceChildren(
        el("h3", {}, `Subscribers (${count(items.length)}${cursor === null ? "" : " and more"})`),
        el(
          "ul",
          { class: "plain-list" },
          ...items.map((each) => el("li", {}, el("a", { class: "mono", href: `#/sessions/${encodeURIComponent(each.session)}` }, plain(each.session)), ` ${plain(each.principal)}`)),
        ),
      );
    } catch (error) {
      box?.replaceChildren(el("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
    }
  }
}

/**
 * Read JSON, with a sentence for people if it is none.
 *
 * @param {string} text
 * @returns {unknown}
 */
function read(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/**
 * @param {Branch} branch
 * @param {Branch[]} rows
 */
function collect(branch, rows) {
  for (const child of sorted(branch)) {
    rows.push(child);
    if (child.open) collect(child, rows);
  }
}

/** @param {Branch} branch */
function sorted(branch) {
  // The system's own topics come last: nobody looks for them first.
  const rank = (/** @type {Branch} */ { name, depth }) => (depth === 0 && name.startsWith("$") ? 1 : 0);
  return [...branch.children.values()].sort(
    (one, other) => rank(one) - rank(other) || compare.compare(one.name, other.name),
  );
}

const compare = new Intl.Collator("en", { numeric: true });

/**
 * @param {Branch} branch
 * @returns {Generator<Branch>}
 */
function* upwards(branch) {
  yield branch;
  if (branch.parent !== null) yield* upwards(branch.parent);
}

/**
 * @param {Branch} branch
 * @returns {Generator<Branch>}
 */
function* walk(branch) {
  for (const child of branch.children.values()) {
    yield child;
    yield* walk(child);
  }
}
