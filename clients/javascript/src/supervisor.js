/**
 * Keeps one session alive over any number of connections.
 *
 * ```text
 * open ──► connected ──lost──► recovering ──welcome──► connected ──► …
 *              │                   │
 *              └────── bye ────────┴── window over, refused ──► closed
 * ```
 *
 * Where and when to connect is decided by `ReconnectPlan`, what is sent and received by `SessionMachine`, what is asked when
 * by `RequestTable`; this module connects them with the clock, chance and the network.
 *
 * @module
 */

import { CloseCode, Outcome } from "./codes.js";
import { Connection } from "./connection.js";
import { EXPIRED, EXPIRING } from "./credentials.js";
import { sleep } from "./environment.js";
import { Forbidden, RemoteProtocolError, RequestTimedOut, SessionClosed, SessionEnded, SessionFailed } from "./errors.js";
import { History } from "./history.js";
import { policyOf, SessionMachine } from "./machine.js";
import { reach } from "./reaching.js";
import { RequestTable } from "./requests.js";
import { changed, Promises } from "./selections.js";
import { parseSelector } from "./selectors.js";
import { Streams } from "./streams.js";

/** Seconds to wait for the answers to what was asked, before the client leaves a node that asked it to go away. */
export const LEAVE_TIMEOUT = 2;

/** Code of the notice with which this client itself declares that a grid had forgotten what it had promised. */
export const PROMISES_RESTORED = "promises_restored";

/** Code of the notice that a right was withdrawn (protocol 6.5.4), and of what stands in for updates lost by it. */
const PERMISSIONS_WITHDRAWN = "permissions_withdrawn";
const WITHHELD = "withheld";

/**
 * @typedef {import("./packets.js").Welcome} Welcome
 * @typedef {import("./reconnect.js").Ending} Ending
 * @typedef {import("./credentials.js").Credentials} Credentials
 * @typedef {import("./requests.js").Ask} Ask
 * @typedef {import("./requests.js").Reply} Reply
 *
 * @typedef {"connected" | "recovering" | "closed"} SessionState
 *
 * @typedef {object} Recovery - The session got a connection again, and this is what came of it.
 * @property {string} outcome - `reattached` (nothing was lost) or `failed_over` (state from the grid, values follow).
 * @property {string | null} reason - Of a failover: `other_node` or `gap`.
 * @property {string} node - Who serves the session now.
 * @property {number} gapSeconds - From the moment the client noticed the loss, or left its node on request, to the welcome.
 * @property {number} resent - Packets sent again, both directions together; after a failover, the requests asked again.
 * @property {number | null} lost - Packets to this client that will never come; null if the node cannot know.
 * @property {number | null} conflated - Updates replaced by newer ones before they were sent; null likewise.
 * @property {number} attempts - Connections tried, the successful one included.
 * @property {string} cause - What ended the connection before, for people.
 *
 * @typedef {object} Notice - The server declares what the client could not see otherwise.
 * @property {string} code
 * @property {string} message - For people.
 * @property {string[]} [withdrawn] - With `permissions_withdrawn`: selectors taken out; of each, a part may be left.
 * @property {string[]} [selections] - Likewise: all selections of the session since then.
 *
 * @typedef {object} Listener - Who is told what happens.
 * @property {(state: SessionState) => void} state
 * @property {(recovery: Recovery) => void} recovery
 * @property {(notice: Notice) => void} notice
 *
 * @typedef {object} Beginning - How the session began.
 * @property {import("./reaching.js").Reached} reached
 * @property {import("./reconnect.js").ReconnectPlan} plan
 * @property {import("./keeping.js").Keeper | null} keeper
 * @property {number} attempt - The highest attempt used so far.
 * @property {number} firstRequest - The number of the first request.
 * @property {number | null} requestTimeout - Seconds a request may take if its caller does not say.
 * @property {Credentials} credentials - What it was opened with, and goes on with.
 */

/** A session that has been opened; `Session` is its public face. It is the `Applicant` of its own resumes. */
export class Supervisor {
  #environment;
  #plan;
  #keeper;
  #requestTimeout;
  #credentials;
  /** What the resume under way carries. @type {string | null} */
  #shown = null;
  #token;
  #attempt;
  #machine;
  #table;
  #promises;
  /** @type {Connection | null} */
  #connection = null;
  #lostAt = 0;
  #resent = 0;
  #closing = false;
  #abandon = new AbortController();
  /** @type {(() => void) | null} */
  #cancelRetry = null;
  /** @type {(() => void)[]} */
  #idle = [];
  /** @type {Listener | null} */
  #listener = null;

