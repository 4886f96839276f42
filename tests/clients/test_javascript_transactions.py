"""Transactions of the JavaScript client at real nodes, through cuts, another node and the death of one (P16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gateway.client import Session, connect
from gateway.core.types import TopicPath
from gateway.local.proxy import FaultProxy
from tests.clients.driver import Driver
from tests.support.linked_nodes import LinkedNodes
from tests.support.nodes import TestNode, declare_queues, eventually
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
