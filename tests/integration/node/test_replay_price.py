"""What replay costs while nobody fails over: one notice for each subscribe, and nothing for a delivery (P13: R3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.adapters.memory.stores import MemoryTopicStore
from gateway.app.delivery.replay.gathering import Gathering
from gateway.app.delivery.replay.replays import Replays
from gateway.app.delivery.replay.stretches import Stretches
from tests.support.nodes import TestNode
from tests.support.raw_client import Packet, RawClient
from tests.support.raw_sessions import publisher

pytestmark = pytest.mark.promise("P13")

SELECTORS = ("a/**", "b/x", "c/*")
UPDATES = 100


def content(raw: RawClient) -> list[Packet]:
    """List what a client was told, without what differs for every connection and without notices."""
    return [
        {name: value for name, value in packet.items() if name not in {"id", "received"}}
        for packet in raw.seen
        if packet["type"] in {"update", "reply"}
    ]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what a node does for replays."""
    calls: Counter[str] = Counter()

    def watch(owner: type, name: str) -> None:
        does: Callable[..., Any] = getattr(owner, name)

        def noted(*arguments: Any) -> Any:
            calls[name] += 1
            return does(*arguments)

        monkeypatch.setattr(owner, name, noted)

    for owner, name in (
        (Replays, "collect"),
        (Replays, "settle"),
        (Gathering, "find"),
        (Stretches, "reach"),
        (Stretches, "since"),
        (MemoryTopicStore, "between"),
    ):
        watch(owner, name)
    return calls


async def test_two_clients_are_sent_the_same_but_for_a_notice_for_each_subscribe(
    n1: TestNode, asked: Counter[str]
) -> None:
    """Updates, replies and values have the same fields in the same order, and the node does nothing for it."""
    async with AsyncExitStack() as stack:
        bob, one, other = [await stack.enter_async_context(RawClient(n1.url)) for _ in range(3)]
        ask = await publisher(bob)
        for topic in ("a/x", "b/x", "c/x"):
            await ask.publish(topic, 0)
        for raw, supports in ((one, ["replay"]), (other, [])):
            await raw.hello(supports=supports)
            for number, selector in enumerate(SELECTORS, 1):
                await raw.send({"id": number, "type": "subscribe", "request": number, "selector": selector})
                await raw.expect("update")
        for number in range(UPDATES):
            await ask.publish(("a/x", "b/x", "c/x", "a/y")[number % 4], number)
        for raw in (one, other):
            for _ in range(UPDATES):
                await raw.expect("update")
        assert content(one) == content(other)
        assert len(content(one)) == 2 * len(SELECTORS) + UPDATES
        notices = [packet for packet in one.seen if packet["type"] == "notice"]
        assert [(each["code"], each["request"]) for each in notices] == [
            ("snapshots_complete", number) for number in range(1, len(SELECTORS) + 1)
        ]
        assert [packet for packet in other.seen if packet["type"] == "notice"] == []
    assert not asked, asked
