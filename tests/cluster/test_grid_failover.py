"""A master of the grid dies, hangs or hands its slots over: nobody is disconnected, and what was lost is said (P10).

On a Redis Cluster of three masters with a replica each, and on a master with a replica that three Sentinels watch.
Redis replicates without waiting, so that a promoted replica may lack the last moment before its master died: publishes
acknowledged then may be gone, which is declared, and nothing may ever be there twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from gateway.core.wire.codes import FailoverReason, Outcome
from gateway.core.wire.packets import NoticeCode
from gateway.local.stack import Stack
from tests.cluster.continuous_traffic import (
    Before,
    Market,
    assert_no_violations,
    assert_nobody_noticed,
    assert_receipts_rise,
    assert_writable,
    audible,
    restored,
    trading,
)
from tests.cluster.crowds import Figures, Member, converged, crowd, gaps
from tests.cluster.grid_reader import TOPIC_DEPTH, GridReader
from tests.support.faults import eventually
from tests.support.redis_cluster import ClusterServer, RedisCluster
from tests.support.redis_sentinel import RedisSentinels
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P10")]

LOST_WRITES: Final = NoticeCode.GRID_LOST_WRITES.value
VALUES_REREAD: Final = NoticeCode.VALUES_REREAD.value

SETTINGS: Final[dict[str, Any]] = {
    "grid_timeout": scaled(1.0),
    "lease": scaled(3.0),
    "lease_renew": scaled(0.6),
    "reap_interval": 0.3,
    "backoff_initial": 0.1,
    "backoff_maximum": 0.5,
    "window_default": scaled(4.0),
}
"""Quicker than in production, so that a failover of Redis is longer than the grid's time limit and near a lease."""

DOOMED: Final = 12
"""Sessions, about a third of them at the node that dies together with the master."""


@pytest.fixture
def redis_cluster() -> Iterator[RedisCluster]:
    """Three masters with a replica each."""
    with RedisCluster(replicas=1) as servers:
        yield servers


@pytest.fixture
def sentinels() -> Iterator[RedisSentinels]:
    """A master with a replica, and three Sentinels."""
    with RedisSentinels() as servers:
        yield servers


