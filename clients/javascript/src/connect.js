/**
 * How a session begins: a new one, or one from before a reload of the page.
 *
 * @module
 */

import { numberingOf, Numbering, Outcome } from "./codes.js";
import { checkCredential, checkProperties } from "./content.js";
import { Credentials } from "./credentials.js";
import { checkSeconds, checkSignal, platform, sleep, unlessAborted } from "./environment.js";
import { ConnectFailed, RemoteProtocolError, SessionEnded } from "./errors.js";
import { Keeper, originsOf } from "./keeper.js";
import { MAX_NUMBER } from "./packets.js";
import { reach } from "./connector.js";
import { checkUrls, ReconnectPlan, warnOfClearText } from "./reconnect.js";
import { Session } from "./session.js";
import { Supervisor, unknownNumbering } from "./supervisor.js";
import { VERSION } from "./version.js";

/** How this client introduces itself; the fixed property `$client`. */
export const CLIENT_NAME = `javascript/${VERSION}`;

/** Seconds `connect` tries to open a session. */
export const CONNECT_TIMEOUT = 10;

/** What ended the connection before, as far as a page that was loaded anew can tell. */
const RELOADED = "the page was loaded anew, or the process started again";

/**
 * @typedef {object} ConnectOptions
 * @property {string} [principal] - Who you are; `anonymous` by default.
 * @property {string | (() => string | Promise<string>)} [secret] - Your proof, or what fetches a fresh one: for each hello,
 *   and whenever the server says that the credentials end. It never travels in a URL.
 * @property {Record<string, string>} [properties] - User-defined properties to start with.
 * @property {number} [window] - Seconds without a connection that the session shall survive; the node may grant less.
 * @property {number} [connectTimeout] - Seconds to try, if no node can be reached or `secret` does not answer.
 * @property {number} [requestTimeout] - Seconds that a request may take if its call does not say; none by default.
 * @property {number} [ackPackets] - Packets received after which an acknowledgement is sent if nothing else is; 256 by
 *   default. It is sent after half a second in any case, and after a quarter of what the node keeps.
 * @property {boolean} [discover] - Whether to use the URLs that the cluster lists, beside those given; true by default. See
 *   `Session.urls`.
 * @property {boolean} [followMaster] - Whether the session is to be served by the master of the cluster, wherever that goes.
 *   By default what the environment variable `GATEWAY_FOLLOW_MASTER` says, in Node.js; else not.
 * @property {AbortSignal} [signal] - Gives up; once there is a session it means nothing any more.
 * @property {string} [keep] - Keep the token in `sessionStorage` under this name, so that a reload of the page goes on with
 *   the session, for the same principal and credentials at the same gateway. Off by default: the token is a secret.
 * @property {import("./keeper.js").Store} [store] - Instead of `sessionStorage`.
 * @property {import("./environment.js").WebSocketConstructor} [WebSocket] - Where there is no global one, as in Node.js 20.
 * @property {import("./environment.js").Environment} [environment] - For tests: clock, timers and chance.
 */

/**
 * Open a session.
 *
 * @param {string | URL | readonly (string | URL)[]} urls - Of a load balancer or a node, such as `wss://gateway.example`; of
 *   several, each is tried in turn. One without a path gets `/v1/connect`; in a browser it may be relative to the page.
 * @param {ConnectOptions} [options]
 * @returns {Promise<Session>}
 * @throws {import("./errors.js").ConnectFailed} No session could be opened.
 * @throws {TypeError} An argument makes no sense.
 */
export async function connect(urls, options = {}) {
  const { principal = "anonymous", properties = {}, window = null, connectTimeout = CONNECT_TIMEOUT } = options;
  const { requestTimeout = null, ackPackets = null, discover = true, followMaster = followsMaster(), signal } = options;
  checkSignal(signal);
  const environment = options.environment ?? platform(options.WebSocket);
  const checked = checkUrls(urls, environment.base);
  checkCredential("principal", principal);
  if (options.secret !== undefined && typeof options.secret !== "function") checkCredential("secret", options.secret);
  for (const [name, seconds] of Object.entries({ window, connectTimeout, requestTimeout })) {
    checkSeconds(name, seconds, { zero: false });
  }
  if (ackPackets !== null && !(Number.isInteger(ackPackets) && ackPackets > 0)) {
    throw new TypeError(`ackPackets is a number of packets above 0, not ${String(ackPackets)}`);
  }
  const given = checkProperties(properties);
  warnOfClearText(checked);
  const keeper = options.keep === undefined ? null : new Keeper(options.keep, options.store);
  const timing = { connectTimeout, window, now: environment.now(), discover, follow: followMaster };
  const credentials = new Credentials(environment, principal, options.secret);
  const opening = {
    ...{ environment, urls: checked, timing, keeper, requestTimeout, ackPackets, credentials },
    signal: unlessGiven(signal),
  };

  const secret = await firstSecret(opening, options.secret);
  const identity = { principal, secret, origins: originsOf(checked) };
  const kept = (await keeper?.read(identity)) ?? null;
  await keeper?.bind(identity);
  signal?.throwIfAborted();
  const shown = secret === undefined ? {} : { secret };
  if (kept !== null) {
    const resumed = await goOn(opening, kept, credentials.renewable ? { principal, ...shown } : {});
    if (resumed !== null) return resumed;
  }
  const plan = new ReconnectPlan(checked, timing);
  const hello = {
    type: "hello",
    principal,
    ...shown,
    properties: given,
    client: CLIENT_NAME,
    supports: plan.supports,
    // JSON has no number for "as long as you grant".
    ...(window === null ? {} : { window: Math.min(window, MAX_NUMBER) }),
  };
  const role = {
    firstPacket: () => hello,
    accept: (/** @type {import("./packets.js").Welcome} */ welcome) => {
      // There is no numbering that could go on; whatever else the outcome is called, the session is a new one.
      const ofResumes = welcome.numbering === null && welcome.outcome === Outcome.FAILED_OVER;
      if (numberingOf(welcome) === Numbering.KEPT || ofResumes) {
        throw new RemoteProtocolError(`its outcome is ${welcome.outcome} and not ${Outcome.CREATED}`);
      }
    },
    rejected: () => {},
  };
  const reached = await reach(environment, plan, role, opening.signal);
  return new Session(
    new Supervisor(environment, {
      reached,
      plan,
      keeper,
      attempt: 0,
      firstRequest: 1,
      requestTimeout,
      ackPackets,
      credentials,
      recovery: null,
    }),
  );
}

