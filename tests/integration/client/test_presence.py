"""Presence from the outside: who is there, over every rung, exactly, and only for those who may see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import Forbidden, Presence, PresenceEvent, Session, UpdateStream, connect
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import Limits, ValueLimits
from gateway.core.topics.selectors import parse_selector
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.clock import eventually
from tests.support.event_streams import reading
from tests.support.http_calls import call
from tests.support.linked_nodes import LinkedNodes
from tests.support.mirrored_nodes import caught_up
from tests.support.nodes import TestNode, running_node
from tests.support.times import scaled

QUICK: dict[str, Any] = {
    "backoff_initial": 0.01,
    "backoff_maximum": 0.05,
    "lease": scaled(5.0),
    "lease_renew": scaled(0.2),
    "drain_jitter": 0.0,
}
NOBODY = 1
"""A port that nobody listens at."""
ROOM = "rooms/7"
SHOWN = ValueLimits(presence=True, presence_properties="name,$principal.team")


async def mark(nodes: list[TestNode], selector: str = "rooms/*/**", limits: Limits = SHOWN) -> None:
    """Say at one node which trees tell who has subscribed, and wait until all know it."""
    described = Destination(selector=parse_selector(selector), limits=limits, origin=Origin.ADMINISTRATOR)
    set_at = nodes[0].gateway.node.destinations
    said = await set_at.set(described)
    tables = [each.gateway.node.destinations.table for each in nodes]
    await eventually(lambda: all((known := t.named(said.name)) and known.says_the_same(said) for t in tables))


class Watcher:
    """Somebody who watches a tree, and writes down what is told."""

    def __init__(self, presence: Presence) -> None:
        self.presence = presence
        self.events: list[PresenceEvent] = []
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for event in self.presence:
            self.events.append(event)

    @property
    def moves(self) -> list[tuple[str, str]]:
        return [(each.kind, each.member.principal) for each in self.events if each.member is not None]

    @property
    def principals(self) -> list[str]:
        return sorted(each.principal for each in self.presence.members.values())

    @property
    def heard(self) -> list[str]:
        """Who is there by the events that were read: what is known may be ahead of them."""
        there: dict[str, str] = {}
        for event in self.events:
            if event.member is not None:
                there[event.member.session_id] = event.member.principal
                if event.kind == "left":
                    del there[event.member.session_id]
        return sorted(there.values())

    async def sees(self, *principals: str) -> None:
        """Wait until exactly these are there, and counted, and the events of that were read."""

        def are_there() -> bool:
            return self.principals == self.heard == sorted(principals) and self.presence.count == len(principals)

        await eventually(are_there, message=f"{principals} are there, of {self.principals}")

    def close(self) -> None:
        self._reading.cancel()


class Cluster:
    """Nodes over one grid."""

    def __init__(self, nodes: list[TestNode], stack: AsyncExitStack, memory: MemoryGridServer | None = None) -> None:
        self.nodes = nodes
        self.stack = stack
        self.memory = memory or MemoryGridServer()
        self.streams: list[UpdateStream] = []

    async def client(self, node: int | str, principal: str, **arguments: Any) -> Session:
        url = node if isinstance(node, str) else self.nodes[node].url
        return await self.stack.enter_async_context(connect(url, principal, **arguments))

    async def select(self, session: Session, selector: str) -> UpdateStream:
        """Have a session subscribe; the stream is kept, as the selection ends with it."""
        stream = await session.subscribe(selector)
        self.streams.append(stream)
        return stream

    async def watch(self, node: int, tree: str = ROOM, **arguments: Any) -> Watcher:
        session = await self.client(node, "watcher")
        watcher = Watcher(await session.presence(tree, **arguments))
        self.stack.callback(watcher.close)
        return watcher


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> LinkedNodes:
    return LinkedNodes(monkeypatch)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    memory = MemoryGridServer(now=time.monotonic)
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(running_node(name, memory=memory, **QUICK)) for name in ("n1", "n2")]
        await mark(nodes)
        yield Cluster(nodes, stack, memory)


async def test_who_subscribes_is_there_and_who_does_not_any_more_is_not(cluster: Cluster) -> None:
    alice = await cluster.client(0, "alice", properties={"name": "Alice", "hidden": "1"})
    chat = await alice.subscribe("rooms/7/chat")
    watcher = await cluster.watch(1)
    await watcher.sees("alice")
    (member,) = watcher.presence.members.values()
    assert (member.session_id, member.principal, member.properties) == (alice.id, "alice", {"name": "Alice"})

    bob = await cluster.client(1, "bob")
    await cluster.select(bob, "rooms/7/**")
    await watcher.sees("alice", "bob")
    board = await alice.subscribe("rooms/7/board")
    await cluster.select(alice, "rooms/*/news")  # names no room
    chat.close()
    board_only = await cluster.client(0, "carol")
    await cluster.select(board_only, "rooms/7")
    await watcher.sees("alice", "bob", "carol")
    assert watcher.moves == [("joined", "alice"), ("joined", "bob"), ("joined", "carol")]
    board.close()
    await watcher.sees("bob", "carol")
    await bob.close()
    await watcher.sees("carol")
    assert watcher.moves[3:] == [("left", "alice"), ("left", "bob")]


async def test_properties_that_are_shown_change(cluster: Cluster) -> None:
    alice = await cluster.client(0, "alice", properties={"name": "Alice"})
    await cluster.select(alice, "rooms/7/chat")
    watcher = await cluster.watch(1)
    await watcher.sees("alice")
    await alice.set_properties({"name": "Alicia"})
    await alice.set_properties({"hidden": "x"})
    await eventually(lambda: len(watcher.moves) == 2)
    assert watcher.moves == [("joined", "alice"), ("changed", "alice")]
    (member,) = watcher.presence.members.values()
    assert member.properties == {"name": "Alicia"}


async def test_counts_alone(cluster: Cluster) -> None:
    watcher = await cluster.watch(1, members=False)
    for number in range(10):
        member = await cluster.client(number % 2, f"p{number}")
        await cluster.select(member, "rooms/7/chat")
    await eventually(lambda: watcher.presence.count == 10)
    assert watcher.presence.members == {}
    assert len(watcher.events) <= 5, "once a second, however many come"


async def test_what_is_marked_later_or_no_more(cluster: Cluster) -> None:
    alice = await cluster.client(0, "alice")
    await cluster.select(alice, "halls/1/chat")
    watcher = await cluster.watch(1, "halls/1")
    await mark(cluster.nodes, "halls/*/**")
    await watcher.sees("alice")
    await mark(cluster.nodes, "halls/*/**", ValueLimits())
    await watcher.sees()
    assert watcher.moves == [("joined", "alice"), ("left", "alice")]


@pytest.mark.promise("P7")
async def test_reattaching_and_the_end_of_the_window(cluster: Cluster) -> None:
    proxy = await cluster.stack.enter_async_context(CuttingProxy(cluster.nodes[0].gateway.port))
    alice = await cluster.client(proxy.url, "alice", window=scaled(1.5))
    await cluster.select(alice, "rooms/7/chat")
    watcher = await cluster.watch(1)
    await watcher.sees("alice")
    recoveries = alice.recoveries()
    proxy.cut()
    assert (await anext(recoveries)).outcome == "reattached"
    await watcher.sees("alice")
    assert watcher.moves == [("joined", "alice")]
    proxy.target = NOBODY
    proxy.cut()
    await watcher.sees()
    assert watcher.moves == [("joined", "alice"), ("left", "alice")], "once, when its window is over"


async def goes_on_elsewhere(cluster: Cluster, outcome: str) -> None:
    """Have a member and somebody who watches go on at another node: nobody has left, and nobody comes twice."""
    n1, n2 = cluster.nodes[:2]
    proxies = [await cluster.stack.enter_async_context(CuttingProxy(n1.gateway.port)) for _ in range(2)]
    alice = await cluster.client(proxies[0].url, "alice", discover=False)
    await cluster.select(alice, "rooms/7/chat")
    there = await cluster.watch(1)
    mine = Watcher(await (await cluster.client(proxies[1].url, "watcher", discover=False)).presence(ROOM))
    cluster.stack.callback(mine.close)
    for each in (there, mine):
        await each.sees("alice")
    recoveries = alice.recoveries()
    for proxy in proxies:
        proxy.target = n2.gateway.port
    if outcome == "mirrored":
        await caught_up(n1)
        await n1.gateway.close()
    for proxy in proxies:
        proxy.cut()
    assert (await anext(recoveries)).outcome == outcome
    bob = await cluster.client(1, "bob")
    await cluster.select(bob, "rooms/7/chat")
    for each in (there, mine):
        await each.sees("alice", "bob")
        assert each.moves == [("joined", "alice"), ("joined", "bob")]
    await alice.unsubscribe("rooms/7/chat")
    for each in (there, mine):
        await each.sees("bob")
        assert each.moves[2:] == [("left", "alice")]


@pytest.mark.promise("P1")
async def test_failing_over(cluster: Cluster) -> None:
    await goes_on_elsewhere(cluster, "failed_over")


@pytest.mark.promise("P12")
@pytest.mark.parametrize("outcome", ["handed_over", "mirrored"])
async def test_going_on_with_a_copy(linked: LinkedNodes, outcome: str) -> None:
    backup = {"backup": "n2"} if outcome == "mirrored" else {}
    async with linked.run("n1", "n2", "n3", **backup) as nodes, AsyncExitStack() as stack:
        await mark(nodes)
        await goes_on_elsewhere(Cluster(nodes, stack), outcome)


@pytest.mark.promise("P10")
async def test_a_grid_that_has_gone_back(cluster: Cluster) -> None:
    alice, bob = await cluster.client(0, "alice"), await cluster.client(1, "bob")
    watcher = await cluster.watch(1)
    await cluster.select(bob, "rooms/7/chat")
    snapshot = cluster.memory.snapshot()
    await cluster.select(alice, "rooms/7/chat")
    await bob.unsubscribe("rooms/7/chat")
    await watcher.sees("alice")
    cluster.memory.go_away()
    cluster.memory.come_back(restarted=True, snapshot=snapshot)
    carol = await cluster.client(0, "carol")
    await cluster.select(carol, "rooms/7/chat")
    await watcher.sees("alice", "carol")


async def test_only_those_may_watch_who_may(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        """
        default = ["member"]
        [roles.member]
        select = ["**"]
        [roles.host]
        presence = ["rooms/*"]
        [principals]
        host = ["host"]
        """
    )
    memory = MemoryGridServer(now=time.monotonic)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(running_node("n1", memory=memory, policy=policy, **QUICK))
        await mark([node])
        cluster = Cluster([node], stack)
        alice = await cluster.client(0, "alice")
        await cluster.select(alice, "rooms/7/chat")
        with pytest.raises(Forbidden):
            await alice.presence(ROOM)
        with pytest.raises(Forbidden):
            await alice.subscribe("$presence/**")
        host = await cluster.client(0, "host")
        watcher = Watcher(await host.presence(ROOM))
        stack.callback(watcher.close)
        await watcher.sees("alice")
        with pytest.raises(Forbidden):
            await host.presence("rooms/7/secret")


async def test_who_watches_makes_no_node_tell_of_itself(cluster: Cluster) -> None:
    await cluster.watch(0)
    node = cluster.nodes[0].gateway.node
    assert not node.sessions.delivery.watchers.here


async def test_whoever_asks_over_http_is_told_of_those_before(cluster: Cluster) -> None:
    members = [await cluster.client(number % 2, f"p{number}") for number in range(5)]
    for number, member in enumerate(members):
        await cluster.select(member, f"rooms/{7 + number // 3}/chat")
    counting = f"$presence/{ROOM}/$count"
    status, answer, _ = await call(cluster.nodes[1], "GET", f"/v1/values/{quote(counting)}")
    assert (status, answer["value"]) == (200, {"count": 3, "listed": 3})
    query = urlencode([("selector", "$presence/rooms/*/$count")])
    status, answer, _ = await call(cluster.nodes[0], "GET", f"/v1/values?{query}")
    assert [each["value"]["count"] for each in answer["values"]] == [3, 2]


@pytest.mark.parametrize("is_stream", [True, False])
async def test_who_comes_to_watch_is_told_no_count_that_is_not_right(cluster: Cluster, is_stream: bool) -> None:
    for number in range(5):
        await cluster.select(await cluster.client(number % 2, f"p{number}"), "rooms/7/chat")
    if is_stream:
        async with reading(cluster.nodes[1].url, f"$presence/{ROOM}/$count") as reader:
            told = [each.data["value"]["count"] for each in await reader.until("complete") if each.kind == "message"]
            assert told == [5]
        return
    watcher = await cluster.client(1, "watcher")
    async with await watcher.subscribe(f"$presence/{ROOM}/$count") as stream:
        assert (await anext(aiter(stream))).value == {"count": 5, "listed": 5}
