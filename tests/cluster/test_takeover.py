"""Two of five nodes die at once: the others suspect them, take over from each once, and clean up (P17, seed 004)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.redis.keys import Keys
from gateway.client import SessionState
from gateway.local.stack import Stack
from tests.cluster.crowds import complaints_after_kills, crowd
from tests.cluster.grid_reader import PREFIX, GridReader
from tests.cluster.linked import all_linked
from tests.cluster.takeover_kills import SHORT, run
from tests.support.faults import eventually
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P17")]

SESSIONS = 60
DEAD = ("n1", "n2")


async def total(stack: Stack, name: str) -> float:
    return sum([(await stack.metrics(node))[name] for node in stack.node_names if node not in DEAD])


@pytest.mark.thorough
async def test_two_of_five_die_at_once(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "lease": scaled(3.0),
        "lease_renew": scaled(0.8),
        "heartbeat": scaled(0.2),
        "transient_wait": 1,
    }
    async with (
        cluster(tmp_path, nodes=5, **settings) as stack,
        GridReader(stack.grid_url) as grid,
        crowd(stack.url, SESSIONS) as members,
    ):
        # Whoever has never been heard is not suspected.
        await eventually(lambda: all_linked(stack, *stack.node_names), "all have their links")
        await asyncio.gather(*(stack.kill_node(node) for node in DEAD))

        # Counted and not looked at: a suspicion is over when the lease is, and a busy machine has some more.
        async def is_suspected() -> bool:
            return await total(stack, "gateway_suspicions_total") >= len(DEAD) * (len(stack.node_names) - len(DEAD))

        await eventually(is_suspected, "all who live suspect both")

        async def is_over() -> bool:
            taken = await total(stack, "gateway_takeovers_total") == len(DEAD)
            return taken and await total(stack, "gateway_suspects") == 0

        await eventually(is_over, "both are taken over")

        async def is_cleaned_up() -> bool:
            return not await grid.call("EXISTS", Keys(PREFIX).takeovers)

        await eventually(is_cleaned_up, "nothing is left of the takeovers")
        await eventually(
            lambda: all(member.session.state is SessionState.CONNECTED for member in members), "all are there"
        )
        assert complaints_after_kills(stack) == Counter(lease_expired=len(DEAD), takeover_finished=len(DEAD))


@pytest.mark.thorough
async def test_winners_are_killed_one_after_the_other(tmp_path: Path, figures: Callable[[str], None]) -> None:
    """E2 with kill -9 of whoever has won, in each part of it; who is left finishes."""
    (result,) = await run(tmp_path, [SHORT], seed=1)
    assert result.wrong == []
    figures(f"detected in {result.detected:.2f} s, over in {result.seconds:.1f} s; killed {', '.join(result.killed)}")
