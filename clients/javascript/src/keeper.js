/**
 * The token, kept over reloads of a page; only if the application asks for it, because it is a secret: whoever has it has
 * the session (protocol 11.1).
 *
 * **Whose it is.** What is kept says for whom: the principal, a digest of the credentials, and the origins of the gateway.
 * Whoever connects as somebody else, or to another place, gets a new session and never sends that token. The digest is
 * salted and slow (PBKDF2), so that what is kept does not give a password away. It needs `crypto.subtle`, which pages have
 * that were loaded over TLS or from this machine; elsewhere a session with a secret is not kept.
 *
 * **Who writes it.** Each `connect` is an owner of its own, and the last one that got a session has the name: an older
 * session of the same name neither overwrites nor forgets what the newer one keeps.
 *
 * @module
 */

/** Begins the names of what is kept. */
const PREFIX = "session-gateway:";

/** Rounds of the digest: some 30 ms, once for each `connect`, and as much for each guess of whoever reads the record. */
const ROUNDS = 100_000;

/** Bytes of salt, and of the name of an owner. */
const SALT_BYTES = 16;

/** Bits of the digest. */
const DIGEST_BITS = 256;

/**
 * @typedef {{salt: string, digest: string}} Proof - That somebody shows the same credentials again.
 *
 * @typedef {object} Identity - Who connects, and where to.
 * @property {string} principal
 * @property {string | undefined} secret
 * @property {readonly string[]} origins - Scheme, host and port of every URL.
 *
 * @typedef {object} Counters - What goes on with the session. `attempt` and `request` are the highest numbers used: those
 *   of the next life must be above them (protocol 11.5).
 * @property {string} token
 * @property {number} attempt
 * @property {number} request
 *
 * @typedef {Counters & {owner: string, principal: string, origins: string[], proof: Proof | null}} Kept
 * @typedef {Pick<Storage, "getItem" | "setItem" | "removeItem">} Store
 */

/** Keeps one session's token in `sessionStorage`, which belongs to one tab and ends with it. */
export class Keeper {
  #name;
  #store;
  #owner = encode(crypto.getRandomValues(new Uint8Array(SALT_BYTES)));
  /** @type {Omit<Kept, keyof Counters> | null} */
  #whose = null;

  /**
   * @param {string} name - Tells the sessions of one page apart.
   * @param {Store} [store]
   */
  constructor(name, store = globalThis.sessionStorage) {
    if (store === undefined) throw new TypeError("there is no sessionStorage here, so that options.keep makes no sense");
    this.#name = PREFIX + name;
    this.#store = store;
  }

  /**
   * Read what is kept for the same principal, credentials and places.
   *
   * @param {Identity} identity
   * @returns {Promise<Counters | null>} Null if there is nothing, or if it is somebody else's.
   */
  async read({ principal, secret, origins }) {
    const kept = this.#stored();
    if (kept === null || kept.principal !== principal) return null;
    if (!origins.every((each) => kept.origins.includes(each))) return null;
    if (secret === undefined || kept.proof === null) return secret === undefined && kept.proof === null ? kept : null;
    const digest = await digestOf(secret, kept.proof.salt);
    return digest === kept.proof.digest ? kept : null;
  }

