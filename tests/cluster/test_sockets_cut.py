"""Sockets are cut, at whatever byte: every packet both ways arrives exactly once, and nothing is ever failed over.

Rung 1 of the ladder (P2, P5, P6, P8; protocol 5.4). A fault proxy stands between the clients and HAProxy, behind which
are three nodes. Subscribers select before anything is published, so each has to see every value from 1 on, once, in
order, and not one of them as a snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from gateway.client import connect
from gateway.core.wire.codes import Outcome
from gateway.local.checker import Tally
from gateway.local.proxy import FaultProxy, Way
from gateway.local.stack import Stack
from tests.cluster.crowds import Counting, Figures, Member, converged, crowd, gaps
from tests.cluster.grid_reader import GridReader
from tests.support.faults import eventually, faulty
from tests.support.raw_client import Packet, RawClient
from tests.support.seeds import SEED, seeded
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P2", "P5", "P6", "P8")]

QUICK_RETURN: Final[dict[str, Any]] = {"backoff_initial": 0.02, "backoff_maximum": 0.1, "backoff_stable": 0}
"""Clients come back at once, so that dozens of cuts fit into a test and the gaps stay far within the resend buffers."""

CUTS: Final = 50
TALKERS: Final = 3
BURST: Final = 2
PACE: Final = 0.02
"""Each talker begins two publishes every 20 ms, connected or not, and hears those of all: 300 updates a second."""
STRETCH: Final = 20_000
"""Bytes that may pass before a cut in the middle of traffic: up to a quarter of a second of it."""
HANDSHAKE: Final = {Way.UP: 700, Way.DOWN: 1300}
"""Bytes of an upgrade with its resume, and of the answer with the welcome, somewhat more than that."""


# --- Under traffic ----------------------------------------------------------------------------------------------------


class Talk:
    """Members that all publish and all hear everybody, while a test is at it."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = list(members)
        self.topics = [Counting(member.session, f"talk/{number}") for number, member in enumerate(self.members)]
        self._stopping = asyncio.Event()
        self._publishes = asyncio.create_task(self._run())

    @property
    def asked(self) -> int:
        """How much was published."""
        return sum(topic.asked for topic in self.topics)

    async def end(self) -> None:
        """Publish no more, and wait for the receipts."""
        self._stopping.set()
        await self._publishes

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as publishes:
            while not self._stopping.is_set():
                for topic in self.topics * BURST:
                    publishes.create_task(topic.publish())
                await asyncio.sleep(PACE)


Strike = Callable[[FaultProxy, Random], Awaitable[None]]


async def cut_somewhere(proxy: FaultProxy, random: Random) -> None:
    """Cut one connection at a random byte of the traffic."""
    before = proxy.cuts
    proxy.cut_after(random.randrange(STRETCH), random.choice((Way.UP, Way.DOWN)))
    await eventually(lambda: proxy.cuts > before, "a connection is cut in the middle of traffic")


async def cut_everybody(proxy: FaultProxy, random: Random) -> None:
    """Cut all connections at a random moment."""
    goal = proxy.passed[Way.DOWN] + random.randrange(STRETCH)
    await eventually(lambda: proxy.connections > 0 and proxy.passed[Way.DOWN] >= goal, "traffic flows")
    proxy.cut()


async def cut_handshakes(proxy: FaultProxy, random: Random) -> None:
    """Cut all, and then one that comes back, in its upgrade, its resume, its welcome or in what is resent."""
    await eventually(lambda: proxy.connections > 0, "somebody is connected")
    way = random.choice((Way.UP, Way.DOWN))
    before = proxy.cuts + proxy.cut()
    proxy.cut_after(random.randrange(HANDSHAKE[way]), way)
    await eventually(lambda: proxy.cuts > before, f"a handshake is cut on the way {way}")


