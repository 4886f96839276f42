"""Clients that come back to one session with many connections at once: the others notice nothing of it (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gateway.app.admission.handshake_limiter import HandshakeLimiter
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.raw_sessions import held_by

pytestmark = pytest.mark.promise("P20")

CROWD = 8


@pytest.fixture
async def node() -> AsyncIterator[TestNode]:
    async with running_node(claims_at_once=2) as node:
        yield node


def limiter(node: TestNode) -> HandshakeLimiter:
    return node.gateway.node._handshake_limiter


def inside(node: TestNode) -> int:
    return limiter(node)._inside


async def connected(stack: AsyncExitStack, node: TestNode) -> RawClient:
    return await stack.enter_async_context(RawClient(node.url))


def waiting(node: TestNode, count: int) -> bool:
    return node.gateway.node.connections._first_packets.in_progress == count


async def test_one_session_takes_no_place_of_others_while_it_is_decided_who_gets_it(node: TestNode) -> None:
    """However long that takes: clients have a say in it."""
    async with AsyncExitStack() as stack:
        first = await connected(stack, node)
        welcome = await first.hello()
        session = held_by(node, welcome)
        async with session.resuming:
            crowd = [await connected(stack, node) for _ in range(CROWD)]
            for attempt, each in enumerate(crowd, 1):
                await each.ask_to_resume(welcome["token"], attempt=attempt)
                await eventually(lambda: waiting(node, 1))
                assert inside(node) == 0
            for overtaken in crowd[:-1]:
                assert (await overtaken.expect("error"))["code"] == "stale_attempt"
            stale = await connected(stack, node)
            await stale.ask_to_resume(welcome["token"], attempt=1)
            assert (await stale.expect("error"))["code"] == "stale_attempt", "it is not even waited for"
            assert (await (await connected(stack, node)).hello("bob"))["outcome"] == "created"
        assert (await crowd[-1].expect("welcome"))["session"] == welcome["session"]
        assert await first.closed() == 4203
        assert (session.attempt, inside(node)) == (CROWD, 0)


async def test_what_would_be_refused_anyway_does_not_wait(node: TestNode) -> None:
    async with AsyncExitStack() as stack:
        first, second, late = [await connected(stack, node) for _ in range(3)]
        welcome = await second.resume((await first.hello())["token"], attempt=4)
        session = held_by(node, welcome)
        async with session.resuming:
            await late.ask_to_resume(welcome["token"], attempt=4)
            assert (await late.expect("error"))["code"] == "stale_attempt"


async def test_who_has_waited_for_the_session_waits_for_a_place_like_all(node: TestNode) -> None:
    async with AsyncExitStack() as stack:
        first, again = [await connected(stack, node) for _ in range(2)]
        welcome = await first.hello()
        session = held_by(node, welcome)
        async with session.resuming:
            await again.ask_to_resume(welcome["token"], attempt=1)
            await eventually(lambda: waiting(node, 1))
            assert limiter(node).enter_at_once()
            assert limiter(node).enter_at_once()
        await eventually(lambda: bool(limiter(node)._returning))
        assert session.epoch == 1, "nothing is asked of the grid before"
        limiter(node).leave()
        assert (await again.expect("welcome"))["session"] == welcome["session"]
        limiter(node).leave()
        assert inside(node) == 0


@pytest.mark.promise("P7")
@pytest.mark.parametrize("is_there", [True, False])
async def test_who_has_gone_while_it_waited_is_not_served(node: TestNode, *, is_there: bool) -> None:
    """Else a connection that lives loses the session to one that does not; or nobody writes that its client left."""
    async with AsyncExitStack() as stack:
        first, gone = [await connected(stack, node) for _ in range(2)]
        welcome = await first.hello()
        session = held_by(node, welcome)
        if not is_there:
            await first.cut()
            await eventually(lambda: session.on_clock)
            session.on_clock = False
        async with session.resuming:
            await gone.ask_to_resume(welcome["token"], attempt=1)
            await eventually(lambda: waiting(node, 1))
            (connection,) = node.gateway.node.connections._open - {session.connection}
            await gone.cut()
            await eventually(lambda: connection.is_closing)
        await eventually(lambda: waiting(node, 0))
        assert (session.epoch, session.connected, inside(node)) == (1, is_there, 0)
        if is_there:
            await first.send({"type": "ping"})
            await first.expect("pong")
        else:
            await eventually(lambda: session.on_clock)


async def test_one_that_is_held_up_at_the_grid_still_goes_before_those_who_come_later(node: TestNode) -> None:
    """The first one keeps its place, as what it waits for is the grid; those behind it keep none."""
    async with AsyncExitStack() as stack:
        first, second, third = [await connected(stack, node) for _ in range(3)]
        welcome = await first.hello()
        sessions = node.gateway.node._context.grid.sessions
        reclaim, asked, go_on = sessions.reclaim, asyncio.Event(), asyncio.Event()

        async def slow(*given: object, **named: object) -> object:
            asked.set()
            await go_on.wait()
            return await reclaim(*given, **named)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sessions, "reclaim", slow)
            await second.ask_to_resume(welcome["token"], attempt=1)
            await asked.wait()
            await third.ask_to_resume(welcome["token"], attempt=2)
            await eventually(lambda: waiting(node, 2))
            assert inside(node) == 1
            go_on.set()
            assert (await second.expect("welcome"))["session"] == welcome["session"]
            assert (await third.expect("welcome"))["session"] == welcome["session"]
        assert await second.closed() == 4203
