"""A node dies by SIGKILL: its sessions go on elsewhere as they were, and nobody else notices (P1, P2, P6, P7)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from gateway.client import connect
from gateway.core.wire.codes import FailoverReason, Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Counting, Figures, Member, complaints_after_kills, converged, crowd, gaps
from tests.cluster.grid_reader import GridReader, StoredSession
from tests.support.faults import eventually
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P1", "P2", "P6", "P7")]

SESSIONS: Final = 300
VICTIM: Final = "n2"
PRICES: Final = tuple(f"prices/item-{number}" for number in range(8))
INTERNAL: Final = "prices/internal/margin"
"""Deselected by everybody: it must not come back with the selections."""
PACE: Final = 0.1
"""Seconds between two rounds of publishes: with 300 subscribers, 2,400 updates in each."""
ROUNDS: Final = 10
"""Rounds before and after the fault, at least."""

TAKEN_OVER: Final = {"lease_expired": 1, "takeover_finished": 1}
"""All that nodes have to complain of: one of them missed a neighbour."""


def order(number: int) -> str:
    """The topic that one session alone has selected, by its name."""
    return f"orders/{number}"


async def enter(member: Member, number: int) -> None:
    await member.subscribe("prices/**")
    await member.subscribe(order(number))
    await member.session.unsubscribe("prices/internal/**")
    await member.session.set_properties({"desk": f"desk-{number % 7}", "seat": str(number)})


def expected(member: Member) -> set[str]:
    return {*PRICES, order(int(member.session.properties["seat"]))}


class Market:
    """Publishes to all topics, round after round."""

    def __init__(self, member: Member) -> None:
        self._prices = [Counting(member.session, topic) for topic in (*PRICES, INTERNAL)]
        self._orders = [Counting(member.session, order(number)) for number in range(SESSIONS)]
        self.rounds = 0

    @property
    def topics(self) -> list[Counting]:
        return [*self._prices, *self._orders]

    async def trade(self, stopping: asyncio.Event) -> None:
        """Publish prices until told to stop."""
        while not stopping.is_set():
            await asyncio.gather(*(each.publish() for each in self._prices), asyncio.sleep(PACE))
            self.rounds += 1

    async def clear(self) -> None:
        """Publish to every topic once."""
        await asyncio.gather(*(each.publish() for each in self.topics))


async def test_sessions_of_a_killed_node_go_on_elsewhere(tmp_path: Path, figures: Figures) -> None:
    async with cluster(tmp_path) as stack, GridReader(stack.grid_url) as grid:
        async with crowd(stack.url, 1, role="market") as makers, crowd(stack.url, SESSIONS, enter) as members:
            everybody = [*members, *makers]
            market = Market(makers[0])
            await market.clear()
            await converged(members, grid, expected)
            spread = Counter(member.session.node for member in members)
            assert min(spread[node] for node in stack.node_names) > SESSIONS // 6, spread
            before = {member: member.identity for member in everybody}
            homes = {member: member.session.node for member in everybody}
            dead = [member for member in everybody if homes[member] == VICTIM]
            unharmed = [member for member in everybody if homes[member] != VICTIM]

            stopping = asyncio.Event()
            trading = asyncio.create_task(market.trade(stopping))
            await eventually(lambda: market.rounds >= ROUNDS, "there is traffic")
            await stack.kill_node(VICTIM)
            await eventually(lambda: all(member.recoveries for member in dead), "the dead node's sessions are back")
            rounds = market.rounds
            await eventually(lambda: market.rounds >= rounds + ROUNDS, "traffic goes on")
            stopping.set()
            await trading
            await market.clear()
            await converged(members, grid, expected)

            # The cluster has noticed and cleaned up; that must not touch a session that was claimed meanwhile.
            await eventually(lambda: complaints_after_kills(stack) == TAKEN_OVER, "the dead node is taken over, once")
            assert await grid.nodes() == set(stack.node_names) - {VICTIM}
            assert {member: member.identity for member in everybody} == before
            for member in dead:
                assert [(each.outcome, each.reason) for each in member.recoveries] == [
                    (Outcome.FAILED_OVER, FailoverReason.OTHER_NODE)
                ]
                assert member.session.node != VICTIM
            for member in unharmed:
                assert not member.recoveries
                assert member.session.node == homes[member]
                assert member.tally.skipped == 0
            for member in everybody:
                assert member.violations == []
                assert member.notices == []
                attempts = sum(recovery.attempts for recovery in member.recoveries)
                _judge_stored(await grid.session(member.session.id), member, attempts)
            for topic in market.topics:
                topic.judge(await grid.log(topic.topic))
            assert await _seen_by_a_newcomer(stack, len(market.topics)) == await grid.values()
            assert complaints_after_kills(stack) == TAKEN_OVER

            delivered = sum(member.tally.delivered for member in members)
            lost = sum(member.tally.lost for member in members)
            figures(
                f"{len(members)} of {SESSIONS} sessions kept; {len(dead)} of the dead node failed over, "
                f"{len(unharmed)} others noticed nothing; recovery {gaps(each.recoveries[0] for each in dead)}; "
                f"{sum(topic.asked for topic in market.topics)} publishes, {delivered} updates delivered, {lost} lost"
            )
        assert await grid.of_sessions() == []


def _judge_stored(stored: StoredSession | None, member: Member, attempts: int) -> None:
    """The grid holds the session as its client knows it, claimed only for those who had to move."""
    assert stored is not None
    assert stored.principal == member.session.principal
    assert stored.node == member.session.node
    assert stored.connected
    assert 1 + bool(attempts) <= stored.epoch <= 1 + attempts
    if member.name.startswith("market"):
        return
    number = int(member.session.properties["seat"])
    assert stored.properties == {"desk": f"desk-{number % 7}", "seat": str(number)}
    assert stored.selections == ("+prices/**", f"+{order(number)}", "-prices/internal/**")


async def _seen_by_a_newcomer(stack: Stack, topics: int) -> dict[str, tuple[int, int]]:
    """Read every topic as somebody does who was not there before."""
    newcomer = Member("newcomer", await connect(stack.url))
    try:
        await newcomer.subscribe("**")
        await eventually(lambda: len(newcomer.watches) == topics, "the newcomer has every value")
        return newcomer.last()
    finally:
        await newcomer.close()
