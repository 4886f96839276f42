import assert from "node:assert/strict";
import { test } from "node:test";
import { RemoteProtocolError } from "../src/errors.js";
import { ACK_DELAY, SessionMachine } from "../src/machine.js";
import { decode, MAX_NUMBER } from "../src/packets.js";

const POLICY = { resendPackets: 4, resendBytes: 1000, messageBytes: 65536, ackPackets: 3, pingTimeout: 45 };
const PLENTY = 1 << 20;

function attached(policy = {}) {
  const machine = new SessionMachine({ ...POLICY, ...policy });
  machine.open(0);
  return machine;
}

const packets = (machine, room = PLENTY) => machine.flush(room).flatMap((message) => JSON.parse(message));
const update = (id, more = {}) => ({ id, type: "update", topic: "a", version: id, event: "1-1-1", value: id, ...more });
const receive = (machine, now, ...said) => {
  const handed = [];
  machine.receive(decode(JSON.stringify(said)), now, (each) => handed.push(each));
  return handed;
};

test("what is sent together is numbered once and joined", () => {
  const machine = attached();
  machine.submit(JSON.stringify({ type: "subscribe", request: 1, selector: "a" }));
  machine.submit(JSON.stringify({ type: "subscribe", request: 2, selector: "b" }));
  const messages = machine.flush(PLENTY);
  assert.equal(messages.length, 1);
  assert.deepEqual(JSON.parse(messages[0]), [
    { id: 1, type: "subscribe", request: 1, selector: "a" },
    { type: "subscribe", request: 2, selector: "b" },
  ]);
  assert.equal(machine.unacknowledged, 2);
});

test("messages are not larger than the node accepts, and each begins with a number", () => {
  const machine = attached({ messageBytes: 200, resendPackets: 100 });
  for (let request = 1; request <= 9; request += 1) machine.submit(JSON.stringify({ type: "publish", request, topic: "t", value: "é".repeat(20) }));
  const messages = machine.flush(PLENTY);
  assert.ok(messages.length > 2);
  for (const message of messages) {
    assert.ok(Buffer.byteLength(message) <= 200);
    const [first] = [JSON.parse(message)].flat();
    assert.ok(Number.isInteger(first.id));
  }
});

test("nothing is numbered beyond the bound until something is acknowledged", () => {
  const machine = attached();
  for (let request = 1; request <= 6; request += 1) machine.submit(JSON.stringify({ type: "publish", request, topic: "t", value: 0 }));
  assert.equal(packets(machine).length, 4);
  assert.equal(machine.hasOutput, false);
  receive(machine, 1, { type: "ack", received: 3 });
  assert.deepEqual(packets(machine).map(({ request }) => request), [5, 6]);
});

test("a transport that pushes back is given nothing new", () => {
  const machine = attached();
  machine.submit(JSON.stringify({ type: "publish", request: 1, topic: "t", value: 0 }));
  machine.sendLink({ type: "bye" });
  assert.deepEqual(packets(machine, 0), [{ type: "bye" }]);
  assert.equal(packets(machine).length, 1);
});

test("every packet is handed on once and in order, and its number acknowledged with the next packet", () => {
  const machine = attached();
  const bodies = receive(machine, 1, update(1), update(1), { type: "update", topic: "a", version: 2, event: "e", value: 0 }, update(2));
  assert.deepEqual(bodies.map(({ version }) => version), [1, 2]);
  machine.submit(JSON.stringify({ type: "publish", request: 1, topic: "t", value: 0 }));
  assert.equal(packets(machine)[0].received, 2);
});

test("a number that is missing is a gap, which resuming mends", () => {
  const machine = attached();
  const handed = [];
  assert.throws(
    () => machine.receive(decode(JSON.stringify([update(1), update(3)])), 1, (each) => handed.push(each)),
    (error) => error instanceof RemoteProtocolError && error.closeCode === 4003,
  );
  assert.equal(handed.length, 1);
  assert.equal(machine.received, 1);
});

test("an acknowledgement of what was never sent is a violation, an old one means nothing", () => {
  const machine = attached();
  machine.submit(JSON.stringify({ type: "publish", request: 1, topic: "t", value: 0 }));
  packets(machine);
  assert.throws(() => receive(machine, 1, { type: "ack", received: 2 }), RemoteProtocolError);
  receive(machine, 1, { type: "ack", received: 1 }, { type: "ack", received: 0 });
  assert.equal(machine.unacknowledged, 0);
});