async def cut_twice(proxy: FaultProxy, _random: Random) -> None:
    """Cut all, and all that come back as soon as they are there."""
    await eventually(lambda: proxy.connections == TALKERS, "everybody is connected")
    proxy.cut()
    accepted = proxy.accepted
    await eventually(lambda: proxy.accepted > accepted, "somebody comes back")
    proxy.cut()


STRIKES: Final[tuple[tuple[Strike, int], ...]] = (
    (cut_somewhere, 20),
    (cut_everybody, 8),
    (cut_handshakes, 14),
    (cut_twice, 4),  # two cuts each
)


@pytest.mark.thorough
async def test_cuts_under_traffic_lose_and_double_nothing(tmp_path: Path, figures: Figures) -> None:
    random = seeded("cuts under traffic")
    strikes = [strike for strike, times in STRIKES for _ in range(times)]
    random.shuffle(strikes)
    async with cluster(tmp_path, **QUICK_RETURN) as stack, GridReader(stack.grid_url) as grid:
        async with faulty(stack.url) as (url, proxy):

            async def enter(member: Member, _number: int) -> None:
                await member.subscribe("talk/*")

            async with crowd(url, TALKERS, enter) as members:
                before = {member: member.identity for member in members}
                homes = {member: member.session.node for member in members}
                talk = Talk(members)
                for strike in strikes:
                    await strike(proxy, random)
                await talk.end()
                await converged(members, grid, lambda _: {topic.topic for topic in talk.topics})

                for topic in talk.topics:
                    topic.judge(await grid.log(topic.topic))
                for member in members:
                    assert_exactly_once(member, talk.asked)
                    assert member.identity == before[member]
                    assert member.session.node == homes[member]
                recoveries = [recovery for member in members for recovery in member.recoveries]
                assert proxy.cuts >= CUTS
                attempts = sum(recovery.attempts for recovery in recoveries)
                resent = sum(recovery.resent for recovery in recoveries)
                assert resent > 0, "nothing was under way at any cut, so nothing was shown"
                figures(
                    f"seed {SEED}: {proxy.cuts} connections cut in {len(strikes)} strikes; {len(recoveries)} returns "
                    f"in {attempts} attempts, all reattached, {gaps(recoveries)}; {talk.asked} publishes once each, "
                    f"{talk.asked * TALKERS} updates once each in order, {resent} packets resent"
                )
        assert await grid.of_sessions() == []


def assert_exactly_once(member: Member, updates: int) -> None:
    """The member has seen each update once, and has been reattached every time."""
    assert member.violations == []
    assert member.notices == []
    assert member.tally == Tally(delivered=updates)
    assert {recovery.outcome for recovery in member.recoveries} <= {Outcome.REATTACHED}
    assert sum(recovery.lost or 0 for recovery in member.recoveries) == 0
    assert sum(recovery.conflated or 0 for recovery in member.recoveries) == 0


# --- At every place of a handshake ------------------------------------------------------------------------------------


