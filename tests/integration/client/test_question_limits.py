"""Limits of requests and handlers that an operator has chosen: they are told, obeyed, and refusals say what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.client import Request, RequestRefused, Session, connect
from gateway.core.wire.codes import ErrorCode
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.linked_nodes import LinkedNodes
from tests.support.nodes import TestNode, eventually
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P20")

LONG = scaled(30.0)
"""Seconds for an answer that comes."""


class Pending:
    """A handler that answers when it is told to, and a session that asks.

    Attributes:
        session: which asks.
        waiting: requests that it has made.
        go_on: to be set for answers.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.waiting: list[asyncio.Task[object]] = []
        self.go_on = asyncio.Event()
        self._asked = 0

    async def answer(self, _: Request) -> object:
        """Answer, later."""
        self._asked += 1
        await self.go_on.wait()
        return "done"

    async def ask(self, count: int) -> None:
        """Make requests, and return when the handler has all of them."""
        wanted = self._asked + count
        self.waiting += [asyncio.create_task(self.session.request("a/b", timeout=LONG)) for _ in range(count)]
        await eventually(lambda: self._asked == wanted)

    async def refused(self, value: object = None, *, seconds: float = LONG) -> RequestRefused:
        """Make one that is refused."""
        with pytest.raises(RequestRefused) as refused:
            await self.session.request("a/b", value, timeout=seconds)
        return refused.value

    async def finish(self) -> None:
        """Have all answered."""
        self.go_on.set()
        assert set(await asyncio.gather(*self.waiting)) <= {"done"}


@asynccontextmanager
async def pending(patch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[tuple[Pending, TestNode]]:
    """Run a node with these settings, and a session that handles ``a/**`` beside one that asks."""
    async with (
        LinkedNodes(patch).run("n1", **settings) as (node,),
        connect(node.url, "alice") as asker,
        connect(node.url, "bob") as worker,
    ):
        found = Pending(asker)
        await worker.handle("a/**", found.answer, concurrency=100)
        yield found, node
        await found.finish()


def metrics(node: TestNode) -> str:
    return node.gateway.metrics.render().decode()


async def test_a_session_has_as_many_requests_open_as_its_node_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pending(monkeypatch, limit_questions=2) as (asking, node):
        assert asking.session._supervisor.welcome.limits.questions == 2
        await asking.ask(2)
        refused = await asking.refused()
        assert refused.code is ErrorCode.TOO_MANY_QUESTIONS
        assert "limit_questions: the session has 2 questions" in str(refused)
        assert "wait for some of them" in str(refused)
        await asking.finish()
        await eventually(lambda: "gateway_questions_open 0.0" in metrics(node))
        assert await asking.session.request("a/b", timeout=LONG) == "done"
        assert 'gateway_limits_exceeded_total{limit="limit_questions"} 1.0' in metrics(node)


async def test_a_session_may_have_more_open_than_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pending(monkeypatch, limit_questions=100) as (asking, _):
        await asking.ask(70)


async def test_all_sessions_of_a_node_share_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pending(monkeypatch, limit_node_questions=1) as (asking, node), connect(node.url, "carol") as other:
        await asking.ask(1)
        with pytest.raises(RequestRefused, match=r"limit_node_questions: this node has 1 .* ask again") as refused:
            await other.request("a/b", timeout=LONG)
        assert refused.value.code is ErrorCode.TOO_MANY_QUESTIONS


async def test_a_partition_has_room_for_as_many_as_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pending(monkeypatch, limit_partition_questions=1) as (asking, _):
        await asking.ask(1)
        refused = await asking.refused()
        assert refused.code is ErrorCode.TOO_MANY_QUESTIONS
        assert "limit_partition_questions" in str(refused)
        assert "until others are answered" in str(refused)


async def test_a_partition_has_room_for_as_many_bytes_as_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pending(monkeypatch, limit_partition_question_bytes=2048) as (asking, _):
        await asking.ask(1)
        refused = await asking.refused(value="x" * 2000)
        assert refused.code is ErrorCode.TOO_MANY_QUESTIONS
        assert "limit_partition_question_bytes" in str(refused)


async def test_a_session_handles_as_much_as_its_node_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pending(monkeypatch, limit_handlers=2) as (asking, _):
        session = asking.session
        assert session._supervisor.welcome.limits.handlers == 2
        first = await session.handle("b/1", asking.answer)
        await session.handle("b/2", asking.answer)
        with pytest.raises(RequestRefused, match=r"limits\.handlers is 2\. Use wider selectors, or") as refused:
            await session.handle("b/3", asking.answer)
        assert refused.value.code is ErrorCode.TOO_MANY_HANDLERS
        await first.cancel()
        await session.handle("b/3", asking.answer)


async def test_a_request_waits_no_longer_than_its_node_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pending(monkeypatch, question_timeout_maximum=LONG) as (asking, _):
        refused = await asking.refused(seconds=LONG + 1)
        assert refused.code is ErrorCode.BAD_REQUEST
        assert f"to {LONG:g} seconds (question_timeout_maximum)" in str(refused)
        await asking.ask(1)


async def test_a_client_goes_on_where_less_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it waits for already is told it there, too; only new requests are refused."""
    linked = LinkedNodes(monkeypatch)
    quick = {"backoff_initial": 0.01, "backoff_maximum": 0.05}
    async with (
        linked.run("n1", **quick) as (first,),
        linked.run("n2", limit_questions=1, **quick) as (second,),
        CuttingProxy(first.gateway.port) as proxy,
        connect(proxy.url, "alice") as asker,
        connect(second.url, "bob") as worker,
    ):
        asking = Pending(asker)
        await worker.handle("a/**", asking.answer, concurrency=100)
        await asking.ask(5)
        proxy.target = second.gateway.port
        proxy.cut()
        async with time_limit(LONG):
            await anext(asker.recoveries())
        assert "limit_questions" in str(await asking.refused())
        await asking.finish()
