"""P5 where answers are lost: what was refused and what was executed must not be mixed up when it is asked again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGrid
from gateway.app.session.session import Session, StoredUnder
from gateway.core.types import Epoch, GridGeneration, Incarnation, NodeId, NodeRef, PacketId, RequestNumber, SessionId
from gateway.core.wire.packets import Ack, Reply
from gateway.ports import PublishCommand, SessionRecord
from tests.support.machines import NOW, opened
from tests.support.nodes import TestNode
from tests.support.raw_client import Packet, RawClient

pytestmark = pytest.mark.promise("P5")


def publish(number: int, request: int | None = None, **fields: Any) -> Packet:
    value = number if request is None else request
    return {"id": number, "request": value, "type": "publish", "topic": "a/x", "value": value, **fields}


async def replies_to(raw: RawClient, count: int) -> list[Packet]:
    return [await raw.expect("reply") for _ in range(count)]


async def heard_by(node: TestNode) -> int:
    """Tell the version of the topic, which is the number of publishes that were executed."""
    async with RawClient(node.url) as raw:
        await raw.hello("reader")
        await raw.send({"id": 1, "request": 1, "type": "subscribe", "selector": "a/x"})
        version: int = (await raw.expect("update"))["version"]
        return version


async def test_nothing_is_executed_past_a_refusal_that_the_client_may_not_have_heard(
    n1: TestNode, n2: TestNode
) -> None:
    """Else a node that the client asks again takes what was refused for executed, because what came after it was."""
    grid = n1.gateway.node._context.grid
    assert isinstance(grid, MemoryGrid)
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello()
        await raw.send(publish(1))
        await raw.expect("reply")
        grid.cut()
        await raw.send(publish(2))
        assert (await raw.expect("reply"))["error"]["code"] == "grid_unavailable"
        grid.mend()
        # Sent before the client knew; and it will say that it has not heard what is next.
        await raw.send(publish(3))
        assert (await raw.expect("reply"))["error"]["code"] == "grid_unavailable"
    async with RawClient(n2.url) as raw:
        again = await raw.resume(welcome["token"], attempt=1, received=1, oldest=2)
        assert again["outcome"] == "failed_over"
        await raw.send(publish(1, request=2, resubmitted=True), publish(2, request=3, resubmitted=True))
        assert [(reply["request"], reply["version"]) for reply in await replies_to(raw, 2)] == [(2, 2), (3, 3)]
    assert await heard_by(n2) == 3


async def test_a_client_that_has_heard_the_refusal_is_served_again(n1: TestNode) -> None:
    grid = n1.gateway.node._context.grid
    assert isinstance(grid, MemoryGrid)
    async with RawClient(n1.url) as raw:
        await raw.hello()
        grid.cut()
        await raw.send(publish(1), publish(2))
        await replies_to(raw, 2)
        grid.mend()
        await raw.send(publish(3, received=1))
        assert (await raw.expect("reply"))["error"]["code"] == "grid_unavailable"
        await raw.send(publish(4, received=3))
        assert (await raw.expect("reply"))["version"] == 1


async def test_what_is_asked_again_after_a_gap_is_answered_once(n1: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same node still works on requests when the client, after a gap, asks all of them again."""
    topics = n1.gateway.node._context.grid.topics
    execute, asked, go_on = topics.publish, asyncio.Event(), asyncio.Event()

    async def slow(commands: list[PublishCommand]) -> object:
        asked.set()
        await go_on.wait()
        return await execute(commands)

    async with RawClient(n1.url) as raw:
        welcome = await raw.hello()
        await raw.send(publish(1))
        await raw.expect("reply")
        monkeypatch.setattr(topics, "publish", slow)
        await raw.send(publish(2))
        await asked.wait()
        await raw.send(publish(3), publish(4))
        await raw.send({"type": "ping"})
        await raw.expect("pong")
    async with RawClient(n1.url) as raw:
        again = await raw.resume(welcome["token"], attempt=1, received=1, oldest=9)
        assert (again["outcome"], again["reason"]) == ("failed_over", "gap")
        await raw.send(*(publish(number - 1, request=number, resubmitted=True) for number in (2, 3, 4)))
        go_on.set()
        await raw.send(publish(4, request=5))
        replies = await replies_to(raw, 4)
        assert [(reply["request"], reply["version"]) for reply in replies] == [(2, 2), (3, 3), (4, 4), (5, 5)]
    assert await heard_by(n1) == 5


ME = NodeRef(NodeId("n1"), Incarnation("first"))


async def test_a_receipt_is_kept_until_its_own_answer_is_acknowledged() -> None:
    """Answers overtake each other: a refusal needs no grid. That one of them was heard says nothing of the others."""
    machine = opened()
    record = SessionRecord(id=SessionId("s"), principal="alice", window=60.0, owner=ME, epoch=Epoch(1))
    session = Session(record, machine, stored_under=StoredUnder(GridGeneration(1), expired_leases=0))

    for request in (1, 3, 2):
        session.reply(Reply(request=RequestNumber(request)))
        machine.flush(1000)
    assert session.settled() == 0
    machine.receive([Ack(PacketId(2))], NOW)
    assert session.settled() == 1
    machine.receive([Ack(PacketId(3))], NOW)
    assert session.settled() == 3
