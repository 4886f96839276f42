import assert from "node:assert/strict";
import { test } from "node:test";
import { Presence } from "../src/index.js";
import { Network, open, settle } from "../testing/support.mjs";

const ROOM = "$presence/rooms/7";
const value = (session, principal, properties = {}) => ({ session, principal, properties });

/** Watch the tree `rooms/7`; returns what tells of it, too. */
async function watching(options = {}) {
  const network = new Network();
  const session = await open(network);
  let [id, version] = [0, 0];
  const asking = session.presence("rooms/7", options);
  const asked = [];
  for (let left = options.members === false ? 1 : 2; left > 0; left -= 1) {
    await settle();
    const ask = network.last.packets.at(-1);
    asked.push(ask.selector);
    network.last.say({ id: (id += 1), type: "reply", request: ask.request });
  }
  const presence = await asking;
  const tell = async (topic, told, more = {}) => {
    const said = told === null ? { removed: true, value: null } : { value: told };
    network.last.say({ id: (id += 1), type: "update", topic: `${ROOM}/${topic}`, version: (version += 1), event: `e${version}`, ...said, ...more });
    await settle();
  };
  return { network, session, presence, asked, tell };
}

test("who is there, who comes, changes and goes", async () => {
  const { presence, asked, tell, session } = await watching();
  assert.deepEqual(asked, [`${ROOM}/$count`, `${ROOM}/$members/*`]);
  assert.ok(presence instanceof Presence);
  await tell("$members/s1", value("s1", "alice", { name: "Alice" }), { snapshot: true });
  await tell("$count", { count: 1, listed: 1 });
  assert.deepEqual(presence.members.get("s1"), { sessionId: "s1", principal: "alice", properties: { name: "Alice" } });
  assert.deepEqual([presence.count, presence.listed], [1, 1]);
  const events = presence[Symbol.asyncIterator]();
  const next = async () => {
    const { value: event } = await events.next();
    return [event.kind, event.member?.principal];
  };
  assert.deepEqual([await next(), await next()], [["joined", "alice"], ["count", undefined]]);
  await tell("$members/s1", value("s1", "alice", { name: "Alice" }));
  await tell("$members/s1", value("s1", "alice", { name: "Alicia" }));
  assert.deepEqual(await next(), ["changed", "alice"]);
  await tell("$members/s2", value("s2", "bob"));
  await tell("$members/s2", null);
  await tell("$members/s1", null);
  await tell("$count", null);
  assert.deepEqual([await next(), await next()], [["left", "alice"], ["count", undefined]]);
  assert.deepEqual([presence.count, presence.members.size], [0, 0]);
  presence.close();
  assert.ok((await events.next()).done);
  assert.ok(presence.closed);
  void session.close();
});

test("a listener hears at once, and counts alone need one selection", async () => {
  const heard = [];
  const { asked, tell, presence } = await watching({ members: false, listener: (event) => heard.push(event) });
  assert.deepEqual(asked, [`${ROOM}/$count`]);
  await tell("$count", { count: 3, listed: 1 });
  assert.deepEqual(heard, [{ kind: "count", member: null, count: 3 }]);
  assert.equal(presence.listed, 1);
});

test("it ends with the session, and what makes no sense is refused", async () => {
  const { presence, session, network } = await watching();
  const reading = (async () => {
    for await (const event of presence) assert.fail(event.kind);
  })();
  network.last.say({ type: "bye" });
  network.last.drop?.();
  void session.close({ timeout: 0.01 });
  await session.closed;
  await reading;
  assert.ok(presence.closed);
  await assert.rejects(session.presence("rooms/*"), /'\*'/);
  await assert.rejects(session.presence("rooms/7", { listener: 1 }), TypeError);
});