async def test_resumes_cut_at_any_byte_lose_and_double_nothing(tmp_path: Path, figures: Figures) -> None:
    """One client is cut and its next attempts too, from the first byte of the upgrade to the proof of the new token.

    In a third of the rounds nothing is said between two cuts; in the others something is published to the client
    and by it just when it is away.
    """
    random = seeded("resumes cut at any byte")
    async with (
        cluster(tmp_path, **QUICK_RETURN) as stack,
        GridReader(stack.grid_url) as grid,
        crowd(stack.url, 1, role="speaker") as speakers,
        faulty(stack.url) as (url, proxy),
        crowd(url, 1) as members,
    ):
        member, speaker = members[0], speakers[0]
        await member.subscribe("words/*")
        heard, said = Counting(speaker.session, "words/heard"), Counting(member.session, "words/said")
        await asyncio.gather(heard.publish(), said.publish())
        places = await places_of_a_resume(member, proxy, random)
        publishes: list[asyncio.Task[None]] = []

        def speak() -> None:
            publishes.extend(asyncio.create_task(each.publish()) for each in (heard, said))

        for number, (way, place) in enumerate(places):
            back = Back(member)
            before = proxy.cuts + proxy.cut()
            proxy.cut_after(place, way)
            if number % 3:
                speak()
            await cut_or_back(proxy, before, back)
            if proxy.cuts == before:
                # This resume was shorter than the one that was watched: the cut comes with what is said next.
                speak()
                await cut_or_back(proxy, before, None)
            if random.random() < 1 / 2:  # else the next cut comes while the client still tries
                await eventually(back.is_back, "the client is back")
        await asyncio.gather(*publishes)
        await converged(members, grid, lambda _: {"words/heard", "words/said"})

        for topic in (heard, said):
            topic.judge(await grid.log(topic.topic))
        assert_exactly_once(member, heard.asked + said.asked)
        attempts = sum(recovery.attempts for recovery in member.recoveries)
        assert len(places) >= CUTS
        assert attempts > len(places)
        stored = await grid.session(member.session.id)
        assert stored is not None
        assert stored.node == member.session.node
        assert stored.epoch <= attempts + 1
        figures(
            f"seed {SEED}: {proxy.cuts} cuts, {len(places)} of them within a resume, {attempts} attempts, "
            f"{stored.epoch - 1} claims, {len(member.recoveries)} recoveries, all reattached; "
            f"{heard.asked + said.asked} publishes and updates once each"
        )


