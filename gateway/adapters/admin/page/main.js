/**
 * The console: signing in, going from view to view, and saying how its own connection stands.
 *
 * @module
 */

import { Api, Refused } from "./api.js";
import { showHelp } from "./dialogs.js";
import { byId, el, toast } from "./dom.js";
import { Live } from "./live.js";
import { Rights } from "./rights.js";
import { startTheme } from "./theme.js";
import { Destinations } from "./views/destinations.js";
import { Hooks } from "./views/hooks.js";
import { Overview } from "./views/overview.js";
import { Queues } from "./views/queues.js";
import { Revocations } from "./views/revocations.js";
import { Sessions } from "./views/sessions.js";
import { Topics } from "./views/topics.js";
import { Zones } from "./views/zones.js";

/** Where the token is kept for this tab, if the user wants that. */
const STORED = "session-gateway-console:token";

/**
 * What the views work with.
 *
 * @typedef {object} Context
 * @property {Api} api
 * @property {Live} live
 * @property {Rights} rights
 * @property {(address: string) => void} go - Shows another view.
 *
 * @typedef {object} View
 * @property {HTMLElement} element
 * @property {(path: string[]) => void} start
 * @property {() => void} stop
 * @property {(path: string[]) => void} [open] - The address within the view has changed.
 * @property {() => void} [focusSearch]
 */

/** The views, each with what has to be permitted for it. @type {Record<string, {name: string, action: string, make: (context: Context) => View}>} */
const VIEWS = {
  overview: { name: "Overview", action: "nodes:read", make: (context) => new Overview(context) },
  sessions: { name: "Sessions", action: "sessions:read", make: (context) => new Sessions(context) },
  topics: { name: "Topics", action: "topics:read", make: (context) => new Topics(context) },
  revocations: { name: "Revocations", action: "revocations:read", make: (context) => new Revocations(context) },
  destinations: { name: "Destinations", action: "destinations:read", make: (context) => new Destinations(context) },
  queues: { name: "Queues", action: "queues:read", make: (context) => new Queues(context) },
  zones: { name: "Zones", action: "zones:read", make: (context) => new Zones(context) },
  hooks: { name: "Hooks", action: "hooks:read", make: (context) => new Hooks(context) },
};

const main = byId("main");
const nav = byId("views");
const pill = byId("connection");
const signOut = byId("sign-out");

/** The visit of a user who has signed in. */
class Visit {
  /** @type {View | null} */
  #view = null;
  #shown = "";
  #origin = location.origin;
  #stop = new AbortController();
  #context;

  #rights;

  /**
   * @param {Api} api
   * @param {Live} live
   * @param {Rights} rights
   */
  constructor(api, live, rights) {
    this.live = live;
    this.#rights = rights;
    this.#context = {
      api,
      live,
      rights,
      go: (/** @type {string} */ address) => {
        location.hash = address;
      },
    };
    const { signal } = this.#stop;
    addEventListener("hashchange", () => this.#route(), { signal });
    addEventListener("keydown", (event) => this.#onKey(event), { signal });
    live.addEventListener("connection", () => this.#showConnection(), { signal });
    rights.addEventListener("change", () => this.#offer(), { signal });
    nav.hidden = pill.hidden = signOut.hidden = false;
    this.#showConnection();
    this.#offer();
  }

  /** The views that the token permits. */
  #views() {
    return Object.entries(VIEWS).filter(([, { action }]) => this.#rights.may(action));
  }

  /** Offer them; one that is open and not permitted any more is left. */
  #offer() {
    nav.replaceChildren(
      ...this.#views().map(([key, { name }], index) => el("a", { href: `#/${key}`, "data-view": key, title: `${name} (${index + 1})` }, name)),
    );
    this.#route();
    this.#mark();
  }

  end() {
    this.#stop.abort();
    this.#rights.stop();
    this.#view?.stop();
    nav.hidden = pill.hidden = signOut.hidden = true;
  }

  #route() {
    const [, key = "", ...rest] = location.hash.split("/");
    const path = rest.filter((each) => each !== "").map(decoded);
    const name = this.#views().some(([each]) => each === key) ? key : "overview";
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
    this.#mark();
    this.#view.start(path);
    if (path.length === 0) main.focus({ preventScroll: true });
  }

  /** Mark which view is shown. On a phone not all fit: the one that is shown is brought into sight. */
  #mark() {
    for (const link of /** @type {HTMLCollectionOf<HTMLElement>} */ (nav.children)) {
      if (link.getAttribute("data-view") === this.#shown) {
        link.setAttribute("aria-current", "page");
        nav.scrollLeft = link.offsetLeft - nav.offsetLeft - (nav.clientWidth - link.offsetWidth) / 2;
      } else link.removeAttribute("aria-current");
    }
  }

