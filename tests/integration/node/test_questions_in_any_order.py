"""What a session was given is asked over one connection and told over another: in any order, a question comes once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import Request, Session, connect
from gateway.core.types import Epoch
from tests.support.nodes import QUICK, TestNode, eventually, running_node
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P5")

A: Final = "quotes/a"
B: Final = "quotes/b"
"""Two paths of one partition."""

LONG: Final = scaled(30.0)
"""Seconds for an answer that comes."""


class Scene:
    """A node where a session handles questions, and another one where they are asked."""

    def __init__(self, memory: MemoryGridServer, nodes: list[TestNode], stack: AsyncExitStack) -> None:
        self.memory = memory
        self.handling: Any = nodes[0].gateway.node.connections.exchanges._handling
        self.store: Any = nodes[0].gateway.node._context.grid.exchanges
        self.free = asyncio.Event()
        self.sent: list[str] = []
        self.taken: list[Any] = []
        self._nodes = nodes
        self._stack = stack
        send = self.handling._send

        def counted(session: Any, partition: int, taken: Any) -> None:
            self.sent.append(taken.text.decode()[-1])
            send(session, partition, taken)

        self.handling._send = counted  # type: ignore[method-assign]

    async def worker(self) -> Session:
        return await self._stack.enter_async_context(connect(self._nodes[0].url, "bob"))

    async def asker(self) -> Session:
        return await self._stack.enter_async_context(connect(self._nodes[1].url, "alice"))

    async def answer(self, request: Request) -> Any:
        self.taken.append(request.value)
        await self.free.wait()
        return request.value


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    memory = MemoryGridServer(now=time.monotonic)
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(running_node(name, memory=memory, **QUICK)) for name in ("n1", "n2")]
        yield Scene(memory, nodes, stack)


async def test_what_is_told_before_an_answer_that_does_not_name_it_comes_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss two sessions say again what they handle; since the first one has, what is given is read."""
    one, two, asker = await scene.worker(), await scene.worker(), await scene.asker()
    await one.handle(A, scene.answer)
    await two.handle(B, scene.answer)
    handle, again, asked = scene.store.handle, list[str](), list[asyncio.Task[Any]]()

    async def handled(ownership: Any, *what: Any, **more: Any) -> Any:
        answer = await handle(ownership, *what, **more)
        again.append(A if ownership.session == one.id else B)
        if len(again) == 2:
            asked.append(asyncio.create_task(asker.request(again[1], 1, timeout=LONG)))
            await eventually(lambda: "1" in scene.sent)
        return answer

    monkeypatch.setattr(scene.store, "handle", handled)
    scene.memory.go_away()
    scene.memory.come_back(restarted=True)
    await eventually(lambda: "1" in scene.sent)
    asked.append(asyncio.create_task(asker.request(again[1], 2, timeout=LONG)))
    await eventually(lambda: "2" in scene.sent)
    scene.free.set()

    assert await asyncio.gather(*asked) == [1, 2]
    assert scene.sent == ["1", "2"]


async def test_nothing_is_read_for_who_answers_its_last_question_while_it_is_registered_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It handles nothing any more, and the answer to what its node says of it names a question that is over."""
    worker, asker = await scene.worker(), await scene.asker()
    handling = await worker.handle(A, scene.answer)
    asked = asyncio.create_task(asker.request(A, 1, timeout=LONG))
    # A question that is on its way when its handler is cancelled is declined by the client.
    await eventually(lambda: scene.taken == [1])
    await handling.cancel()
    members, handle, told = scene.handling._followed._members, scene.store.handle, scene.handling._told
    ((session,),) = members.values()
    (handler,) = session.exchange.handlers.values()
    looked_at: list[bool] = []

    async def handled(*what: Any, **more: Any) -> Any:
        answer = await handle(*what, **more)
        scene.free.set()
        assert await asked == 1
        await eventually(lambda: not members)
        return answer

    def recorded(*what: Any) -> None:
        told(*what)
        looked_at.append(True)

    monkeypatch.setattr(scene.store, "handle", handled)
    monkeypatch.setattr(scene.handling, "_told", recorded)
    handler.told = handler.told._replace(epoch=Epoch(0))  # as of a claim since
    scene.handling.presence_changed(session)

    await eventually(lambda: bool(looked_at) and not members)
