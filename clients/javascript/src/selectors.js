/**
 * Topics and selectors: their rules, their canonical form, what they match, and how sets of topics compare (protocol 6.1
 * and 6.2).
 *
 * A selector is run as a nondeterministic automaton whose states are the bits of one integer: bit i says that the first i
 * of its segments have been used up. So each segment of a topic costs a constant number of operations.
 *
 * @module
 */

import { InvalidSelector, InvalidTopic } from "./errors.js";
import { byteLength } from "./packets.js";

const SEPARATOR = "/";
const ONE = "*";
const ANY = "**";

/** Begins the first segment of the system's topics, for which no wildcard in the first place stands (protocol 6.2). */
const SYSTEM_SIGN = "$";

const MAX_BYTES = 1024;
const MAX_SEGMENTS = 32;
const MAX_ANY = 4;

/** Characters of a path that may be shown in a message. */
const SHOWN_CHARACTERS = 80;

/** Parsed selectors that are kept for reuse. */
const CACHED = 1024;

/** Control characters, and line separators (protocol 6.1). */
// eslint-disable-next-line no-control-regex
const FORBIDDEN = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/u;

/** A surrogate without its other half. */
const LONE_SURROGATE = /\p{Surrogate}/u;

/**
 * A validated selector in canonical form. Equal texts match the same topics, and different ones do not.
 *
 * @typedef {object} Selector
 * @property {string} text
 * @property {readonly string[]} segments
 * @property {boolean} literal - There is no wildcard, so that `text` is the one topic it matches.
 *
 * @typedef {object} Automaton
 * @property {Map<string, bigint>} byText - For each literal, the states from which it leads on.
 * @property {bigint} literals
 * @property {bigint} ones - The states in front of a `*`.
 * @property {bigint} anys - The states in front of a `**`: they remain whatever comes.
 * @property {bigint} flexible - The states in front of a run of wildcards that has a `**`, or within it.
 * @property {bigint} end
 * @property {bigint} start
 */

/**
 * @param {string} text
 * @param {string} noun
 * @param {new (message: string) => Error} Refusal
 * @returns {string[]}
 */
function split(text, noun, Refusal) {
  if (typeof text !== "string") {
    throw new Refusal(`a ${noun} is a text such as prices/ACME, not ${text === null ? "null" : typeof text}`);
  }
  const quoted = JSON.stringify(text.length <= SHOWN_CHARACTERS ? text : `${text.slice(0, SHOWN_CHARACTERS)}…`);
  if (text === "") throw new Refusal(`a ${noun} has at least one segment`);
  if (LONE_SURROGATE.test(text) || FORBIDDEN.test(text)) {
    throw new Refusal(`a ${noun} has no control characters and no lone surrogates, but ${quoted} has`);
  }
  if (byteLength(text) > MAX_BYTES) throw new Refusal(`a ${noun} has at most ${MAX_BYTES} bytes`);
  const segments = text.split(SEPARATOR);
  if (segments.length > MAX_SEGMENTS) throw new Refusal(`a ${noun} has at most ${MAX_SEGMENTS} segments`);
  if (segments.includes("")) {
    throw new Refusal(`a ${noun} does not begin or end with '/' and has nothing empty between two: ${quoted}`);
  }
  return segments;
}

/**
 * Check a topic's path.
 *
 * @param {string} text
 * @returns {string} The same.
 * @throws {InvalidTopic}
 */
export function checkTopic(text) {
  split(text, "topic", InvalidTopic);
  if (text.includes(ONE)) throw new InvalidTopic("a topic contains no '*'; wildcards are for selectors");
  return text;
}

/** @type {Map<string, Selector>} */
const parsed = new Map();

/**
 * Validate a selector and bring it into canonical form.
 *
 * @param {string} text
 * @returns {Selector}
 * @throws {InvalidSelector}
 */
export function parseSelector(text) {
  let selector = parsed.get(text);
  if (selector === undefined) {
    const written = split(text, "selector", InvalidSelector);
    for (const segment of written) {
      if (segment.includes(ONE) && segment !== ONE && segment !== ANY) {
        throw new InvalidSelector(`'*' stands for a whole segment and cannot be a part of one: ${JSON.stringify(segment)}`);
      }
    }
    const segments = canonical(written);
    if (segments.filter((each) => each === ANY).length > MAX_ANY) {
      throw new InvalidSelector(`a selector has at most ${MAX_ANY} '**'`);
    }
    if (segments.length > MAX_SEGMENTS) throw new InvalidSelector(`a selector has at most ${MAX_SEGMENTS} segments`);
    selector = {
      text: segments.join(SEPARATOR),
      segments,
      literal: !segments.includes(ONE) && !segments.includes(ANY),
    };
    if (parsed.size >= CACHED) parsed.clear();
    parsed.set(text, selector);
  }
  return selector;
}

/**
 * In each run of wildcards the `*` come first, then at most one `**`; nothing but `*` and `**` becomes `**`; and a `**` in
 * the first place stands for at least one segment if the next one begins with `$`.
 *
 * @param {string[]} written
 */