@dataclass
class Story:
    """A crowd that lives through faults of the grid.

    Attributes:
        stack: the nodes.
        market: what goes on all the time.
        members: who listens.
        before: what must be the same after each fault.
        losses: how often a loss of writes must have been declared.
        allowed: of each topic, the values that were acknowledged, or on their way, when a fault hit and may be gone.
        told: figures.
    """

    stack: Stack
    market: Market
    members: list[Member]
    before: Before
    losses: int = 0
    allowed: dict[str, list[int]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    @property
    def everybody(self) -> list[Member]:
        return [*self.members, *self.market.makers]

    async def fault(self, what: str, strike: Callable[[], Awaitable[None]], *, loses: bool = True) -> None:
        """Let something happen to the grid, and wait until everything is as before.

        Args:
            what: for the figures.
            strike: does it; what it waits for besides is its matter.
            loses: whether a loss of writes must be declared.
        """
        generations = await self._generations()
        struck = time.monotonic()
        await strike()
        for topic in self.market.topics:
            self.allowed.setdefault(topic.topic, []).append(len(topic.receipts))
        if loses:
            await eventually(lambda: self._all_adopted(above=max(generations)), "every node has adopted what is there")
        await self.market.rounds(1)
        self.told.append(f"{what}: publishes go on after {time.monotonic() - struck:.2f} s")
        self.losses += loses
        async with GridReader(self.stack.grid_url) as grid:
            await eventually(lambda: restored(grid, self.before), "every session is in the grid again")
            await eventually(
                lambda: all(each.notices.count(LOST_WRITES) >= self.losses for each in self.everybody),
                "everybody was told of the loss",
            )
            await self.market.rounds()
            await assert_nobody_noticed(self.stack, self.before)
            await assert_writable(self.everybody, grid)
        # To hear of the same loss twice is no lie; to hear of one where there was none is.
        if not self.losses:
            assert not any(each.notices.count(LOST_WRITES) for each in self.everybody)
        self.before.identity = {member: member.identity for member in self.everybody}

    async def a_node_dies(self) -> None:
        """Kill a node: all its sessions go on elsewhere with what the grid holds."""
        victim = self.market.makers[0].session.node
        moved = [member for member, (home, _) in self.before.connected.items() if home == victim]
        await self.stack.kill_node(victim)
        await eventually(lambda: all(member.recoveries for member in moved), "the dead node's sessions are back")
        await self.market.rounds()
        for member, identity in self.before.identity.items():
            assert member.identity == identity
            expected = [(Outcome.FAILED_OVER, FailoverReason.OTHER_NODE)] if member in moved else []
            assert [(each.outcome, each.reason) for each in member.recoveries] == expected
        self.told.append(f"{len(moved)} sessions failed over, {gaps(member.recoveries[0] for member in moved)}")

    async def end(self) -> str:
        """Publish no more, compare all there is, and return the figures."""
        await self.market.whisper()
        await self.market.close()
        async with GridReader(self.stack.grid_url) as grid:
            await converged(self.members, grid, lambda _: audible(self.market))
            assert_no_violations(self.members)
            assert all(set(each.notices) <= {LOST_WRITES, VALUES_REREAD} for each in self.everybody)
            lost = sum([await self._judge(grid, topic) for topic in self.market.topics])
        return (
            f"{len(self.everybody)} sessions, nobody disconnected by Redis; {'; '.join(self.told)}; "
            f"{self.market.published} publishes, {lost} acknowledged ones lost (declared), 0 doubled"
        )

    async def _judge(self, grid: GridReader, topic: Any) -> int:
        """Check what became of every publish of a topic; returns how many acknowledged ones are lost."""
        assert_receipts_rise(topic)
        log = await grid.log(topic.topic)
        values = [entry.value for entry in log]
        assert values == sorted(set(values)), f"{topic.topic}: doubled or out of order: {values}"
        # What a node has given back to a grid that had lost it has a higher version than its publisher was told.
        promised = [topic.receipts[value].version for value in values]
        assert all(entry.version >= version for entry, version in zip(log, promised, strict=True))
        assert all(before.version < after.version for before, after in pairwise(log))
        missing = sorted(set(range(1, topic.asked + 1)) - set(values))
        # What was acknowledged after the last fault is all there, and between two faults only an end can be missing. Of
        # that end each node gives the newest value back that it knows (P6), so that some may stand behind a lost one.
        nodes = len(self.stack.node_names)
        for value in missing:
            end = next((fault for fault in self.allowed.get(topic.topic, []) if fault >= value), None)
            assert end is not None, f"{topic.topic}: {value} was lost without a fault"
            kept = [each for each in values if value < each <= end]
            assert len(kept) <= nodes, (
                f"{topic.topic}: {missing} are lost, and {kept} is there; faults at {self.allowed}"
            )
        return len(missing)

    async def _generations(self) -> list[float]:
        return [(await self.stack.metrics(node))["gateway_grid_generation"] for node in self.stack.node_names]

    async def _all_adopted(self, *, above: float) -> bool:
        metrics = [await self.stack.metrics(node) for node in self.stack.node_names]
        return all(each["gateway_grid_up"] == 1 and each["gateway_grid_generation"] > above for each in metrics)


@asynccontextmanager
async def living_on(url: str, folder: Path) -> AsyncIterator[Story]:
    """A crowd and a market on a grid that runs already."""
    async with cluster(folder, grid_url=url, **SETTINGS) as stack:
        async with trading(stack) as (market, members):
            async with GridReader(url) as grid:
                before = await Before.of(stack, [*members, *market.makers], grid)
            yield Story(stack, market, members, before)
        async with GridReader(url) as grid:
            assert await grid.of_sessions() == []


def serving(servers: RedisCluster, market: Market) -> ClusterServer:
    """The master of a partition that traffic goes to, and that does not hold the leases."""
    leases = servers.master_of("nodes")
    tags = [f"t{topic_partition(TopicPath(topic.topic), TOPIC_DEPTH)}" for topic in market.traffic]
    masters = [servers.master_of(tag) for tag in tags]
    return next((each for each in masters if each is not leases), masters[0])


@pytest.mark.thorough
async def test_masters_of_a_cluster_are_killed_under_traffic(
    tmp_path: Path, redis_cluster: RedisCluster, figures: Figures
) -> None:
    async with living_on(redis_cluster.url, tmp_path) as story:
        first = serving(redis_cluster, story.market)

        async def kill_first() -> None:
            first.kill()

        await story.fault("a master with topics killed", kill_first)
        # It comes back with nothing, and must not be believed: it is a replica now.
        await first.restart()
        await asyncio.to_thread(redis_cluster.wait_until_replicated)
        await story.market.rounds(2)
        assert first not in await asyncio.to_thread(redis_cluster.masters)

        async def kill_second() -> None:
            (await asyncio.to_thread(redis_cluster.master_of, "nodes")).kill()

        await story.fault("the master of the leases killed", kill_second)
        await story.a_node_dies()
        figures(await story.end())


@pytest.mark.thorough
async def test_a_master_of_a_cluster_hangs_and_slots_are_moved_under_traffic(
    tmp_path: Path, redis_cluster: RedisCluster, figures: Figures
) -> None:
    async with living_on(redis_cluster.url, tmp_path) as story:
        tags = {
            "nodes",
            *(f"t{topic_partition(TopicPath(topic.topic), TOPIC_DEPTH)}" for topic in story.market.topics),
            *(f"s{number}" for number in range(0, 64, 8)),
        }

        async def move() -> None:
            await asyncio.to_thread(redis_cluster.move, tags)

        # All data moves with its slot while its old master lives: nothing is lost, and nothing may be said to be.
        await story.fault(f"{len(tags)} slots moved", move, loses=False)
        victim = redis_cluster.master_of("nodes")

        async def hang() -> None:
            victim.suspend()

        await story.fault("a master stopped", hang)
        victim.resume()
        await asyncio.to_thread(redis_cluster.wait_until_replicated)
        await story.market.rounds(2)
        assert victim not in await asyncio.to_thread(redis_cluster.masters)
        await assert_nobody_noticed(story.stack, story.before)
        await story.a_node_dies()
        figures(await story.end())


@pytest.mark.thorough
async def test_a_master_of_sentinels_is_killed_and_its_successor_hangs(
    tmp_path: Path, sentinels: RedisSentinels, figures: Figures
) -> None:
    async with living_on(sentinels.url, tmp_path) as story:
        first = sentinels.master()

        async def kill() -> None:
            first.kill()

        await story.fault("the master killed", kill)
        await first.restart()
        await asyncio.to_thread(sentinels.wait_until_whole)
        successor = await asyncio.to_thread(sentinels.master)
        assert successor is not first

        async def hang() -> None:
            successor.suspend()

        await story.fault("its successor stopped", hang)
        successor.resume()
        await asyncio.to_thread(sentinels.wait_until_whole)
        assert await asyncio.to_thread(sentinels.master) is first
        await story.market.rounds(2)
        await assert_nobody_noticed(story.stack, story.before)
        await story.a_node_dies()
        figures(await story.end())


@pytest.mark.promise("P2", "P6")
async def test_a_node_and_the_master_die_together_and_everybody_is_told(
    tmp_path: Path, sentinels: RedisSentinels, figures: Figures
) -> None:
    """P2, P6: they were on one machine; nobody who lives has ever heard of what was acknowledged there last."""
    master = sentinels.master()
    replica = next(each for each in sentinels.redis if each is not master)
    async with cluster(tmp_path, grid_url=sentinels.url, **SETTINGS | {"window_default": 60}) as stack:

        async def enter(member: Member, number: int) -> None:
            await member.subscribe(f"lost-{number}/x")
            await member.session.publish(f"lost-{number}/x", 1)

        async with crowd(stack.url, DOOMED, enter) as members:
            victim = members[0].session.node
            moved = {number: each for number, each in enumerate(members) if each.session.node == victim}
            await eventually(lambda: all(each.last() for each in members), "everybody has a value")
            await asyncio.to_thread(sentinels.wait_until_whole)
            # What is acknowledged from here on reaches no replica.
            replica.suspend()
            await master.call("CLIENT", "KILL", "TYPE", "replica")
            lost = [await each.session.publish(f"lost-{number}/x", 2) for number, each in moved.items()]
            await eventually(
                lambda: all(each.last()[f"lost-{number}/x"][0] == 2 for number, each in moved.items()), "they come"
            )
            master.kill()
            await stack.kill_node(victim)
            replica.resume()
            await eventually(lambda: all(each.recoveries for each in moved.values()), "all sessions are back")
            await eventually(lambda: all(LOST_WRITES in each.notices for each in members), "everybody was told")
            # What the grid still has is shown, and not below the version of what it lost.
            await eventually(
                lambda: all(
                    each.last()[f"lost-{number}/x"][1] > receipt.version
                    for (number, each), receipt in zip(moved.items(), lost, strict=True)
                ),
                "they are shown what there is",
            )
            for number, member in moved.items():
                assert [(each.outcome, each.reason) for each in member.recoveries] == [
                    (Outcome.FAILED_OVER, FailoverReason.OTHER_NODE)
                ]
                assert member.notices.count(LOST_WRITES) == 1
                value, _ = member.last()[f"lost-{number}/x"]
                assert value in {1, 2}, "another node may have had the later one"
                assert not [each for each in member.violations if "went back" in each.what]
                await member.session.publish(f"lost-{number}/x", 3)
            await eventually(
                lambda: all(each.last()[f"lost-{number}/x"][0] == 3 for number, each in moved.items()), "they come"
            )
            figures(
                f"{len(moved)} sessions failed over, told once each of what was lost with their node and the master"
            )
