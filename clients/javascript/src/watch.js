/**
 * Notices when a connection may be another one than it seems: the network came back, the page was shown again, or time has
 * passed while nothing ran, because the page was frozen or the machine slept.
 *
 * @module
 */

/** Seconds between two looks at the clocks. */
const INTERVAL = 5;

/** Seconds beyond that by which somebody has slept; a busy page is late by less. */
const JUMP = 3;

/** Milliseconds of a second. */
const MILLISECONDS = 1000;

/**
 * Call back whenever a connection should be looked at.
 *
 * @param {import("./environment.js").Environment} environment
 * @param {() => void} look
 * @returns {() => void} Stops it.
 */
export function watchOver(environment, look) {
  const stopEvents = environment.awakened?.(look) ?? (() => {});
  let monotonic = environment.now();
  let wall = environment.wall();
  let cancel = environment.after(tick, INTERVAL);

  function tick() {
    const [now, today] = [environment.now(), environment.wall()];
    // On some systems the one clock stands still while the machine sleeps, and the other may be set by hand.
    const passed = Math.max(now - monotonic, (today - wall) / MILLISECONDS);
    monotonic = now;
    wall = today;
    cancel = environment.after(tick, INTERVAL);
    if (passed > INTERVAL + JUMP) look();
  }

  return () => {
    cancel();
    stopEvents();
  };
}
