/**
 * The admin API. The token is kept in memory, or for this tab if the user wants that, and is never part of a URL.
 *
 * @module
 */

/** What the admin API says when it refuses (RFC 9457). */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * @typedef {{items: any[], cursor: string | null}} Page
 */

/** Asks the node that the page came from, or the one at which the console goes on when that has died. */
export class Api {
  #token;

  /** Where that is. */
  origin = location.origin;

  /** Told when a token is not accepted, or does not permit what was asked for. */
  refused = () => {};

  /** @param {string} token */
  constructor(token) {
    this.#token = token;
  }

  /** For the hello of the console's session. */
  get token() {
    return this.#token;
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {{body?: unknown, headers?: Record<string, string>, query?: Record<string, string | number | boolean | null | undefined>, signal?: AbortSignal}} [options]
   * @returns {Promise<any>}
   * @throws {Refused}
   */
  async ask(method, path, { body, headers = {}, query = {}, signal } = {}) {
    const url = new URL(path, this.origin);
    for (const [name, value] of Object.entries(query)) {
      if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, String(value));
    }
    const response = await fetch(url, {
      method,
      headers: {
        Authorization: `Bearer ${this.#token}`,
        Accept: "application/json",
        ...headers,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      body: body === undefined ? null : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      ...(signal ? { signal } : {}),
    });
    const text = await response.text();
    const content = parse(text);
    if (response.status === 401 || response.status === 403) this.refused();
    if (!response.ok) throw new Refused(response.status, content?.detail ?? content?.title ?? `HTTP status ${response.status}`);
    return content;
  }

  /** @returns {Promise<Page>} */
  nodes() {
    return this.ask("GET", "/v1/nodes");
  }

  /**
   * @param {string} node
   * @param {"drain" | "undrain"} what
   */
  nodeAction(node, what) {
    return this.ask("POST", `/v1/nodes/${segment(node)}/${what}`);
  }

  /**
   * @param {{filter?: string, cursor?: string | null, limit?: number, signal?: AbortSignal}} query
   * @returns {Promise<Page>}
   */
  sessions({ signal, ...query }) {
    return this.ask("GET", "/v1/sessions", { query, ...(signal ? { signal } : {}) });
  }

  /** @param {string} id */
  session(id) {
    return this.ask("GET", sessionPath(id));
  }

  /**
   * @param {string} id
   * @returns {Promise<{session: string, node: string, detail: string} | null>} Null if it has ended; else it is closed at
   *   its node, and its end in the grid is still to come.
   */
  closeSession(id) {
    return this.ask("DELETE", sessionPath(id));
  }

  /**
   * @param {string} id
   * @param {string | null} node
   */
  moveSession(id, node) {
    return this.ask("POST", `${sessionPath(id)}/move`, { body: node === null ? {} : { node } });
  }

  /**
   * @param {string} id
   * @param {string} message
   * @returns {Promise<{session: string, node: string, connected: boolean}>}
   */
  notifySession(id, message) {
    return this.ask("POST", `${sessionPath(id)}/notice`, { body: { message } });
  }

  /**
   * @param {{selector: string, cursor?: string | null, limit?: number, signal?: AbortSignal}} query
   * @returns {Promise<Page>}
   */
  topics({ signal, ...query }) {
    return this.ask("GET", "/v1/topics", { query, ...(signal ? { signal } : {}) });
  }

  /**
   * @param {string} topic
   * @param {unknown} value
   * @param {string} key - Names the request: asked again with the same one, it is done once.
   */
  setTopic(topic, value, key) {
    return this.ask("PUT", topicPath(topic), { body: { value }, headers: { "Idempotency-Key": key } });
  }

  /** @param {string} topic */
  deleteTopic(topic) {
    return this.ask("DELETE", topicPath(topic));
  }

  /**
   * @param {string} topic
   * @returns {Promise<Page>}
   */
  subscribers(topic) {
    return this.ask("GET", `${topicPath(topic)}/subscribers`, { query: { limit: 100 } });
  }

  /** @returns {Promise<{name: string, roles: string[], actions: string[]}>} */
  access() {
    return this.ask("GET", "/v1/access");
  }

  /**
   * @param {{cursor?: string | null, limit?: number, signal?: AbortSignal}} query
   * @returns {Promise<Page>}
   */
  revocations({ signal, ...query }) {
    return this.ask("GET", "/v1/revocations", { query, ...(signal ? { signal } : {}) });
  }

  /**
   * @param {string} kind
   * @param {string} value
   */
  unblock(kind, value) {
    return this.ask("DELETE", `/v1/revocations/${segment(kind)}/${segment(value)}`);
  }

  /**
   * @param {{limit?: number, signal?: AbortSignal}} query
   * @returns {Promise<Page>}
   */
  destinations({ signal, ...query }) {
    return this.ask("GET", "/v1/destinations", { query, ...(signal ? { signal } : {}) });
  }

  /**
   * @param {string} selector
   * @param {{limit?: number, signal?: AbortSignal}} query
   * @returns {Promise<Page>}
   */
  trees(selector, { signal, ...query }) {
    return this.ask("GET", `${destinationPath(selector)}/trees`, { query, ...(signal ? { signal } : {}) });
  }

  /**
   * @param {string} selector
   * @param {{kind: string, limits: Record<string, unknown>}} said
   */
  setDestination(selector, said) {
    return this.ask("PUT", destinationPath(selector), { body: said });
  }

  /** @param {string} selector */
  removeDestination(selector) {
    return this.ask("DELETE", destinationPath(selector));
  }

  /**
   * @param {{cursor?: string, limit?: number, signal?: AbortSignal}} options
   */
  queues({ signal, ...query }) {
    return this.ask("GET", "/v1/queues", { query, ...(signal ? { signal } : {}) });
  }

  /**
   * @param {string} queue
   * @param {{limit?: number, signal?: AbortSignal}} options
   */
  deadLetters(queue, { signal, ...query }) {
    return this.ask("GET", `${queuePath(queue)}/dead`, { query, ...(signal ? { signal } : {}) });
  }

  /**
   * @param {string} queue
   * @param {number[]} messages - Ids of dead letters.
   * @param {"requeue" | "drop"} action
   */
  mendDeadLetters(queue, messages, action) {
    return this.ask("POST", `${queuePath(queue)}/${action}`, { body: { messages } });
  }

  /** @param {{signal?: AbortSignal}} options */
  hooks(options) {
    return this.ask("GET", "/v1/hooks", options);
  }

  /** @param {string} name */
  retryHook(name) {
    return this.ask("POST", `/v1/hooks/${segment(name)}/retry`);
  }

  /** @param {{signal?: AbortSignal}} options */
  zones(options) {
    return this.ask("GET", "/v1/zones", options);
  }

  /** @param {{signal?: AbortSignal}} options */
  zoneMembers(options) {
    return this.ask("GET", "/v1/zone/members", options);
  }

  /** @param {{zone: string, urls: string[], secret?: string}} body */
  joinZone(body) {
    return this.ask("PUT", "/v1/zone", { body });
  }

  leaveZone() {
    return this.ask("DELETE", "/v1/zone");
  }

  /** @param {{signal?: AbortSignal}} options */
  joins(options) {
    return this.ask("GET", "/v1/joins", options);
  }

  /** @param {string} name */
  removeJoin(name) {
    return this.ask("DELETE", `/v1/joins/${segment(name)}`);
  }

  /** @param {object} revocation */
  revoke(revocation) {
    return this.ask("POST", "/v1/revocations", { body: revocation });
  }
}

/**
 * Writes a name as one segment of a path. URL takes the segments "." and ".." out of a path, however they are escaped:
 * these names get a slash in front, which the API takes off.
 *
 * @param {string} name
 */
function segment(name) {
  return encodeURIComponent(/^\/*\.{1,2}$/.test(name) ? `/${name}` : name);
}

/** @param {string} id */
function sessionPath(id) {
  return `/v1/sessions/${segment(id)}`;
}

/** @param {string} selector */
function destinationPath(selector) {
  return `/v1/destinations/${segment(selector)}`;
}

/** @param {string} queue */
function queuePath(queue) {
  return `/v1/queues/${segment(queue)}`;
}

/** @param {string} topic */
function topicPath(topic) {
  return `/v1/topics/${segment(topic)}`;
}

/** @param {string} text */
function parse(text) {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null;
  }
}