  /**
   * @param {import("./environment.js").Environment} environment
   * @param {Beginning} beginning
   */
  constructor(environment, { reached, plan, keeper, attempt, firstRequest, requestTimeout, credentials }) {
    this.#environment = environment;
    this.#plan = plan;
    this.#keeper = keeper;
    this.#requestTimeout = requestTimeout;
    this.#credentials = credentials;
    const { welcome } = reached;
    this.welcome = welcome;
    this.#token = welcome.token;
    this.#attempt = attempt;
    this.#machine = new SessionMachine(policyOf(welcome));
    this.#machine.open(environment.now());
    this.#table = new RequestTable(welcome.limits.requests, firstRequest);
    this.#promises = new Promises(welcome);
    /** All properties, as of the last welcome and the changes since. */
    this.properties = welcome.properties;
    this.streams = new Streams();
    /** @type {History<Recovery>} */
    this.recoveries = new History();
    /** @type {History<Notice>} */
    this.notices = new History();
    /** @type {SessionState} */
    this.state = "connected";
    /** Why it is over; null while it is not. @type {SessionEnded | null} */
    this.ended = null;
    /** Settled when it is over, for whatever reason. @type {Promise<void>} */
    this.over = this.#run(this.#attach(reached));
  }

  /** @param {Listener} listener */
  tell(listener) {
    this.#listener = listener;
  }

  // --- Life ---------------------------------------------------------------------------------------------------------

