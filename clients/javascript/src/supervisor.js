/**
 * Keeps one session alive over any number of connections.
 *
 * ```text
 * open ──► connected ──lost──► recovering ──welcome──► connected ──► …
 *              │                   │
 *              └────── bye ────────┴── window over, refused ──► closed
 * ```
 *
 * Where and when to connect is decided by `ReconnectPlan`, what is sent and received by `SessionMachine`, what is asked by
 * `RequestSender`; this module connects them with the clock, chance and the network.
 *
 * @module
 */

import { Assigned } from "./assigned.js";
import { Calls } from "./calls.js";
import { CloseCode, NoticeCode, Numbering, Outcome, numberingOf } from "./codes.js";
import { Connection } from "./connection.js";
import { PACKET_OVERHEAD } from "./content.js";
import { EXPIRED } from "./credentials.js";
import { sleep } from "./environment.js";
import { Forbidden, RemoteProtocolError, SessionClosed, SessionEnded, SessionFailed } from "./errors.js";
import { History } from "./history.js";
import { policyOf, SessionMachine } from "./machine.js";
import { Positions } from "./positions.js";
import { reach } from "./connector.js";
import { RequestSender } from "./sender.js";
import { AttemptFailed } from "./transport.js";
import { watchOver } from "./watch.js";

/** Characters of a fresh secret beside which no positions are named: a node may take less than both. */
const LONG_SECRET = 16 * 1024;

/** Seconds to wait for the answers to what was asked, before the client leaves a node that asked it to go away. */
export const LEAVE_TIMEOUT = 2;

/**
 * Close codes with which a node refuses a packet; without a word about which, the oldest unanswered request is suspected.
 *
 * @type {ReadonlySet<number>}
 */
const REFUSES_PACKET = new Set([CloseCode.MESSAGE_TOO_BIG, CloseCode.PROTOCOL_ERROR]);

/**
 * @typedef {import("./packets.js").Welcome} Welcome
 * @typedef {import("./reconnect.js").Ending} Ending
 * @typedef {import("./credentials.js").Credentials} Credentials
 *
 * @typedef {"connected" | "recovering" | "closed"} SessionState
 *
 * @typedef {object} Recovery - The session got a connection again, and this is what came of it.
 * @property {string} outcome - `reattached` (nothing was lost), `handed_over` (likewise, at another node), `failed_over`
 *   (state from the grid; what was missed is replayed, or current values follow), or another that a later server has.
 * @property {"kept" | "restarted"} numbering - What the outcome means: both sides went on where they were and resent what
 *   was missing, or the node had nothing to resend; then `replayed` tells what follows.
 * @property {string | null} reason - Of a failover: `other_node` or `gap`.
 * @property {string} node - Who serves the session now.
 * @property {number | null} gapSeconds - From the moment the client noticed the loss, or left its node on request, to the
 *   welcome; null after a reload, as the page before took its clock along.
 * @property {number} resent - Packets sent again, both directions together; after a failover, the requests asked again.
 * @property {number | null} lost - Packets to this client that will never come; null if the node cannot know.
 * @property {number | null} conflated - Updates replaced by newer ones before they were sent; null likewise.
 * @property {boolean} replayed - Whether every update that was missed follows a failover, in order, in place of current
 *   values.
 * @property {number[]} notReplayed - If not, the partitions of topics of which current values follow; empty if the node does
 *   not tell.
 * @property {number} attempts - Connections tried, the successful one included.
 * @property {string} cause - What ended the connection before, for people.
 *
 * @typedef {object} Notice - The server declares what the client could not see otherwise.
 * @property {string} code
 * @property {string} message - For people.
 * @property {string[]} [withdrawn] - With `permissions_withdrawn`: selectors taken out; of each, a part may be left.
 * @property {string[]} [selections] - Likewise: all selections of the session since then.
 * @property {number[]} [partitions] - With `values_reread`: the partitions of topics that it is about.
 *
 * @typedef {object} Listener - Who is told what happens.
 * @property {(state: SessionState) => void} state
 * @property {(recovery: Recovery) => void} recovery
 * @property {(notice: Notice) => void} notice
 *
 * @typedef {object} Beginning - How the session began.
 * @property {import("./connector.js").Reached} reached
 * @property {import("./reconnect.js").ReconnectPlan} plan
 * @property {import("./keeper.js").Keeper | null} keeper
 * @property {number} attempt - The highest attempt used so far.
 * @property {number} firstRequest - The number of the first request.
 * @property {number | null} requestTimeout - Seconds a request may take if its caller does not say.
 * @property {number | null} ackPackets - Packets received after which an acknowledgement is sent; null for the client's number.
 * @property {Credentials} credentials - What it was opened with, and goes on with.
 * @property {Recovery | null} recovery - How it was gone on with, if it was not opened anew.
 */

