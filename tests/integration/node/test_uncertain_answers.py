"""The grid executes a step and its answer is lost: nothing may leak, nothing may be fenced by oneself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.adapters.memory import MemoryGridServer
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.raw_sessions import held, held_by
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P3", "P7")


@pytest.fixture
async def n2(memory: MemoryGridServer) -> AsyncIterator[TestNode]:
    async with running_node("n2", memory=memory, lease_renew=scaled(0.2)) as node:
        yield node


async def test_a_reattach_whose_claim_had_no_answer_does_not_fence_itself(
    memory: MemoryGridServer, n1: TestNode
) -> None:
    """The grid has epoch 2 then and the node would say 1: it must count the claim as if it had been answered."""
    raw = RawClient(n1.url)
    await raw.connect()
    welcome = await raw.hello()
    await raw.cut()
    session = n1.gateway.node.sessions.get(welcome["session"])
    assert session is not None
    await eventually(lambda: not session.connected)
    memory.lose_answers()
    async with RawClient(n1.url) as back:
        again = await back.resume(welcome["token"], attempt=1)
        assert again["outcome"] == "reattached"
        await eventually(lambda: not n1.gateway.node._store.must_restore(session))
        await back.send({"id": 1, "request": 1, "type": "publish", "topic": "a", "value": 1})
        while "error" in (reply := await back.expect("reply")):
            assert reply["error"]["code"] == "grid_unavailable"
            await back.send(
                {
                    "id": reply["request"] + 1,
                    "request": reply["request"] + 1,
                    "type": "publish",
                    "topic": "a",
                    "value": 1,
                }
            )
        assert not session.dropped
        stored = await n1.gateway.node._context.grid.sessions.find(session.id)
        assert stored is not None
        assert (stored.epoch, stored.attempt) == (session.epoch, 1)


async def test_a_hello_whose_write_had_no_answer_leaves_nothing_for_ever(
    memory: MemoryGridServer, n1: TestNode
) -> None:
    """The client was refused; the session that the grid holds all the same must end by its window."""
    memory.lose_answers()
    async with RawClient(n1.url) as raw:
        await raw.send({"type": "hello", "principal": "alice", "window": 0.2})
        assert (await raw.expect("error"))["code"] == "grid_unavailable"

    assert any(each.startswith("session") for each in memory.inventory())
    async with running_node("reaper", memory=memory, reap_interval=0.2):
        await eventually(lambda: not any(each.startswith("session") for each in memory.inventory()), within=15)


async def test_a_claim_of_an_outdated_copy_that_had_no_answer_leaves_nothing_for_ever(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client was refused, as the copy here is too old to go on with; and the grid may hold the session for it."""

    async def tell_nobody(*_: object) -> None:
        """As a node that dies before it can tell that it has claimed a session."""

    monkeypatch.setattr(n2.gateway.node._context.grid.nodes, "tell_claimed", tell_nobody)
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello(window=scaled(2.0))
    copy = held_by(n1, welcome)
    async with RawClient(n2.url) as raw:
        token = (await raw.resume(welcome["token"], attempt=1))["token"]
        assert held(n1, welcome) is copy, "it has not heard of the claim"
        memory.lose_answers()
        async with RawClient(n1.url) as back:
            await back.ask_to_resume(token, attempt=2)
            assert (await back.expect("error"))["code"] == "grid_unavailable"

    await eventually(lambda: copy.dropped, within=15)
    async with running_node("reaper", memory=memory, reap_interval=0.2):
        await eventually(lambda: not any(each.startswith("session") for each in memory.inventory()), within=15)


async def test_a_bye_while_the_grid_is_unreachable_ends_the_session_there_too(
    memory: MemoryGridServer, n1: TestNode
) -> None:
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello()
        memory.go_away()
        await raw.send({"type": "bye"})
        memory.come_back()
        assert (await raw.expect("bye"))["reason"] == "closed"
        assert not any(each.startswith("session") for each in memory.inventory())
    async with RawClient(n1.url) as back:
        assert (await back.resume(welcome["token"], attempt=1))["code"] == "session_closed"
