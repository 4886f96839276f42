/**
 * One session: who it is, where it is, what waits for it, and what can be done to it. It follows the session live.
 *
 * @module
 */

import { Refused } from "../api.js";
import { confirm } from "../dialogs.js";
import { badge, el, factRows, panel } from "../dom.js";
import { bytes, clock, count, duration, plain } from "../format.js";
import { rungInWords } from "../rungs.js";

/** Milliseconds between two looks at the buffers and queues, which only the session's node knows. */
const LOOK = 2000;

/** Milliseconds after something happened to the session: its node is asked at once. */
const SOON = 50;

/** Steps of its life that are kept. */
const STEPS = 12;

/** @type {Record<string, [string, import("../rungs.js").Kind]>} */
const STEP_WORDS = {
  disconnected: ["disconnected", "quiet"],
  fenced: ["moved to another node", "quiet"],
  too_slow: ["closed: too slow", "bad"],
  ended: ["ended", "bad"],
  opened: ["opened", "good"],
};

/** The panel. */
export class SessionPanel {
  #context;
  #stop = new AbortController();
  #timer = 0;
  #looking = false;
  /** @type {any} */
  #session = null;
  /** What there is to say of a close that the grid has not confirmed, until it is known what became of it. */
  #pending = "";
  #title = el("h2", { class: "mono cut", tabindex: "-1", id: "panel-title" });
  #state = el("p", { class: "panel-state", role: "status", "aria-live": "polite" });
  #facts = el("dl", { class: "facts" });
  #lists = el("div");
  #steps = el("ol", { class: "feed steps" });
  #quiet = el("p", { class: "quiet" }, "None yet.");
  #buttons;