/** A session that has been opened; `Session` is its public face. It is the `HandshakeRole` of its own resumes. */
export class Supervisor {
  #environment;
  #plan;
  #keeper;
  #credentials;
  #ackPackets;
  /** What the resume under way carries. @type {string | null} */
  #shown = null;
  #token;
  #attempt;
  #machine;
  /** @type {Connection | null} */
  #connection = null;
  #lostAt = 0;
  #resent = 0;
  #positions = new Positions();
  #replayed = false;
  /** What the node closes the connection for, as it said. @type {import("./packets.js").ErrorPacket | null} */
  #blamed = null;
  /** The request that was the oldest when the node refused a packet without saying which. @type {number | null} */
  #suspect = null;
  #closing = false;
  #over = false;
  #abandon = new AbortController();
  #hurry = new AbortController();
  #stopWatching;
  /** @type {Listener | null} */
  #listener = null;

  /**
   * @param {import("./environment.js").Environment} environment
   * @param {Beginning} beginning
   */
  constructor(environment, { reached, plan, keeper, attempt, firstRequest, requestTimeout, ackPackets, credentials, recovery }) {
    this.#environment = environment;
    this.#plan = plan;
    this.#keeper = keeper;
    this.#credentials = credentials;
    this.#ackPackets = ackPackets;
    const { welcome } = reached;
    this.welcome = welcome;
    this.#token = welcome.token;
    this.#attempt = attempt;
    this.#machine = new SessionMachine(policyOf(welcome, ackPackets));
    this.#machine.open(environment.now());
    /** What the application asks for. */
    this.sender = new RequestSender(environment, {
      welcome,
      firstRequest,
      requestTimeout,
      positions: this.#positions,
      send: (requests) => this.#submit(requests),
      declare: (notice) => this.#declare(notice),
    });
    /** What it is given of queues and of others. */
    this.calls = new Calls(environment, (ask, options) => this.sender.request(ask, options), requestTimeout);
    this.assigned = new Assigned(environment, this.calls);
    /** @type {History<Recovery>} */
    this.recoveries = new History();
    if (recovery !== null) this.recoveries.append(recovery);
    /** Whether a session from before was gone on with. */
    this.resumed = recovery !== null;
    /** @type {History<Notice>} */
    this.notices = new History();
    /** @type {SessionState} */
    this.state = "connected";
    /** Why it is over; null while it is not. @type {SessionEnded | null} */
    this.ended = null;
    keeper?.take(this.#counters);
    this.#stopWatching = watchOver(environment, () => this.#look());
    /** Settled when it is over, for whatever reason. @type {Promise<void>} */
    this.over = this.#run(this.#attach(reached));
  }

  get urls() {
    return this.#plan.urls;
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
        if (this.#over) return;
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
   * @param {import("./connector.js").Reached} reached
   * @returns {Connection}
   */
  #attach(reached) {
    const { welcome } = reached;
    this.#plan.connected(welcome, this.#environment.now());
    this.#keep();
    const connection = new Connection(this.#environment, reached, this.#machine, (received) => this.#handle(received));
    this.#connection = connection;
    this.#blamed = null;
    // Whatever comes first proves to the node that the client holds the new token (protocol 4.3).
    this.#machine.sendLink({ type: "ack", received: this.#machine.received });
    if (this.#closing) this.#sayBye();
    else this.#goOn(welcome);
    return connection;
  }

  /** @param {Welcome} welcome */
  #goOn(welcome) {
    const restarted = numberingOf(welcome) === Numbering.RESTARTED;
    this.sender.resume(welcome, restarted);
    if (welcome.outcome !== Outcome.REATTACHED) this.assigned.recovered(welcome, restarted);
  }

  /** @param {Ending} ending */
  #lost(ending) {
    const now = this.#environment.now();
    this.#lostAt = now;
    this.#connection = null;
    const judged = this.#judge(ending);
    this.#machine.detach();
    this.sender.freeze();
    this.#plan.lost(judged, now);
    if (ending.code === CloseCode.CREDENTIALS_EXPIRED) this.#credentials.stale = true;
    // When a node has ended the session, as whoever closes it has asked for, there is nothing to come back to.
    if (!this.#plan.isOver) this.#enter("recovering");
  }

  /**
   * Give up the request for which the node closed the connection: sent again, it would close the next one, too. The node
   * names it; or it is the oldest one without an answer on two such connections in a row.
   *
   * @param {Ending} ending
   * @returns {Ending} Excused if it is one request's fault, or may turn out to be.
   */
  #judge(ending) {
    const blamed = this.#blamed;
    const { oldest } = this.sender;
    const suspect = this.#suspect;
    this.#suspect = null;
    if (blamed?.request && this.#drop(blamed.request, blamed)) return { ...ending, excused: "at_once", violation: false };
    if (ending.violation || !REFUSES_PACKET.has(ending.code ?? 0) || oldest === null) return ending;
    if (oldest === suspect) {
      const message = `two connections in a row were closed while this request had no answer: ${ending.message}`;
      this.#drop(oldest, { code: nameOf(ending), message });
    } else {
      this.#suspect = oldest;
    }
    return { ...ending, excused: "later" };
  }

  /**
   * @param {number} request
   * @param {{code: string, message: string}} why
   */
  #drop(request, why) {
    this.#machine.drop(request);
    return this.sender.drop(request, why);
  }

  /**
   * Get the session back and declare what came of it.
   *
   * @param {Ending} cause
   * @returns {Promise<Connection>}
   */
  async #recover(cause) {
    const { signal } = this.#abandon;
    const reached = await reach(this.#environment, this.#plan, this, signal, () => this.#hurry.signal).catch((error) => {
      throw signal.aborted ? signal.reason : error;
    });
    if (this.#over) {
      reached.transport.close(CloseCode.GOING_AWAY, "the client stops");
      throw this.ended;
    }
    const { outcome, reason, node, resent, lost, conflated, replayed } = reached.welcome;
    /** @type {Recovery} */
    const recovery = {
      outcome,
      numbering: numberingOf(reached.welcome) ?? Numbering.RESTARTED,
      reason,
      node,
      gapSeconds: this.#environment.now() - this.#lostAt,
      resent: resent + this.#resent,
      lost,
      conflated,
      replayed: this.#replayed,
      notReplayed: partitionsOf(replayed),
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
    if (this.#over) return;
    this.#over = true;
    const told = this.#closing ? null : error;
    this.ended = this.#closing ? new SessionClosed("the session was closed by this client") : error;
    this.#connection = null;
    this.#abandon.abort(this.ended);
    this.#stopWatching();
    this.#keeper?.forget();
    this.sender.fail(this.ended);
    this.sender.streams.end(told);
    this.assigned.end(this.ended, told);
    this.recoveries.end(told);
    this.notices.end(told);
    this.#enter("closed");
  }

  /** @param {SessionState} state */
  #enter(state) {
    this.state = state;
    this.#listener?.state(state);
  }

  get #counters() {
    return { token: this.#token, attempt: this.#attempt, request: this.sender.lastNumber };
  }

  #keep() {
    this.#keeper?.write(this.#counters);
  }

