/**
 * The public face of a session.
 *
 * @module
 */

import { checkCredential, checkProperties, publishOf } from "./content.js";
import { DEFAULT_CREDIT, MOST_CREDIT, QUEUES, sendOf } from "./consumers.js";
import { DURABLES, DurableStream, openDurable } from "./durablestream.js";
import { checkDuration, checkSeconds, checkSignal } from "./environment.js";
import { guarded, RequestRefused } from "./errors.js";
import { DEFAULT_CONCURRENCY, MOST_CONCURRENCY, QUESTIONS } from "./exchanges.js";
import { HistoryStream, readHistory } from "./historystream.js";
import { parsePosition } from "./logreader.js";
import { Presence, topicsOf } from "./presence.js";
import { checkTopic, parseSelector } from "./selectors.js";
import { UpdateStream } from "./streams.js";
import { Transaction, TRANSACTIONS } from "./transactions.js";
import { pageOf, VALUES, valuesAsk } from "./values.js";
import { WILLS, writtenWills } from "./wills.js";

/** Events that `history` reads unless it is told otherwise. */
export const HISTORY_LIMIT = 1000;

/** Seconds `close` waits until a node has confirmed that the session is ended. */
export const CLOSE_TIMEOUT = 5;

/**
 * @typedef {import("./sender.js").CallOptions} CallOptions - `timeout` in seconds; `signal` gives the call up.
 *
 * @typedef {{eventId: string, version: number}} Receipt - A publish is in the grid. Empty and 0 if it had been executed
 *   before and its receipt is no longer kept.
 *
 * @typedef {{messageId: number}} SendReceipt - A message is in its queue. 0 if it had been sent before and nobody knows its
 *   id any more.
 */

/**
 * A session at a gateway: it outlives its connections, the nodes that serve it and their deploys.
 *
 * Events: `state` (detail: connected, recovering, closed), `recovery` (detail: `Recovery`), `notice` (detail: `Notice`).
 */
export class Session extends EventTarget {
  #supervisor;
  /** @type {Set<DurableStream>} */
  #durables = new Set();
  /** What stands in for the application's listeners. @type {WeakMap<object, (event: Event) => void>} */
  #guarded = new WeakMap();

  /** @param {import("./supervisor.js").Supervisor} supervisor - Made by `connect`. */
  constructor(supervisor) {
    super();
    this.#supervisor = supervisor;
    /** @param {string} type */
    const dispatch = (type) => (/** @type {unknown} */ detail) => {
      this.dispatchEvent(new CustomEvent(type, { detail }));
    };
    supervisor.tell({ state: dispatch("state"), recovery: dispatch("recovery"), notice: dispatch("notice") });
  }

