/**
 * The zones: in which one this cluster is, its members and joins, and the links with them.
 *
 * @module
 */

import { badge, el } from "../dom.js";
import { bytes, count, counted, moment, plain } from "../format.js";
import { RecordView } from "./records.js";

/** Milliseconds between two looks that tell a rate, at least: nodes tell of their links every few seconds. */
const SPAN = 4000;

/** Other ends that the picture shows, at most: first those whose links are not up. */
const DRAWN = 24;

/** Characters of a secret, at least. */
const LEAST_SECRET = 16;

/** What there is, in the order of the list. */
const KINDS = ["zone", "member", "join"];

/** @type {Record<string, string>} */
const ABOUT = {
  zone: "A cluster is in one zone at most. Its members send each other what is published at one and subscribed to at another.",
  member: "Each member has a link to each other one. Interest is told over it, and events come where there is any.",
  join: "What matches crosses to a cluster of another zone, or comes from it; never to where it has been.",
};

/**
 * @typedef {{node: string, name: string, direction: string, state: string, detail: string, since: number, events: number, bytes: number, behind: number, unacknowledged: number, duplicates: number, selectors: number}} Link
 * @typedef {{kind: "zone" | "member" | "join", id: string, name: string, here: boolean, links: Link[], active: boolean, members: number, made: number | null, direction: string, selectors: string[], urls: string[], fingerprints: string[], hops: number}} Item
 */

/** @extends {RecordView<Item>} */
export class Zones extends RecordView {
  /** @type {Map<string, {at: number, events: number, rate: number | null}>} What was seen last of each link. */
  #looks = new Map();
  #picture = el("figure", { class: "zone-map card", hidden: true, "aria-label": "Links of this cluster" });

