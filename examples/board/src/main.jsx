/**
 * A board of live prices. The page never writes a line about reconnecting: values go on, whatever breaks behind it.
 *
 * @module
 */

import { memo, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { connect } from "session-gateway-client";

import { SessionContext, useConnection, useTopics } from "./topics.js";

/** Published by the demo page of `make up`; any topics with `{price}` will do. */
const SELECTOR = "demo/prices/*";

function Connection() {
  const { state, node, recovery } = useConnection();
  const came = recovery && `; came back by ${recovery.outcome.replace("_", " ")}`;
  return <p role="status" className={state}>{`${state} at ${node}${came ?? ""}`}</p>;
}

const Row = memo(function Row({ name, price }) {
  const [last, setLast] = useState({ price, change: 0 });
  if (last.price !== price) setLast({ price, change: Math.sign(price - last.price) });
  return (
    <tr className={["down", "", "up"][last.change + 1]}>
      <th scope="row">{name}</th>
      <td>{price.toFixed(2)}</td>
    </tr>
  );
});

function Board() {
  const prices = [...useTopics(SELECTOR)]
    .filter(([, value]) => typeof value?.price === "number")
    .map(([topic, value]) => [topic.slice(topic.lastIndexOf("/") + 1), value.price])
    .sort(([one], [other]) => one.localeCompare(other));
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Symbol</th>
          <th scope="col">Price</th>
        </tr>
      </thead>
      <tbody>
        {prices.map(([name, price]) => (
          <Row key={name} name={name} price={price} />
        ))}
      </tbody>
    </table>
  );
}

const root = createRoot(document.getElementById("root"));
try {
  const { gateway } = await (await fetch("/gateway.json")).json();
  const session = await connect(gateway, { principal: "board" });
  root.render(
    <StrictMode>
      <SessionContext value={session}>
        <h1>Prices</h1>
        <Connection />
        <Board />
      </SessionContext>
    </StrictMode>,
  );
} catch (error) {
  root.render(<p role="alert">{error.message}</p>);
}
