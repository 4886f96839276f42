"""Last wills on real Redis: each is published once, while nodes that may be executing it are killed (P5, P7)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from gateway.client import Session, Will, connect
from gateway.local.stack import Stack
from tests.cluster.grid_reader import GridReader
from tests.support.clock import eventually
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.redis,
    pytest.mark.promise("P5"),
    pytest.mark.promise("P7"),
    pytest.mark.thorough,
]

SESSIONS = 30
KILLS = 4
SEED = 17
PATIENCE = 90.0


async def leave(stack: Stack, number: int, node: str) -> int:
    """Open a session that leaves a will, and let it be; returns the version before the will."""
    session: Session = await connect(stack.node_url(node), f"client{number}", window=scaled(1.0))
    receipt = await session.publish(f"status/{number}", "on")
    await session.set_wills(Will(f"status/{number}", "lost", when=("closed", "expired")))
    # Some come to say good-bye, and all others do not come back.
    await session.close(timeout=0)
    return receipt.version


async def only(grid: GridReader, session: Session) -> bool:
    """Tell whether nothing is left of any session but one, in any partition."""
    own = [key for key in await grid.of_sessions() if ":session:" in key or ":receipts:" in key]
    return all(session.id in key for key in own)


async def test_each_will_is_published_once_whoever_dies_while_it_is_executed(tmp_path: Path) -> None:
    random = Random(SEED)
    async with cluster(
        tmp_path, balancer=False, lease=scaled(1.0), lease_renew=scaled(0.3), reap_interval=0.2
    ) as stack:
        nodes = stack.node_names
        async with connect(stack.node_url(nodes[0]), "reader", connect_timeout=None) as reader:
            assert reader.node == nodes[0]
            before = await asyncio.gather(
                *(leave(stack, number, nodes[number % len(nodes)]) for number in range(SESSIONS))
            )
            for _ in range(KILLS):
                # The reader's node lives: who kills them all has nobody left to execute anything.
                victim = random.choice(nodes[1:])
                await asyncio.sleep(scaled(random.uniform(0.0, 0.8)))  # a random moment of what goes on
                await stack.kill_node(victim)
                await stack.start_node(victim)
            async with GridReader(stack.grid_url) as grid:
                await eventually(lambda: only(grid, reader), deadline=PATIENCE, message="all other sessions have ended")
            found = {}
            async with await reader.subscribe("status/**") as stream:
                async for update in stream:
                    found[update.topic] = (update.value, update.version)
                    if len(found) == SESSIONS:
                        break
    assert found == {f"status/{number}": ("lost", version + 1) for number, version in enumerate(before)}