function canonical(written) {
  /** @type {string[]} */
  const result = [];
  let open = false;
  for (const segment of written) {
    if (segment === ANY) {
      open = true;
      continue;
    }
    if (open && segment !== ONE) {
      result.push(ANY);
      open = false;
    }
    result.push(segment);
  }
  if (open) result.push(ANY);
  if (result.length === 2 && result[0] === ONE && result[1] === ANY) return [ANY];
  if (result[0] === ANY && result[1]?.startsWith(SYSTEM_SIGN)) result.unshift(ONE);
  return result;
}

/**
 * Tell whether a topic, or a selector with a literal first segment, belongs to the system.
 *
 * @param {string} path
 * @returns {boolean}
 */
export function isReserved(path) {
  return path.startsWith(SYSTEM_SIGN);
}

/** @param {Selector} selector */
function beginsWithWildcard({ segments }) {
  return segments[0] === ONE || segments[0] === ANY;
}

/**
 * @param {Selector} one
 * @param {Selector} other
 */
function areStrangers(one, other) {
  return (isReserved(one.text) && beginsWithWildcard(other)) || (isReserved(other.text) && beginsWithWildcard(one));
}

// --- The automaton --------------------------------------------------------------------------------------------------

/** @type {WeakMap<Selector, Automaton>} */
const automata = new WeakMap();

/**
 * @param {Selector} selector
 * @returns {Automaton}
 */
function automatonOf(selector) {
  let automaton = automata.get(selector);
  if (automaton === undefined) {
    /** @type {Map<string, bigint>} */
    const byText = new Map();
    let [literals, ones, anys, flexible] = [0n, 0n, 0n, 0n];
    let inFlexibleRun = false;
    for (let position = selector.segments.length - 1; position >= 0; position -= 1) {
      const segment = /** @type {string} */ (selector.segments[position]);
      const state = 1n << BigInt(position);
      if (segment === ANY) {
        anys |= state;
        inFlexibleRun = true;
      } else if (segment === ONE) {
        ones |= state;
      } else {
        literals |= state;
        byText.set(segment, (byText.get(segment) ?? 0n) | state);
        inFlexibleRun = false;
      }
      if (inFlexibleRun) flexible |= state;
    }
    const end = 1n << BigInt(selector.segments.length);
    automaton = { byText, literals, ones, anys, flexible, end, start: closed(1n, anys) };
    automata.set(selector, automaton);
  }
  return automaton;
}

/**
 * Add the states reached by letting a `**` stand for nothing; one step is enough, as no two are neighbours.
 *
 * @param {bigint} states
 * @param {bigint} anys
 */
function closed(states, anys) {
  return states | ((states & anys) << 1n);
}

/**
 * Use up one segment: from the states that it leads on to the next one, while `**` swallow it and remain.
 *
 * @param {bigint} states
 * @param {bigint} leadingOn
 * @param {bigint} anys
 */
function step(states, leadingOn, anys) {
  return closed(((states & leadingOn) << 1n) | (states & anys), anys);
}

/**
 * Tell whether a selector matches a topic.
 *
 * @param {Selector} selector
 * @param {string} topic
 * @returns {boolean}
 */
export function matches(selector, topic) {
  if (selector.literal) return selector.text === topic;
  if (isReserved(topic) && beginsWithWildcard(selector)) return false;
  const { byText, ones, anys, start, end } = automatonOf(selector);
  let states = start;
  for (const segment of topic.split(SEPARATOR)) {
    states = step(states, ones | (byText.get(segment) ?? 0n), anys);
    if (states === 0n) return false;
  }
  return (states & end) !== 0n;
}

// --- Sets of topics compared ----------------------------------------------------------------------------------------

/**
 * Tell whether *wide* matches every topic that *narrow* matches. A `*` of *narrow* is a segment that no literal equals, for
 * it can be one; a `**` can be many of those, so it must fall into a run of *wide* that has a `**`, and it can be none.
 *
 * @param {Selector} wide
 * @param {Selector} narrow
 * @returns {boolean}
 */
export function covers(wide, narrow) {
  if (wide.literal || narrow.literal) {
    return wide.text === narrow.text || (narrow.literal && matches(wide, narrow.text));
  }
  if (areStrangers(wide, narrow)) return false;
  const { byText, ones, anys, flexible, start, end } = automatonOf(wide);
  let states = start;
  for (const segment of narrow.segments) {
    states =
      segment === ANY ? closed(states & flexible, anys) : step(states, ones | (byText.get(segment) ?? 0n), anys);
    if (states === 0n) return false;
  }
  return (states & end) !== 0n;
}

/**
 * Tell whether there can be a topic that both match.
 *
 * @param {Selector} one
 * @param {Selector} other
 * @returns {boolean}
 */
export function overlaps(one, other) {
  if (one.literal) return matches(other, one.text);
  if (other.literal) return matches(one, other.text);
  if (areStrangers(one, other)) return false;
  const { byText, literals, ones, anys, start, end } = automatonOf(other);
  let states = start;
  for (const segment of one.segments) {
    if (segment === ANY) {
      // It can be whatever the other asks for next: every state from the first one on.
      states = (end << 1n) - (states & -states);
    } else {
      states = step(states, ones | (segment === ONE ? literals : (byText.get(segment) ?? 0n)), anys);
    }
    if (states === 0n) return false;
  }
  return (states & end) !== 0n;
}
