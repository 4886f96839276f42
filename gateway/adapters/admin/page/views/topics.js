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
import { Branch, Following, collect, upwards, walk } from "./topic_tree.js";

/** Topics per page of the list of names. */
const PAGE = 1000;

/** Pixels. */
const ROW_HEIGHT = 30;

/** Milliseconds for which a row shows that its value is new. */
const FRESH = 1200;

/** Roots that are listed: the applications' topics, and the gateway's own. */
const ROOTS = ["**", "$gateway/**"];

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
  /** How many loads have begun. */
  #loads = 0;
  /** Whether the newest load is complete: only then is it known what there is not. */
  #complete = false;
  #failed = false;
  #filter = el("input", {
    id: "topic-filter",
    type: "search",
    spellcheck: "false",
    autocomplete: "off",
    placeholder: "part of a name",
    oninput: () => this.#rebuild(),
  });
  #problem = el("p", { class: "problem", role: "alert" });
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
      this.#problem,
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
    for (const branch of walk(this.#root)) {
      branch.own?.close();
      branch.below?.close();
    }
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
    this.#loads += 1;
    this.#complete = this.#failed = false;
    try {
      for (const selector of ROOTS) {
        /** @type {string | null} */
        let cursor = "";
        while (cursor !== null) {
          const page = await this.#context.api.topics({ selector, cursor, limit: PAGE, signal });
          if (signal.aborted) return;
          for (const { topic } of page.items) this.#add(topic);
          cursor = page.cursor;
          this.#rebuild();
        }
      }
      say(this.#problem, "");
      this.#complete = true;
      for (const branch of [...walk(this.#root)]) if (branch.isTopic && branch.load !== this.#loads) this.#drop(branch);
    } catch (error) {
      if (signal.aborted) return;
      this.#failed = true;
      this.#say(error);
    }
    this.#rebuild();
  }

  /** @param {unknown} error */
  #say(error) {
    say(this.#problem, error instanceof Error ? error.message : String(error));
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
    branch.load = this.#loads;
    return branch;
  }

  /**
   * Take a topic out of the tree.
   *
   * @param {Branch} branch
   */
  #drop(branch) {
    branch.isTopic = false;
    for (const each of upwards(branch)) each.topics -= 1;
    this.#prune(branch);
  }

  /**
   * Take out branches in which nothing is left. One that is open stays, as what is published there is to be seen; and so
   * does the one that the panel is about.
   *
   * @param {Branch} branch
   */
  #prune(branch) {
    for (const each of upwards(branch)) {
      if (each.parent === null || each.isTopic || each.isInner || each === this.#selected) return;
      each.parent.children.delete(each.name);
    }
  }

  /**
   * Find what the tree has of a topic.
   *
   * @param {string} topic
   */
  #find(topic) {
    /** @type {Branch | undefined} */
    let branch = this.#root;
    for (const segment of topic.split("/")) branch = branch?.children.get(segment);
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
    this.#list.show(rows, !this.#complete ? "" : text !== "" ? NO_MATCH : "There are no topics.");
    const what = text === "" ? "" : `${count(rows.length)} of `;
    const unknown = this.#failed && this.#root.topics === 0;
    say(this.#summary, unknown ? "" : `${what}${counted(this.#root.topics, "topic")}${this.#complete ? "" : ", and more"}`);
  }

  // --- Values -------------------------------------------------------------------------------------------------------

  /**
   * Follow what is right below a branch.
   *
   * @param {Branch} branch
   */
  #followBelow(branch) {
    branch.below ??= this.#following(`${branch.path}/*`, () => this.#unfollowBelow(branch));
  }

  /**
   * Follow a topic for its own sake, whether its branch is open or not.
   *
   * @param {Branch} branch
   */
  #followOwn(branch) {
    branch.own ??= this.#following(branch.path, () => this.#unfollowOwn(branch));
  }

  /**
   * @param {string} selector
   * @param {() => void} failed
   */
  #following(selector, failed) {
    return new Following(
      this.#context.live.session,
      selector,
      (update) => this.#updated(update),
      (error) => {
        failed();
        this.#say(error);
      },
    );
  }

  /** @param {Branch} branch */
  #unfollowBelow(branch) {
    branch.below?.close();
    branch.below = null;
    for (const child of branch.children.values()) this.#forget(child);
  }

  /** @param {Branch} branch */
  #unfollowOwn(branch) {
    branch.own?.close();
    branch.own = null;
    this.#forget(branch);
  }

  /**
   * Show no value of a topic that nothing follows: it would be an old one.
   *
   * @param {Branch} branch
   */
  #forget(branch) {
    if (branch.isFollowed) return;
    branch.update = null;
    branch.freshUntil = 0;
    this.#dirty = true;
  }

  /** @param {import("../client/streams.js").Update} update */
  #updated(update) {
    const known = this.#root.topics;
    const branch = update.removed ? this.#find(update.topic) : this.#add(update.topic);
    if (branch === undefined) return;
    branch.update = update;
    if (!update.snapshot) branch.freshUntil = performance.now() + FRESH;
    if (update.removed && branch.isTopic) this.#drop(branch);
    if (this.#root.topics !== known) this.#rebuild();
    this.#dirty = true;
    if (!update.snapshot) setTimeout(() => (this.#dirty = true), FRESH);
  }

  // --- Rows ---------------------------------------------------------------------------------------------------------

  /** @param {Branch} branch */
  #toggle(branch) {
    if (branch.isInner) {
      branch.open = !branch.open;
      if (branch.open) this.#followBelow(branch);
      else this.#fold(branch);
      this.#rebuild();
    }
    if (branch.isTopic) this.#select(branch);
  }

  /**
   * Follow nothing in a branch any more, but the topic that the panel is about.
   *
   * @param {Branch} branch
   */
  #fold(branch) {
    for (const each of [branch, ...walk(branch)]) {
      each.open = false;
      this.#unfollowBelow(each);
    }
    for (const each of [...walk(branch), branch]) this.#prune(each);
  }

  /**
   * Show a topic in the panel. It is followed as long as it is there, and so is none that was there before.
   *
   * @param {Branch | null} branch
   */
  #select(branch) {
    const before = this.#selected;
    this.#selected = branch;
    if (branch !== null) this.#followOwn(branch);
    if (before !== null && before !== branch) {
      this.#unfollowOwn(before);
      this.#prune(before);
      if (!before.isTopic) this.#rebuild();
    }
    this.#showSelected();
    this.#list.refresh();
  }

  /**
   * @param {Branch} branch
   * @param {string} key
   */
  #onKey(branch, key) {
    if (key === "ArrowRight" && branch.isInner && !branch.open) this.#toggle(branch);
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
    const { update } = branch;
    const hasChildren = branch.isInner && !flat;
    const shown = [branch.path, hasChildren, branch.open, branch.topics, update?.eventId, update?.version, update?.removed, fresh, flat, selected].join("\n");
    if (row.dataset.shown === shown) return;
    row.dataset.shown = shown;
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
      el("span", { class: "topic-value mono cut" }, update === null ? "" : update.removed ? "removed" : oneLine(update.value)),
      el("span", { class: "quiet number" }, hasChildren ? count(branch.topics) : update === null ? "" : `v${update.version}`),
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
    say(size, text === null ? "–" : bytes(new TextEncoder().encode(JSON.stringify(update?.value)).length));
    say(value, update?.removed ? "removed" : plain(text ?? "").replaceAll("\\u000a", "\n"));
  }

  /** @param {Branch} branch */
  #panel(branch) {
    const close = () => {
      this.#select(null);
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
