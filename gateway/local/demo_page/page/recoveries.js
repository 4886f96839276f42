/**
 * What became of a session, in words.
 *
 * @module
 */

/**
 * @typedef {object} Recovery
 * @property {string} outcome
 * @property {string} node
 * @property {number | null} gapSeconds
 * @property {number} resent
 * @property {number | null} lost
 * @property {boolean} replayed
 */

/** @type {Record<string, {name: string, kind: string, told: (recovery: Recovery, from: string) => string}>} */
const OUTCOMES = {
  reattached: {
    name: "reattached",
    kind: "good",
    told: ({ node, resent }) => `Back at ${node}, which still had what was missed: ${packets(resent)} sent again, nothing lost.`,
  },
  handed_over: {
    name: "handed over",
    kind: "good",
    told: ({ node, resent }, from) =>
      `${from} gave the session to ${node} with all that it had of it: ${packets(resent)} sent again, nothing lost.`,
  },
  mirrored: {
    name: "mirrored",
    kind: "good",
    told: ({ node, resent }, from) =>
      `${node} had a copy of the session, as the backup of ${from}: ${packets(resent)} sent again, nothing lost.`,
  },
  failed_over: {
    name: "failed over",
    kind: "warn",
    told: ({ node, replayed }, from) =>
      `${node === from ? `${node} had no buffers of the session any more and` : `${from} did not answer, and ${node}`} took the ` +
      `session from Redis. ` +
      (replayed ? "Every update that was missed follows, in order: nothing lost." : "Current values follow for what was missed."),
  },
};

/** @param {number} count */
const packets = (count) => `${count} packet${count === 1 ? "" : "s"}`;

/**
 * @param {Recovery} recovery
 * @param {string} from - The node before.
 * @returns {{name: string, kind: string, told: string}}
 */
export function describeRecovery(recovery, from) {
  const known = OUTCOMES[recovery.outcome];
  const away = recovery.gapSeconds === null ? "" : ` Away for ${recovery.gapSeconds.toFixed(2)} s.`;
  if (known === undefined) return { name: recovery.outcome, kind: "", told: `Now at ${recovery.node}.${away}` };
  return { name: known.name, kind: known.kind, told: known.told(recovery, from) + away };
}
