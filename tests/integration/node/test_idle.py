"""What a node asks of the grid while nothing happens (P11)."""

from __future__ import annotations

import time
from collections import Counter
from heapq import heappush
from typing import Any

import pytest

from gateway.adapters.memory.session_store import MemorySessionStore
from gateway.adapters.memory.stores import MemoryNodeDirectory
from gateway.app.registry.sessions import DEADLINE_GRAIN
from gateway.core.topics.topics import SESSION_PARTITIONS
from gateway.core.wire.codes import PING_TIMEOUT
from tests.support.nodes import FREQUENT_RENEWALS, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P11")

OF_THE_NODE = {"expire", "left"}
"""What is asked by the reaper, and by the count of what absent sessions of lost nodes take, however many there are."""


def counted(monkeypatch: pytest.MonkeyPatch, kind: type) -> Counter[str]:
    """Count the calls of a class's methods."""
    calls: Counter[str] = Counter()

    def counting(name: str, method: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return method(*arguments, **named)

        return call

    for name, method in vars(kind).items():
        if not name.startswith("_"):
            monkeypatch.setattr(kind, name, counting(name, method))
    return calls


async def test_while_sessions_are_idle_nothing_is_asked_about_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node(**FREQUENT_RENEWALS, ping_interval=0.2) as node, RawClient(node.url) as raw:
        await raw.hello()
        await raw.send({"type": "subscribe", "id": 1, "request": 1, "selector": "a/**"})
        await raw.expect("reply")
        about_sessions, of_nodes = counted(monkeypatch, MemorySessionStore), counted(monkeypatch, MemoryNodeDirectory)
        await eventually(lambda: of_nodes["renew"] >= 4)

        # After the first it asks each partition who owns sessions without a lease; in this generation never again.
        assert about_sessions.pop("owners", 0) <= SESSION_PARTITIONS
        assert about_sessions.keys() <= OF_THE_NODE


async def test_an_answered_ping_leaves_one_entry_among_the_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: Counter[str] = Counter()

    def push(heap: list[Any], entry: Any) -> None:
        pushed["entries"] += 1
        heappush(heap, entry)

    monkeypatch.setattr("gateway.core.pacing.timers.heappush", push)
    async with running_node(ping_interval=0.2) as node, RawClient(node.url) as raw:
        await raw.hello()
        await raw.send({"type": "ack", "received": 0})
        for number in range(5):
            await raw.expect("ping")
            if number == 0:
                pushed.clear()
            await raw.send({"type": "pong", "received": 0})
        assert pushed["entries"] <= 5


async def test_who_stops_answering_pings_is_given_up_in_time() -> None:
    async with running_node(ping_interval=scaled(0.2), ping_timeout=scaled(0.5)) as node, RawClient(node.url) as raw:
        await raw.hello()
        for _ in range(2):
            await raw.expect("ping")
            await raw.send({"type": "pong", "received": 0})
        since = time.monotonic()
        await raw.expect("ping")
        assert await raw.closed() == PING_TIMEOUT.code
        # From its last word, which was an interval before the last ping.
        assert time.monotonic() - since >= scaled(0.5) - scaled(0.2) - 2 * DEADLINE_GRAIN