  /** There is reason to doubt the connection, or to hope for one: find out now. */
  #look() {
    if (this.#connection !== null) {
      this.#connection.look();
    } else {
      this.#hurry.abort();
      this.#hurry = new AbortController();
    }
  }

  // --- What the application does with it ----------------------------------------------------------------------------

  /**
   * Show fresh credentials.
   *
   * @param {string} secret
   * @param {string} principal
   * @param {import("./sender.js").CallOptions} options
   */
  async authenticate(secret, principal, options) {
    await this.sender.request({ type: "authenticate", secret, principal }, options);
    await this.#keeper?.renew(secret);
  }

  /**
   * End the session on purpose.
   *
   * @param {number} seconds - To wait until a node has confirmed the end.
   */
  async close(seconds) {
    if (!this.#closing && !this.#over) {
      this.#closing = true;
      this.sender.fail(new SessionClosed("the session was closed before this request was answered"));
      if (this.#connection !== null) this.#sayBye();
    }
    const late = new AbortController();
    await Promise.race([this.over, sleep(this.#environment, seconds, late.signal)]);
    late.abort();
    if (this.#over) return;
    const connection = this.#connection;
    this.#end(new SessionClosed("the session was abandoned before a node confirmed its end"));
    connection?.end({ message: "the client stops" });
    await this.over;
  }

  #sayBye() {
    this.#machine.sendLink({ type: "bye", reason: "the client closed the session" });
    this.#connection?.wake();
  }

  /** @param {{request: number, body: string}[]} requests */
  #submit(requests) {
    for (const { request, body } of requests) this.#machine.submit(body, request);
    this.#keep();
    this.#connection?.wake();
  }

  // --- Resuming: the `HandshakeRole` ------------------------------------------------------------------------------------

  async prepare() {
    const { stale, renewable } = this.#credentials;
    this.#shown = stale && renewable ? await this.#fresh() : null;
  }

  /** Have fresh credentials fetched, no longer than fits beside a token. */
  #fresh() {
    return this.#credentials.fresh(this.welcome.limits.message_bytes - PACKET_OVERHEAD - this.#token.length);
  }

  firstPacket() {
    this.#attempt += 1;
    this.#keep();
    this.#machine.resume();
    const { received, oldest } = this.#machine;
    const away = Math.round((this.#environment.now() - this.#lostAt) * 1000);
    const resume = {
      ...{ type: "resume", token: this.#token, attempt: this.#attempt, received, oldest, away },
      supports: this.#plan.supports,
    };
    const isLong = this.#shown !== null && this.#shown.length > LONG_SECRET;
    const named = isLong ? this.#positions.unnamed() : this.#positions.named(this.sender.unansweredSubscribes);
    if (this.#shown === null) return { ...resume, ...named };
    return { ...resume, principal: this.#credentials.principal, secret: this.#shown, ...named };
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
    const numbering = numberingOf(welcome);
    if (numbering === null) {
      this.#machine.forget();
      this.#token = welcome.token;
      this.#keep();
      throw unknownNumbering(welcome);
    }
    if (numbering === Numbering.KEPT) {
      this.#resent = this.#machine.reattach(welcome.received, now);
      this.#replayed = false;
    } else {
      this.#replayed = this.#positions.restarted(welcome.replayed);
      this.sender.failedOver(welcome, this.#replayed);
      this.#resent = this.sender.unanswered;
      this.#machine.restart(now);
    }
    this.#machine.adopt(policyOf(welcome, this.#ackPackets));
    if (this.#shown !== null) {
      this.#credentials.stale = false;
      void this.#keeper?.renew(this.#shown);
      this.#shown = null;
    }
    this.welcome = welcome;
    this.#token = welcome.token;
    this.sender.properties = welcome.properties;
  }

  // --- What comes in ------------------------------------------------------------------------------------------------

  /** @param {import("./machine.js").Received} received */
  #handle(received) {
    switch (received.type) {
      case "update": {
        const { topic, value, version, event: eventId, snapshot, removed, folded } = received;
        if (!snapshot && folded === 0) this.#positions.updated(eventId);
        this.sender.streams.dispatch({ topic, value, version, eventId, snapshot, removed, folded, gap: false });
        break;
      }
      case "message": // and what others ask, and answer
      case "question": case "answered":
        if (this.assigned.received(received)) {
          // What is settled by acknowledgements makes room for more, and does not wait for their usual time.
          this.#machine.sendLink({ type: "ack", received: this.#machine.received });
          this.#connection?.wake();
        }
        break;
      case "reply":
        this.sender.answered(received);
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
      case "topology":
        this.#plan.listed(received.cluster);
        break;
      case "bye":
        this.#connection?.end({
          message: `the node ended the session: ${received.reason || "no reason given"}`,
          code: CloseCode.NORMAL,
        });
        break;
      case "error":
        this.#blamed = received; // the close that follows says what to do
        break;
    }
  }

  /** @param {import("./packets.js").NoticeBody} notice */
  #noticed(notice) {
    const { code, message, withdrawn, selections, partitions, queues } = notice;
    if (code === NoticeCode.WITHHELD) return; // what they are about is declared by the notice that follows
    if (code === NoticeCode.SNAPSHOTS_COMPLETE) return this.#positions.completed(notice); // nothing that an application would have to know
    if (code === NoticeCode.VALUES_REREAD) this.#positions.reread(partitions);
    if (code === NoticeCode.GRID_LOST_WRITES) this.assigned.consumers.doubt();
    if (code === NoticeCode.CREDENTIALS_EXPIRING && this.#credentials.renewable) {
      const { principal } = this.#credentials;
      const show = (/** @type {string} */ secret) => this.authenticate(secret, principal, { timeout: Infinity });
      void this.#credentials.refresh(() => this.#fresh(), show, this.#abandon.signal);
    }
    if (code === NoticeCode.PERMISSIONS_WITHDRAWN) {
      this.sender.withdrawn(withdrawn, selections);
      for (const queue of queues) this.assigned.consumers.lost(queue, new Forbidden(message));
      this.#declare({ code, message, withdrawn, selections });
    } else {
      this.#declare({ code, message, ...(partitions === null ? {} : { partitions }) });
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
    this.sender.freeze();
    await Promise.race([this.sender.idle(), sleep(this.#environment, LEAVE_TIMEOUT)]);
    if (this.#connection !== connection) return;
    this.#machine.sendLink({ type: "ack", received: this.#machine.received });
    connection.end({
      message: `node ${this.welcome.node} asked to go away: ${goAway.reason}`,
      code: CloseCode.GOING_AWAY,
      planned: true,
      node: goAway.node,
    });
  }
}

/**
 * Make the end of an attempt whose welcome says nothing that this client understands about packet numbers. It is no reason
 * to give the session up: the next resume makes the numbering begin anew.
 *
 * @param {Welcome} welcome
 * @returns {AttemptFailed}
 */
export function unknownNumbering({ outcome, numbering }) {
  const told = `outcome ${JSON.stringify(outcome)}, numbering ${JSON.stringify(numbering)}`;
  return new AttemptFailed({
    message: `this client does not know whether packet numbers go on after ${told}`,
    code: CloseCode.GOING_AWAY,
  });
}

/**
 * List the partitions of topics that a welcome says are not replayed.
 *
 * @param {Welcome["replayed"]} replayed
 * @returns {number[]}
 */
export function partitionsOf(replayed) {
  if (replayed === null || replayed === true) return [];
  return Object.keys(replayed)
    .map(Number)
    .sort((one, other) => one - other);
}

/** @param {Ending} ending */
function nameOf({ code }) {
  return code === CloseCode.MESSAGE_TOO_BIG ? "message_too_big" : "protocol_error";
}
