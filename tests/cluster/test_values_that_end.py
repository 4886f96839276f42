"""Values that end on real Redis: each once, while nodes are killed and Redis is restarted (P6, P10)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from gateway.client import UpdateStream, connect
from gateway.local.grid_server import GridRestart
from tests.support.stack import cluster
from tests.support.times import scaled, time_limit

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.promise("P6", "P10")]

VALUES = 60
KILLS = 4
SEED = 29
PATIENCE = 60.0

Seen = dict[str, list[tuple[object, int]]]


async def follow(stream: UpdateStream, seen: Seen) -> None:
    """Note each update, until the value of each topic that is to end has ended, and the others are there."""
    async for update in stream:
        seen.setdefault(update.topic, []).append((update.value, update.version))
        ended = sum(updates[-1][0] is None for topic, updates in seen.items() if topic.startswith("offers/ends/"))
        if ended == VALUES and len(seen) == 2 * VALUES:
            return


@pytest.mark.thorough
@pytest.mark.parametrize("state", [pytest.param(GridRestart.AS_IT_WAS, marks=pytest.mark.thorough), GridRestart.EMPTY])
async def test_each_value_ends_once_whoever_dies_meanwhile(tmp_path: Path, state: GridRestart) -> None:
    random = Random(SEED)
    seen: Seen = {}
    async with cluster(tmp_path, balancer=False, lease=scaled(1.0), lease_renew=scaled(0.3)) as stack:
        nodes = stack.node_names
        async with connect(stack.node_url(nodes[0]), "reader", connect_timeout=None) as reader:
            stream = await reader.subscribe("offers/**")
            following = asyncio.create_task(follow(stream, seen))
            for number in range(VALUES):
                await reader.publish(f"offers/ends/{number}", 1, ttl=scaled(random.uniform(0.5, 4.0)))
                await reader.publish(f"offers/stays/{number}", 1)
            for kill in range(KILLS):
                # The reader's node lives: it has what an emptied Redis has lost.
                victim = random.choice(nodes[1:])
                await asyncio.sleep(scaled(random.uniform(0.0, 0.8)))  # a random moment of what goes on
                await stack.kill_node(victim)
                if kill == 1:
                    await stack.restart_redis(state)
                await stack.start_node(victim)
            async with time_limit(PATIENCE):
                await following
    for topic, updates in seen.items():
        values = [value for value, _ in updates]
        versions = [version for _, version in updates]
        assert versions == sorted(set(versions)), "versions never go back, and nothing ends twice"
        assert values == ([1, None] if topic.startswith("offers/ends/") else [1]), topic
