"""One node over the in-memory grid: whoever causes much to be delivered does not keep others waiting (P20)."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any
from unittest.mock import Mock

import pytest

from gateway.app.delivery import matching
from gateway.app.delivery.feeds import feeds
from gateway.app.delivery.partition import Partition
from gateway.core.stream.runs import Run
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from gateway.ports import TopicValue
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.promise("P20")

HARDLY_ANY = 1e-12
"""Seconds that are used up by whatever is done first."""

CROWD = 300


def publish(number: int, topic: str, value: object) -> dict[str, Any]:
    return {"id": number, "type": "publish", "request": number, "topic": topic, "value": value}


def subscribe(number: int, selector: str) -> dict[str, Any]:
    return {"id": number, "type": "subscribe", "request": number, "selector": selector}


@pytest.mark.parametrize("topic", ["b/known", "b/new"])
async def test_an_update_does_not_wait_for_a_crowd_of_new_topics_in_another_partition(
    monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """Each new topic takes a turn of the loop."""
    assert topic_partition(TopicPath("a/1"), 1) != topic_partition(TopicPath("b/1"), 1)
    monkeypatch.setattr(matching, "MATCHING_SECONDS", HARDLY_ANY)
    monkeypatch.setattr(matching, "QUEUE_SECONDS", HARDLY_ANY)
    async with running_node() as node, RawClient(node.url) as reader, RawClient(node.url) as one:
        await reader.hello()
        await reader.send(subscribe(1, "a/**"), subscribe(2, "b/**"))
        assert [(await reader.expect("reply"))["request"] for _ in range(2)] == [1, 2]
        await one.hello()
        await one.send(publish(1, "b/known", 0))
        assert (await reader.expect("update"))["topic"] == "b/known"
        crowd = [publish(number, f"a/{number}", 1) for number in range(2, CROWD + 2)]
        await one.send(*crowd, publish(CROWD + 2, topic, "soon"))
        came = [(await reader.expect("update"))["topic"] for _ in range(CROWD + 1)]
        assert [each for each in came if each.startswith("a/")] == [f"a/{number}" for number in range(2, CROWD + 2)]
        assert came.index(topic) < CROWD - 10, "before the crowd is through"


async def test_what_is_new_in_a_partition_stays_in_order_while_its_stream_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "MATCHING_SECONDS", HARDLY_ANY)
    monkeypatch.setattr(matching, "QUEUE_VALUES", 20)
    async with running_node() as node, RawClient(node.url) as reader, RawClient(node.url) as one:
        await reader.hello()
        await reader.send(subscribe(1, "a/**"))
        await reader.expect("reply")
        await one.hello()
        tail = node.gateway.node._context.grid.tail
        pause = Mock(wraps=tail.pause)
        monkeypatch.setattr(tail, "pause", pause)
        for number in range(1, CROWD + 1):
            await one.send(publish(number, f"a/{number % 90}", number))
        came = [(await reader.expect("update"))["value"] for _ in range(CROWD)]
        assert came == list(range(1, CROWD + 1))
        assert pause.called


async def test_snapshots_of_many_sessions_share_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at in a turn of the loop does not grow with the sessions that want it."""
    sessions, topics = 12, 40
    async with running_node() as node, AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(RawClient(node.url)) for _ in range(sessions)]
        for each in readers:
            await each.hello()
        await readers[0].send(*(publish(number, f"a/{number}", 1) for number in range(1, topics + 1)))
        for _ in range(topics):
            await readers[0].expect("reply")
        # Nobody has to wait for the partition to be read.
        await readers[0].send(subscribe(topics + 1, "a/none"))
        await readers[0].expect("reply")
        monkeypatch.setattr(feeds, "FEED_SECONDS", HARDLY_ANY)
        monkeypatch.setattr(feeds, "FEEDS_SECONDS", HARDLY_ANY)
        looked_at: Counter[int] = Counter()
        turn = 0

        async def count_turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        snapshot = Partition.snapshot

        def counting(partition: Partition, value: TopicValue) -> Run:
            looked_at[turn] += 1
            return snapshot(partition, value)

        monkeypatch.setattr(Partition, "snapshot", counting)
        counter = asyncio.create_task(count_turns())
        for number, each in enumerate(readers):
            await each.send(subscribe(1 if number else topics + 2, "a/**"))
        for each in readers:
            came = {(await each.expect("update"))["topic"] for _ in range(topics)}
            assert came == {f"a/{number}" for number in range(1, topics + 1)}
        counter.cancel()
        assert looked_at.total() == sessions * topics
        assert max(looked_at.values()) <= 3, "and not one for each session"
