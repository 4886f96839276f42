"""All nodes are restarted, one after the other, under traffic: nobody loses a session or a publish (P12)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gateway.client import connect
from gateway.core.client.machine import ClientMachine
from gateway.core.wire.codes import Outcome
from gateway.core.wire.packets import GoAway, Packet, SessionBody, SessionPacket, Update
from tests.cluster.crowds import Counting, Figures, Member, complaints, converged, crowd, gaps
from tests.cluster.grid_reader import GridReader
from tests.support.faults import eventually
from tests.support.stack import cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.redis,
    pytest.mark.haproxy,
    pytest.mark.promise("P12"),
    pytest.mark.thorough,
]

SUBSCRIBERS: Final = 60
STEADY: Final = 5
"""Publishers that wait for each receipt before the next publish."""
VISITORS: Final = 2
"""Clients that open a session, publish, close it, and begin anew."""
POURING: Final = 2
"""Publishers that have several publishes under way at any time."""
IN_FLIGHT: Final = 20
PACE: Final = 0.1
"""Seconds between two publishes of a steady publisher: 3,000 updates a second for all subscribers together."""
ROUNDS: Final = 5
"""Publishes of each steady publisher before, between and after the restarts."""
STREAM_LENGTH: Final = 100_000
"""Entries that the logs keep: all of them."""


class Traffic:
    """Publishers at work until they are told to stop."""

    def __init__(self, url: str, publishers: list[Member]) -> None:
        self._url = url
        steady, pouring = publishers[:STEADY], publishers[STEADY:]
        self.steady = [Counting(member.session, f"ticks/{member.name}") for member in steady]
        self.pouring = [Counting(member.session, f"bulk/{member.name}") for member in pouring]
        self.visits = [Counting(publishers[0].session, f"visits/{number}") for number in range(VISITORS)]
        self._stopping = asyncio.Event()

    @property
    def topics(self) -> list[Counting]:
        return [*self.steady, *self.pouring, *self.visits]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as work:
            for counting in self.steady:
                work.create_task(self._tick(counting))
            for counting in self.pouring:
                for _ in range(IN_FLIGHT):
                    work.create_task(self._tick(counting))
            for counting in self.visits:
                work.create_task(self._visit(counting))

    async def goes_on(self) -> None:
        """Wait until every publisher has got some more receipts."""
        wanted = {each.topic: len(each.receipts) + ROUNDS for each in self.topics}
        await eventually(
            lambda: all(len(each.receipts) >= wanted[each.topic] for each in self.topics), "every publisher goes on"
        )

    def stop(self) -> None:
        self._stopping.set()

    async def _tick(self, counting: Counting) -> None:
        while not self._stopping.is_set():
            await asyncio.gather(counting.publish(), asyncio.sleep(PACE))

    async def _visit(self, counting: Counting) -> None:
        while not self._stopping.is_set():
            async with connect(self._url) as session:
                counting.session = session
                await asyncio.gather(counting.publish(), asyncio.sleep(PACE))


class Departures:
    """Watches, inside the clients, how they are told to go away and what they get meanwhile.

    Attributes:
        told: go-aways received, by session.
        silence: the longest time without an update, in seconds, by session.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: Counter[str] = Counter()
        self.silence: dict[str, float] = {}
        self._updated: dict[str, float] = {}
        take_in = ClientMachine._take_in

        def watched(machine: ClientMachine, received: list[Packet], now: float) -> None:
            for packet in received:
                self._watch(machine, packet.body if isinstance(packet, SessionPacket) else packet, now)
            take_in(machine, received, now)

        monkeypatch.setattr(ClientMachine, "_take_in", watched)

    def _watch(self, machine: ClientMachine, received: Packet | SessionBody, now: float) -> None:
        assert machine.welcome is not None
        session = machine.welcome.session
        match received:
            case GoAway():
                self.told[session] += 1
            case Update():
                silence = now - self._updated.get(session, now)
                self.silence[session] = max(silence, self.silence.get(session, 0.0))
                self._updated[session] = now
            case _:
                pass


async def enter(member: Member, _number: int) -> None:
    await member.subscribe("ticks/**")


async def test_a_rolling_restart_loses_nothing(
    tmp_path: Path, figures: Figures, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    departures = Departures(monkeypatch)
    async with cluster(tmp_path, stream_length=STREAM_LENGTH) as stack, GridReader(stack.grid_url) as grid:
        async with (
            crowd(stack.url, SUBSCRIBERS, enter) as subscribers,
            crowd(stack.url, STEADY + POURING, role="publisher") as publishers,
        ):
            everybody = [*subscribers, *publishers]
            before = {member: member.identity for member in everybody}
            traffic = Traffic(stack.url, publishers)
            running = asyncio.create_task(traffic.run())
            await traffic.goes_on()
            drains: list[float] = []
            moves = 0
            for node in stack.node_names:
                moves += sum(member.session.node == node for member in everybody)
                started = loop.time()
                assert await stack.drain_node(node) == 0
                drains.append(loop.time() - started)
                await stack.start_node(node)
                await stack.balanced()
                await traffic.goes_on()
            traffic.stop()
            await running
            ticks = {counting.topic for counting in traffic.steady}
            await converged(subscribers, grid, lambda _: ticks)

            assert {member: member.identity for member in everybody} == before
            recoveries = [recovery for member in everybody for recovery in member.recoveries]
            assert len(recoveries) == moves == sum(departures.told[member.session.id] for member in everybody)
            for recovery in recoveries:
                assert (recovery.outcome, recovery.lost) == (Outcome.HANDED_OVER, 0)
                assert "asked to go away: the node drains" in recovery.cause
            for member in everybody:
                assert member.violations == []
                assert member.notices == []
            for counting in traffic.topics:
                assert counting.asked == len(counting.receipts)
                counting.judge(await grid.log(counting.topic))
            finished = [event for node in stack.node_names for event in _drains(stack.log_of(node))]
            assert sum(event["moved"] for event in finished) >= departures.told.total() >= moves
            assert [event["left"] for event in finished] == [0] * len(stack.node_names)
            assert complaints(stack) == {}
            assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
            # Nobody is muted before it leaves, and nobody misses an update by leaving.
            assert sum(member.tally.skipped for member in subscribers) == 0
            delivered = sum(member.tally.delivered for member in subscribers)
            figures(
                f"{len(everybody)} sessions moved {moves} times by {len(drains)} drains of up to {max(drains):.1f} s; "
                f"0 ended, 0 requests asked again; recovery {gaps(recoveries)}; {sum(v.asked for v in traffic.visits)} "
                f"sessions opened meanwhile; "
                f"{sum(each.asked for each in traffic.topics)} publishes once each, slowest receipt "
                f"{max(each.slowest for each in traffic.topics):.2f} s; {delivered} updates, none skipped, at most "
                f"{max(departures.silence.values()):.2f} s without an update at {STEADY / PACE:.0f} updates/s"
            )
        assert await grid.of_sessions() == []


def _drains(log: Path) -> Iterator[dict[str, int]]:
    for line in log.read_text().splitlines():
        if '"drain_finished"' in line:
            yield json.loads(line)