  #showConnection() {
    const { state, node } = this.live.session;
    pill.className = `pill ${state === "connected" ? "good" : "warn"}`;
    pill.textContent = state === "connected" ? `live at ${node}` : state === "recovering" ? "reconnecting…" : "closed";
    if (state !== "connected" || this.live.origin === this.#origin) return;
    const left = new URL(this.#origin).host;
    this.#origin = this.live.origin;
    toast(`${left} does not answer: this console goes on at ${node}`, "bad");
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const target = /** @type {Element} */ (event.target);
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (target.matches("input, textarea, select")) return;
    const views = this.#views().map(([each]) => each);
    if (event.key === "?") showHelp();
    else if (event.key === "/" && this.#view?.focusSearch) this.#view.focusSearch();
    else if (/^[1-9]$/.test(event.key) && views[Number(event.key) - 1]) location.hash = `#/${views[Number(event.key) - 1]}`;
    else return;
    event.preventDefault();
  }
}

/**
 * Read a part of an address. One that somebody has mistyped stands for itself, and nothing is found by it.
 *
 * @param {string} part
 */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @type {Visit | null} */
let visit = null;

/**
 * Find out where else the console can go on: at nodes whose admin ports are as safe to talk to as this one.
 *
 * @param {Api} api
 * @returns {Promise<string[]>} URLs; none, if the token is not good for that.
 */
async function otherNodes(api) {
  try {
    const { items } = await api.nodes();
    const places = items.filter(({ state, admin }) => admin && state !== "lost").map(({ admin }) => String(admin));
    return places.filter((place) => new URL(place).protocol === location.protocol && place !== location.origin);
  } catch (error) {
    // Once is enough for a wrong token: who tries too often has to wait.
    if (error instanceof Refused && error.status === 401) throw new Error("The token is not accepted.", { cause: error });
    if (error instanceof Refused && error.status === 429) throw error;
    return [];
  }
}

/**
 * Sign in with a token.
 *
 * @param {string} token
 * @param {boolean} keep
 */
async function enter(token, keep) {
  const api = new Api(token);
  const live = new Live(token, keep, await otherNodes(api));
  live.addEventListener("connection", () => {
    api.origin = live.origin;
  });
  await live.start();
  const rights = new Rights(api, (error) => {
    if (error instanceof Refused && error.status === 401) void leave("The token is not accepted.");
  });
  await rights.look();
  if (keep) sessionStorage.setItem(STORED, token);
  const mine = new Visit(api, live, rights);
  visit = mine;
  void live.session.closed.then(() => {
    if (visit === mine) void again(token, keep, live.session.closedReason);
  });
}

/**
 * The console's session is over. If a node ended it, the token may still be good for another one, with the rights of now.
 *
 * @param {string} token
 * @param {boolean} keep
 * @param {{message: string, code: string | null} | null} reason
 */
async function again(token, keep, reason) {
  const why = `The console's session has ended: ${reason?.message}`;
  if (reason?.code !== "revoked") {
    await leave(why);
    return;
  }
  const ended = visit;
  visit = null;
  ended?.end();
  await ended?.live.stop();
  try {
    await enter(token, keep);
    toast("Your permissions have changed");
  } catch {
    await leave(why);
  }
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
      el("p", { id: "sign-in-hint", class: "quiet" }, "Use the token of an administrator, made by ", el("code", {}, "gateway admin token create"), "."),
      el("label", { for: "token" }, "Token"),
      token,
      el("label", { class: "check" }, keep, "Keep it for this tab, also after a reload"),
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
