"""A gap that is larger than the resend buffers is declared to the packet, and current values follow (P2, P5, P6).

Rung 4 at the same node (protocol 5.4.2, 5.5). The buffers are small here; that they are just large enough, or one
packet too small, is shown too. The lost packets are counted from outside: what was published and answered while nothing
could reach the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from gateway.client import SessionState
from gateway.core.wire.codes import FailoverReason, Outcome
from gateway.local.checker import Tally
from gateway.local.proxy import FaultProxy, Way
from gateway.local.stack import Stack
from tests.cluster.crowds import Counting, Figures, Member, converged, crowd
from tests.cluster.grid_reader import GridReader
from tests.support.faults import eventually, faulty
from tests.support.raw_client import Packet, RawClient
from tests.support.seeds import SEED, seeded
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P2", "P5", "P6")]

BUFFER: Final = 32
"""Packets that either side keeps."""
SETTINGS: Final[dict[str, Any]] = {
    "limit_resend_packets": BUFFER,
    "ack_packets": BUFFER // 4,
    "backoff_initial": 0.02,
    "backoff_maximum": 0.1,
    "backoff_stable": 0,
    "replay_events": 0,  # else nothing would be lost that had to be declared (P13)
}
TOPICS: Final = 5
SAID: Final = "said/count"
"""Where the client publishes that suffers the gaps; it does not select it."""


class Scene:
    """A client behind a bad network, and somebody else who publishes what it has selected.

    Args:
        stack: with the nodes.
        client: who suffers.
        speaker: who publishes.
        proxy: before the client.
        grid: to look behind the scenes.
    """

    def __init__(self, stack: Stack, client: Member, speaker: Member, proxy: FaultProxy, grid: GridReader) -> None:
        self.client = client
        self._stack = stack
        self._proxy = proxy
        self._grid = grid
        self.heard = [Counting(speaker.session, f"heard/{number}") for number in range(TOPICS)]
        self.said = Counting(client.session, SAID)
        self._publishes: list[asyncio.Task[None]] = []

    @property
    def topics(self) -> list[Counting]:
        return [*self.heard, self.said]

    async def settle(self) -> None:
        """Wait until nothing is under way, not even an acknowledgement."""
        await asyncio.gather(*self._publishes)
        self._publishes.clear()
        await converged([self.client], self._grid, lambda _: {topic.topic for topic in self.heard})
        await eventually(self._is_acknowledged, "the node keeps nothing for resending")

    async def speak(self, count: int, random: Random) -> set[str]:
        """Publish some values to random topics; returns the topics."""
        spoken = [random.choice(self.heard) for _ in range(count)]
        for topic in spoken:
            await topic.publish()
        return {topic.topic for topic in spoken}

    async def ask(self, count: int, *, executed: bool) -> None:
        """Have the client publish; *executed* waits until the grid has it, though the client will not hear of that."""
        self._publishes += [asyncio.create_task(self.said.publish()) for _ in range(count)]
        await asyncio.sleep(0)
        asked = self.said.asked
        if executed:
            await eventually(lambda: self._has_said(asked), "the publishes are executed")

    def fall_silent(self, way: Way) -> None:
        """From now on nothing reaches the client, or nothing from the client its node."""
        self._proxy.stall(way)

    async def lose(self) -> None:
        """Cut the client off, and wait until both it and its node know."""
        self._proxy.refuse()
        self._proxy.cut()
        self._proxy.flow()
        await eventually(lambda: self.client.session.state is SessionState.RECOVERING, "the client has noticed")
        await eventually(self._is_disconnected, "the node has noticed")

    async def come_back(self) -> None:
        """Let the client connect again, and wait until it has."""
        recoveries = len(self.client.recoveries)
        await self._proxy.start()
        await eventually(lambda: len(self.client.recoveries) > recoveries, "the client is back")

    async def _is_acknowledged(self) -> bool:
        return (await self._stack.metrics(self.client.session.node))["gateway_resend_buffer_bytes"] == 0

    async def _has_said(self, count: int) -> bool:
        return len(await self._grid.log(SAID)) == count

    async def _is_disconnected(self) -> bool:
        stored = await self._grid.session(self.client.session.id)
        assert stored is not None
        return not stored.connected


async def test_a_gap_beyond_the_buffer_is_declared_to_the_packet(tmp_path: Path, figures: Figures) -> None:
    random = seeded("gaps")
    async with (
        cluster(tmp_path, nodes=2, **SETTINGS) as stack,
        GridReader(stack.grid_url) as grid,
        faulty(stack.url) as (url, proxy),
        crowd(stack.url, 1, role="speaker") as speakers,
        crowd(url, 1) as clients,
    ):
        client = clients[0]
        await client.subscribe("heard/*")
        scene = Scene(stack, client, speakers[0], proxy, grid)
        node, identity = client.session.node, client.identity
        await asyncio.gather(*(topic.publish() for topic in scene.topics))
        # The last two are as large as the buffer, and larger by one.
        gaps = [*(random.randrange(BUFFER + 1, 4 * BUFFER) for _ in range(4)), BUFFER, BUFFER + 1]
        random.shuffle(gaps)
        lost = conflated = 0
        for gap in gaps:
            await scene.settle()
            before = client.tally
            answered, sent = random.randrange(1, 10), random.randrange(10)
            unsent = random.randrange(10)

            scene.fall_silent(Way.DOWN)
            await scene.ask(answered, executed=True)
            spoken = await scene.speak(sent, random)
            await scene.lose()
            await scene.ask(unsent, executed=False)
            spoken |= await scene.speak(gap - answered - sent, random)
            await scene.come_back()
            await scene.settle()

            recovery, updates = client.recoveries[-1], gap - answered
            gained = difference(client.tally, before)
            if gap <= BUFFER:
                assert (recovery.outcome, recovery.reason) == (Outcome.REATTACHED, None)
                assert (recovery.resent, recovery.lost) == (gap, 0)
                assert gained == Tally(delivered=updates)
            else:
                assert (recovery.outcome, recovery.reason) == (Outcome.FAILED_OVER, FailoverReason.GAP)
                assert (recovery.resent, recovery.lost) == (answered, gap)
                # Every topic's current value, and each other update between is known to be left out.
                assert gained == Tally(delivered=TOPICS, snapshots=TOPICS, skipped=updates - len(spoken))
                lost += gap
                conflated += updates - len(spoken)
            assert client.session.node == node
        for topic in scene.topics:
            topic.judge(await grid.log(topic.topic))
        assert len(client.recoveries) == len(gaps)
        assert client.violations == []
        assert client.notices == []
        assert client.identity == identity
        stored = await grid.session(client.session.id)
        assert stored is not None
        assert stored.selections == ("+heard/*",)
        assert stored.epoch == 1 + len(gaps), "one claim each: while the proxy refused, no attempt reached a node"
        figures(
            f"seed {SEED}: gaps of {gaps} packets with buffers of {BUFFER}; {lost} packets lost, all declared, "
            f"{conflated} updates among them skipped by snapshots; {scene.said.asked} publishes of the client once "
            f"each, of which {sum(recovery.resent for recovery in client.recoveries)} packets were sent again"
        )


async def test_a_gap_is_declared_although_its_welcome_is_lost(tmp_path: Path, figures: Figures) -> None:
    """The node has begun anew, and the client has not heard of it: its next resume must not pass for a small gap."""
    random = seeded("lost welcomes")
    async with (
        cluster(tmp_path, nodes=2, **SETTINGS) as stack,
        GridReader(stack.grid_url) as grid,
        faulty(stack.url) as (url, proxy),
        crowd(stack.url, 1, role="speaker") as speakers,
        crowd(url, 1) as clients,
    ):
        client = clients[0]
        await client.subscribe("heard/*")
        scene = Scene(stack, client, speakers[0], proxy, grid)
        await asyncio.gather(*(topic.publish() for topic in scene.topics))
        await scene.settle()
        passed = proxy.passed[Way.DOWN]
        await scene.lose()
        await scene.come_back()
        await eventually(lambda: grid_has_claimed(grid, client, 2), "the node has claimed the session")
        welcome = proxy.passed[Way.DOWN] - passed

        for rounds in range(1, 6):
            await scene.settle()
            before = client.tally
            scene.fall_silent(Way.DOWN)
            await scene.ask(3, executed=True)
            await scene.lose()
            spoken = await scene.speak(BUFFER + random.randrange(1, BUFFER), random)
            # The answer to the upgrade is shorter than that, so the node has read the resume and has answered it.
            proxy.cut_after(random.randrange(2 * welcome // 3, welcome - 1), Way.DOWN)
            await scene.come_back()
            await scene.settle()

            recovery = client.recoveries[-1]
            assert len(client.recoveries) == 1 + rounds
            assert (recovery.outcome, recovery.reason) == (Outcome.FAILED_OVER, FailoverReason.GAP)
            assert recovery.attempts >= 2
            assert recovery.lost is None, "nobody can know, and it is said"
            gained = difference(client.tally, before)
            assert (gained.delivered, gained.snapshots) == (TOPICS, TOPICS)
            assert gained.skipped + len(spoken) > BUFFER
            assert client.violations == []
        for topic in scene.topics:
            topic.judge(await grid.log(topic.topic))
        figures(f"seed {SEED}: {len(client.recoveries) - 1} gaps whose welcome was lost, each declared as unknown")


@pytest.mark.thorough
async def test_a_client_that_asks_more_than_its_buffer_holds_loses_nothing(tmp_path: Path, figures: Figures) -> None:
    """The other direction: what a client cannot send waits in it, numbered or not, and is executed once."""
    random = seeded("much to ask")
    async with (
        cluster(tmp_path, nodes=2, **SETTINGS) as stack,
        GridReader(stack.grid_url) as grid,
        faulty(stack.url) as (url, proxy),
        crowd(stack.url, 1, role="speaker") as speakers,
        crowd(url, 1) as clients,
    ):
        client = clients[0]
        await client.subscribe("heard/*")
        scene = Scene(stack, client, speakers[0], proxy, grid)
        await asyncio.gather(*(topic.publish() for topic in scene.topics))
        for gap in (0, BUFFER, BUFFER + 1, 0):
            await scene.settle()
            asked = random.randrange(2 * BUFFER, 6 * BUFFER)
            scene.fall_silent(Way.UP)
            await scene.ask(asked, executed=False)
            await scene.lose()
            await scene.ask(asked, executed=False)
            await scene.speak(gap, random)
            await scene.come_back()
            await scene.settle()

            recovery = client.recoveries[-1]
            if gap <= BUFFER:
                assert (recovery.outcome, recovery.lost) == (Outcome.REATTACHED, 0)
                assert recovery.resent == BUFFER + gap, "a full buffer of the client's, and the node's"
            else:
                assert (recovery.outcome, recovery.reason) == (Outcome.FAILED_OVER, FailoverReason.GAP)
                assert (recovery.resent, recovery.lost) == (asked, gap)
        for topic in scene.topics:
            topic.judge(await grid.log(topic.topic))
        assert client.violations == []
        figures(f"seed {SEED}: {scene.said.asked} publishes, far more than the client's buffer of {BUFFER}, once each")


@pytest.mark.thorough
async def test_packets_that_a_client_has_dropped_are_a_declared_gap(tmp_path: Path) -> None:
    """A client says that it cannot resend all that the node misses."""
    async with cluster(tmp_path, nodes=2, **SETTINGS) as stack, GridReader(stack.grid_url) as grid:
        async with RawClient(stack.url) as raw:
            welcome = await raw.hello()
            await raw.send({"id": 1, "request": 1, "type": "subscribe", "selector": "said/*"})
            await raw.expect("reply")
            await raw.send(*(publish(number, request=number) for number in (2, 3)))
            await eventually(lambda: has_logged(grid, SAID, [2, 3]), "the publishes are executed")
            # The client has seen packet 1 and never looked at the replies and updates of the publishes.
        # It has sent 4 and 5 besides, which nobody received, and kept only 5.
        async with RawClient(f"{stack.url}?node={welcome['node']}") as back:
            again = await back.resume(welcome["token"], attempt=1, received=1, oldest=5)
            snapshot = await back.expect("update")
            await back.send(*(publish(number - 2, request=number, resubmitted=True) for number in (3, 4, 5)))
            replies = [await back.expect("reply") for _ in range(3)]
            await back.send({"type": "bye"})
        assert (again["outcome"], again["reason"], again["node"]) == ("failed_over", "gap", welcome["node"])
        assert (again["received"], again["resent"], again["lost"]) == (0, 0, 2 + 2)
        assert (snapshot["id"], snapshot["value"], snapshot["snapshot"]) == (1, 3, True)
        log = await grid.log(SAID)
        assert [entry.value for entry in log] == [2, 3, 4, 5]
        assert [(reply["request"], reply["event"], reply["version"]) for reply in replies] == [
            (entry.value, entry.event, entry.version) for entry in log[1:]
        ]


def publish(number: int, *, request: int, **fields: Any) -> Packet:
    """Make a publish of the request's number."""
    return {"id": number, "request": request, "type": "publish", "topic": SAID, "value": request, **fields}


def difference(after: Tally, before: Tally) -> Tally:
    """Tell what was counted in between."""
    return Tally(*(late - early for late, early in zip(after.counts(), before.counts(), strict=True)))


async def has_logged(grid: GridReader, topic: str, values: Sequence[int]) -> bool:
    return [entry.value for entry in await grid.log(topic)] == list(values)


async def grid_has_claimed(grid: GridReader, client: Member, epoch: int) -> bool:
    stored = await grid.session(client.session.id)
    return stored is not None and stored.epoch == epoch
