/**
 * Numbers and times for people.
 *
 * @module
 */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/**
 * Characters that change how text around them is read (direction, invisible, control); shown by their code instead, so that
 * a name cannot pose as another one.
 */
const DECEPTIVE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

/** @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/**
 * Say how many there are of what people count.
 *
 * @param {number} number
 * @param {string} one - What one of them is called; more have an s behind.
 */
export function counted(number, one) {
  return `${count(number)} ${one}${number === 1 ? "" : "s"}`;
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1024) return `${value} B`;
  if (value < 1024 * 1024) return `${(value / 1024).toFixed(1)} KiB`;
  return `${(value / 1024 / 1024).toFixed(1)} MiB`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** @param {number} at - Seconds since 1970. */
export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

/** @param {number} at - Seconds since 1970. */
export function moment(at) {
  const date = new Date(at * 1000);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** @param {number | null} at - Seconds since 1970; null for never. */
export function momentOrNone(at) {
  return at === null ? "–" : moment(at);
}

/**
 * Make untrusted text safe to read: what it says, not what it does.
 *
 * @param {string} text
 */
export function plain(text) {
  return text.replace(DECEPTIVE, (each) => `\\u${/** @type {number} */ (each.codePointAt(0)).toString(16).padStart(4, "0")}`);
}

/**
 * Show a JSON value in one line.
 *
 * @param {unknown} value
 * @param {number} [most] - Characters.
 */
export function oneLine(value, most = 160) {
  const text = plain(JSON.stringify(value) ?? "");
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