  /**
   * @param {import("../main.js").Context} context
   * @param {string} id
   * @param {() => void} close
   */
  constructor(context, id, close) {
    this.#context = context;
    this.id = id;
    this.#title.textContent = plain(id);
    /** @type {[string, string, string, () => void][]} */
    const actions = [
      ["Move…", "", "sessions:move", () => this.#move()],
      ["Notice…", "", "sessions:notify", () => this.#notice()],
      ["Revoke…", "danger", "revocations:write", () => this.#revoke()],
      ["Close…", "danger", "sessions:close", () => this.#end()],
    ];
    this.#buttons = actions.map(([name, kind, action, act]) => {
      const button = el("button", { type: "button", class: `small ${kind}`, onclick: act }, name);
      context.rights.guard(action, [button], this.#stop.signal);
      return button;
    });
    this.element = panel(
      { title: this.#title, close },
      this.#state,
      el("div", { class: "buttons start" }, ...this.#buttons),
      this.#facts,
      this.#lists,
      el("h3", {}, "Events since this panel was opened"),
      this.#quiet,
      this.#steps,
    );
  }

  start() {
    const { signal } = this.#stop;
    this.#context.live.addEventListener("happenings", (event) => this.#happened(/** @type {CustomEvent} */ (event).detail), { signal });
    void this.#look();
    this.#title.focus({ preventScroll: true });
  }

  stop() {
    this.#stop.abort();
    clearTimeout(this.#timer);
  }

  /** @param {{news: import("../live.js").Happening[], more: number}} happened */
  #happened({ news, more }) {
    const mine = news.filter(({ session }) => session === this.id);
    for (const { at, what, detail, replayed, node } of mine) {
      const [word, kind] = what === "resumed" ? rungInWords(detail, replayed) : (STEP_WORDS[what] ?? [what, "quiet"]);
      const step = el("li", {}, el("time", {}, clock(at)), badge(word, kind), el("span", { class: "quiet" }, `at ${plain(node)}`));
      this.#quiet.remove();
      this.#steps.prepend(step);
      while (this.#steps.children.length > STEPS) this.#steps.lastElementChild?.remove();
    }
    // In a storm not everything is told one by one.
    if (mine.length > 0 || more > 0) this.#lookIn(SOON);
  }

  /** @param {number} milliseconds */
  #lookIn(milliseconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#look(), milliseconds);
  }

  async #look() {
    if (this.#looking || this.#stop.signal.aborted) return;
    this.#looking = true;
    try {
      this.#session = await this.#context.api.session(this.id);
      if (this.#session.live !== null) this.#pending = ""; // a node serves it again
      if (!this.#stop.signal.aborted) this.#show();
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      if (error instanceof Refused && error.status === 404) this.#over();
      else if (this.#pending !== "") this.#showPending();
      else this.#showUnknown(error);
    } finally {
      this.#looking = false;
    }
    if (!this.#stop.signal.aborted) this.#lookIn(LOOK);
  }

  /** @param {unknown} error */
  #showUnknown(error) {
    delete this.#state.dataset.shown;
    this.#state.replaceChildren(badge("unknown", "quiet"), el("span", {}, error instanceof Error ? error.message : String(error)));
  }

  /** It is closed, and has not ended: the grid still holds it. */
  #showPending() {
    replaceIfChanged(this.#state, this.#pending, () => [badge("end pending", "warn"), el("span", {}, plain(this.#pending))]);
  }

  #over() {
    this.#pending = "";
    delete this.#state.dataset.shown;
    this.#state.replaceChildren(badge("ended", "quiet"), el("span", {}, "There is no such session: it was closed, or its window has ended."));
    // A button that is disabled loses the focus, and with it the keyboard its place.
    if (this.#buttons.some((each) => each === document.activeElement)) this.#title.focus({ preventScroll: true });
    for (const button of this.#buttons) button.disabled = true;
  }

  #show() {
    const { principal, node, connected, epoch, window, properties, selections, live, note } = this.#session;
    for (const button of this.#buttons) button.disabled = false;
    if (this.#pending !== "") this.#showPending();
    else replaceIfChanged(this.#state, [connected ? "connected" : "disconnected", node, note ?? ""].join("\n"), () => [
      connected ? badge("connected", "good") : badge("disconnected", "warn"),
      el("span", {}, "at ", el("strong", { id: "panel-node" }, plain(node)), note ? ` (${plain(note)})` : ""),
    ]);
    const facts = [
      ["Principal", plain(principal)],
      ["Window", duration(window)],
      ["Claims", count(epoch)],
      ["Address", plain(live?.address ?? "–")],
      ["Connection", live ? `${live.link}${live.throttled ? ", throttled" : ""}${live.moving ? ", moving" : ""}` : "–"],
      ["Resend buffer", live ? `${count(live.resend_packets)} packets, ${bytes(live.resend_bytes)}` : "–"],
      ["Queue", live ? `${count(live.waiting_packets)} packets, ${bytes(live.waiting_bytes)}` : "–"],
      ["Requests open", count(live?.requests)],
      ["Packets", live ? `${count(live.numbered)} sent, ${count(live.received)} received` : "–"],
    ];
    replaceIfChanged(this.#facts, JSON.stringify(facts), () => factRows(facts));
    replaceIfChanged(this.#lists, JSON.stringify([properties, selections]), () => [
      el("h3", {}, `Selections (${count(selections.length)})`),
      el(
        "ul",
        { class: "mono plain-list" },
        ...selections.map((/** @type {string} */ each) => el("li", { class: each.startsWith("-") ? "deselected" : null }, plain(each))),
      ),
      el("h3", {}, "Properties"),
      el(
        "dl",
        { class: "facts" },
        ...Object.entries(properties).map(([name, value]) => el("div", {}, el("dt", { class: "mono" }, plain(name)), el("dd", {}, plain(String(value))))),
      ),
    ]);
  }

  // --- Actions ------------------------------------------------------------------------------------------------------

  get #who() {
    const principal = this.#session === null ? "" : ` of ${plain(this.#session.principal)}`;
    return `session ${plain(this.id)}${principal}`;
  }

  #end() {
    void confirm({
      title: "Close this session?",
      text: `The ${this.#who} ends, and its client is disconnected. The client cannot resume it, but may open a new one.`,
      action: "Close session",
      danger: true,
      act: async () => {
        const pending = await this.#context.api.closeSession(this.id);
        this.#pending = pending?.detail ?? "";
        return pending;
      },
      done: (pending) => (pending === null ? "The session has ended" : { text: `Closed at ${plain(pending.node)}, and not ended yet: the grid is unreachable`, kind: "warn" }),
    }).then((done) => done && this.#lookIn(SOON));
  }

  #move() {
    const nodes = this.#context.live.serving().filter(({ node }) => node !== this.#session?.node);
    const select = el(
      "select",
      { id: "move-to" },
      el("option", { value: "" }, "the one with the fewest sessions"),
      ...nodes.map(({ node }) => el("option", { value: node }, plain(node))),
    );
    void confirm({
      title: "Move this session?",
      text: `The client of the ${this.#who} is asked to move to another node. It keeps its session.`,
      action: "Move",
      field: el("p", { class: "field" }, el("label", { for: "move-to" }, "To"), select),
      act: () => this.#context.api.moveSession(this.id, select.value || null),
      done: "The client has been asked to move",
    });
  }

  #notice() {
    const message = el("textarea", { id: "notice-text", rows: "3", maxlength: "2000", required: true });
    void confirm({
      title: "Send a notice?",
      text: `The client of the ${this.#who} receives this text. The application decides what to do with it.`,
      action: "Send",
      field: el("p", { class: "field" }, el("label", { for: "notice-text" }, "Text"), message),
      act: () => this.#context.api.notifySession(this.id, message.value),
      done: ({ connected, node }) =>
        connected !== false ? "The notice is queued for the client" : { text: `The client is away: it gets the notice if it comes back to ${plain(node)}`, kind: "warn" },
    });
  }

  #revoke() {
    const principal = this.#session?.principal ?? "";
    const kind = el(
      "select",
      { id: "revoke-kind" },
      el("option", { value: "session" }, "this session only"),
      el("option", { value: "principal" }, `all sessions of ${plain(principal)}`),
    );
    void confirm({
      title: "Revoke?",
      text: `The ${this.#who} is closed within a second and cannot be resumed. If you revoke the principal, all of its sessions end, and it cannot open a new one.`,
      action: "Revoke",
      danger: true,
      field: el("p", { class: "field" }, el("label", { for: "revoke-kind" }, "What"), kind),
      act: () => this.#context.api.revoke({ kind: kind.value, value: kind.value === "session" ? this.id : principal }),
      done: "Revoked; every node that reaches the grid follows within a second",
    }).then((done) => done && this.#lookIn(SOON));
  }
}

/**
 * Leave what is shown alone while it says the same: a selection or a focus in it stays.
 *
 * @param {HTMLElement} element
 * @param {string} key
 * @param {() => Node[]} make
 */
function replaceIfChanged(element, key, make) {
  if (element.dataset.shown === key) return;
  element.dataset.shown = key;
  element.replaceChildren(...make());
}
