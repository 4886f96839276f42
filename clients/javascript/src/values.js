/**
 * Pages of the current values of topics, which are read without a subscription (protocol 6.7).
 *
 * @module
 */

import { bad, count, object, optional, text } from "./fields.js";
import { checkTopic, parseSelector } from "./selectors.js";

/** The word by which a server says that it can be asked for values. */
export const VALUES = "values";

/**
 * @typedef {import("./packets.js").JsonObject} JsonObject
 *
 * @typedef {object} ValuesPart - A part of the values, as a reply has it.
 * @property {{topic: string, version: number, event: string, value: import("./packets.js").JsonValue}[]} items
 * @property {string | null} next
 *
 * @typedef {object} CurrentValue - The value that a topic had when it was read.
 * @property {string} topic
 * @property {import("./packets.js").JsonValue} value
 * @property {number} version - An update of the topic is newer if its version is higher.
 * @property {string} eventId - Identifies the publish in the whole cluster.
 *
 * @typedef {object} ValuesPage - A part of the values that topics had when they were read.
 * @property {CurrentValue[]} values - In the order of their paths; there may be none although more follow.
 * @property {string | null} next - Where the next page begins, to be given as `after`; null if this was the last one.
 *
 * @typedef {object} PageOptions
 * @property {string | null | undefined} [after] - The `next` of the page before, of any session; without it the first page.
 * @property {number | undefined} [limit] - Most values, from 1 on; a page may have fewer.
 */

/**
 * Read what a reply has of a page.
 *
 * @param {JsonObject} packet
 * @param {string} name
 * @returns {ValuesPart}
 */
export function valuesPart(packet, name) {
  const part = object(packet, name);
  const { items } = part;
  if (!Array.isArray(items) || !items.every((each) => typeof each === "object" && each !== null && !Array.isArray(each))) {
    throw bad(packet, "'items' must be an array of objects");
  }
  return { items: items.map(item), next: optional(part, "next", text) };
}

/** @param {JsonObject} each */
function item(each) {
  if (each.value === undefined) throw bad(each, "'value' is missing");
  return { topic: text(each, "topic"), version: count(each, "version", 1), event: text(each, "event"), value: each.value };
}

/**
 * Write what is asked for.
 *
 * @param {string} selector
 * @param {PageOptions} options
 * @returns {Extract<import("./requests.js").Ask, {type: "values"}>}
 * @throws {TypeError} The limit is no number of values.
 */
export function valuesAsk(selector, { after, limit }) {
  /** @type {Extract<import("./requests.js").Ask, {type: "values"}>} */
  const ask = { type: VALUES, selector: parseSelector(selector).text };
  if (after !== undefined && after !== null) ask.after = checkTopic(after);
  if (limit !== undefined) {
    if (!Number.isSafeInteger(limit) || limit < 1) throw new TypeError(`limit is a number of values from 1, not ${String(limit)}`);
    ask.limit = limit;
  }
  return ask;
}

/**
 * Return the page that a reply has.
 *
 * @param {import("./packets.js").ReplyBody} reply
 * @returns {ValuesPage}
 */
export function pageOf({ values }) {
  const { items, next } = values ?? { items: [], next: null };
  return { values: items.map(({ topic, value, version, event }) => ({ topic, value, version, eventId: event })), next };
}
