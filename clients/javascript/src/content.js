/**
 * What an application hands in, checked before anything of it is numbered: so one bad argument fails its own call and not
 * the session (protocol 2.6, 9).
 *
 * @module
 */

import { GatewayError, InvalidProperties, InvalidValue, RequestRefused, ValueTooLarge } from "./errors.js";
import { byteLength } from "./packets.js";
import { changed, SERVERS_PREFIX } from "./selections.js";
import { checkTopic } from "./selectors.js";

/** Seconds after which a published value can end: a millisecond to a year. */
const SHORTEST_TTL = 0.001;
const LONGEST_TTL = 366 * 86_400;

/**
 * Check the time to live of a value.
 *
 * @param {unknown} ttl
 * @returns {number | undefined}
 * @throws {TypeError} It is no number of seconds that a value can live.
 */
export function checkTtl(ttl) {
  if (ttl === undefined || ttl === null) return undefined;
  if (typeof ttl === "number" && (ttl === 0 || (ttl >= SHORTEST_TTL && ttl <= LONGEST_TTL))) return ttl;
  throw new TypeError(`ttl is 0, or seconds from ${SHORTEST_TTL} to ${LONGEST_TTL}, not ${String(ttl)}`);
}

/**
 * Make a publish of what an application wants to publish.
 *
 * @param {string} topic
 * @param {unknown} value
 * @param {unknown} ttl
 * @returns {{type: "publish", topic: string, text: string, ttl?: number}}
 */
export function publishOf(topic, value, ttl) {
  const ask = { type: /** @type {const} */ ("publish"), topic: checkTopic(topic), text: encodeValue(value) };
  const seconds = checkTtl(ttl);
  return seconds === undefined ? ask : { ...ask, ttl: seconds };
}

/** Most arrays and objects within each other in a published value (protocol 9.3). */
export const MAX_NESTING = 128;

/** User-defined properties of a session (protocol 9.3). */
const MAX_PROPERTIES = 64;

/** Characters of the name of a property. */
const MAX_PROPERTY_NAME = 64;

/** Characters of the value of a property. */
const MAX_PROPERTY_VALUE = 1024;

/** Bytes that a request has at most around its own fields: names, two marks and three numbers of 16 digits. */
export const PACKET_OVERHEAD = 192;

/** A surrogate without its other half. */
const LONE_SURROGATE = /\p{Surrogate}/u;

/** How `JSON.stringify` begins to write one. */
const ESCAPED_SURROGATE = "\\ud";

/**
 * Tell whether a text cannot be sent because it is not Unicode.
 *
 * @param {string} text
 */
export function hasLoneSurrogate(text) {
  return LONE_SURROGATE.test(text);
}

/**
 * Encode the value of a topic.
 *
 * @param {unknown} value
 * @returns {string} Compact JSON text.
 * @throws {InvalidValue} JSON has no text for it, or for something in it, or it cannot be passed on.
 */