  /**
   * Keep for this identity from the next `take` on.
   *
   * @param {Identity} identity
   */
  async bind({ principal, secret, origins }) {
    const whose = { owner: this.#owner, principal, origins: [...origins] };
    if (secret === undefined) {
      this.#whose = { ...whose, proof: null };
      return;
    }
    const salt = encode(crypto.getRandomValues(new Uint8Array(SALT_BYTES)));
    const digest = await digestOf(secret, salt);
    this.#whose = digest === null ? null : { ...whose, proof: { salt, digest } };
  }

  /**
   * Fresh credentials of the same session were accepted: keep for whoever shows those.
   *
   * @param {string} secret
   */
  async renew(secret) {
    if (this.#whose === null) return;
    await this.bind({ ...this.#whose, secret });
    const kept = this.#stored();
    if (kept?.owner === this.#owner) this.take(kept);
  }

  /**
   * Keep from now on, in the place of whoever had the name.
   *
   * @param {Counters} counters
   */
  take({ token, attempt, request }) {
    if (this.#whose === null) return;
    try {
      this.#store.setItem(this.#name, JSON.stringify({ token, attempt, request, ...this.#whose }));
    } catch {
      // Storage is full or forbidden: a reload opens a new session, and this one goes on.
    }
  }

  /**
   * Keep what has changed, unless somebody else has the name, or the application has emptied the storage.
   *
   * @param {Counters} counters
   */
  write(counters) {
    if (this.#stored()?.owner === this.#owner) this.take(counters);
  }

  /** Forget it, unless somebody else has the name. */
  forget() {
    if (this.#stored()?.owner !== this.#owner) return;
    try {
      this.#store.removeItem(this.#name);
    } catch {
      // As above.
    }
  }

  /** @returns {Kept | null} */
  #stored() {
    try {
      const kept = JSON.parse(this.#store.getItem(this.#name) ?? "null");
      return isKept(kept) ? kept : null;
    } catch {
      return null;
    }
  }
}

/**
 * @param {any} kept
 * @returns {kept is Kept} A record that does not say whose it is, as older versions wrote, is none.
 */
function isKept(kept) {
  const { token, attempt, request, owner, principal, origins, proof } = kept ?? {};
  return (
    [token, owner, principal].every((each) => typeof each === "string") &&
    [attempt, request].every(Number.isSafeInteger) &&
    Array.isArray(origins) &&
    (proof === null || (typeof proof?.salt === "string" && typeof proof.digest === "string"))
  );
}

/**
 * Tell the origins of URLs.
 *
 * @param {readonly string[]} urls - As `checkUrls` returned them.
 * @returns {string[]}
 */
export function originsOf(urls) {
  return [
    ...new Set(
      urls.map((each) => {
        const { protocol, host } = new URL(each);
        return `${protocol}//${host}`;
      }),
    ),
  ];
}

/**
 * @param {string} secret
 * @param {string} salt
 * @returns {Promise<string | null>} Null where the platform has nothing to make one with.
 */
async function digestOf(secret, salt) {
  const { subtle } = crypto;
  if (subtle === undefined) return null;
  // It has no reason to fail; should it all the same, nothing is kept.
  return makeDigest(subtle, secret, salt).catch(() => null);
}

/**
 * @param {SubtleCrypto} subtle
 * @param {string} secret
 * @param {string} salt
 */
async function makeDigest(subtle, secret, salt) {
  const encoder = new TextEncoder();
  const key = await subtle.importKey("raw", encoder.encode(subjectOf(secret)), "PBKDF2", false, ["deriveBits"]);
  const how = { name: "PBKDF2", hash: "SHA-256", salt: encoder.encode(salt), iterations: ROUNDS };
  return encode(new Uint8Array(await subtle.deriveBits(how, key, DIGEST_BITS)));
}

/**
 * Tell what of a secret stays when it is renewed: of a JSON Web Token, who it was issued to and by whom; of others, all.
 *
 * It decides nothing about rights: whoever goes on with a session by a renewed token shows it to the server.
 *
 * @param {string} secret
 * @returns {string}
 */
function subjectOf(secret) {
  const [, payload, signature] = secret.split(".");
  if (payload === undefined || signature === undefined) return secret;
  try {
    const bytes = Uint8Array.from(atob(payload.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
    const { iss, sub } = JSON.parse(new TextDecoder().decode(bytes));
    return typeof sub === "string" ? JSON.stringify(["jwt", iss ?? null, sub]) : secret;
  } catch {
    return secret;
  }
}

/** @param {Uint8Array} bytes */
function encode(bytes) {
  return btoa(String.fromCharCode(...bytes));
}
