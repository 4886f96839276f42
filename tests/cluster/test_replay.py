"""Each node is killed in turn: every subscriber gets every update once, in order, and loses nothing (P13)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from gateway.core.wire.codes import Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures, complaints_after_kills, crowd, gaps
from tests.cluster.ledgers import Ledgers, Trade
from tests.support.faults import eventually
from tests.support.stack import cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.redis,
    pytest.mark.haproxy,
    pytest.mark.promise("P1", "P13"),
    pytest.mark.thorough,
]

SUBSCRIBERS: Final = 60
"""Each gets 400 updates a second: 24,000 for all of them together."""
PUBLISHERS: Final = 4


async def test_nodes_that_are_killed_in_turn_cost_nobody_an_update(tmp_path: Path, figures: Figures) -> None:
    """R1 with whole nodes: kill -9 of each, no mirror, the same load all the time."""
    ledgers = Ledgers()
    async with (
        cluster(tmp_path) as stack,
        crowd(stack.url, SUBSCRIBERS, ledgers.enter) as subscribers,
        crowd(stack.url, PUBLISHERS, role="publisher") as publishers,
    ):
        trade = Trade(publishers)
        killed = 0
        async with trade.going_on():
            for node in stack.node_names:
                await trade.rounds()
                victims = [member for member in subscribers if member.session.node == node]
                killed += len(victims)
                before = {member: len(member.recoveries) for member in victims}
                await stack.kill_node(node)
                await eventually(
                    lambda victims=victims, before=before: all(  # type: ignore[misc]
                        len(each.recoveries) > before[each] for each in victims
                    ),
                    "the dead node's sessions are back",
                )
                await trade.rounds()
                await stack.start_node(node)
                await stack.balanced()
        wanted = trade.versions
        await ledgers.judge(wanted)

        recoveries = [recovery for member in subscribers for recovery in member.recoveries]
        assert killed > SUBSCRIBERS // 3
        assert len(recoveries) >= killed
        assert {(each.outcome, each.replayed, each.not_replayed, each.lost) for each in recoveries} == {
            (Outcome.FAILED_OVER, True, (), 0)
        }
        assert [notice for member in subscribers for notice in member.notices] == []
        assert complaints_after_kills(stack).keys() <= {"lease_expired", "takeover_finished"}
        replayed = await _sum(stack, "gateway_replayed_updates_total")
        assert replayed > 0
        figures(
            f"{len(stack.node_names)} nodes killed, {len(recoveries)} sessions failed over; "
            f"{sum(map(len, wanted.values()))} publishes, each once to {SUBSCRIBERS} subscribers; at least "
            f"{replayed:.0f} updates replayed; recovery {gaps(recoveries)}"
        )
    await ledgers.close()


async def _sum(stack: Stack, name: str) -> float:
    return sum([(await stack.metrics(node)).get(name, 0.0) for node in stack.node_names])
