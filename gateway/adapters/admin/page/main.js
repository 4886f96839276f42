/**
 * The console: signing in, going from view to view, and saying how its own connection stands.
 *
 * @module
 */

import { Api, Refused } from "./api.js";
import { showHelp } from "./dialogs.js";
import { byId, el, toast } from "./dom.js";
import { Live } from "./live.js";
import { startTheme } from "./theme.js";
import { Overview } from "./views/overview.js";
import { Sessions } from "./views/sessions.js";
import { Topics } from "./views/topics.js";

/** Where the token is kept for this tab, if the user wants that. */
const STORED = "session-gateway-console:token";

/**
 * What the views work with.
 *
 * @typedef {object} Context
 * @property {Api} api
 * @property {Live} live
 * @property {(address: string) => void} go - Shows another view.
 * @property {(error: unknown) => void} refused - Sees to it that a token which is not accepted any more ends the visit.
 *
 * @typedef {object} View
 * @property {HTMLElement} element
 * @property {(path: string[]) => void} start
 * @property {() => void} stop
 * @property {(path: string[]) => void} [open] - The address within the view has changed.
 * @property {() => void} [focusSearch]
 */

/** @type {Record<string, {name: string, make: (context: Context) => View}>} */
const VIEWS = {
  overview: { name: "Overview", make: (context) => new Overview(context) },
  sessions: { name: "Sessions", make: (context) => new Sessions(context) },
  topics: { name: "Topics", make: (context) => new Topics(context) },
};

const main = byId("main");
const nav = byId("views");
const pill = byId("link");
const signOut = byId("sign-out");

/** The visit of a user who has signed in. */
class Visit {
  /** @type {View | null} */
  #view = null;
  #shown = "";
  #stop = new AbortController();
  #context;

  /**
   * @param {Api} api
   * @param {Live} live
   */
  constructor(api, live) {
    this.live = live;
    this.#context = {
      api,
      live,
      go: (/** @type {string} */ address) => {
        location.hash = address;
      },
      refused: (/** @type {unknown} */ error) => {
        if (error instanceof Refused && error.status === 401) void leave("The token is not accepted any more.");
      },
    };
    const { signal } = this.#stop;
    addEventListener("hashchange", () => this.#route(), { signal });
    addEventListener("keydown", (event) => this.#onKey(event), { signal });
    live.addEventListener("link", () => this.#showLink(), { signal });
    nav.replaceChildren(
      ...Object.entries(VIEWS).map(([key, { name }], index) =>
        el("a", { href: `#/${key}`, "data-view": key, title: `${name} (${index + 1})` }, name),
      ),
    );
    nav.hidden = pill.hidden = signOut.hidden = false;
    this.#showLink();
    this.#route();
    void live.session.closed.then(() => {
      if (!this.#stop.signal.aborted) void leave(`The console's session is over: ${live.session.closedReason?.message}`);
    });
  }

  end() {
    this.#stop.abort();
    this.#view?.stop();
    nav.hidden = pill.hidden = signOut.hidden = true;
  }

  #route() {
    const [, key = "", ...rest] = location.hash.split("/");
    const path = rest.filter((each) => each !== "").map(decodeURIComponent);
    const name = key in VIEWS ? key : "overview";
    if (name === this.#shown) {
      this.#view?.open?.(path);
      return;
    }
    this.#shown = name;
    this.#view?.stop();
    const view = /** @type {(typeof VIEWS)[string]} */ (VIEWS[name]);
    this.#view = view.make(this.#context);
    main.replaceChildren(this.#view.element);
    document.title = `${view.name} · Gateway console`;
    for (const link of nav.children) {
      if (link.getAttribute("data-view") === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.#view.start(path);
    if (path.length === 0) main.focus({ preventScroll: true });
  }

  #showLink() {
    const { state, node } = this.live.session;
    pill.className = `pill ${state === "connected" ? "good" : "warn"}`;
    pill.textContent = state === "connected" ? `live at ${node}` : state === "recovering" ? "reconnecting…" : "closed";
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const target = /** @type {Element} */ (event.target);
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (target.matches("input, textarea, select")) return;
    const views = Object.keys(VIEWS);
    if (event.key === "?") showHelp();
    else if (event.key === "/" && this.#view?.focusSearch) this.#view.focusSearch();
    else if (/^[1-9]$/.test(event.key) && views[Number(event.key) - 1]) location.hash = `#/${views[Number(event.key) - 1]}`;
    else return;
    event.preventDefault();
  }
}

/** @type {Visit | null} */
let visit = null;

/**
 * Sign in with a token.
 *
 * @param {string} token
 * @param {boolean} keep
 */
async function enter(token, keep) {
  const live = new Live(token, keep);
  await live.start();
  if (keep) sessionStorage.setItem(STORED, token);
  visit = new Visit(new Api(token), live);
}

/**
 * End the visit and ask for a token.
 *
 * @param {string} [why]
 */
async function leave(why) {
  const ended = visit;
  visit = null;
  sessionStorage.removeItem(STORED);
  ended?.end();
  showSignIn(why);
  await ended?.live.stop();
}

/** @param {string} [problem] */
function showSignIn(problem = "") {
  const token = el("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "sign-in-problem sign-in-hint",
  });
  const keep = el("input", { id: "keep", type: "checkbox" });
  const said = el("p", { id: "sign-in-problem", class: "problem", role: "alert" }, problem);
  const button = el("button", { type: "submit", class: "primary" }, "Sign in");
  document.title = "Sign in · Gateway console";
  main.replaceChildren(
    el(
      "form",
      {
        class: "card sign-in",
        onsubmit: async (/** @type {Event} */ event) => {
          event.preventDefault();
          button.disabled = true;
          said.textContent = "";
          try {
            await enter(token.value.trim(), keep.checked);
          } catch (error) {
            said.textContent = error instanceof Error ? error.message : String(error);
            token.select();
          }
          button.disabled = false;
        },
      },
      el("h1", {}, "Sign in"),
      el("p", { id: "sign-in-hint", class: "quiet" }, "With the token of an administrator, as ", el("code", {}, "gateway admin token create"), " made it."),
      el("label", { for: "token" }, "Token"),
      token,
      el("label", { class: "check" }, keep, "Keep it for this tab, over reloads"),
      said,
      button,
    ),
  );
  token.focus();
}

startTheme();
byId("help").addEventListener("click", showHelp);
signOut.addEventListener("click", () => void leave());
const stored = sessionStorage.getItem(STORED);
if (stored === null) {
  showSignIn();
} else {
  enter(stored, true).catch((error) => {
    sessionStorage.removeItem(STORED);
    showSignIn(error.message);
    toast("Please sign in again", "bad");
  });
}
