"""Last wills from the outside: published once, by the kind of the end, whoever ends the session (P5, P7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.catalogue import policy_log_events, will_log_events
from gateway.client import Forbidden, Session, Update, UpdateStream, ValueTooLarge, Will, connect
from gateway.core.policy.revocations import RevocationKind
from gateway.core.types import SessionId
from gateway.core.wire.will_packets import WILLS_PROPERTY
from gateway.ports import GridRefused, PublishCommand, PublishResult
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.times import scaled, time_limit

pytestmark = [pytest.mark.promise("P5"), pytest.mark.promise("P7")]

QUICK: dict[str, Any] = {
    "backoff_initial": 0.01,
    "backoff_maximum": 0.05,
    "lease": scaled(5.0),
    "lease_renew": scaled(0.2),
    "reap_interval": 0.2,
}
PATIENCE = 20.0
NOBODY = 1
"""A port that nobody listens at."""
STATUS = "status/alice"
WILLS = (
    Will(STATUS, "left", when=("closed",)),
    Will(STATUS, "lost", when=("expired",)),
    Will(STATUS, "thrown out", when=("removed",)),
)


class Cluster:
    """Two nodes over one grid, a proxy in front of the first, and somebody who reads what is published."""

    def __init__(
        self, memory: MemoryGridServer, nodes: list[TestNode], proxy: CuttingProxy, stack: AsyncExitStack
    ) -> None:
        self.memory = memory
        self.nodes = nodes
        self.proxy = proxy
        self._stack = stack
        self.stream: UpdateStream

    async def client(self, **arguments: Any) -> Session:
        return await self._stack.enter_async_context(connect(self.proxy.url, "alice", **arguments))

    async def watch(self) -> None:
        reader = await self._stack.enter_async_context(connect(self.nodes[1].url, "bob"))
        self.stream = await reader.subscribe("status/**")

    async def next(self) -> Update:
        async with time_limit(PATIENCE):
            return await anext(self.stream)

    async def nothing_else(self) -> None:
        """Expect that nothing was published but what was read, and that nothing is left of a publisher."""
        async with connect(self.nodes[1].url, "carol") as session:
            await session.publish("status/end", 1)
        assert (await self.next()).topic == "status/end"


@pytest.fixture
async def cluster(nothing_left_over: None) -> AsyncIterator[Cluster]:
    memory = MemoryGridServer(now=time.monotonic)
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(running_node(name, memory=memory, **QUICK)) for name in ("n1", "n2")]
        proxy = await stack.enter_async_context(CuttingProxy(nodes[0].gateway.port))
        made = Cluster(memory, nodes, proxy, stack)
        await made.watch()
        yield made


async def test_each_kind_of_end_has_its_will(cluster: Cluster) -> None:
    first, second, third = [await cluster.client(window=scaled(0.5)) for _ in range(3)]
    for each in (first, second, third):
        await each.set_wills(*WILLS)
    await first.close()
    assert (await cluster.next()).value == "left"
    await cluster.nodes[0].gateway.node.administration.sessions.close(SessionId(second.id))
    assert (await cluster.next()).value == "thrown out"
    cluster.proxy.target = NOBODY
    cluster.proxy.cut()
    assert (await cluster.next()).value == "lost"
    await cluster.nothing_else()


async def test_a_revoked_session_leaves_what_is_for_its_removal(cluster: Cluster) -> None:
    session = await cluster.client()
    await session.set_wills(*WILLS)
    node = cluster.nodes[0].gateway.node
    await node.revocations.revoke(RevocationKind.SESSION, session.id)
    assert (await cluster.next()).value == "thrown out"
    await cluster.nothing_else()


async def test_by_default_a_will_is_not_for_who_says_good_bye(cluster: Cluster) -> None:
    session = await cluster.client()
    await session.set_wills(Will(STATUS, "gone"))
    assert WILLS_PROPERTY not in session.properties
    await session.close()
    await cluster.nothing_else()


async def test_the_last_word_counts(cluster: Cluster) -> None:
    session = await cluster.client()
    await session.set_wills(*WILLS)
    await session.set_properties({"team": "fx"})
    await session.set_wills(Will("status/other", 2, when=["closed"], ttl=scaled(60.0)))
    await session.close()
    update = await cluster.next()
    assert (update.topic, update.value) == ("status/other", 2)
    other = await cluster.client()
    await other.set_wills(*WILLS)
    await other.set_wills()
    await other.close()
    await cluster.nothing_else()


@pytest.mark.promise("P1")
async def test_they_go_where_the_session_goes(cluster: Cluster) -> None:
    """Over a cut connection and a failover, and the next node executes them when the window is over."""
    session = await cluster.client(window=scaled(2.0))
    await session.set_wills(*WILLS)
    recoveries = session.recoveries()
    cluster.proxy.cut()
    assert (await anext(recoveries)).outcome == "reattached"
    cluster.proxy.target = cluster.nodes[1].gateway.port
    cluster.proxy.cut()
    assert (await anext(recoveries)).outcome in {"failed_over", "handed_over"}
    await eventually(lambda: session.node == "n2")
    cluster.proxy.target = NOBODY
    cluster.proxy.cut()
    assert (await cluster.next()).value == "lost"
    await cluster.nothing_else()


@pytest.mark.promise("P10")
async def test_a_grid_that_comes_back_empty_gets_them_back(cluster: Cluster) -> None:
    session = await cluster.client()
    await session.set_wills(*WILLS)
    cluster.memory.come_back(emptied=True)
    grid = cluster.nodes[0].gateway.node._context.grid

    async def is_back() -> bool:
        record = await grid.sessions.find(SessionId(session.id))
        return record is not None and WILLS_PROPERTY in record.properties

    async with time_limit(PATIENCE):
        while grid.generation < 2 or not await is_back():
            await session.set_properties({})
    await session.close()
    assert (await cluster.next()).value == "left"
    await cluster.nothing_else()


async def test_what_is_too_much_is_refused_and_what_was_set_stays(cluster: Cluster) -> None:
    session = await cluster.client()
    await session.set_wills(*WILLS)
    with pytest.raises(ValueError, match="8 wills at most"):
        await session.set_wills(*WILLS, *WILLS, *WILLS)
    with pytest.raises(ValueTooLarge, match="8192"):
        await session.set_wills(Will(STATUS, "x" * 9_000))
    with pytest.raises(Forbidden):
        await session.set_wills(Will("$gateway/nodes/n1", 1))
    with pytest.raises(ValueError, match="never"):
        await session.set_wills(Will(STATUS, 1, when=("never",)))
    await session.close()
    assert (await cluster.next()).value == "left"


@pytest.mark.promise("P20")
async def test_a_will_that_the_grid_refuses_waits_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is full, or of which a slot is half moved; others that end with it end."""
    full = {"status/full"}

    for node in cluster.nodes:
        topics = node.gateway.node._context.grid.topics

        async def publish(
            commands: Sequence[PublishCommand], publish: Callable[..., Any] = topics.publish
        ) -> list[PublishResult]:
            results = iter(await publish([each for each in commands if each.topic not in full]))
            return [GridRefused("no memory") if each.topic in full else next(results) for each in commands]

        monkeypatch.setattr(topics, "publish", publish)
    waiting, other = [await cluster.client(window=scaled(0.5)) for _ in range(2)]
    await waiting.set_wills(Will("status/first", 1), Will("status/full", 1))
    await other.set_wills(Will("status/second", 2))
    cluster.proxy.target = NOBODY
    cluster.proxy.cut()

    assert {(await cluster.next()).topic for _ in range(2)} == {"status/first", "status/second"}
    grid = cluster.nodes[0].gateway.node._context.grid

    async def is_gone(session: Session) -> bool:
        return await grid.sessions.find(SessionId(session.id)) is None

    async with time_limit(PATIENCE):
        while not await is_gone(other):  # noqa: ASYNC110 - asked of the grid
            await asyncio.sleep(0.01)
    full.clear()
    assert (await cluster.next()).topic == "status/full"
    await cluster.nothing_else()


POLICY = """
[roles.all]
publish = [{}]
select = ["**"]

[principals]
alice = ["all"]
bob = ["all"]
"""


async def test_they_are_judged_when_they_are_set_and_when_they_are_published(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format('"status/**", "prices/end"'))
    memory = MemoryGridServer(now=time.monotonic)
    async with (
        running_node("n1", memory=memory, policy=policy, **QUICK) as node,
        connect(node.url, "bob") as reader,
    ):
        stream = await reader.subscribe("**")
        async with connect(node.url, "alice") as session:
            with pytest.raises(Forbidden):
                await session.set_wills(Will("prices/x", 1))
            await session.set_wills(*WILLS)
            policy.write_text(POLICY.format('"prices/end"'))
            node.gateway.reload()
            await eventually(lambda: node.log.of(policy_log_events.POLICY_RELOADED) != [])
        await reader.publish("prices/end", 1)
        async with time_limit(PATIENCE):
            assert (await anext(stream)).topic == "prices/end"
        (refused,) = node.log.of(will_log_events.WILL_REFUSED)
        assert refused["topic"] == STATUS