test("an acknowledgement is sent alone in time, or after enough packets", () => {
  const machine = attached();
  receive(machine, 10, update(1));
  assert.equal(machine.nextDeadline(), 10 + ACK_DELAY);
  assert.equal(machine.hasOutput, false);
  machine.tick(10 + ACK_DELAY);
  assert.deepEqual(packets(machine), [{ type: "ack", received: 1 }]);
  receive(machine, 20, update(2), update(3), update(4));
  assert.equal(machine.nextDeadline(), 20);
  machine.tick(20);
  assert.deepEqual(packets(machine), [{ type: "ack", received: 4 }]);
});

test("a ping is answered, silence is noticed", () => {
  const machine = attached();
  assert.deepEqual(receive(machine, 5, { type: "ping", token: "new" }), [{ type: "ping", token: "new", backoff: null }]);
  assert.deepEqual(packets(machine), [{ type: "pong", received: 0 }]);
  assert.equal(machine.tick(49.9), false);
  assert.equal(machine.tick(50), true);
});

test("reattaching sends again what the node has not received, with the same numbers, and no more", () => {
  const machine = attached();
  for (let request = 1; request <= 3; request += 1) machine.submit(JSON.stringify({ type: "publish", request, topic: "t", value: 0 }));
  packets(machine);
  receive(machine, 1, update(1));
  machine.detach();
  machine.submit(JSON.stringify({ type: "publish", request: 4, topic: "t", value: 0 }));
  machine.resume();
  assert.deepEqual([machine.received, machine.oldest], [1, 1]);
  assert.equal(machine.reattach(2, 2), 1);
  assert.deepEqual(packets(machine), [
    { id: 3, type: "publish", request: 3, topic: "t", value: 0 },
    { type: "publish", request: 4, topic: "t", value: 0 },
  ]);
});

test("a node that claims what cannot be is not believed", () => {
  const machine = attached();
  machine.submit(JSON.stringify({ type: "publish", request: 1, topic: "t", value: 0 }));
  packets(machine);
  receive(machine, 1, { type: "ack", received: 1 });
  machine.detach();
  machine.resume();
  assert.throws(() => machine.reattach(0, 2), RemoteProtocolError);
  assert.throws(() => machine.reattach(2, 2), RemoteProtocolError);
  assert.equal(machine.reattach(1, 2), 0);
});

test("after a failover both sides count from 1", () => {
  const machine = attached();
  machine.submit(JSON.stringify({ type: "publish", request: 1, topic: "t", value: 0 }));
  packets(machine);
  receive(machine, 1, update(1));
  machine.detach();
  machine.resume();
  machine.restart(2);
  assert.deepEqual([machine.received, machine.oldest, machine.unacknowledged], [0, 1, 0]);
  assert.equal(receive(machine, 3, update(1)).length, 1);
  machine.submit(JSON.stringify({ type: "publish", request: 1, topic: "t", value: 0, resubmitted: true }));
  assert.equal(packets(machine)[0].id, 1);
});

test("a client without its buffers says so", () => {
  const machine = new SessionMachine(POLICY, { forgetful: true });
  machine.resume();
  assert.deepEqual([machine.received, machine.oldest], [0, MAX_NUMBER]);
  assert.throws(() => machine.reattach(0, 1), RemoteProtocolError);
  machine.restart(1);
  assert.deepEqual([machine.received, machine.oldest], [0, 1]);
});

test("a probe is answered by the pong, and not by what came late", () => {
  const machine = attached();
  machine.probe(10, 3);
  assert.deepEqual(packets(machine), [{ type: "ping" }]);
  receive(machine, 11, update(1));
  packets(machine);
  assert.equal(machine.tick(13.9), false, "a node whose pong stands behind much else is not given up");
  assert.equal(machine.tick(14), true);
  const answered = attached();
  answered.probe(10, 3);
  receive(answered, 11, { type: "pong", received: 0 });
  assert.equal(answered.tick(50), false);
  assert.equal(answered.tick(56), true);
});
