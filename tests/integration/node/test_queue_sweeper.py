"""Consumers whose sessions have ended are taken out of queues after the grid has gone back (P7, P15)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.cluster import queue_sweeper
from gateway.app.runtime.cluster_view import ClusterView
from gateway.catalogue import log_events
from gateway.client import connect
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import QueueLimits
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import TOPIC_PARTITIONS, topic_partition
from gateway.core.types import Epoch, NodeRef, SessionId, TopicPath
from gateway.ports import GridState, Ownership, QueueBounds
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P7", "P15")

JOBS: Final = TopicPath("jobs/render")


class Scene:
    """Two nodes, a queue, and a consumer that nobody ends."""

    def __init__(self, memory: MemoryGridServer, nodes: list[TestNode]) -> None:
        self.memory = memory
        self.nodes = nodes
        self.ghost = SessionId("0123456789abcdefghijkl")
        self.queues = nodes[0].gateway.node._context.grid.queues

    async def haunt(self) -> None:
        """Have the queue a consumer without a session, as a part that has gone back may."""
        ownership = Ownership(self.ghost, self.nodes[0].gateway.me, Epoch(1))
        await self.queues.attach(ownership, JOBS, credit=10, bounds=QueueBounds(), most_consumers=10)

    async def lose_writes(self) -> None:
        snapshot = self.memory.snapshot()
        before = self.nodes[0].gateway.node._context.grid.generation
        self.memory.go_away()
        self.memory.come_back(restarted=True, snapshot=snapshot)

        def adopted() -> bool:
            grids = [each.gateway.node._context.grid for each in self.nodes]
            return all(each.state is GridState.UP and each.generation > before for each in grids)

        await eventually(adopted)

    async def sweep(self) -> list[dict[str, object]]:
        """Have all nodes look twice; returns what they have logged."""
        for _ in range(2):
            for each in self.nodes:
                await each.gateway.node.sweepers.queues.sweep()
        return [entry for each in self.nodes for entry in each.log.of(log_events.QUEUE_CONSUMER_DISMISSED)]


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(queue_sweeper, "LOOK_SECONDS", 3600.0)
    memory = MemoryGridServer(now=time.monotonic)
    async with AsyncExitStack() as stack:
        settings = {"lease": scaled(1.0), "lease_renew": scaled(0.2)}  # three leases are time to restore sessions
        nodes = [
            await stack.enter_async_context(running_node(name, memory=memory, **settings)) for name in ("n1", "n2")
        ]
        await nodes[0].gateway.node.destinations.set(
            Destination(selector=parse_selector(JOBS), limits=QueueLimits(), origin=Origin.ADMINISTRATOR)
        )
        await eventually(lambda: all(each.gateway.node.destinations.table.has_queues for each in nodes))
        await eventually(lambda: all(len(each.gateway.node.cluster.alive) == len(nodes) for each in nodes))
        yield Scene(memory, nodes)


async def test_what_a_consumer_without_a_session_holds_goes_to_others(scene: Scene) -> None:
    async with connect(scene.nodes[1].url, "alice") as alice:
        await alice.send(JOBS, 1)
        await scene.haunt()
        await scene.lose_writes()
        consumer = await alice.consume(JOBS)
        await eventually(lambda: not any(each.gateway.node._grid_recovery.is_recovering() for each in scene.nodes))

        assert await scene.sweep() == [{"queue": JOBS, "session": scene.ghost}]

        message = await anext(consumer)
        assert message.value == 1
        await message.accept()
        assert await scene.queues.consumers(JOBS) == [alice.id], "who lives stays"


async def test_nobody_looks_while_nothing_was_lost(scene: Scene) -> None:
    await scene.haunt()
    assert await scene.sweep() == []
    assert await scene.queues.consumers(JOBS) == [scene.ghost]


async def test_one_look_dismisses_nobody(scene: Scene) -> None:
    """Meanwhile a node that holds the session may write it again."""
    await scene.haunt()
    await scene.lose_writes()
    await eventually(lambda: not any(each.gateway.node._grid_recovery.is_recovering() for each in scene.nodes))
    for each in scene.nodes:
        await each.gateway.node.sweepers.queues.sweep()
    assert await scene.queues.consumers(JOBS) == [scene.ghost]


async def test_what_a_node_had_yet_to_sweep_when_it_died_others_sweep(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.haunt()
    await scene.lose_writes()
    await eventually(lambda: not any(each.gateway.node._grid_recovery.is_recovering() for each in scene.nodes))
    node = scene.nodes[0].gateway.node
    partition = topic_partition(JOBS, node._context.parameters.topic_depth)
    sweepers = [each.gateway.node.sweepers.queues for each in scene.nodes]
    (survivor,) = (each for each in sweepers if partition not in each._cluster.share(TOPIC_PARTITIONS))
    for _ in range(2):
        await survivor.sweep()
    assert await scene.queues.consumers(JOBS) == [scene.ghost]

    monkeypatch.setattr(survivor, "_cluster", ClusterView(NodeRef.parse("left-alone:r1")))
    for _ in range(2):
        await survivor.sweep()
    assert await scene.queues.consumers(JOBS) == []
