"""What a session holds is asked over one connection and told over another: in any order, every message comes (P15).

A message that a node overlooks is held by its session for as long as that lives, and nobody is given it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import MessageConsumer, Session, connect
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import QueueLimits
from gateway.core.topics.selectors import parse_selector
from gateway.ports import Assigned, StreamPosition
from tests.support.nodes import QUICK, TestNode, eventually, running_node
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P15")

A: Final = "jobs/a"
B: Final = "jobs/b"
"""Two queues of one partition."""


class Scene:
    """A node where sessions consume, and another one for all else."""

    def __init__(self, memory: MemoryGridServer, nodes: list[TestNode], stack: AsyncExitStack) -> None:
        self.memory = memory
        self.nodes = nodes
        self.queues: Any = nodes[0].gateway.node._context.grid.queues
        self._stack = stack

    async def session(self, node: int = 0) -> Session:
        return await self._stack.enter_async_context(connect(self.nodes[node].url, "alice"))

    def told(self, queue: str) -> Callable[[], int]:
        """Count the assignments of a queue that the consuming node is told of from now on."""
        consumers, count = self.nodes[0].gateway.node.connections.consumers, 0
        assigned = consumers._assigned

        def counted(item: Assigned) -> None:
            nonlocal count
            assigned(item)
            count += item.queue == queue

        consumers._assigned = counted  # type: ignore[method-assign]
        return lambda: count


async def first(consumer: MessageConsumer) -> Any:
    async with time_limit():
        message = await anext(consumer)
    await message.accept()
    return message.value


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    memory = MemoryGridServer(now=time.monotonic)
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(running_node(name, memory=memory, **QUICK)) for name in ("n1", "n2")]
        for queue in (A, B):
            await nodes[0].gateway.node.destinations.set(
                Destination(selector=parse_selector(queue), limits=QueueLimits(), origin=Origin.ADMINISTRATOR)
            )
        await eventually(lambda: all(len(each.gateway.node.destinations.table) == 2 for each in nodes))
        yield Scene(memory, nodes, stack)


def after(scene: Scene, monkeypatch: pytest.MonkeyPatch, queue: str, then: Callable[[], Awaitable[None]]) -> None:
    """Have something happen between the next attaching to a queue and the answer to it."""
    attach = scene.queues.attach

    async def attached(ownership: Any, name: Any, **more: Any) -> Any:
        answer = await attach(ownership, name, **more)
        if name == queue:
            scene.queues.attach = attach
            await then()
        return answer

    monkeypatch.setattr(scene.queues, "attach", attached)


async def test_what_is_assigned_while_others_attach_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a loss the deliveries are read anew: from where the first one has attached, and not the last one."""
    sender = await scene.session(1)
    one, two = await scene.session(), await scene.session()
    of_a, of_b = await one.consume(A, ack="each"), await two.consume(B, ack="each")
    follow, followed = scene.queues.follow, list[tuple[int, StreamPosition]]()
    monkeypatch.setattr(scene.queues, "follow", lambda *where: followed.append(where))  # the connection is slow

    async def send_to_the_other() -> None:
        assert len(attached) == 1, "one has attached again"
        await sender.send(attached[0], "early")

    attached: list[str] = []
    attach = scene.queues.attach

    async def attaching(ownership: Any, name: str, **more: Any) -> Any:
        if attached and name not in attached:
            await send_to_the_other()
        answer = await attach(ownership, name, **more)
        attached.append(name)
        return answer

    monkeypatch.setattr(scene.queues, "attach", attaching)
    scene.memory.go_away()
    scene.memory.come_back(restarted=True)
    await eventually(lambda: len(attached) == 2)
    monkeypatch.setattr(scene.queues, "follow", follow)
    await asyncio.sleep(0)  # the second answer is looked at
    await eventually(lambda: bool(followed))
    follow(*followed[-1])
    assert await first(of_a if attached[0] == A else of_b) == "early"


async def test_what_is_told_before_the_answer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else consumes at the node, so that the deliveries are read already."""
    sender, other, worker = await scene.session(1), await scene.session(), await scene.session()
    await other.consume(B, ack="each")
    told = scene.told(A)

    async def told_of_one() -> None:
        await sender.send(A, "early")
        await eventually(lambda: told() == 1)

    after(scene, monkeypatch, A, told_of_one)
    assert await first(await worker.consume(A, ack="each")) == "early"


async def test_what_is_told_before_the_answer_of_who_attaches_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer does not name it yet, and must not be taken for all that is held."""
    sender, one, two = await scene.session(1), await scene.session(), await scene.session()
    consumers = {A: await one.consume(A, ack="each"), B: await two.consume(B, ack="each")}
    told = {queue: scene.told(queue) for queue in consumers}
    attach, read, answered = scene.queues.attach, scene.queues.read, asyncio.Event()
    again: list[str] = []

    async def slow(*what: Any) -> Any:
        await answered.wait()
        return await read(*what)

    async def attached(ownership: Any, queue: Any, **more: Any) -> Any:
        answer = await attach(ownership, queue, **more)
        again.append(queue)
        if len(again) == 2:  # since the first one has attached, the deliveries are read
            monkeypatch.setattr(scene.queues, "read", slow)
            await sender.send(queue, "early")
            await eventually(lambda: told[queue]() == 1)
            asyncio.get_running_loop().call_later(0.05, answered.set)
        return answer

    monkeypatch.setattr(scene.queues, "attach", attached)
    scene.memory.go_away()
    scene.memory.come_back(restarted=True)
    await eventually(lambda: len(again) == 2)
    assert await first(consumers[again[1]]) == "early"


async def test_the_earlier_of_two_answers_comes_last(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, one, two = await scene.session(1), await scene.session(), await scene.session()

    async def another_one_attaches() -> None:
        await sender.send(A, "early")
        await two.consume(B, ack="each")

    after(scene, monkeypatch, A, another_one_attaches)
    assert await first(await one.consume(A, ack="each")) == "early"


async def test_who_cancels_while_it_is_attached_again_holds_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the grid would go on giving it messages that nobody takes."""
    sender, worker = await scene.session(1), await scene.session()
    consumer = await worker.consume(A, ack="each")
    attach, cancelled = scene.queues.attach, list[asyncio.Task[None]]()

    async def late(ownership: Any, name: Any, **more: Any) -> Any:
        scene.queues.attach = attach
        cancelled.append(asyncio.create_task(consumer.cancel()))
        await asyncio.wait(cancelled, timeout=0.2)  # it gets as far as it can meanwhile
        return await attach(ownership, name, **more)

    monkeypatch.setattr(scene.queues, "attach", late)
    scene.memory.go_away()
    scene.memory.come_back(restarted=True)
    await eventually(lambda: bool(cancelled))
    await cancelled[0]
    other = await (await scene.session()).consume(A, ack="each")
    await sender.send(A, "for another one")
    assert await first(other) == "for another one"
