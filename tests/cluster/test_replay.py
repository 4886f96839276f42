"""Each node is killed in turn: every subscriber gets every update once, in order, and loses nothing (P13)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from gateway.client import UpdateStream
from gateway.core.wire.codes import Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Counting, Figures, Member, complaints_after_kills, crowd, gaps
from tests.support.faults import eventually
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P1", "P13")]

SUBSCRIBERS: Final = 30
PUBLISHERS: Final = 4
TOPICS: Final = (*(f"prices/{number}" for number in range(10)), *(f"orders-{number}/all" for number in range(10)))
"""Half of them in one topic partition, half in others, so that both are replayed: one stretch, and several."""
PACE: Final = 0.05
"""Seconds between two publishes to a topic: 400 updates a second, 12,000 for all subscribers together."""
ROUNDS: Final = 20
"""Publishes to each topic before and after each death, at least."""
STREAM_LENGTH: Final = 100_000
"""Entries that a stream keeps: more than are published, so that a slow machine is not a gap."""
REPLAY_EVENTS: Final = 100_000
"""Likewise."""


class Ledger:
    """Writes down the versions that a member gets of each topic, and what else its updates say.

    Attributes:
        versions: by topic, as they came.
        snapshots: topics of snapshots behind the first update of the topic.
        folded: updates that took the place of others.
    """

    def __init__(self) -> None:
        self.versions: defaultdict[str, list[int]] = defaultdict(list)
        self.snapshots: list[str] = []
        self.folded = 0

    async def keep(self, stream: UpdateStream) -> None:
        async for update in stream:
            if update.snapshot and self.versions[update.topic]:
                self.snapshots.append(update.topic)
            self.folded += update.folded
            self.versions[update.topic].append(update.version)


async def test_nodes_that_are_killed_in_turn_cost_nobody_an_update(tmp_path: Path, figures: Figures) -> None:
    """R1 with whole nodes: kill -9 of each, no mirror, the same load all the time."""
    ledgers: defaultdict[str, Ledger] = defaultdict(Ledger)
    keeping: list[asyncio.Task[None]] = []

    async def enter(member: Member, number: int) -> None:
        """A third selects by a wildcard over all partitions, a third by one in a partition, a third by names."""
        selectors = {0: ("*/*",), 1: ("prices/**", *TOPICS[10:]), 2: TOPICS}[number % 3]
        for selector in selectors:
            stream = await member.session.subscribe(selector)
            keeping.append(asyncio.create_task(ledgers[member.name].keep(stream)))

    async with (
        cluster(tmp_path, stream_length=STREAM_LENGTH, replay_events=REPLAY_EVENTS) as stack,
        crowd(stack.url, SUBSCRIBERS, enter) as subscribers,
        crowd(stack.url, PUBLISHERS, role="publisher") as publishers,
    ):
        topics = [Counting(publishers[number % PUBLISHERS].session, topic) for number, topic in enumerate(TOPICS)]
        stopping = asyncio.Event()
        trading = [asyncio.create_task(_trade(topic, stopping)) for topic in topics]
        killed = 0
        for node in stack.node_names:
            await _goes_on(topics)
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
            await _goes_on(topics)
            await stack.start_node(node)
            await stack.balanced()
        stopping.set()
        await asyncio.gather(*trading)
        wanted = {each.topic: sorted(receipt.version for receipt in each.receipts.values()) for each in topics}
        await eventually(
            lambda: all(
                ledger.versions[topic][-1:] == versions[-1:]
                for ledger in ledgers.values()
                for topic, versions in wanted.items()
            ),
            "everybody has the last update of each topic",
        )

        for name, ledger in ledgers.items():
            assert ledger.versions == wanted, f"{name} missed or repeated something"
            assert (ledger.snapshots, ledger.folded) == ([], 0), name
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
    await asyncio.gather(*keeping)


async def _trade(topic: Counting, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await asyncio.gather(topic.publish(), asyncio.sleep(PACE))


async def _goes_on(topics: list[Counting]) -> None:
    """Wait until every topic has got some more publishes."""
    goals = {each.topic: len(each.receipts) + ROUNDS for each in topics}
    await eventually(lambda: all(len(each.receipts) >= goals[each.topic] for each in topics), "traffic goes on")


async def _sum(stack: Stack, name: str) -> float:
    return sum([(await stack.metrics(node)).get(name, 0.0) for node in stack.node_names])
