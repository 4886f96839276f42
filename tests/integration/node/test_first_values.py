"""The current value of a topic comes before any update of it, however long all values take to be sent (P6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.delivery import delivery
from gateway.app.delivery.feeds import feeds
from tests.support.nodes import TestNode, running_node
from tests.support.raw_client import Packet, RawClient

pytestmark = pytest.mark.promise("P6")

TOPICS: Final = 60
ROUNDS: Final = 6
PATHS: Final = [f"few/{number}" for number in range(TOPICS)]


@pytest.fixture
def slow_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine: others get their turn after each topic."""
    monkeypatch.setattr(feeds, "FEED_SECONDS", -1.0)


@pytest.fixture
async def node() -> AsyncIterator[TestNode]:
    async with running_node(rate_packets=0) as running:
        yield running


class Publishing:
    """Publishes to all topics, again and again, and waits for the answers."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._request = 0

    async def round(self, paths: Iterable[str]) -> None:
        packets: list[dict[str, Any]] = []
        for path in paths:
            self._request += 1
            packet = {"id": self._request, "type": "publish", "request": self._request, "topic": path, "value": 0}
            packets.append(packet)
        for packet in packets:
            await self._client.send(packet)
        for _ in packets:
            await self._client.expect("reply")

    async def rounds(self) -> None:
        """Publish to all topics ``ROUNDS`` times, the last one first."""
        for _ in range(ROUNDS):
            await self.round(reversed(PATHS))


async def updates_until(client: RawClient, versions: dict[str, int]) -> list[Packet]:
    """Read until the newest version of each topic is there."""
    updates: list[Packet] = []
    last: dict[str, int] = {}
    while any(last.get(topic, 0) < version for topic, version in versions.items()):
        packet = await client.expect("update")
        updates.append(packet)
        last[packet["topic"]] = packet["version"]
    return updates


def assert_nothing_is_missing(updates: list[Packet], *, known: dict[str, int] | None = None) -> None:
    last = dict(known or {})
    for packet in updates:
        topic, version = packet["topic"], packet["version"]
        if packet.get("snapshot"):
            assert version >= last.get(topic, 0)
        else:
            assert topic in last, f"{topic} begins with version {version} and is no current value"
            assert version == last[topic] + 1 + packet.get("folded", 0)
        last[topic] = version


async def test_a_subscribe_is_answered_with_current_values_first(node: TestNode, slow_snapshots: None) -> None:
    async with RawClient(node.url) as source, RawClient(node.url) as reader:
        await source.hello("source")
        await reader.hello("reader")
        publishing = Publishing(source)
        await publishing.round(PATHS)
        going_on = asyncio.create_task(publishing.rounds())
        await reader.send({"id": 1, "request": 1, "type": "subscribe", "selector": "few/*"})
        updates = await updates_until(reader, dict.fromkeys(PATHS, 1 + ROUNDS))
        await going_on
        assert_nothing_is_missing(updates)


async def test_what_was_selected_already_goes_on_without_a_mark(node: TestNode, slow_snapshots: None) -> None:
    """An overlapping selector makes no snapshot of an update that the session was to have anyway."""
    async with RawClient(node.url) as source, RawClient(node.url) as reader:
        await source.hello("source")
        await reader.hello("reader")
        publishing = Publishing(source)
        await reader.send({"id": 1, "request": 1, "type": "subscribe", "selector": "few/**"})
        await reader.expect("reply")
        await publishing.round(PATHS)
        first = await updates_until(reader, dict.fromkeys(PATHS, 1))
        assert not any("snapshot" in packet for packet in first)
        await reader.send({"id": 2, "request": 2, "type": "subscribe", "selector": "few/*"})
        await publishing.rounds()
        updates = await updates_until(reader, dict.fromkeys(PATHS, 1 + ROUNDS))
        fresh = {(packet["topic"], packet["version"]) for packet in updates if "snapshot" not in packet}
        assert fresh == {(path, version) for path in PATHS for version in range(2, 2 + ROUNDS)}


async def test_a_failover_brings_current_values_first(slow_snapshots: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SEARCHED_AT_ONCE", 0)
    memory = MemoryGridServer()
    async with (
        running_node("n1", memory=memory, rate_packets=0) as n1,
        running_node("n2", memory=memory, rate_packets=0) as n2,
        RawClient(n1.url) as source,
    ):
        await source.hello("source")
        publishing = Publishing(source)
        async with RawClient(n1.url) as reader:
            welcome = await reader.hello("reader")
            await reader.send({"id": 1, "request": 1, "type": "subscribe", "selector": "few/*"})
            await reader.expect("reply")
        await publishing.round(PATHS)
        going_on = asyncio.create_task(publishing.rounds())
        async with RawClient(n2.url) as back:
            assert (await back.resume(welcome["token"], attempt=1))["outcome"] == "failed_over"
            updates = await updates_until(back, dict.fromkeys(PATHS, 1 + ROUNDS))
        await going_on
        assert_nothing_is_missing(updates)
