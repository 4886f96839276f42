// URLs that the platform does not take: as browsers do with ws: in pages of https:, and whatever else it finds wrong.

import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, ConnectFailed } from "../src/index.js";
import { Network, settle, URL, WELCOME } from "../testing/support.mjs";

const BAD = "wss://bad.example/v1/connect";

/** A network whose platform throws where it is asked for a host. */
function choosy() {
  const network = new Network();
  const { WebSocket } = network.environment;
  network.refused = [];
  network.environment.WebSocket = class extends WebSocket {
    constructor(url, protocols) {
      if (url.startsWith(BAD)) {
        network.refused.push(url);
        throw new DOMException("An insecure connection may not be initiated", "SecurityError");
      }
      super(url, protocols);
    }
  };
  return network;
}

test("a URL that the platform does not take is told as what it is", async () => {
  const network = choosy();
  await assert.rejects(connect(BAD, { environment: network.environment }), (error) => {
    assert.ok(error instanceof ConnectFailed, String(error));
    assert.match(error.message, /bad\.example.*insecure/);
    assert.equal(error.retryable, false);
    return true;
  });
});

test("it is no reason to leave out the others", async () => {
  const network = choosy();
  const opening = connect([BAD, URL], { environment: network.environment });
  await network.until(() => network.connections.length === 1);
  await settle();
  network.last.say(WELCOME);
  assert.equal((await opening).state, "connected");
});

test("a node that is listed with one does not end sessions", async () => {
  const network = choosy();
  const opening = connect(URL, { environment: network.environment });
  await network.until(() => network.connections.length === 1);
  await settle();
  network.last.say({ ...WELCOME, cluster: { revision: "1", nodes: [{ node: "n9", urls: [BAD] }] } });
  const session = await opening;
  network.last.drop(4000);
  await network.until(() => network.connections.length === 2);
  await settle();
  assert.equal(network.refused.length, 1);
  assert.equal(session.state, "recovering");
  network.last.say({ ...WELCOME, outcome: "failed_over" });
  await settle();
  assert.equal(session.state, "connected");
});
