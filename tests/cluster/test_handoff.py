"""Each node is restarted in turn, as a deploy does: nobody misses an update, and no packet is lost (P12)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from gateway.core.wire.codes import Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures, complaints, crowd, gaps
from tests.cluster.ledgers import Ledgers, Trade
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P12")]

SUBSCRIBERS: Final = 60
"""Each gets 400 updates a second: 24,000 for all of them together."""
PUBLISHERS: Final = 4
STREAM_LENGTH: Final = 100_000
"""Entries that a stream keeps: more than are published, so that a slow machine is not a gap."""


async def test_a_rolling_restart_is_handed_over_session_by_session(tmp_path: Path, figures: Figures) -> None:
    """H1, H2, H4, H5 with whole nodes: the same load all the time, and no outcome but those that lose nothing."""
    ledgers = Ledgers()
    async with (
        cluster(tmp_path, stream_length=STREAM_LENGTH) as stack,
        crowd(stack.url, SUBSCRIBERS, ledgers.enter) as subscribers,
        crowd(stack.url, PUBLISHERS, role="publisher") as publishers,
    ):
        everybody = [*subscribers, *publishers]
        identities = {member: member.identity for member in everybody}
        trade = Trade(publishers)
        moves = 0
        async with trade.going_on():
            for node in stack.node_names:
                await trade.rounds()
                moves += sum(member.session.node == node for member in everybody)
                assert await stack.drain_node(node) == 0
                await trade.rounds()
                await stack.start_node(node)
                await stack.balanced()
        wanted = trade.versions
        await ledgers.judge(wanted)

        recoveries = [recovery for member in everybody for recovery in member.recoveries]
        assert {(each.outcome, each.lost) for each in recoveries} <= {(Outcome.HANDED_OVER, 0), (Outcome.REATTACHED, 0)}
        assert moves > len(everybody) // 2
        assert sum(each.outcome == Outcome.HANDED_OVER for each in recoveries) >= moves
        assert {member: member.identity for member in everybody} == identities
        assert [notice for member in everybody for notice in member.notices] == []
        assert complaints(stack) == {}
        for topic in trade.topics:
            assert topic.asked == len(topic.receipts)
        figures(
            f"{len(stack.node_names)} nodes restarted, {len(recoveries)} sessions handed over; "
            f"{sum(map(len, wanted.values()))} publishes, each once to {SUBSCRIBERS} subscribers; "
            f"{await _given(stack):.0f} handoffs; recovery {gaps(recoveries)}"
        )
    await ledgers.close()


async def _given(stack: Stack) -> float:
    name = 'gateway_handoffs_total{result="given"}'
    return sum([(await stack.metrics(node)).get(name, 0.0) for node in stack.node_names])