/** Tell what the environment says of following the master; in a browser there is none. */
function followsMaster() {
  const said = /** @type {any} */ (globalThis).process?.env?.GATEWAY_FOLLOW_MASTER ?? "";
  return ["1", "true", "yes", "on"].includes(String(said).trim().toLowerCase());
}

/**
 * @typedef {object} Opening
 * @property {import("./environment.js").Environment} environment
 * @property {string[]} urls
 * @property {{connectTimeout: number, window: number | null, now: number, discover: boolean, follow: boolean}} timing
 * @property {Keeper | null} keeper
 * @property {number | null} requestTimeout
 * @property {number | null} ackPackets
 * @property {Credentials} credentials
 * @property {AbortSignal} signal
 */

/**
 * Have the secret fetched, within the time that opening the session has.
 *
 * @param {Opening} opening
 * @param {ConnectOptions["secret"]} secret
 * @returns {Promise<string | undefined>}
 * @throws {ConnectFailed} It did not come in time.
 */
async function firstSecret({ environment, timing, signal }, secret) {
  if (typeof secret !== "function") return secret;
  const done = new AbortController();
  const late = sleep(environment, timing.connectTimeout, done.signal).then(() => null);
  try {
    const fetched = await unlessAborted(Promise.race([Promise.resolve(secret()), late]), signal);
    if (fetched === null) throw new ConnectFailed(`no session within ${timing.connectTimeout} s: secret() did not answer`);
    checkCredential("what secret() returned", fetched);
    return fetched;
  } finally {
    done.abort();
  }
}

/**
 * Go on with a session whose token was kept, as a client without its buffers (protocol 5.4.4).
 *
 * @param {Opening} opening
 * @param {import("./keeper.js").Counters} kept
 * @param {{principal?: string, secret?: string}} shown - Credentials that may be others than those of the session; only
 *   with them does the server go on with it.
 * @returns {Promise<Session | null>} Null if it is over.
 */
async function goOn(opening, kept, shown) {
  const { environment, urls, timing, keeper, requestTimeout, ackPackets, credentials, signal } = opening;
  const plan = new ReconnectPlan(urls, { ...timing, resumes: true });
  // The counters may not have been kept to the last: the clock is above all that was used before (protocol 11.5).
  let attempt = Math.max(kept.attempt, environment.wall());
  let { token } = kept;
  const role = {
    firstPacket: () => {
      attempt += 1;
      keeper?.take({ ...kept, token, attempt });
      return { type: "resume", token, attempt, received: 0, oldest: MAX_NUMBER, supports: plan.supports, ...shown };
    },
    accept: (/** @type {import("./packets.js").Welcome} */ welcome) => {
      const numbering = numberingOf(welcome);
      if (numbering === null) {
        ({ token } = welcome);
        throw unknownNumbering(welcome);
      }
      if (numbering === Numbering.KEPT) {
        throw new RemoteProtocolError(`its outcome is ${welcome.outcome} and not ${Outcome.FAILED_OVER}`);
      }
    },
    rejected: () => {},
  };
  try {
    const reached = await reach(environment, plan, role, signal);
    const { outcome, reason, node, resent, lost, conflated } = reached.welcome;
    const firstRequest = Math.max(kept.request + 1, environment.wall());
    const { attempts } = plan;
    const past = { outcome, numbering: Numbering.RESTARTED, reason, node, gapSeconds: null };
    const recovery = { ...past, resent, lost, conflated, replayed: false, notReplayed: [], attempts, cause: RELOADED };
    const beginning = { reached, plan, keeper, attempt, firstRequest, requestTimeout, ackPackets, credentials, recovery };
    return new Session(new Supervisor(environment, beginning));
  } catch (error) {
    if (!(error instanceof SessionEnded)) throw error;
    keeper?.forget();
    return null;
  }
}

/** @param {AbortSignal | undefined} signal */
function unlessGiven(signal) {
  return signal ?? new AbortController().signal;
}
