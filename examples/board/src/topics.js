/**
 * Live topics for React components.
 *
 * React asks for a snapshot whenever it likes, and compares it by identity; updates come hundreds a second. So a store keeps
 * a `Map` that is replaced at most once a frame, and components that are shown are told then.
 *
 * @module
 */

import { createContext, useContext, useEffect, useMemo, useState, useSyncExternalStore } from "react";

/** The session of the page; one for all components. */
export const SessionContext = createContext(null);

class TopicStore {
  #values = new Map();
  #listeners = new Set();
  #scheduled = false;

  /** Values by topic; another `Map` after each change. */
  snapshot = new Map();

  take = ({ topic, value, removed }) => {
    if (removed) this.#values.delete(topic);
    else this.#values.set(topic, value);
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.snapshot = new Map(this.#values);
      for (const listener of this.#listeners) listener();
    });
  };

  listen = (listener) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };
}

/**
 * The newest value of each topic that a selector matches, for as long as the component is shown.
 *
 * Several components may ask for the same: the client subscribes once for all of them, and gives up what nobody wants.
 */
export function useTopics(selector) {
  const session = useContext(SessionContext);
  const store = useMemo(() => new TopicStore(), [session, selector]);
  const [error, setError] = useState(null);
  useEffect(() => {
    const shown = new AbortController();
    session
      .subscribe(selector, { listener: store.take, signal: shown.signal })
      .catch((failure) => shown.signal.aborted || setError(failure));
    return () => shown.abort();
  }, [session, selector, store]);
  if (error !== null) throw error;
  return useSyncExternalStore(store.listen, () => store.snapshot);
}

/** What the session says of itself: its state, its node, and how it came back last. */
export function useConnection() {
  const session = useContext(SessionContext);
  const [told, setTold] = useState({ state: session.state, node: session.node, recovery: null });
  useEffect(() => {
    const left = new AbortController();
    const state = () => setTold((before) => ({ ...before, state: session.state, node: session.node }));
    const recovery = ({ detail }) => setTold({ state: session.state, node: session.node, recovery: detail });
    session.addEventListener("state", state, { signal: left.signal });
    session.addEventListener("recovery", recovery, { signal: left.signal });
    state();
    return () => left.abort();
  }, [session]);
  return told;
}