export function encodeValue(value) {
  let text;
  try {
    text = JSON.stringify(value, checked);
  } catch (error) {
    if (error instanceof GatewayError) throw error;
    if (error instanceof RangeError) throw tooDeep();
    // A circle, or what `toJSON` of the application threw.
    throw new InvalidValue(`the value cannot be encoded as JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (text === undefined) throw new InvalidValue(`${named(value)} has no JSON text; publish null to say "nothing"`);
  if (text.length > 2 * MAX_NESTING && isTooDeep(text)) throw tooDeep();
  // Only halves of pairs are written in this way; a backslash of the value's own is written as two.
  if (text.includes(ESCAPED_SURROGATE) && text.replaceAll("\\\\", "").includes(ESCAPED_SURROGATE)) {
    throw new InvalidValue("the value has a text that is not Unicode: a surrogate without its other half");
  }
  return text;
}

/**
 * Refuse what `JSON.stringify` would leave out or write as something else.
 *
 * @param {string} _name
 * @param {unknown} value - What `toJSON` made of it, if it has that.
 */
function checked(_name, value) {
  switch (typeof value) {
    case "number":
      if (!Number.isFinite(value)) throw new InvalidValue(`the value cannot be encoded as JSON: it has the number ${value}`);
      break;
    case "bigint":
    case "function":
    case "symbol":
      throw new InvalidValue(`the value cannot be encoded as JSON: it has ${named(value)}`);
    case "object":
      if (value !== null && !isPlain(value)) {
        throw new InvalidValue(`the value cannot be encoded as JSON: it has ${named(value)}; make an object or an array of it`);
      }
  }
  return value;
}

/**
 * Tell whether an object's own fields are all there is to it; a `Map`, a `Blob` or an element of a page has others.
 *
 * @param {object} value
 */
function isPlain(value) {
  if (Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype) return true;
  const kind = Object.prototype.toString.call(value);
  // The last three are texts, numbers and booleans in disguise, which JSON writes as such.
  return kind === "[object Object]" || kind === "[object String]" || kind === "[object Number]" || kind === "[object Boolean]";
}

/** @param {unknown} value */
function named(value) {
  if (typeof value !== "object") return value === undefined ? "undefined" : `a ${typeof value}`;
  return `a ${value?.constructor?.name || Object.prototype.toString.call(value).slice(8, -1)}`;
}

/** @param {string} text - JSON. */
function isTooDeep(text) {
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (quoted) {
      if (character === "\\") at += 1;
      else if (character === '"') quoted = false;
    } else if (character === '"') {
      quoted = true;
    } else if (character === "[" || character === "{") {
      depth += 1;
      if (depth > MAX_NESTING) return true;
    } else if (character === "]" || character === "}") {
      depth -= 1;
    }
  }
  return false;
}

function tooDeep() {
  return new InvalidValue(`the value has more than ${MAX_NESTING} arrays and objects within each other`);
}

/**
 * Check changes of user-defined properties.
 *
 * @param {unknown} changes - Value by name; null removes one.
 * @param {Readonly<Record<string, string>>} [present] - The properties that they change.
 * @returns {Record<string, string | null>} A copy.
 * @throws {InvalidProperties}
 */
export function checkProperties(changes, present = {}) {
  if (typeof changes !== "object" || changes === null || !isPlain(changes) || Array.isArray(changes)) {
    throw new InvalidProperties(`properties are an object of strings by name, not ${named(changes)}`);
  }
  for (const [name, value] of Object.entries(changes)) {
    const shown = JSON.stringify(name.slice(0, MAX_PROPERTY_NAME));
    if (value !== null && typeof value !== "string") {
      throw new InvalidProperties(`properties are strings by name, but the value of ${shown} is not`);
    }
    if (name.startsWith(SERVERS_PREFIX)) {
      throw new InvalidProperties(`${shown} cannot be set: names that begin with $ are the server's`);
    }
    if (hasLoneSurrogate(name) || (value !== null && hasLoneSurrogate(value))) {
      throw new InvalidProperties(`the property ${shown} is not Unicode: a surrogate has no other half`);
    }
    if (name === "") throw new InvalidProperties("names of properties have at least 1 character");
    if (characters(name) > MAX_PROPERTY_NAME) {
      throw new InvalidProperties(`names of properties have at most ${MAX_PROPERTY_NAME} characters, but ${shown}… has more`);
    }
    if (value !== null && characters(value) > MAX_PROPERTY_VALUE) {
      const most = `at most ${MAX_PROPERTY_VALUE} characters`;
      throw new InvalidProperties(`values of properties have ${most}, but that of ${shown} has more`);
    }
  }
  const given = /** @type {Record<string, string | null>} */ (changes);
  const users = Object.keys(changed(present, given)).filter((name) => !name.startsWith(SERVERS_PREFIX));
  if (users.length > MAX_PROPERTIES) throw new InvalidProperties(`a session has at most ${MAX_PROPERTIES} properties`);
  return { ...given };
}

/** @param {string} text */
function characters(text) {
  return text.length <= MAX_PROPERTY_NAME ? text.length : [...text].length;
}

/**
 * Check a text that proves or says who somebody is.
 *
 * @param {string} noun
 * @param {unknown} text
 * @throws {TypeError} It is none, or none that can be sent; the text is not repeated.
 */
export function checkCredential(noun, text) {
  if (typeof text !== "string") throw new TypeError(`${noun} is a string, not ${named(text)}`);
  if (hasLoneSurrogate(text)) throw new TypeError(`${noun} is not Unicode: a surrogate in it has no other half`);
}

/**
 * Tell why a request cannot be sent.
 *
 * @param {import("./requests.js").Ask} ask
 * @param {string} fields - Its own fields, as they are written.
 * @param {Pick<import("./packets.js").Limits, "message_bytes" | "value_bytes">} limits - Of the newest welcome.
 * @returns {RequestRefused | null} Null if it can.
 */
export function obstacle(ask, fields, { message_bytes: message, value_bytes: value }) {
  // A character has at most three bytes for each unit of its length.
  if (3 * fields.length + PACKET_OVERHEAD <= Math.min(message, value)) return null;
  const size = byteLength(fields) + PACKET_OVERHEAD;
  switch (ask.type) {
    case "stage":
      return obstacle(ask.operation, fields, { message_bytes: message, value_bytes: value });
    case "publish":
    case "send":
    case "ask":
    case "answer": {
      const bytes = byteLength(ask.text ?? "");
      const most = Math.min(value, message - (size - bytes));
      return bytes > most ? new ValueTooLarge(`the value has ${bytes} bytes of JSON; the node accepts ${most}`) : null;
    }
    case "properties":
      if (size <= message) return null;
      return new InvalidProperties(`the changes of properties have more than the ${message} bytes that the node accepts`);
    default:
      if (size <= message) return null;
      return new RequestRefused(`the request has more than the ${message} bytes that the node accepts`, "message_too_big");
  }
}