  /** @param {Connection} connection */
  async #run(connection) {
    try {
      for (;;) {
        const ending = await connection.ended;
        this.#lost(ending);
        connection = await this.#recover(ending);
      }
    } catch (error) {
      this.#end(error instanceof SessionEnded ? error : new SessionFailed(`a bug of this client: ${error}`));
    }
  }

  /**
   * Begin to use a connection.
   *
   * @param {import("./reaching.js").Reached} reached
   * @returns {Connection}
   */
  #attach(reached) {
    const { welcome } = reached;
    this.#plan.connected(welcome, this.#environment.now());
    this.#keep();
    const connection = new Connection(this.#environment, reached, this.#machine, (received) => this.#handle(received));
    this.#connection = connection;
    // Whatever comes first proves to the node that the client holds the new token (protocol 4.3).
    this.#machine.sendLink({ type: "ack", received: this.#machine.received });
    if (this.#closing) {
      this.#sayBye();
    } else {
      const restarted = welcome.outcome === Outcome.FAILED_OVER;
      this.#table.resume({ limit: welcome.limits.requests, restarted, now: this.#environment.now() });
      this.#pump();
    }
    return connection;
  }

  /** @param {Ending} ending */
  #lost(ending) {
    const now = this.#environment.now();
    this.#lostAt = now;
    this.#connection = null;
    this.#machine.detach();
    this.#table.freeze();
    this.#plan.lost(ending, now);
    if (ending.code === CloseCode.CREDENTIALS_EXPIRED) this.#credentials.stale = true;
    this.#enter("recovering");
  }

  /**
   * Get the session back and declare what came of it.
   *
   * @param {Ending} cause
   * @returns {Promise<Connection>}
   */
  async #recover(cause) {
    const reached = await reach(this.#environment, this.#plan, this, this.#abandon.signal).catch((error) => {
      throw this.#abandon.signal.aborted ? this.#abandon.signal.reason : error;
    });
    const { outcome, reason, node, resent, lost, conflated } = reached.welcome;
    /** @type {Recovery} */
    const recovery = {
      outcome,
      reason,
      node,
      gapSeconds: this.#environment.now() - this.#lostAt,
      resent: resent + this.#resent,
      lost,
      conflated,
      attempts: this.#plan.attempts,
      cause: cause.message,
    };
    const connection = this.#attach(reached);
    this.#enter("connected");
    this.recoveries.append(recovery);
    this.#listener?.recovery(recovery);
    return connection;
  }

  /** @param {SessionEnded} error */
  #end(error) {
    const told = this.#closing ? null : error;
    this.ended = this.#closing ? new SessionClosed("the session was closed by this client") : error;
    this.#connection = null;
    this.#keeper?.forget();
    this.#cancelRetry?.();
    this.#table.fail(this.ended);
    this.#wakeIdle();
    this.streams.end(told);
    this.recoveries.end(told);
    this.notices.end(told);
    this.#enter("closed");
  }

  /** @param {SessionState} state */
  #enter(state) {
    this.state = state;
    this.#listener?.state(state);
  }

  #keep() {
    this.#keeper?.write({ token: this.#token, attempt: this.#attempt, request: this.#table.lastNumber });
  }

  // --- What the application does with it ----------------------------------------------------------------------------

  /**
   * Ask something and wait for the answer, however many connections it takes.
   *
   * @param {Ask} ask
   * @param {number | null | undefined} seconds - How long it may take; null or undefined for the session's default.
   * @returns {Promise<Reply>}
   */
  async request(ask, seconds) {
    if (this.ended !== null) throw this.ended;
    if (this.#closing) throw new SessionClosed("the session is being closed");
    const limit = seconds ?? this.#requestTimeout;
    const pending = this.#table.add(ask);
    const cancel =
      limit === null
        ? null
        : this.#environment.after(() => {
            const fate = pending.sent ? "it may have been executed" : "it was not sent";
            pending.reject?.(new RequestTimedOut(`no answer within ${limit} s; ${fate}`, pending.sent));
          }, limit);
    this.#pump();
    try {
      return await pending.answer;
    } finally {
      cancel?.();
    }
  }

  /**
   * End the session on purpose.
   *
   * @param {number} seconds - To wait until a node has confirmed the end.
   */
  async close(seconds) {
    if (!this.#closing && this.ended === null) {
      this.#closing = true;
      this.#table.fail(new SessionClosed("the session was closed before this request was answered"));
      if (this.#connection !== null) this.#sayBye();
    }
    const cancel = this.#environment.after(() => {
      this.#abandon.abort(new SessionClosed("the session was abandoned before a node confirmed its end"));
      this.#connection?.end({ message: "the client stops" });
    }, seconds);
    await this.over;
    cancel();
  }

  #sayBye() {
    this.#machine.sendLink({ type: "bye", reason: "the client closed the session" });
    this.#connection?.wake();
  }

  /** Hand what may be sent now to the machine, and come again when more may. */
  #pump() {
    const bodies = this.#table.ready(this.#environment.now());
    for (const body of bodies) this.#machine.submit(body);
    if (bodies.length > 0) {
      this.#keep();
      this.#connection?.wake();
    }
    this.#cancelRetry?.();
    this.#cancelRetry = null;
    const deadline = this.#table.nextDeadline;
    const wait = deadline === null ? 0 : deadline - this.#environment.now();
    if (wait > 0) this.#cancelRetry = this.#environment.after(() => this.#pump(), wait);
  }

  // --- Resuming: the `Applicant` ------------------------------------------------------------------------------------

  async prepare() {
    const { stale, renewable } = this.#credentials;
    this.#shown = stale && renewable ? await this.#credentials.fresh() : null;
  }

  firstPacket() {
    this.#attempt += 1;
    this.#keep();
    this.#machine.resume();
    const { received, oldest } = this.#machine;
    const away = Math.round((this.#environment.now() - this.#lostAt) * 1000);
    const resume = { type: "resume", token: this.#token, attempt: this.#attempt, received, oldest, away };
    return this.#shown === null ? resume : { ...resume, principal: this.#credentials.principal, secret: this.#shown };
  }

  /** @param {Ending} ending */
  refused(ending) {
    if (ending.error !== EXPIRED || this.#shown !== null || !this.#credentials.renewable) return ending;
    this.#credentials.stale = true;
    return { message: ending.message, code: CloseCode.CREDENTIALS_EXPIRED };
  }

  rejected() {
    this.#machine.detach();
  }

  /** @param {Welcome} welcome */
  accept(welcome) {
    const now = this.#environment.now();
    if (welcome.session !== this.welcome.session) throw new RemoteProtocolError("it is for another session");
    if (welcome.outcome === Outcome.REATTACHED) {
      this.#resent = this.#machine.reattach(welcome.received, now);
    } else if (welcome.outcome === Outcome.FAILED_OVER) {
      if (welcome.withdrawn.length > 0) this.#promises.withdrawn(welcome.selections);
      const missing = this.#promises.missing(welcome, this.#table.unansweredAsks);
      this.#resent = this.#table.unanswered;
      this.#machine.restart(now);
      this.streams.failedOver();
      if (missing.length > 0) this.#restore(missing, welcome.selections);
    } else {
      throw new RemoteProtocolError(`the outcome of a resume cannot be ${welcome.outcome}`);
    }
    this.#machine.adopt(policyOf(welcome));
    if (this.#shown !== null) {
      this.#credentials.stale = false;
      this.#shown = null;
    }
    this.welcome = welcome;
    this.#token = welcome.token;
    this.properties = welcome.properties;
  }

  /**
   * @param {Ask[]} missing
   * @param {string[]} selections - What the node has instead.
   */
  #restore(missing, selections) {
    this.#declare({
      code: PROMISES_RESTORED,
      message: `the grid had forgotten what it had promised to this session; ${missing.length} requests restore it`,
    });
    for (const repair of this.#table.addRepairs(missing)) {
      // Nobody waits for it; should the node refuse for another reason, the notice has said what is missing.
      repair.answer.catch((error) => {
        if (!(error instanceof Forbidden) || repair.ask.type !== "subscribe") return;
        const { selector } = repair.ask;
        this.#promises.forbidden(selector, selections);
        this.#declare({ code: PERMISSIONS_WITHDRAWN, message: error.message, withdrawn: [selector], selections });
      });
    }
  }

  // --- What comes in ------------------------------------------------------------------------------------------------

  /** @param {import("./machine.js").Received} received */
  #handle(received) {
    switch (received.type) {
      case "update": {
        const { topic, value, version, event: eventId, snapshot, removed } = received;
        this.streams.dispatch({ topic, value, version, eventId, snapshot, removed });
        break;
      }
      case "reply":
        this.#answered(received);
        break;
      case "notice":
        this.#noticed(received);
        break;
      case "ping":
        if (received.backoff !== null) this.#plan.advised(received.backoff);
        if (received.token !== null) {
          this.#token = received.token;
          this.#keep();
        }
        break;
      case "go-away":
        if (received.backoff !== null) this.#plan.advised(received.backoff);
        void this.#leave(/** @type {Connection} */ (this.#connection), received);
        break;
      case "bye":
        this.#connection?.end({
          message: `the node ended the session: ${received.reason || "no reason given"}`,
          code: CloseCode.NORMAL,
        });
        break;
      case "error":
        break; // the close that follows says what to do
    }
  }

  /** @param {Reply} reply */
  #answered(reply) {
    const executed = this.#table.answer(reply, this.#environment.now(), this.#environment.random());
    if (executed !== null && !executed.repairs) {
      const { ask } = executed;
      this.#promises.executed(ask);
      if (ask.type === "unsubscribe") this.streams.unsubscribe(parseSelector(ask.selector).text);
      if (ask.type === "properties") this.properties = changed(this.properties, ask.set);
    }
    if (this.#table.unanswered === 0) this.#wakeIdle();
    this.#pump();
  }

  /** @param {import("./packets.js").NoticeBody} notice */
  #noticed({ code, message, withdrawn, selections }) {
    if (code === WITHHELD) return; // what they are about is declared by the notice that follows
    if (code === EXPIRING && this.#credentials.renewable) {
      const { principal } = this.#credentials;
      const show = (/** @type {string} */ secret) => this.request({ type: "authenticate", secret, principal }, null);
      void this.#credentials.refresh(show, this.#abandon.signal);
    }
    if (code === PERMISSIONS_WITHDRAWN) {
      this.#promises.withdrawn(selections);
      this.#declare({ code, message, withdrawn, selections });
    } else {
      this.#declare({ code, message });
    }
  }

  /** @param {Notice} notice */
  #declare(notice) {
    this.notices.append(notice);
    this.#listener?.notice(notice);
  }

  /**
   * Leave a node on request: within the time it gives, at a random moment, with nothing under way (protocol 4.6).
   *
   * @param {Connection} connection
   * @param {import("./packets.js").GoAway} goAway
   */
  async #leave(connection, goAway) {
    await sleep(this.#environment, this.#environment.random() * goAway.delay);
    if (this.#connection !== connection) return;
    this.#table.freeze();
    if (this.#table.unanswered > 0) {
      const answered = new Promise((/** @type {(value: void) => void} */ resolve) => this.#idle.push(resolve));
      await Promise.race([answered, sleep(this.#environment, LEAVE_TIMEOUT)]);
    }
    if (this.#connection !== connection) return;
    this.#machine.sendLink({ type: "ack", received: this.#machine.received });
    connection.end({
      message: `node ${this.welcome.node} asked to go away: ${goAway.reason}`,
      code: CloseCode.GOING_AWAY,
      planned: true,
      node: goAway.node,
    });
  }

  #wakeIdle() {
    for (const wake of this.#idle.splice(0)) wake();
  }
}