class Back:
    """Tells whether a client has recovered since this was made."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._recoveries = len(member.recoveries)

    def is_back(self) -> bool:
        return len(self._member.recoveries) > self._recoveries


async def cut_or_back(proxy: FaultProxy, before: int, back: Back | None) -> None:
    """Wait for the cut that was prepared, or until a client is back without it."""
    await eventually(lambda: proxy.cuts > before or (back is not None and back.is_back()), "the prepared cut falls")


async def places_of_a_resume(member: Member, proxy: FaultProxy, random: Random) -> list[tuple[Way, int]]:
    """Watch one resume that is not disturbed, and choose bytes from all over it, at random within even stretches."""
    before = dict(proxy.passed)
    proxy.cut()
    await eventually(lambda: len(member.recoveries) == 1, "the client is back")
    await eventually(lambda: proxy.passed[Way.UP] > before[Way.UP], "it has proved that it has the token")
    places: list[tuple[Way, int]] = []
    for way in Way:
        size = proxy.passed[way] - before[way]
        stretch = size / CUTS
        places += [(way, int((number + random.random()) * stretch)) for number in range(CUTS)]
    random.shuffle(places)
    return places


# --- Packet by packet -------------------------------------------------------------------------------------------------


@pytest.mark.thorough
async def test_packets_are_numbered_through_over_two_cuts_in_a_row(tmp_path: Path) -> None:
    """What a client misses is resent with its old ids, as often as it asks, whether or not it heard the welcome."""
    async with (
        cluster(tmp_path) as stack,
        GridReader(stack.grid_url) as grid,
        crowd(stack.url, 1, role="speaker") as speakers,
    ):
        spoken = Counting(speakers[0].session, "words/heard")
        async with opened(stack) as (raw, welcome):
            await raw.send({"id": 1, "request": 1, "type": "subscribe", "selector": "words/*"})
            await raw.expect("reply")  # is packet 1
            await spoken.publish()
            await raw.expect("update", where=lambda packet: packet["id"] == 2)
            # Executed, but the client will not hear of it; the last one does not even arrive whole.
            await raw.send(*(publish(number) for number in (2, 3, 4)))
            await eventually(lambda: has_logged(grid, "words/said", 3), "the publishes are executed")
        for _ in range(5):
            await spoken.publish()
        assert await grid.session(welcome["session"]) is not None

        url = f"{stack.url}?node={welcome['node']}"
        async with RawClient(url) as deaf:
            # Served, but the welcome is lost with the connection.
            await deaf.send(resume(welcome["token"], attempt=1, received=2))
            await eventually(lambda: has_epoch(grid, welcome["session"], 2), "the node has claimed the session")
        async with RawClient(url) as mute:
            again = await mute.resume(welcome["token"], attempt=2, received=2, oldest=2)
        async with RawClient(url) as back:
            last = await back.resume(again["token"], attempt=3, received=2, oldest=2)
            resent = [await back.receive() for _ in range(last["resent"])]
            await back.send(*(publish(number, received=10) for number in (2, 3, 4, 5)))
            reply = await back.expect("reply")
            await back.send({"type": "bye"})

        for each in (again, last):
            assert (each["outcome"], each["lost"], each["conflated"]) == ("reattached", 0, 0)
            assert (each["received"], each["resent"]) == (4, 3 + 3 + 5)
        assert [packet["id"] for packet in resent] == list(range(3, 14))
        assert [packet["request"] for packet in resent if packet["type"] == "reply"] == [2, 3, 4]
        heard = [packet["value"] for packet in resent if packet.get("topic") == "words/heard"]
        said = [packet["value"] for packet in resent if packet.get("topic") == "words/said"]
        assert (heard, said) == ([2, 3, 4, 5, 6], [2, 3, 4])
        assert not any("snapshot" in packet for packet in resent)
        assert reply["request"] == 5
        assert [entry.value for entry in await grid.log("words/said")] == [2, 3, 4, 5]


@asynccontextmanager
async def opened(stack: Stack) -> AsyncIterator[tuple[RawClient, Packet]]:
    """Open a session; at the end its transport is lost."""
    async with RawClient(stack.url) as raw:
        yield raw, await raw.hello()


def publish(number: int, **fields: Any) -> Packet:
    """Make a publish whose id, request number and value are the same."""
    return {"id": number, "request": number, "type": "publish", "topic": "words/said", "value": number, **fields}


def resume(token: str, *, attempt: int, received: int) -> Packet:
    return {"type": "resume", "token": token, "attempt": attempt, "received": received, "oldest": 2}


async def has_logged(grid: GridReader, topic: str, count: int) -> bool:
    return len(await grid.log(topic)) == count


async def has_epoch(grid: GridReader, session: str, epoch: int) -> bool:
    stored = await grid.session(session)
    return stored is not None and stored.epoch == epoch


# --- A new session ----------------------------------------------------------------------------------------------------

OPENINGS: Final = 25


async def test_openings_cut_at_any_byte_leave_nothing_behind(tmp_path: Path, figures: Figures) -> None:
    """A client whose hello or welcome is lost opens another session; the one it never heard of ends with its window."""
    random = seeded("openings cut at any byte")
    settings = {**QUICK_RETURN, "window_default": 1, "reap_interval": 0.2}
    async with (
        cluster(tmp_path, **settings) as stack,
        GridReader(stack.grid_url) as grid,
        faulty(stack.url) as (url, proxy),
    ):
        async with await connect(url):
            sizes = dict(proxy.passed)
        ids: set[str] = set()
        for _ in range(OPENINGS):
            way = random.choice((Way.UP, Way.DOWN))
            before = proxy.cuts
            proxy.cut_after(random.randrange(sizes[way]), way)
            async with await connect(url, properties={"team": "fx"}) as session:
                await eventually(lambda before=before: proxy.cuts > before, f"a cut on the way {way}")  # type: ignore[misc]
                await session.publish("openings/count", len(ids))
                assert session.properties["team"] == "fx"
                ids.add(session.id)
        assert len(ids) == OPENINGS
        assert [entry.value for entry in await grid.log("openings/count")] == list(range(OPENINGS))
        opened = sum([(await stack.metrics(node))["gateway_sessions_opened_total"] for node in stack.node_names])
        await eventually(lambda: nothing_left(grid), "the sessions nobody heard of are gone")
        figures(f"seed {SEED}: {OPENINGS} openings cut, {opened:.0f} sessions opened, those nobody heard of are gone")


async def nothing_left(grid: GridReader) -> bool:
    return await grid.of_sessions() == []
