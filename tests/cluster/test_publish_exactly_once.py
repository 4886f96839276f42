"""Nodes die one after the other under a client that publishes: its log holds each value once, in order (P4, P5, P6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from gateway.core.wire.codes import Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Counting, Figures, Member, complaints_after_kills, converged, crowd, gaps
from tests.cluster.grid_reader import GridReader
from tests.support.faults import eventually
from tests.support.stack import cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.redis,
    pytest.mark.haproxy,
    pytest.mark.promise("P4", "P5", "P6"),
    pytest.mark.thorough,
]

TOPIC: Final = "counts/all"
LAST: Final = 20_000
"""The values are 1 to this."""
DEATHS: Final = 6
"""How often a node dies. A share of the values is published around each death, and one at the end."""
SHARE: Final = LAST // (DEATHS + 1)
BEFORE: Final = 500
"""Receipts of a share that are there when the node dies: the stream of publishes has got going again."""
IN_FLIGHT: Final = 200
"""Publishes without a receipt at a time: always some on their way to the node, in its lane, in the grid and back."""
READERS: Final = 6
STREAM_LENGTH: Final = 2 * LAST
"""Entries that the log keeps: all of them."""
DUPLICATES: Final = 'gateway_publishes_total{result="duplicate"}'


class Fate:
    """Kills nodes and starts them again, in a way that all die, and mostly the one that serves the publisher.

    Attributes:
        killed: the nodes, in the order of their deaths.
        hits: how many of the deaths hit the node that served the publisher.
    """

    def __init__(self, stack: Stack, publisher: Member) -> None:
        self._stack = stack
        self._publisher = publisher
        self._duplicates: Counter[tuple[str, int]] = Counter()
        self.killed: list[str] = []
        self.hits = 0

    @property
    def duplicates(self) -> int:
        """Publishes that nodes were asked for again although the grid had them, as far as they lived to tell."""
        return self._duplicates.total()

    async def strike(self) -> None:
        """Kill a node; returns when it is back, and the publisher too."""
        serving = self._publisher.session.node
        fresh = [node for node in self._stack.node_names if node not in self.killed]
        victim = serving if serving in fresh or not fresh else fresh[0]
        recoveries = len(self._publisher.recoveries)
        await self._stack.kill_node(victim)
        self.killed.append(victim)
        if victim == serving:
            self.hits += 1
            await eventually(lambda: len(self._publisher.recoveries) > recoveries, "the publisher is back")
        await self._stack.start_node(victim)
        await self._stack.balanced()

    async def count(self) -> None:
        """Read the nodes' counters before the next one takes its own with it."""
        for node in self._stack.node_names:
            self._duplicates[node, self.killed.count(node)] = int((await self._stack.metrics(node))[DUPLICATES])


async def enter(member: Member, _number: int) -> None:
    await member.subscribe("counts/*")


async def test_each_value_is_in_the_log_once_and_in_order(tmp_path: Path, figures: Figures) -> None:
    loop = asyncio.get_running_loop()
    # Without the limit on packets more is under way when a node dies. And a connection of one second counts as stable:
    # this client loses six in a row, and would else wait up to 8 s before the last attempt, as it should.
    running = cluster(tmp_path, stream_length=STREAM_LENGTH, rate_packets=0, backoff_stable=1)
    async with running as stack, GridReader(stack.grid_url) as grid:
        async with crowd(stack.url, READERS, enter) as readers, crowd(stack.url, 1, role="publisher") as publishers:
            publisher = publishers[0]
            counting = Counting(publisher.session, TOPIC)
            fate = Fate(stack, publisher)
            begun = loop.time()
            for death in range(1, DEATHS + 1):
                pouring = asyncio.create_task(counting.pour(SHARE * death, in_flight=IN_FLIGHT))
                enough = SHARE * (death - 1) + BEFORE
                await eventually(lambda enough=enough: len(counting.receipts) >= enough, "publishes flow")  # type: ignore[misc]
                await fate.strike()
                await pouring
                await fate.count()
            undisturbed = loop.time()
            await counting.pour(LAST, in_flight=IN_FLIGHT)
            done = loop.time()
            await converged(readers, grid, lambda _: {TOPIC})

            assert set(fate.killed) == set(stack.node_names)
            assert len(publisher.recoveries) == fate.hits >= DEATHS - 1
            assert {recovery.outcome for recovery in publisher.recoveries} == {Outcome.FAILED_OVER}
            resent = sum(recovery.resent for recovery in publisher.recoveries)
            assert resent > 0, "nothing was under way at any death, so nothing was shown"
            assert counting.asked == LAST
            counting.judge(await grid.log(TOPIC))
            assert await grid.values() == {TOPIC: (LAST, LAST)}
            assert complaints_after_kills(stack).keys() <= {"lease_expired", "takeover_finished"}
            for member in (*readers, publisher):
                assert member.violations == []
                assert member.notices == []
            figures(
                f"1 to {LAST} once and in order over {len(fate.killed)} deaths, {fate.hits} of them of the publisher's "
                f"node; {resent} publishes asked again, {fate.duplicates} of them known to be executed before; "
                f"{done - begun:.1f} s, undisturbed {(LAST - DEATHS * SHARE) / (done - undisturbed):,.0f} publishes/s, "
                f"slowest receipt {counting.slowest:.2f} s; publisher's recovery {gaps(publisher.recoveries)}"
            )
        assert await grid.of_sessions() == []
