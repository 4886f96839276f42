"""P9 the other way round: a client that reads is not taken for a slow one because much comes at once."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gateway.catalogue.log_events import SLOW_CONSUMER_CLOSED
from tests.support.nodes import TestNode, running_node
from tests.support.raw_client import Packet, RawClient

pytestmark = pytest.mark.promise("P9")

BURST: Final = 1000
PADDING: Final = "x" * 1000
"""The burst has a megabyte: many times what a transport holds back, and less than the kernel takes."""
SETTINGS: Final[dict[str, Any]] = {
    "limit_message_bytes": 4 * 2**20,
    "limit_requests": BURST,
    "limit_resend_packets": 4 * BURST,
    "limit_resend_bytes": 16 * 2**20,
}


async def burst(node: TestNode, topics: list[str]) -> list[Packet]:
    """Publish to all of *topics* in one message, and return what a subscriber that reads is sent."""
    async with RawClient(node.url) as reader, RawClient(node.url) as publisher:
        await reader.hello()
        await reader.send({"id": 1, "request": 1, "type": "subscribe", "selector": "a/*"})
        await reader.expect("reply")
        await publisher.hello("publisher")
        await publisher.send(
            *(
                {"id": number, "request": number, "type": "publish", "topic": topic, "value": PADDING}
                for number, topic in enumerate(topics, 1)
            )
        )
        return [await reader.expect("update") for _ in topics]


async def test_a_burst_to_many_topics_closes_nobody() -> None:
    """More topics than may wait for a client that is slow; this one is not, and is only sent them one after another."""
    topics = [f"a/{number}" for number in range(BURST)]
    async with running_node(**SETTINGS, limit_outbox_packets=BURST // 10) as node:
        updates = await burst(node, topics)
        assert node.log.of(SLOW_CONSUMER_CLOSED) == []
    assert [update["topic"] for update in updates] == topics


async def test_a_burst_to_one_topic_is_not_conflated() -> None:
    async with running_node(**SETTINGS) as node:
        updates = await burst(node, ["a/x"] * BURST)
    assert [update["version"] for update in updates] == list(range(1, BURST + 1))