  /**
   * As of every `EventTarget`; but what a listener throws is reported, and ends neither the session nor the process.
   *
   * @override
   * @param {string} type
   * @param {EventListenerOrEventListenerObject | null} listener
   * @param {boolean | AddEventListenerOptions} [options]
   */
  addEventListener(type, listener, options) {
    super.addEventListener(type, this.#standIn(listener), options);
  }

  /**
   * @override
   * @param {string} type
   * @param {EventListenerOrEventListenerObject | null} listener
   * @param {boolean | EventListenerOptions} [options]
   */
  removeEventListener(type, listener, options) {
    super.removeEventListener(type, this.#standIn(listener), options);
  }

  /** @param {EventListenerOrEventListenerObject | null} listener */
  #standIn(listener) {
    if (listener === null || listener === undefined) return null;
    let standIn = this.#guarded.get(listener);
    if (standIn === undefined) {
      standIn = (event) =>
        guarded(() => (typeof listener === "function" ? listener.call(this, event) : listener.handleEvent(event)));
      this.#guarded.set(listener, standIn);
    }
    return standIn;
  }

  // --- What it is ---------------------------------------------------------------------------------------------------

  /** The session's identity in the whole cluster; the same for its whole life. */
  get id() {
    return this.#supervisor.welcome.session;
  }

  /** Who it belongs to. */
  get principal() {
    return this.#supervisor.welcome.principal;
  }

  /** The node that serves it, or served it last. */
  get node() {
    return this.#supervisor.welcome.node;
  }

  /** The node that keeps a copy of it, as of the last welcome; null if none does. */
  get backup() {
    return this.#supervisor.welcome.backup;
  }

  /**
   * What its node waits for before packets leave, as of the last welcome: `async` for nothing, `sync` or `strict` for the
   * backup; null without one. The notice `unmirrored` says that `sync` is `async` now.
   */
  get mirror() {
    return this.#supervisor.welcome.mirror;
  }

  /** Whether its node was the master when it welcomed the session; null if it does not follow the master. */
  get following() {
    return this.#supervisor.welcome.following;
  }

  /**
   * Where it connects: the URLs that were given, then those of the nodes that the cluster lists at the moment. None of them
   * is less safe than those that were given.
   *
   * @returns {readonly string[]}
   */
  get urls() {
    return this.#supervisor.urls;
  }

  /** All properties; names with `$` are the server's. @returns {Readonly<Record<string, string>>} */
  get properties() {
    return this.#supervisor.sender.properties;
  }

  /** Where it stands: connected, recovering or closed. */
  get state() {
    return this.#supervisor.state;
  }

  /** Whether it survives the loss of its node. */
  get replicated() {
    return this.#supervisor.welcome.replicated;
  }

  /** Seconds it survives without a connection, as the node granted. */
  get window() {
    return this.#supervisor.welcome.window;
  }

  /** What it selects, as `+selector` and `-selector`, as far as a node has confirmed it; the last that matches decides. */
  get selections() {
    return this.#supervisor.sender.selections;
  }

  /** Whether it is a session from before a reload; then `recoveries` begins with what was preserved. */
  get resumed() {
    return this.#supervisor.resumed;
  }

  /** Why it is over; null while it is not. */
  get closedReason() {
    return this.#supervisor.ended;
  }

  /** Settled when the session is over, for whatever reason; `closedReason` tells it. */
  get closed() {
    return this.#supervisor.over;
  }

  /** The recoveries there were (the last 256), then each new one; to be iterated with `for await`. */
  get recoveries() {
    return this.#supervisor.recoveries;
  }

  /** What the server declared, likewise. */
  get notices() {
    return this.#supervisor.notices;
  }

  // --- Topics -------------------------------------------------------------------------------------------------------

  /**
   * Select topics and be sent their values. Settles once the grid has accepted the selection, so that it survives the node.
   * The selection lasts as long as one stream that asked for it.
   *
   * With `start`, every event of topics with history comes from there on: once and in order, whatever happens to the
   * session, and however slowly it is read. It is `earliest`, `now`, or what the `position` of a stream, or the `eventId` of
   * an update, was. Topics without history have their current value. Where events behind it are not kept any more, the first
   * update that follows has `gap`; with `onGap: "refuse"`, the iteration throws `PositionGone` in its place, and ends.
   *
   * @overload
   * @param {string} selector
   * @param {CallOptions & {start: string, onGap?: "tell" | "refuse", queueSize?: number}} options
   * @returns {Promise<HistoryStream>}
   */
  /**
   * @overload
   * @param {string} selector - `*` matches one segment, `**` any number, such as `prices/*` or `prices/**`.
   * @param {CallOptions & {listener?: import("./streams.js").UpdateListener, queueSize?: number, queueBytes?: number}} [options]
   *   A listener is called at once with each update, in place of an iteration; else `queueSize` updates, or `queueBytes` of
   *   them, are kept before they are conflated to the newest per topic. The signal also ends the stream, later on.
   * @returns {Promise<UpdateStream>}
   */
  /**
   * @param {string} selector
   * @param {CallOptions & {start?: string, onGap?: "tell" | "refuse", listener?: import("./streams.js").UpdateListener,
   *   queueSize?: number, queueBytes?: number}} [options]
   * @returns {Promise<UpdateStream>}
   */
  async subscribe(selector, { timeout, signal, start, onGap, ...options } = {}) {
    checkSignal(signal);
    const parsed = parseSelector(selector);
    const { sender } = this.#supervisor;
    const released = () => {
      signal?.removeEventListener("abort", close);
      sender.release(parsed, stream);
    };
    const history =
      start === undefined
        ? null
        : new HistoryStream(parsed, sender, { start, onGap: onGap ?? "tell", ...options, released });
    const stream = history ?? new UpdateStream(parsed, { ...options, released });
    const close = () => stream.close();
    await sender.subscribe(parsed, stream, { timeout, signal });
    try {
      await history?.begin({ timeout, signal });
    } catch (error) {
      close();
      throw error;
    }
    if (signal?.aborted) close();
    else signal?.addEventListener("abort", close, { once: true });
    return stream;
  }

  /**
   * Hear who has subscribed to topics of a tree, such as `rooms/7`, and who comes and goes. What comes first are those that
   * were there before. A member stays one while its client recovers; it leaves when it unsubscribes, or its session ends.
   *
   * @param {string} tree
   * @param {CallOptions & import("./presence.js").PresenceOptions} [options] - With `members: false` it is told only how
   *   many there are. The signal also ends it, later on.
   * @returns {Promise<Presence>}
   */
  async presence(tree, { members = true, listener = null, ...options } = {}) {
    const presence = new Presence(checkTopic(tree), listener);
    const topics = topicsOf(tree);
    /** @param {import("./streams.js").Update} update */
    const told = (update) => presence.told(update);
    const ended = () => presence.close();
    try {
      presence.hold(await this.subscribe(topics.count, { ...options, listener: told }));
      if (members) presence.hold(await this.subscribe(`${topics.members}*`, { ...options, listener: told }));
    } catch (error) {
      ended();
      throw error;
    }
    void this.closed.then(ended, ended);
    options.signal?.addEventListener("abort", ended, { once: true });
    return presence;
  }

  /**
   * Read the history of a topic without subscribing.
   *
   * @param {string} topic
   * @param {CallOptions & {after?: string, limit?: number}} [options] - Behind which event or position, the earliest that is
   *   kept by default; and how many events, 1000 by default.
   * @returns {Promise<import("./streams.js").Update[]>} The oldest first.
   */
  async history(topic, { after, limit = HISTORY_LIMIT, ...options } = {}) {
    const { sender } = this.#supervisor;
    return readHistory((ask) => sender.readHistory(ask, options), checkTopic(topic), after ?? "earliest", limit);
  }

  /**
   * Read the current values of topics without subscribing, page by page, in the order of their paths; all that was published
   * before is in them. A topic that is there from the first page to the last is in exactly one of them.
   *
   * @param {string} selector
   * @param {CallOptions & import("./values.js").PageOptions} [options]
   * @returns {Promise<import("./values.js").ValuesPage>}
   */
  async values(selector, { after, limit, ...options } = {}) {
    const ask = valuesAsk(selector, { after, limit });
    this.#checkSupports(VALUES, "pages of values");
    return pageOf(await this.#supervisor.sender.request(ask, options));
  }

  /**
   * End the streams of exactly this selector, and take nothing from others. If there are none, deselect topics: what the
   * selector matches is not sent any more, whatever selected it, until something selects it again.
   *
   * @param {string} selector
   * @param {CallOptions} [options]
   */
  async unsubscribe(selector, options = {}) {
    await this.#supervisor.sender.unsubscribe(parseSelector(selector), options);
  }

  /**
   * Set the value of a topic, exactly once however often the client has to ask.
   *
   * @param {string} topic - Its path, such as `prices/ACME`.
   * @param {unknown} value - What JSON has a text for; taken as it is now.
   * @param {CallOptions & {ttl?: number}} [options] - Seconds after which the value ends, unless another one has taken its
   *   place: subscribers get an update that is `removed`. 0 for ever, whatever the topic's destination says.
   * @returns {Promise<Receipt>} Once the publish is in the grid.
   */
  async publish(topic, value, options = {}) {
    const ask = publishOf(topic, value, options.ttl);
    if (ask.ttl !== undefined) this.#checkSupports("ttl", "values that end");
    const reply = await this.#supervisor.sender.request(ask, options);
    return { eventId: reply.event ?? "", version: reply.version ?? 0 };
  }

  /**
   * Have the gateway publish something when this session ends, in the place of what was set before: once, whoever ends the
   * session, also if its node has died.
   *
   * @param {readonly import("./wills.js").Will[]} wills - 8 at most, published in this order; none to leave nothing.
   * @param {CallOptions} [options]
   * @returns {Promise<void>} Once the grid has them.
   */
  async setWills(wills, options = {}) {
    const ask = { type: /** @type {const} */ ("wills"), wills: writtenWills(wills) };
    this.#checkSupports(WILLS, "last wills");
    await this.#supervisor.sender.request(ask, options);
  }

  // --- Durable subscriptions ----------------------------------------------------------------------------------------

  /**
   * Read topics with history from where the last session of the principal was done that did so by this name. One session at
   * a time uses a durable subscription; it is taken over from one whose client is gone.
   *
   * `name` is what the principal calls it, and `selector` is as of `subscribe`, the same each time.
   *
   * With `shared`, any number of sessions use it, and each event is given to one of them, as a message of a queue, until it
   * is settled. Its headers say of which `topic` and `event` it is; its topics have the same first segment.
   *
   * @overload
   * @param {string} name
   * @param {string} selector
   * @param {CallOptions & {shared: true, start?: string, ack?: import("./consumers.js").Ack, credit?: number,
   *   expires?: number}} options - As of the other form, and of `consume`.
   * @returns {Promise<import("./consumers.js").MessageConsumer>}
   */
  /**
   * @overload
   * @param {string} name
   * @param {string} selector
   * @param {CallOptions & {shared?: false, start?: string, ack?: "auto" | "client", expires?: number, take?: boolean,
   *   onGap?: "tell" | "refuse", queueSize?: number}} [options] - Where it begins if there is none: `earliest` by default.
   *   How it is acknowledged. Seconds after its last use when it is forgotten, a week by default. Whether it is taken also
   *   from a session whose client is there. The others as of `subscribe`.
   * @returns {Promise<DurableStream>}
   * @throws {import("./errors.js").DurableInUse} Another session uses it, and is connected.
   */
  /**
   * @param {string} name
   * @param {string} selector
   * @param {CallOptions & {shared?: boolean, start?: string, ack?: import("./consumers.js").Ack, credit?: number,
   *   expires?: number, take?: boolean, onGap?: "tell" | "refuse", queueSize?: number}} [options]
   * @returns {Promise<DurableStream | import("./consumers.js").MessageConsumer>}
   */
  async subscribeDurable(name, selector, options = {}) {
    const { start = "earliest", ack = "auto", expires, take = false, shared = false, credit = DEFAULT_CREDIT } = options;
    const mode = shared ? "auto" : ack;
    if (mode !== "auto" && mode !== "client") throw new TypeError(`ack is "auto" or "client", not ${String(ack)}`);
    if (expires !== undefined) checkDuration("expires", expires);
    const call = {
      ...(options.timeout === undefined ? {} : { timeout: options.timeout }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    };
    /** @type {Extract<import("./requests.js").Ask, {type: "durable-open"}>} */
    const ask = { type: "durable-open", name, selector: parseSelector(selector).text };
    if (start === "now") ask.from = "now";
    else if (start !== "earliest") ask.after = Object.fromEntries(parsePosition(start));
    if (expires !== undefined) ask.life = expires;
    if (take) ask.take = true;
    if (shared) ask.shared = true;
    const opened = await openDurable(this.#supervisor.calls.by(this.#requestDurable.bind(this)), ask, call, {
      mode,
      consume: (queue) => this.consume(queue, { credit, ack, ...call }),
      subscribe: (begin) =>
        this.subscribe(selector, {
          ...call,
          ...(options.onGap === undefined ? {} : { onGap: options.onGap }),
          ...(options.queueSize === undefined ? {} : { queueSize: options.queueSize }),
          start: begin,
        }),
    });
    if (opened instanceof DurableStream) this.#durables.add(opened);
    return opened;
  }

  /**
   * Have a durable subscription of the principal forgotten; close its stream first, if this session has it.
   *
   * @param {string} name
   * @param {CallOptions} [options]
   * @throws {import("./errors.js").NoSuchDurable} There is none.
   * @throws {import("./errors.js").DurableInUse} Another session uses it.
   */
  async unsubscribeDurable(name, options = {}) {
    await this.#requestDurable({ type: "durable-remove", name }, options);
  }

  /**
   * @param {import("./sender.js").Ask} ask
   * @param {CallOptions} [options]
   */
  async #requestDurable(ask, options = {}) {
    this.#checkSupports(DURABLES, "durable subscriptions");
    return this.#supervisor.sender.request(ask, options);
  }

  // --- Queues -------------------------------------------------------------------------------------------------------

  /**
   * Put a message into a queue, exactly once however often the client has to ask.
   *
   * @param {string} queue - Its path, such as `jobs/render`; an administrator has declared it.
   * @param {unknown} value - What JSON has a text for; taken as it is now.
   * @param {CallOptions & {headers?: Record<string, string>, delay?: number, expires?: number}} [options] - Texts that
   *   travel with it; seconds until somebody may be given it; seconds after which nobody is, instead of what the queue says.
   * @returns {Promise<SendReceipt>} Once the message is in the grid.
   */
  async send(queue, value, { headers, delay, expires, ...options } = {}) {
    this.#checkSupports(QUEUES, "queues");
    const reply = await this.#supervisor.sender.request(sendOf(queue, value, { headers, delay, expires }), options);
    return { messageId: reply.sent ?? 0 };
  }

  /**
   * Be given messages of a queue, of which each goes to one consumer.
   *
   * @param {string} queue - Its path.
   * @param {CallOptions & {credit?: number, ack?: import("./consumers.js").Ack}} [options] - Messages that the session may
   *   hold unsettled, 1000 at most; and how they are settled.
   * @returns {Promise<import("./consumers.js").MessageConsumer>}
   */
  async consume(queue, { credit = DEFAULT_CREDIT, ack = "auto", ...options } = {}) {
    if (!Number.isSafeInteger(credit) || credit < 1 || credit > MOST_CREDIT) {
      throw new TypeError(`credit is a number of messages from 1 to ${MOST_CREDIT}, not ${String(credit)}`);
    }
    if (!["auto", "each", "client", "none"].includes(ack)) throw new TypeError(`ack is auto, each, client or none, not ${ack}`);
    this.#checkSupports(QUEUES, "queues");
    return this.#supervisor.assigned.consumers.consume(checkTopic(queue), { credit, ack }, options);
  }

  /**
   * Make a queue for the life of this session, which alone consumes from it; others send to it.
   *
   * @param {CallOptions & {temporary: true}} options - Other queues are declared by administrators.
   * @returns {Promise<string>} Its path, to be told to those who shall send.
   */
  async declare({ temporary, ...options }) {
    if (temporary !== true) throw new TypeError("only temporary queues are declared by clients");
    this.#checkSupports("temporary", "temporary queues");
    const { queue } = await this.#supervisor.sender.request({ type: "declare", temporary }, options);
    return queue ?? "";
  }

  /**
   * Publish, send and settle as a whole, or not at all.
   *
   * With `work`, it is committed at the end, and rolled back if `work` fails; the result is that of `work`. Without, the
   * transaction has begun once this settles, and it is the caller who commits it or rolls it back.
   *
   * @template T
   * @overload
   * @param {(transaction: Transaction) => T | Promise<T>} work
   * @param {CallOptions} [options] - Of each call of it: a time limit for each answer, and a signal that gives up.
   * @returns {Promise<T>}
   */
  /**
   * @overload
   * @param {CallOptions} [options]
   * @returns {Promise<Transaction>}
   */
  /**
   * @param {((transaction: Transaction) => unknown) | CallOptions} [work]
   * @param {CallOptions} [options]
   * @returns {Promise<unknown>}
   */
  async transaction(work = {}, options = {}) {
    const call = typeof work === "function" ? options : work;
    this.#checkSupports(TRANSACTIONS, "transactions");
    const { sender } = this.#supervisor;
    const { request } = await sender.request({ type: "begin" }, call);
    const begun = new Transaction((ask, how) => sender.request(ask, how), request, call);
    return typeof work === "function" ? begun.run(work) : begun;
  }

  // --- Requests and handlers ----------------------------------------------------------------------------------------

  /**
   * Answer requests of other sessions; of several sessions that handle a path, the least busy one is asked. It is part of the
   * session: it goes along to any other connection and node.
   *
   * @param {string} selector - Of the paths, such as `quotes/**`; its first segment is no wildcard.
   * @param {import("./exchanges.js").RequestHandler} handler
   * @param {CallOptions & {concurrency?: number}} [options] - Requests that the session has at a time, 1000 at most.
   * @returns {Promise<import("./exchanges.js").Handling>} What cancels it.
   */
  async handle(selector, handler, { concurrency = DEFAULT_CONCURRENCY, ...options } = {}) {
    if (!Number.isSafeInteger(concurrency) || concurrency < 1 || concurrency > MOST_CONCURRENCY) {
      throw new TypeError(`concurrency is a number of requests from 1 to ${MOST_CONCURRENCY}, not ${String(concurrency)}`);
    }
    this.#checkSupports(QUESTIONS, "requests of applications");
    return this.#supervisor.assigned.exchanges.handle(selector, handler, { concurrency, ...options });
  }

  /**
   * Ask one of those who handle a path, and wait for the answer; nobody is asked twice.
   *
   * @param {string} path - What it is about, such as `quotes/ACME`.
   * @param {unknown} [value] - What JSON has a text for.
   * @param {CallOptions & {principal?: string, sessionId?: string}} [options] - Seconds within which it has to be answered, 5 by
   *   default; whose sessions alone may be asked, or which session alone.
   * @returns {Promise<import("./packets.js").JsonValue>} The answer.
   * @throws {import("./errors.js").NoHandler} Nobody who is there handles it. It was not executed.
   * @throws {import("./errors.js").HandlersBusy} All who do have as many requests as they take. It was not executed.
   * @throws {import("./errors.js").HandlerFailed} Whoever was asked says that there is no answer.
   * @throws {import("./errors.js").HandlerLost | import("./errors.js").AnswerLost} There will be no answer.
   */
  async request(path, value = null, options = {}) {
    this.#checkSupports(QUESTIONS, "requests of applications");
    return this.#supervisor.assigned.exchanges.request(path, value, options);
  }

  /**
   * @param {string} word
   * @param {string} what
   */
  #checkSupports(word, what) {
    const { node, supports } = this.#supervisor.welcome;
    if (supports.includes(word)) return;
    throw new RequestRefused(`node ${node} is of a release without ${what}`, "unknown_packet_type");
  }

