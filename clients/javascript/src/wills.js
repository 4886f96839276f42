/**
 * What a session leaves: publishes that the gateway makes when it ends.
 *
 * @module
 */

import { checkTtl, encodeValue } from "./content.js";
import { checkTopic } from "./selectors.js";

/** Wills of a session, at most. */
const MOST_WILLS = 8;

/** The word by which a server says that sessions can leave wills. */
export const WILLS = "wills";

/**
 * How a session ended: closed by its client; expired, as its client did not come back in time; or removed by an
 * administrator or a revocation.
 *
 * @typedef {"closed" | "expired" | "removed"} EndKind
 *
 * @typedef {Object} Will
 * @property {string} topic - The path to publish to, such as `status/alice`.
 * @property {unknown} value - What JSON has a text for; taken as it is now.
 * @property {EndKind[]} [when] - For which ends; `expired` and `removed` by default.
 * @property {number} [ttl] - Seconds after which the value ends, from the end of the session on.
 */

/** @type {readonly EndKind[]} */
const KINDS = ["closed", "expired", "removed"];

/**
 * Check wills, and write their values.
 *
 * @param {readonly Will[]} wills
 * @returns {import("./requests.js").WrittenWill[]}
 * @throws {TypeError} There are too many, or one names no end or an unknown one.
 */
export function writtenWills(wills) {
  if (!Array.isArray(wills) || wills.length > MOST_WILLS) throw new TypeError(`wills are an array of ${MOST_WILLS} at most`);
  return wills.map(({ topic, value, when = ["expired", "removed"], ttl }) => {
    if (!Array.isArray(when) || when.length === 0 || when.some((each) => !KINDS.includes(each))) {
      throw new TypeError(`when is an array of some of ${KINDS.join(", ")}, not ${String(when)}`);
    }
    const said = { topic: checkTopic(topic), when: KINDS.filter((each) => when.includes(each)), text: encodeValue(value) };
    const seconds = checkTtl(ttl);
    return seconds === undefined ? said : { ...said, ttl: seconds };
  });
}
