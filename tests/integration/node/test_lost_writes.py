"""What the grid lost together with a session's node is told to whoever comes back with a token from before it (P2).

Nobody who lives has ever heard of the publish that is lost here: only that the session's token is of an older
generation of the grid tells that there may have been one. And only the generation tells the node that serves it now
that higher versions may have been seen (P6).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.core.types import GridGeneration, SessionId, TokenGeneration
from gateway.core.wire.packets import NoticeCode
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.promise("P2", "P6")

LOST = NoticeCode.GRID_LOST_WRITES.value


async def told(raw: RawClient) -> list[str]:
    """Have the node answer a request, and tell which notices came before the answer."""
    await raw.send({"id": 1, "request": 1000, "type": "properties", "set": {"asked": "yes"}})
    await raw.expect("reply")
    return [packet["code"] for packet in raw.seen if packet["type"] == "notice"]


async def adopted(node: TestNode, generation: int) -> None:
    grid = node.gateway.node._context.grid
    await eventually(lambda: grid.generation == generation)


async def eventually_seen(raw: RawClient, fields: dict[str, Any]) -> None:
    """Receive until a packet with these fields has come."""
    while not any(fields.items() <= packet.items() for packet in raw.seen):
        await raw.receive()


@asynccontextmanager
async def lost_with_its_node(
    memory: MemoryGridServer, n2: TestNode
) -> AsyncIterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """A session whose node dies with what it published last; yields its welcome, the last receipt and update."""
    async with running_node("n1", memory=memory) as n1, RawClient(n1.url) as raw:
        welcome = await raw.hello()
        await raw.send({"id": 1, "request": 1, "type": "subscribe", "selector": "a/**"})
        await raw.expect("reply")
        await raw.send({"id": 2, "request": 2, "type": "publish", "topic": "a/x", "value": "kept"})
        await raw.expect("reply")
        replica = memory.snapshot()
        receipt: dict[str, Any] = {}
        for number in range(3, 9):
            await raw.send({"id": number, "request": number, "type": "publish", "topic": "a/x", "value": number})
            receipt = await raw.expect("reply")
        is_last = {"type": "update", "value": 8}
        await eventually_seen(raw, is_last)
        update = next(packet for packet in raw.seen if is_last.items() <= packet.items())
        # Both at once: n1 never hears what is there when the grid is back.
        n1.gateway.node._context.grid.cut()  # type: ignore[attr-defined]
        memory.go_away()
    memory.come_back(snapshot=replica)
    await adopted(n2, 2)
    yield welcome, receipt, update


async def test_a_loss_that_nobody_saw_is_told_once_to_who_comes_back(memory: MemoryGridServer, n2: TestNode) -> None:
    async with lost_with_its_node(memory, n2) as (welcome, _, _):
        async with RawClient(n2.url) as raw:
            again = await raw.resume(welcome["token"], attempt=1, received=0, oldest=9)
            assert again["outcome"] == "failed_over"
            assert await told(raw) == [LOST]
            first = next(packet for packet in raw.seen if "id" in packet)
            assert (first["type"], first["code"]) == ("notice", LOST), "before anything that the grid still has"
        async with running_node("n3", memory=memory) as n3, RawClient(n3.url) as raw:
            third = await raw.resume(again["token"], attempt=2, received=0, oldest=2)
            assert third["outcome"] == "failed_over"
            assert await told(raw) == []


async def test_versions_go_on_above_those_that_were_lost_with_the_node(memory: MemoryGridServer, n2: TestNode) -> None:
    async with lost_with_its_node(memory, n2) as (welcome, receipt, update), RawClient(n2.url) as raw:
        again = await raw.resume(welcome["token"], attempt=1, received=0, oldest=9)
        assert again["outcome"] == "failed_over"
        snapshot = await raw.expect("update")
        assert snapshot["value"] == "kept"
        assert snapshot["snapshot"]
        assert snapshot["version"] > update["version"] == receipt["version"]
        await raw.send({"id": 1, "request": 9, "type": "unsubscribe", "selector": "a/**"})
        await raw.expect("reply")
        await raw.send({"id": 2, "request": 10, "type": "subscribe", "selector": "a/x"})
        anew = await raw.expect("update")
        assert anew["version"] >= snapshot["version"]
        await raw.send({"id": 3, "request": 11, "type": "publish", "topic": "a/x", "value": "next"})
        after = await raw.expect("update")
        assert (after["value"], after["version"]) == ("next", anew["version"] + 1)


async def test_who_was_there_when_the_grid_lost_writes_is_told_once(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode
) -> None:
    raw = RawClient(n1.url)
    await raw.connect()
    welcome = await raw.hello()
    memory.go_away()
    memory.come_back(restarted=True)
    await adopted(n1, 2)
    await raw.expect("notice", where=lambda notice: notice["code"] == LOST)
    await raw.cut()
    async with RawClient(n1.url) as back:
        again = await back.resume(welcome["token"], attempt=1, received=1, oldest=1)
        assert again["outcome"] == "reattached"
        assert await told(back) == []
    async with RawClient(n2.url) as back:
        third = await back.resume(again["token"], attempt=2, received=0, oldest=2)
        assert third["outcome"] == "failed_over"
        assert await told(back) == [], "the token was made when the notice had been acknowledged"


async def test_a_notice_that_did_not_arrive_is_told_by_the_next_node(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode
) -> None:
    raw = RawClient(n1.url)
    await raw.connect()
    welcome = await raw.hello()
    await raw.cut()
    memory.go_away()
    memory.come_back(restarted=True)
    for node in (n1, n2):
        await adopted(node, 2)
    (session,) = n1.gateway.node.sessions
    await eventually(lambda: session.declared == 2)
    async with RawClient(n1.url) as back:
        again = await back.resume(welcome["token"], attempt=1, received=0, oldest=1)
        assert again["outcome"] == "reattached"
        await back.expect("notice")
    async with RawClient(n2.url) as back:
        await back.resume(again["token"], attempt=2, received=0, oldest=1)
        assert await told(back) == [LOST], "nobody knows whether it had arrived"


async def test_where_the_grid_lost_nothing_nobody_is_told(n1: TestNode, n2: TestNode) -> None:
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello()
    async with RawClient(n2.url) as back:
        await back.resume(welcome["token"], attempt=1)
        assert await told(back) == []


async def test_a_grid_that_went_back_while_no_node_knew_better_is_adopted_anew(memory: MemoryGridServer) -> None:
    """All nodes are new, the grid is a copy from long ago: the token alone knows that there was more."""
    async with running_node("n1", memory=memory) as n1, RawClient(n1.url) as raw:
        welcome = await raw.hello()
        await raw.send({"id": 1, "request": 1, "type": "subscribe", "selector": "a/**"})
        await raw.expect("reply")
        await raw.send({"id": 2, "request": 2, "type": "publish", "topic": "a/x", "value": "kept"})
        await raw.expect("reply")
        old = memory.snapshot()
        for generation in (2, 3):
            memory.go_away()
            memory.come_back(restarted=True)
            await adopted(n1, generation)
            await raw.expect("notice", where=lambda notice: notice["code"] == LOST)
        await raw.send({"id": 3, "request": 3, "type": "publish", "topic": "a/x", "value": "lost"})
        seen = await raw.expect("update", where=lambda update: update["value"] == "lost")
        node = n1.gateway.node
        token = node.sessions._signer.sign(
            SessionId(welcome["session"]),
            TokenGeneration(1),
            now=node._context.clock.wall(),
            grid_generation=GridGeneration(30),
        )
    memory.go_away()
    memory.come_back(snapshot=old)
    async with running_node("n2", memory=memory) as n2:
        assert 3 < n2.gateway.node._context.grid.generation < 30, (
            "it leaves room, and not enough for what the token knows"
        )
        async with RawClient(n2.url) as raw:
            refused = await raw.resume(token, attempt=1, received=0, oldest=9)
            assert refused["code"] == "grid_unavailable"
        await adopted(n2, 31)
        await eventually(lambda: not n2.gateway.node.readiness.reasons())
        async with RawClient(n2.url) as raw:
            again = await raw.resume(token, attempt=2, received=0, oldest=9)
            assert again["outcome"] == "failed_over"
            snapshot = await raw.expect("update")
            assert snapshot["version"] > seen["version"]
            assert LOST in [packet.get("code") for packet in raw.seen]


async def test_a_token_of_another_grid_changes_nothing(n1: TestNode) -> None:
    signer, now = n1.gateway.node.sessions._signer, n1.gateway.node._context.clock.wall()
    token = signer.sign(SessionId("elsewhere"), TokenGeneration(1), now=now, grid_generation=GridGeneration(9))
    async with RawClient(n1.url) as raw:
        assert (await raw.resume(token, attempt=1))["code"] == "try_later"  # for a while: test_nodes_behind.py
    assert n1.gateway.node._context.grid.generation == 1


@pytest.mark.parametrize("lost", [True, False])
async def test_a_token_of_the_first_release_counts_as_from_before_this_node(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode, *, lost: bool
) -> None:
    async with RawClient(n1.url) as raw:
        welcome = await raw.hello()
    if lost:
        memory.go_away()
        memory.come_back(restarted=True)
        await adopted(n2, 2)
        await eventually(n2.gateway.node._grid_recovery.has_lost)
    token = old_token(n2, welcome["session"])
    async with RawClient(n2.url) as back:
        again = await back.resume(token, attempt=1)
        assert again["type"] == "welcome", again
        assert await told(back) == ([LOST] if lost else [])


def old_token(node: TestNode, session: str) -> str:
    """Make a token as the first release did, without a generation of the grid."""
    signer = node.gateway.node.sessions._signer
    now = node.gateway.node._context.clock.wall()
    return signer.sign(SessionId(session), TokenGeneration(1), now=now)