  /** @param {import("../main.js").Context} context */
  constructor(context) {
    super(context, {
      one: "zone",
      many: "zones",
      title: "Zones",
      placeholder: "part of a name",
      none: "This cluster knows no zone, and has no joins.",
      columns: ["Kind", "Name", "Links", "Events a second", "Behind"],
      numbers: ["Events a second", "Behind"],
      action: "Join a zone…",
      danger: false,
      right: "zones:change",
    });
    this.element.querySelector(".split")?.before(this.#picture);
  }

  /**
   * @override
   * @param {string} _cursor - There is one page only.
   * @param {AbortSignal} signal
   */
  async page(_cursor, signal) {
    const { api } = this.context;
    const [zones, joins] = await Promise.all([api.zones({ signal }), api.joins({ signal })]);
    const isMember = zones.items.some((/** @type {any} */ each) => each.current);
    const members = isMember ? (await api.zoneMembers({ signal })).items : [];
    const items = [
      ...zones.items.map((/** @type {any} */ each) => itemOf("zone", { ...each, id: each.uid, here: each.current })),
      ...members.map((/** @type {any} */ each) => itemOf("member", { ...each, id: each.cluster })),
      ...joins.items.map((/** @type {any} */ each) => itemOf("join", { ...each, id: each.name, hops: each.most_hops })),
    ];
    for (const each of items) for (const link of each.links) this.#look(each, link);
    this.#draw(items);
    return { items, cursor: null };
  }

  /**
   * @override
   * @param {Item} item
   */
  text({ kind, name, id, selectors }) {
    return [kind, name, id, ...selectors].join(" ");
  }

  /**
   * @override
   * @param {Item} one
   * @param {Item} other
   */
  isSame(one, other) {
    return one.kind === other.kind && one.id === other.id;
  }

  /**
   * @override
   * @param {Item} item
   */
  cells(item) {
    const { kind, links } = item;
    const up = links.filter(({ state }) => state === "up").length;
    const state = links.length === 0 ? "–" : badge(`${count(up)} of ${count(links.length)} up`, up === links.length ? "good" : "bad");
    return [
      el("span", {}, badge(kind, item.here ? "good" : "info")),
      el("span", { class: "mono cut" }, title(item)),
      el("span", {}, kind === "zone" ? counted(item.members, "member") : state),
      el("span", { class: "number" }, links.length === 0 ? "–" : rate(this.#rate(item))),
      el("span", { class: "number" }, links.length === 0 ? "–" : count(links.reduce((sum, { behind }) => sum + behind, 0))),
    ];
  }

  /**
   * @override
   * @param {Item} item
   */
  details(item) {
    /** @type {HTMLButtonElement[]} */
    const actions = [];
    if (item.kind === "zone" && item.here) actions.push(button("Leave…", true, () => this.#leave(item)));
    if (item.kind === "zone" && !item.here) actions.push(button("Join…", false, () => this.#join(item)));
    if (item.kind === "join") actions.push(button("Remove…", true, () => this.#remove(item)));
    this.guard(actions);
    return { title: title(item), actions, about: ABOUT[item.kind] ?? "" };
  }

  /**
   * @override
   * @param {Item} item
   */
  shape(item) {
    return [title(item), item.here];
  }

  /**
   * @override
   * @param {Item} item
   */
  facts(item) {
    /** @type {string[][]} */
    const facts = [];
    if (item.kind === "zone") {
      facts.push(["Uid", plain(item.id)], ["Members", count(item.members)], ["Active", item.active ? "yes" : "no: nobody is in it"]);
      facts.push(["This cluster is in it", item.here ? "yes" : "no"]);
    }
    if (item.kind === "member") facts.push(["Id", plain(item.id)], ["This cluster", item.here ? "yes" : "no"]);
    if (item.kind === "join") {
      facts.push(["Direction", item.direction === "out" ? "from here" : "to here"], ["Selectors", item.selectors.map(plain).join(", ")]);
      facts.push(["Joins that an event may cross", count(item.hops)]);
    }
    if (item.urls.length > 0) facts.push(["Links at", item.urls.map(plain).join(", ")]);
    if (item.fingerprints.length > 0) facts.push(["Certificates (SHA-256)", item.fingerprints.map(plain).join(", ")]);
    if (item.made !== null) facts.push(["Since", moment(item.made)]);
    for (const link of item.links) facts.push(...this.#linkFacts(item, link));
    return facts;
  }

  /**
   * @override
   * @param {Item[]} found
   * @param {Item[]} all
   */
  tally(found, all) {
    const numbers = KINDS.map((kind) => counted(found.filter((each) => each.kind === kind).length, kind));
    return numbers.join(", ") + (found.length === all.length ? "" : `, of ${count(all.length)} in all`);
  }

  /** @override */
  write() {
    this.#join(null);
  }

  /**
   * @param {Item} item
   * @param {Link} link
   */
  #linkFacts(item, link) {
    const where = `${link.direction === "out" ? "To" : "From"} there by ${plain(link.node)}`;
    const state = link.state === "up" ? `up since ${moment(link.since)}` : `${plain(link.state)}: ${plain(link.detail) || "no reason given"}`;
    const seen = this.#looks.get(key(item, link));
    return [
      [where, state],
      [`${where}: events`, `${count(link.events)}, ${rate(seen?.rate ?? null)} a second, ${bytes(link.bytes)}`],
      [`${where}: behind`, `${count(link.behind)} entries, ${count(link.unacknowledged)} not acknowledged`],
      [`${where}: refused`, `${count(link.duplicates)} that were there already`],
      [`${where}: interest`, `${count(link.selectors)} selectors`],
    ];
  }

  /**
   * @param {Item} item
   * @param {Link} link
   */
  #look(item, link) {
    const at = performance.now();
    const before = this.#looks.get(key(item, link));
    if (before !== undefined && at - before.at < SPAN) return;
    // A node that was started again has begun to count anew.
    const told = before !== undefined && link.events >= before.events;
    this.#looks.set(key(item, link), { at, events: link.events, rate: told ? (1000 * (link.events - before.events)) / (at - before.at) : null });
  }

  /** @param {Item} item */
  #rate(item) {
    const rates = item.links.map((link) => this.#looks.get(key(item, link))?.rate ?? null);
    return rates.includes(null) ? null : rates.reduce((sum, each) => /** @type {number} */ (sum) + /** @type {number} */ (each), 0);
  }

  // --- The picture --------------------------------------------------------------------------------------------------

  /**
   * Draw this cluster, the others and the joins, and what passes between them.
   *
   * @param {Item[]} items
   */
  #draw(items) {
    const zone = items.find(({ kind, here }) => kind === "zone" && here);
    const own = items.find(({ kind, here }) => kind === "member" && here);
    const ends = items.filter(({ kind, here }) => kind === "join" || (kind === "member" && !here));
    this.#picture.hidden = ends.length === 0;
    if (ends.length === 0) return;
    ends.sort((one, other) => Number(isUp(one)) - Number(isUp(other)));
    const rest = ends.length - DRAWN;
    const focused = this.#picture.contains(document.activeElement) ? document.activeElement?.id : "";
    this.#picture.replaceChildren(
      el(
        "div",
        { class: "zone-here" },
        el("strong", { class: "mono" }, plain(own?.name || own?.id || "this cluster")),
        el("span", { class: "quiet" }, zone === undefined ? "in no zone" : `in the zone ${plain(zone.name || zone.id)}`),
      ),
      el("ul", { class: "zone-ends" }, ...ends.slice(0, DRAWN).map((each, place) => this.#end(each, place))),
      ...(rest > 0 ? [el("figcaption", { class: "quiet" }, `and ${count(rest)} more, which are in the list below`)] : []),
    );
    if (focused) document.getElementById(focused)?.focus();
  }

  /**
   * @param {Item} item
   * @param {number} place
   */
  #end(item, place) {
    const name = el(
      "button",
      { type: "button", class: "zone-end small", id: `zone-end-${place}`, onclick: () => this.select(item) },
      el("span", { class: "mono" }, title(item)),
      badge(item.kind, "info"),
    );
    const wanted = item.kind === "member" ? ["out", "in"] : [item.direction];
    return el("li", {}, el("div", { class: "zone-ways" }, ...wanted.map((direction) => this.#way(item, direction))), name);
  }

  /**
   * One direction: the links of all nodes that there are.
   *
   * @param {Item} item
   * @param {string} direction
   */
  #way(item, direction) {
    const links = item.links.filter((each) => each.direction === direction);
    const up = links.length > 0 && links.every(({ state }) => state === "up");
    const behind = links.reduce((sum, each) => sum + each.behind + each.unacknowledged, 0);
    const selectors = item.kind === "join" ? item.selectors.length : Math.max(0, ...links.map((each) => each.selectors));
    const told = item.kind === "join" ? "of the join" : direction === "out" ? "wanted there" : "wanted here";
    const words = up ? [`${rate(this.#rate({ ...item, links }))} events/s`] : [links.length === 0 ? "no link" : plain(links.find(({ state }) => state !== "up")?.state ?? "down")];
    if (up && direction === "out") words.push(`${count(behind)} behind`);
    words.push(`${count(selectors)} ${selectors === 1 ? "selector" : "selectors"} ${told}`);
    return el(
      "div",
      { class: `zone-way ${direction} ${up ? "good" : "bad"}` },
      el("span", { class: "visually-hidden" }, direction === "out" ? "from here to there: " : "from there to here: "),
      el("span", { class: "zone-words" }, words.join(" · ")),
    );
  }

  // --- Changes ------------------------------------------------------------------------------------------------------

  /** @param {Item | null} item - The zone that is joined; null for one that is named in the dialog. */
  #join(item) {
    const zone = el("input", { id: "zone-name", type: "text", required: true, maxlength: "64", spellcheck: "false", autocomplete: "off", value: item?.id ?? "" });
    zone.readOnly = item !== null;
    const url = el("input", { id: "zone-url", type: "text", spellcheck: "false", autocomplete: "off", placeholder: "wss://gateway.example:8401" });
    const secret = el("input", { id: "zone-secret", type: "password", autocomplete: "off", minlength: String(LEAST_SECRET), maxlength: "1024" });
    this.confirm({
      title: "Join a zone?",
      text: "A name that nobody knows makes a zone. If others are in it, give a URL where one of them takes links.",
      action: "Join",
      field: el(
        "div",
        { class: "fields" },
        el("label", { for: "zone-name" }, "Name or uid"),
        zone,
        el("label", { for: "zone-url" }, "URL of a member"),
        url,
        el("label", { for: "zone-secret" }, "Secret of the zone, if it is not known here"),
        secret,
      ),
      act: () =>
        this.context.api.joinZone({
          zone: zone.value.trim(),
          urls: url.value.trim() === "" ? [] : [url.value.trim()],
          ...(secret.value === "" ? {} : { secret: secret.value }),
        }),
      done: "This cluster is in the zone",
    });
  }

  /** @param {Item} item */
  #leave(item) {
    this.confirm({
      title: "Leave the zone?",
      text: `Nothing comes from the other members of ${plain(item.name)}, or goes to them, any more.`,
      action: "Leave",
      danger: true,
      act: () => this.context.api.leaveZone(),
      done: "This cluster is in no zone any more",
    });
  }

  /** @param {Item} item */
  #remove(item) {
    this.confirm({
      title: "Remove the join?",
      text: `Nothing crosses over ${plain(item.name)} any more.`,
      action: "Remove",
      danger: true,
      act: () => this.context.api.removeJoin(item.id),
      done: "Removed",
    });
  }
}

/**
 * @param {Item["kind"]} kind
 * @param {Partial<Item>} told
 * @returns {Item}
 */
function itemOf(kind, told) {
  const empty = { id: "", name: "", here: false, links: [], active: false, members: 0, made: null, direction: "", selectors: [], urls: [], fingerprints: [], hops: 0 };
  return { ...empty, ...told, kind };
}

/** @param {Item} item */
function isUp({ links }) {
  return links.length > 0 && links.every(({ state }) => state === "up");
}

/** @param {Item} item */
function title(item) {
  const name = plain(item.name || item.id);
  return item.kind === "member" && item.here ? `${name} (here)` : name;
}

/**
 * @param {Item} item
 * @param {Link} link
 */
function key(item, link) {
  return JSON.stringify([item.kind, item.id, link.node, link.name, link.direction]);
}

/** @param {number | null} value */
function rate(value) {
  return value === null ? "–" : value < 10 ? value.toFixed(1) : count(Math.round(value));
}

/**
 * @param {string} text
 * @param {boolean} danger
 * @param {() => void} onclick
 */
function button(text, danger, onclick) {
  return el("button", { type: "button", class: danger ? "small danger" : "small", onclick }, text);
}
