"""Transactions of the JavaScript client at real nodes, through cuts, another node and the death of one (P16)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.client import Session, connect
from gateway.core.types import TopicPath
from gateway.local.proxy import FaultProxy
from tests.clients.driver import CLIENT, Driver, node_environment
from tests.support.linked_nodes import LinkedNodes
from tests.support.nodes import TestNode, declare_queues, eventually, running_node
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P16")

INPUT, OUTPUT = "work/input", "results/output"
COUNT = 20
"""Messages of each stage of the way."""


class Scene:
    """Two nodes with links, each behind a proxy, a JavaScript client that knows both, and a Python client."""

    def __init__(self, nodes: list[TestNode], proxies: list[FaultProxy], client: Driver, session: Session) -> None:
        self.nodes = nodes
        self.proxies = proxies
        self.client = client
        self.session = session
        self._sent = 0

    @property
    def outcomes(self) -> list[str]:
        return [each["outcome"] for each in self.client.events["recovery"]]

    async def passes_on(self) -> None:
        """Send messages, and wait until most of them are passed on."""
        for _ in range(COUNT):
            await self.session.send(INPUT, self._sent)
            self._sent += 1
        await eventually(lambda: len(self.client.events["passed on"]) >= self._sent - COUNT // 2)

    async def results(self) -> Counter[int]:
        """Tell what came out."""
        await eventually(lambda: len(self.client.events["passed on"]) >= self._sent)
        consumer = await self.session.consume(OUTPUT, credit=10 * COUNT)
        async with time_limit(20):
            found = [(await anext(consumer)).value for _ in range(self._sent)]
        assert await self._is_empty(INPUT)
        return Counter(found)

    async def _is_empty(self, queue: str) -> bool:
        state = await self.nodes[0].gateway.node._context.grid.queues.look(TopicPath(queue))
        return state is None or (state.ready, state.held) == (0, 0)


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    linked = LinkedNodes(monkeypatch)
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(linked.run("n1", "n2", backup="none"))
        proxies = [await stack.enter_async_context(FaultProxy("127.0.0.1", each.gateway.port)) for each in nodes]
        await declare_queues(nodes[0], INPUT, OUTPUT)
        await eventually(lambda: nodes[1].gateway.node.destinations.table.queue(TopicPath(OUTPUT)) is not None)
        client = await stack.enter_async_context(Driver())
        session = await stack.enter_async_context(connect(nodes[0].url, principal="bob"))
        urls = [f"ws://127.0.0.1:{each.port}" for each in proxies]
        await client.do("connect", urls=urls, options={"principal": "alice"})
        yield Scene(nodes, proxies, client, session)


async def test_each_input_becomes_one_output_on_every_rung(scene: Scene) -> None:
    """Accept and send together: reattached, handed over, and failed over, each while messages are on their way."""
    client, first = scene.client, scene.proxies[0]
    await client.do("passOn", **{"from": INPUT}, to=OUTPUT, options={"credit": 8})
    await scene.passes_on()
    first.cut()
    await scene.passes_on()
    first.refuse()
    first.cut()
    await scene.passes_on()
    await first.start()
    await scene.nodes[1].gateway.close()
    await scene.passes_on()
    assert await scene.results() == Counter(range(4 * COUNT))
    assert scene.outcomes == ["reattached", "handed_over", "failed_over"]
    refused = {each["error"] for each in client.events["not passed on"]}
    assert refused <= {"NotHeld"}, "of a message that had come twice, as the failover gives again what is not settled"


async def test_it_is_ended_by_who_began_it(scene: Scene) -> None:
    client, session = scene.client, scene.session
    assert await client.do("publishWithin", topic="orders/7", value="no", end="rollback") is True
    assert await client.do("publishWithin", topic="orders/7", value="yes", end="commit") is True
    async with time_limit(20):
        update = await anext(await session.subscribe("orders/**"))
    assert (update.value, update.version) == ("yes", 1)


RUNS = """
import { connect } from "./src/index.js";

const session = await connect(URL, { principal: "worker" });
void shipOrders(session);
const invoices = await session.consume("invoices");
let count = 0;
for await (const { value } of invoices) {
  console.log(value.order);
  count += 1;
  if (count === 10) break;
}
await session.close();
"""
"""What the test adds to the worker of the how-to."""


async def test_the_worker_of_the_how_to_gives_each_message_one_result(tmp_path: Path) -> None:
    page = (CLIENT.parents[1] / "docs" / "how-to" / "consume-and-publish-atomically.md").read_text()
    (worker,) = [each.split("```")[0] for each in page.split("```js\n")[1:]]
    async with running_node() as node, connect(node.url, "alice") as session:
        await declare_queues(node, "orders/new", "invoices")
        for order in range(10):
            await session.send("orders/new", {"order": order})
        program = (worker + RUNS).replace("URL", json.dumps(node.url.replace("http", "ws")))
        file = tmp_path / "program.mjs"
        file.write_text(program.replace('"./src/index.js"', json.dumps(str(CLIENT / "src" / "index.js"))))
        process = await asyncio.create_subprocess_exec(
            "node", str(file), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=node_environment()
        )
        async with time_limit(30):
            said, _ = await process.communicate()
        assert said.decode().split() == [str(order) for order in range(10)]
        assert process.returncode == 0
        async with time_limit(20), await session.subscribe("orders/9") as orders:
            assert (await anext(orders)).value == {"state": "shipped"}
