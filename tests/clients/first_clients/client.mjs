/** What the first JavaScript client is asked to do; `argv[2]` is where its sources are. See `test_first_clients.py`. */

import { createInterface } from "node:readline";

const [, , sources, url] = process.argv;
const { connect } = await import(`${sources}/index.js`);
const tell = (said) => process.stdout.write(`${JSON.stringify(said)}\n`);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const session = await connect(url, { principal: "alice", properties: { team: "fx" } });
const stream = (await session.subscribe("a/**"))[Symbol.asyncIterator]();
const recovered = [];
session.addEventListener("recovery", ({ detail }) => recovered.push(detail));

async function publish(n) {
  const { version } = await session.publish("a/x", { n });
  const { value: update } = await stream.next();
  tell({ version, seen: [update.version, update.value] });
}

await publish(1);
for (const number of [2, 3]) {
  tell({ waits: true });
  await lines.next();
  while (recovered.length < number - 1) await new Promise((resolve) => setTimeout(resolve, 5));
  const { outcome, node } = recovered.at(-1);
  tell({ outcome, node });
  if (outcome === "failed_over") await stream.next(); // the current value, before there is a newer one
  await publish(number);
}
await session.setProperties({ team: null, desk: "rates" });
await session.unsubscribe("a/**");
const refused = await session.publish("$gateway/x", 1).then(() => null, ({ code }) => code);
await session.close();
tell({ properties: session.properties.desk ?? null, refused, state: session.state });
process.exit(0);
