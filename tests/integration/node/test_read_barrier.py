"""A node that is behind the grid shows nobody a value older than what another node has shown (P6).

So it is after a node was suspended: it goes on where its streams were, and sessions come that have seen what is new.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.app.delivery import read_barrier
from gateway.app.delivery.replay import replays
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from tests.support.nodes import TestNode, eventually
from tests.support.raw_client import Packet, RawClient

A = topic_partition(TopicPath("a"), 1)
B = topic_partition(TopicPath("b"), 1)

pytestmark = pytest.mark.promise("P6")


class Behind:
    """A node that follows the partitions of ``a`` and ``b``, and whose streams bring nothing until they are let on.

    Args:
        node: which.
        other: the session for which it follows them.
    """

    def __init__(self, node: TestNode, other: RawClient) -> None:
        self._replicas = node.gateway.node.sessions.delivery.replicas
        self._barrier = node.gateway.node.sessions.delivery.barrier
        self._other = other

    async def hold(self) -> None:
        """Follow, and bring nothing from now on."""
        await self._other.hello("carol")
        for number, selector in enumerate(("a/**", "b/**"), 1):
            await select(self._other, number, selector)
        for number in (A, B):
            self._replicas._tail.pause(number)

    def let_on(self, number: int) -> None:
        self._replicas._tail.resume(number)

    async def is_waited_for(self, number: int) -> None:
        """Wait until somebody waits for a partition."""
        partition = self._replicas.get(number)
        assert partition is not None
        await eventually(lambda: bool(partition.awaited))

    @property
    def asked(self) -> int:
        return self._barrier.asked


async def select(raw: RawClient, packet: int, selector: str) -> None:
    await raw.send({"id": packet, "type": "subscribe", "request": packet, "selector": selector})
    await raw.expect("reply", where=lambda reply: reply["request"] == packet)


async def publish(raw: RawClient, number: int, topic: str, value: int) -> None:
    await raw.send({"id": number, "type": "publish", "request": number, "topic": topic, "value": value})
    await raw.expect("reply", where=lambda reply: reply["request"] == number)


async def came_back(raw: RawClient, token: str, *, attempt: int = 1, **more: Any) -> Packet:
    return await raw.resume(token, attempt=attempt, received=0, oldest=2**53 - 1, **more)


def shown(raw: RawClient) -> list[tuple[str, Any]]:
    """Return the updates that a client has read so far."""
    return [(each["topic"], each["value"]) for each in raw.seen if each["type"] == "update"]


async def next_update(raw: RawClient) -> tuple[str, Any, bool]:
    update = await raw.expect("update")
    return update["topic"], update["value"], update.get("snapshot", False)


async def ping(raw: RawClient) -> None:
    """Have the node answer, so that all is here that it sent before."""
    await raw.send({"type": "ping"})
    await raw.expect("pong")


@asynccontextmanager
async def scene(
    n1: TestNode, n2: TestNode, topic: str
) -> AsyncIterator[tuple[RawClient, RawClient, RawClient, Behind]]:
    """Have a topic published to before a node falls behind.

    Yields:
        Who publishes; a client at the first node, and a connection by which it comes to the second; the latter node.
    """
    async with (
        RawClient(n1.url) as bob,
        RawClient(n1.url) as raw,
        RawClient(n2.url) as other,
        RawClient(n2.url) as back,
    ):
        behind = Behind(n2, other)
        await bob.hello("bob")
        await publish(bob, 1, topic, 1)
        await behind.hold()
        yield bob, raw, back, behind


async def test_a_session_that_moves_is_shown_nothing_until_its_new_node_is_as_new_as_the_grid(
    n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_barrier, "PATIENCE", 0.01)
    async with scene(n1, n2, "a/x") as (bob, raw, back, behind):
        token = (await raw.hello())["token"]
        await select(raw, 1, "a/**")
        await publish(bob, 2, "a/x", 2)
        assert [await next_update(raw) for _ in range(2)] == [("a/x", 1, True), ("a/x", 2, False)]
        await raw.cut()
        assert (await came_back(back, token))["outcome"] == "failed_over"
        await behind.is_waited_for(A)
        await ping(back)
        assert shown(back) == [], "the value 1 is older than what the client has seen"
        behind.let_on(A)
        assert await next_update(back) == ("a/x", 2, True)
        await publish(bob, 3, "a/x", 3)
        assert await next_update(back) == ("a/x", 3, False)


async def test_values_leave_with_the_welcome_of_a_node_that_is_up_to_date(n1: TestNode, n2: TestNode) -> None:
    async with RawClient(n1.url) as raw, RawClient(n2.url) as other, RawClient(n2.url) as back:
        behind = Behind(n2, other)
        await behind.hold()
        token = (await raw.hello())["token"]
        await select(raw, 1, "a/**")
        await raw.send({"id": 2, "type": "publish", "request": 2, "topic": "a/x", "value": 1})
        assert await next_update(raw) == ("a/x", 1, False)
        await raw.cut()
        behind.let_on(A)
        before = behind.asked
        assert (await came_back(back, token))["outcome"] == "failed_over"
        assert await next_update(back) == ("a/x", 1, True)
        assert behind.asked == before + 1


async def test_a_later_subscribe_shows_nothing_older_than_the_former_node_did(n1: TestNode, n2: TestNode) -> None:
    """What it had selected there, given up, and selects again here."""
    async with scene(n1, n2, "b/x") as (bob, raw, back, behind):
        behind.let_on(A)
        token = (await raw.hello())["token"]
        await select(raw, 1, "a/**")
        await select(raw, 2, "b/**")
        await publish(bob, 2, "b/x", 2)
        assert [await next_update(raw) for _ in range(2)] == [("b/x", 1, True), ("b/x", 2, False)]
        await raw.send({"id": 3, "type": "unsubscribe", "request": 3, "selector": "b/**"})
        await raw.expect("reply", where=lambda reply: reply["request"] == 3)
        await raw.cut()
        assert (await came_back(back, token))["selections"] == ["+a/**"]
        await back.send({"id": 1, "type": "subscribe", "request": 4, "selector": "b/**"})
        await behind.is_waited_for(B)
        await ping(back)
        assert shown(back) == []
        behind.let_on(B)
        await back.expect("reply", where=lambda reply: reply["request"] == 4)
        assert await next_update(back) == ("b/x", 2, True)


async def test_who_names_positions_is_not_shown_older_values_either_if_the_node_is_behind_for_long(
    n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "PATIENCE", 0.01)
    supports: dict[str, Any] = {"supports": ["replay"]}
    async with scene(n1, n2, "a/x") as (bob, raw, back, behind):
        token = (await raw.hello(**supports))["token"]
        await select(raw, 1, "a/**")
        await publish(bob, 2, "a/x", 2)
        updates = [await raw.expect("update") for _ in range(2)]
        await raw.cut()
        positions = {str(A): updates[-1]["event"]}
        welcome = await came_back(back, token, positions=positions, **supports)
        assert welcome["replayed"] == {str(A): "behind"}
        await behind.is_waited_for(A)
        await ping(back)
        assert shown(back) == []
        behind.let_on(A)
        assert await next_update(back) == ("a/x", 2, True)


async def test_a_session_that_has_been_here_all_the_time_asks_nothing(n1: TestNode) -> None:
    async with RawClient(n1.url) as raw, RawClient(n1.url) as back, RawClient(n1.url) as again:
        token = (await raw.hello())["token"]
        await select(raw, 1, "a/**")
        await raw.cut()
        # Once more by the resend buffers, and once by the failover of a gap.
        welcome = await back.resume(token, attempt=1, received=1, oldest=2)
        assert welcome["outcome"] == "reattached"
        await back.cut()
        welcome = await came_back(again, welcome["token"], attempt=2)
        assert (welcome["outcome"], welcome["reason"]) == ("failed_over", "gap")
        await select(again, 1, "b/**")
        assert n1.gateway.node.sessions.delivery.barrier.asked == 0


async def test_a_storm_asks_for_the_end_of_a_stream_a_few_times_alone(n1: TestNode, n2: TestNode) -> None:
    """P20: what all of them wait for is asked for once for many."""
    comebacks = 200
    async with RawClient(n2.url) as other:
        behind = Behind(n2, other)
        await behind.hold()
        behind.let_on(A)
        tokens: list[str] = []
        for _ in range(comebacks):
            async with RawClient(n1.url) as raw:
                tokens.append((await raw.hello())["token"])
                await select(raw, 1, "a/**")
        connections = [RawClient(n2.url) for _ in tokens]
        try:
            await asyncio.gather(*(each.connect() for each in connections))
            welcomes = await asyncio.gather(*map(came_back, connections, tokens))
            assert {each["outcome"] for each in welcomes} == {"failed_over"}
            assert 0 < behind.asked < comebacks / 4
        finally:
            for raw in connections:
                await raw.cut()