  /**
   * Change user-defined properties.
   *
   * @param {Record<string, string | null>} changes - Value by name; null removes one, and what is not named stays.
   * @param {CallOptions} [options]
   */
  async setProperties(changes, options = {}) {
    const { sender } = this.#supervisor;
    await sender.request({ type: "properties", set: checkProperties(changes, sender.properties) }, options);
  }

  /**
   * Show fresh credentials, before those of the session end; a `secret` that is a function does so by itself.
   *
   * @param {string} secret
   * @param {CallOptions & {principal?: string}} [options] - Who shows it, if the proof does not tell.
   * @throws {import("./errors.js").RequestRefused} They are not accepted, or it cannot be told now.
   */
  async authenticate(secret, { principal = "", ...options } = {}) {
    checkCredential("secret", secret);
    checkCredential("principal", principal);
    await this.#supervisor.authenticate(secret, principal, options);
  }

  /**
   * End the session on purpose; nothing of it stays in the grid. Requests without an answer fail with `SessionClosed`.
   *
   * @param {{timeout?: number}} [options] - Seconds to wait until a node has confirmed; if none can be reached, the session
   *   is left to its window.
   */
  async close({ timeout = CLOSE_TIMEOUT } = {}) {
    checkSeconds("timeout", timeout);
    // What was read and not acknowledged yet, as far as it can be told in time.
    if (this.#durables.size > 0) await Promise.allSettled([...this.#durables].map((each) => each.flush({ timeout })));
    await this.#supervisor.close(timeout);
  }
}
