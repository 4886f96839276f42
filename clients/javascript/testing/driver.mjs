/**
 * A client under the control of another program: one JSON command a line on standard input, one JSON answer or event a
 * line on standard output. The conformance tests steer it through real faults.
 */

import { createInterface } from "node:readline";
import { connect } from "../src/index.js";
import { decode } from "../src/packets.js";
import { ReconnectPlan } from "../src/reconnect.js";
import { Promises, Selections } from "../src/selections.js";
import { covers, matches, overlaps, parseSelector } from "../src/selectors.js";

const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

let session = null;

/** Streams that were given a name. */
const streams = new Map();

const COMMANDS = {
  async connect({ urls, options }) {
    session = await connect(urls, options);
    for (const event of ["state", "recovery", "notice"]) {
      session.addEventListener(event, ({ detail }) => tell({ event, detail }));
    }
    return { id: session.id, node: session.node, properties: session.properties };
  },
  async subscribe({ selector, name, options }) {
    const listener = (update) => tell({ event: "update", detail: update });
    const stream = await session.subscribe(selector, { listener, ...options });
    if (name !== undefined) streams.set(name, stream);
  },
  // Every event from a place on, up to so many; tells where to go on.
  async follow({ selector, start, count, options }) {
    const stream = await session.subscribe(selector, { start, ...options });
    const updates = [];
    for await (const update of stream) {
      updates.push(update);
      if (updates.length === count) break;
    }
    return { updates, position: updates.at(-1).eventId };
  },
  // The next events of a durable subscription, up to so many, of which all are acknowledged.
  async followDurable({ name, selector, count, options }) {
    const stream = await session.subscribeDurable(name, selector, options);
    const values = [];
    for await (const { value } of stream) {
      values.push(value);
      if (values.length < count) continue;
      await stream.acknowledge();
      break;
    }
    return { values, created: stream.created };
  },
  // The next events of a shared one, up to so many, all of which are accepted; and the topic of the last one.
  async consumeDurable({ name, selector, count, options }) {
    const consumer = await session.subscribeDurable(name, selector, options);
    const messages = [];
    for await (const message of consumer) {
      await message.accept();
      messages.push(message);
      if (messages.length === count) break;
    }
    await consumer.cancel();
    return { values: messages.map(({ value }) => value), topic: messages.at(-1).headers.topic };
  },
  unsubscribeDurable: ({ name }) => session.unsubscribeDurable(name),
  history: ({ topic, options }) => session.history(topic, options),
  values: ({ selector, options }) => session.values(selector, options),
  closeStream: ({ name }) => streams.get(name).close(),
  openStreams: () => [...streams].filter(([, { closed }]) => !closed).map(([name]) => name),
  unsubscribe: ({ selector }) => session.unsubscribe(selector),
  publish: ({ topic, value, options }) => session.publish(topic, value, options),
  setWills: ({ wills }) => session.setWills(wills),
  publishMany: ({ topic, values }) => Promise.all(values.map((value) => session.publish(topic, value))),
  // All together, and what becomes of each.
  async settleMany({ asks }) {
    const settled = await Promise.allSettled(asks.map(({ topic, value }) => session.publish(topic, value)));
    return settled.map(({ value, reason }) => value ?? { error: reason.constructor.name, code: reason.code ?? null });
  },
  send: ({ queue, value, options }) => session.send(queue, value, options),
  // Accepts each message after so many milliseconds, and tells of both.
  async consume({ queue, options, pause }) {
    const consumer = await session.consume(queue, options);
    void (async () => {
      for await (const message of consumer) {
        const { id, value, headers, redelivered } = message;
        tell({ event: "message", detail: { id, value, headers, redelivered } });
        setTimeout(() => {
          message.accept().then(
            () => tell({ event: "accepted", detail: value }),
            (error) => tell({ event: "not accepted", detail: { value, error: error.constructor.name } }),
          );
        }, pause);
      }
    })();
  },
  // Answers each request with what it was asked, after so many milliseconds, and tells of it.
  async handle({ selector, options, pause }) {
    await session.handle(
      selector,
      async ({ path, value, principal, redelivered }) => {
        tell({ event: "request", detail: { path, value, principal, redelivered } });
        await new Promise((resolve) => setTimeout(resolve, pause ?? 0));
        return { value, by: session.principal };
      },
      options,
    );
  },
  request: ({ path, value, options }) => session.request(path, value, options),
  // Accepts each message and sends it on, in one transaction.
  async passOn({ from, to, options }) {
    const consumer = await session.consume(from, { ...options, ack: "each" });
    void (async () => {
      for await (const message of consumer) {
        try {
          await session.transaction(async (t) => {
            await t.accept(message);
            await t.send(to, message.value);
          });
          tell({ event: "passed on", detail: message.value });
        } catch (error) {
          tell({ event: "not passed on", detail: { value: message.value, error: error.constructor.name } });
        }
      }
    })();
  },
  // Stages a publish, and ends as it is told.
  async publishWithin({ topic, value, end }) {
    const transaction = await session.transaction();
    await transaction.publish(topic, value);
    await transaction[end]();
    return transaction.isOver;
  },
  setProperties: ({ changes }) => session.setProperties(changes),
  async close() {
    await session.close();
    return { state: session.state };
  },
  async closed() {
    await session.closed;
    return { reason: session.closedReason.constructor.name, code: session.closedReason.code };
  },
  status: () => ({ id: session.id, node: session.node, state: session.state, properties: session.properties }),
  // For comparisons with the other implementation.
  parse: ({ text }) => parseSelector(text).text,
  compare: ({ one, other, topic }) => {
    const [first, second] = [parseSelector(one), parseSelector(other)];
    return [covers(first, second), overlaps(first, second), matches(first, topic)];
  },
  select: ({ entries }) =>
    entries
      .reduce(
        (list, [type, selector]) => list.after({ type, selector }),
        new Selections(),
      )
      .toWire(),
  decode: ({ text }) => decode(text),
  // What a plan decides, step by step: each is the name of a method and what it is given.
  plan({ urls, options, steps }) {
    const plan = new ReconnectPlan(urls, options);
    return steps.map(([method, ...given]) => {
      const decided = plan[method](...given);
      return decided instanceof Error ? { over: decided.constructor.name } : (decided ?? null);
    });
  },
  promises: ({ welcome, executed, failover, unanswered }) => {
    const promises = new Promises(welcome);
    for (const ask of executed) promises.executed(ask);
    return promises.missing(failover, unanswered);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, command, ...given } = JSON.parse(line);
  (async () => COMMANDS[command](given))().then(
    (result) => tell({ id, result: result ?? null }),
    (error) => tell({ id, error: { name: error.constructor.name, message: error.message, code: error.code ?? null } }),
  );
}
process.exit(0);
