"""Subscribers stop reading: the node bounds what it holds for them and closes them; nobody else notices (P9).

Both ways to be closed are shown. Where newer updates take the place of older ones, what waits stays small and it is the
silence of the client that ends its connection (4002). Where every update is another topic's, nothing can be left out,
and it is the bound on what waits (4001). Either way the client comes back to its session with nothing lost in silence.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import psutil  # type: ignore[import-untyped]
import pytest

from gateway.adapters.redis.readers import READ_ENTRIES
from gateway.client import Session, UpdateStream, connect
from gateway.core.wire.codes import PING_TIMEOUT, SLOW_CONSUMER, CloseCode
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures, percentile
from tests.cluster.grid_reader import GridReader
from tests.support.faults import eventually
from tests.support.raw_client import Packet, RawClient
from tests.support.slow_reader import SlowReader
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P9")]

NODE: Final = "n1"
"""Serves all subscribers."""
ELSEWHERE: Final = "n2"
"""Serves the publisher, so that the node that is watched does nothing but deliver."""
STUCK: Final = 4
HEALTHY: Final = 2
MEGABYTE: Final = 2**20
PACE: Final = 0.05
"""Seconds between two bursts of a publisher."""
LOOK: Final = 0.05
"""Seconds between two looks at the node."""


# --- Who takes part ---------------------------------------------------------------------------------------------------


class Publisher:
    """Publishes to many topics, round after round, at a steady rate; values tell when they were published.

    Args:
        session: that publishes.
        topics: to all of them in each round.
        size: bytes of a value, about.
        burst: publishes that are made at once, every ``PACE`` seconds.

    Attributes:
        rounds: that were finished.
    """

    def __init__(self, session: Session, topics: Sequence[str], *, size: int, burst: int) -> None:
        self._session = session
        self._topics = topics
        self._padding = "x" * size
        self._burst = burst
        self.rounds = 0

    async def publish(self) -> None:
        """Publish one round."""
        for start in range(0, len(self._topics), self._burst):
            at = asyncio.get_running_loop().time()
            value = {"round": self.rounds + 1, "at": at, "padding": self._padding}
            publishes = [self._session.publish(topic, value) for topic in self._topics[start : start + self._burst]]
            await asyncio.gather(*publishes, asyncio.sleep(PACE))
        self.rounds += 1

    async def publish_until(self, done: Callable[[], bool]) -> None:
        """Publish round after round until a condition holds."""
        while not done():
            await self.publish()


class Healthy:
    """Reads at once, and measures how old updates are when they come.

    Attributes:
        delays: in seconds, since they were last taken.
        rounds: the newest round seen, by topic.
    """

    def __init__(self, stream: UpdateStream) -> None:
        self.delays: list[float] = []
        self.rounds: dict[str, int] = {}
        self.skipped = 0
        self.task = asyncio.create_task(self._read(stream))

    async def _read(self, stream: UpdateStream) -> None:
        clock = asyncio.get_running_loop().time
        async for update in stream:
            assert isinstance(update.value, dict)
            published, number = update.value["at"], update.value["round"]
            assert isinstance(published, float)
            assert isinstance(number, int)
            if not update.snapshot:
                self.delays.append(clock() - published)
                self.skipped += number - self.rounds.get(update.topic, number - 1) - 1
            self.rounds[update.topic] = number


class Stuck:
    """Reads and acknowledges like anybody, until it is told to stop reading.

    Attributes:
        seen: the newest round seen, by topic.
    """

    def __init__(self, reader: SlowReader, welcome: Packet) -> None:
        self.reader = reader
        self.session: str = welcome["session"]
        self.token: str = welcome["token"]
        self.seen: dict[str, int] = {}
        self._task = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def subscribed(cls, url: str, selector: str) -> AsyncIterator[Self]:
        async with SlowReader(url) as reader:
            welcome = await reader.hello("stuck")
            await reader.send({"id": 1, "request": 1, "type": "subscribe", "selector": selector})
            assert (await reader.expect("reply"))["request"] == 1
            stuck = cls(reader, welcome)
            try:
                yield stuck
            finally:
                await stuck.stop()

    async def stop(self) -> None:
        """Read no more."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    def note(self, packets: Sequence[Packet]) -> None:
        """Take updates in, and check that none is older than what was seen."""
        for packet in packets:
            if packet["type"] == "update":
                number = packet["value"]["round"]
                assert number >= self.seen.get(packet["topic"], 0)
                self.seen[packet["topic"]] = number

    async def _read(self) -> None:
        while True:
            packet = await self.reader.receive()
            assert packet is not None, f"closed with {self.reader.close_code}"
            self.note([packet])
            if "id" in packet and packet["id"] % 16 == 0:
                await self.reader.send({"type": "ack", "received": packet["id"]})


class Watch:
    """Looks again and again at what the node uses. Use as ``async with Watch(stack) as watch``.

    Attributes:
        memory: the most it had, in bytes, since the last ``reset``.
        waiting: the most packets that waited in outboxes.
        kept: the most bytes that resend buffers referred to.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._process = psutil.Process(stack.nodes[NODE].pid)
        self._task: asyncio.Task[None] | None = None
        self.memory = self.waiting = self.kept = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._keep_looking())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    def reset(self) -> None:
        self.memory = self.waiting = self.kept = 0

    async def closed(self, code: CloseCode) -> int:
        """Tell how many connections were closed with *code* for slowness."""
        return int((await self._stack.metrics(NODE))[f'gateway_slow_closes_total{{code="{code.code}"}}'])

    async def _keep_looking(self) -> None:
        while True:
            metrics = await self._stack.metrics(NODE)
            self.memory = max(self.memory, self._process.memory_info().rss)
            self.waiting = max(self.waiting, int(metrics["gateway_outbox_packets"]))
            self.kept = max(self.kept, int(metrics["gateway_resend_buffer_bytes"]))
            await asyncio.sleep(LOOK)


@asynccontextmanager
async def healthy(stack: Stack, selector: str) -> AsyncIterator[list[Healthy]]:
    """Have some subscribers that read."""
    async with AsyncExitStack() as sessions:
        members = []
        for _ in range(HEALTHY):
            session = await sessions.enter_async_context(connect(stack.node_url(NODE)))
            members.append(Healthy(await session.subscribe(selector)))
        yield members
        for member in members:
            assert not member.task.done()
    await asyncio.gather(*(member.task for member in members))


@asynccontextmanager
async def stuck(url: str, selector: str) -> AsyncIterator[list[Stuck]]:
    """Have some subscribers that will stop reading."""
    async with AsyncExitStack() as clients:
        yield [await clients.enter_async_context(Stuck.subscribed(url, selector)) for _ in range(STUCK)]


def taken(members: Sequence[Healthy]) -> list[float]:
    """Take the delays that were measured so far."""
    delays = [delay for member in members for delay in member.delays]
    for member in members:
        member.delays.clear()
    return delays


def describe(delays: Sequence[float]) -> str:
    p50, p99, longest = (1000 * each for each in (statistics.median(delays), percentile(delays, 0.99), max(delays)))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {longest:.1f} ms"


# --- Silence ----------------------------------------------------------------------------------------------------------

FEW: Final = 24
"""Topics that are updated again and again, all of them in each burst."""
VALUE: Final = 4000
"""Bytes of a value: 480 updates and 2 MB a second, to each subscriber."""
BASELINE: Final = 60
"""Rounds in which everybody reads."""
SILENCE: Final = scaled(5.0)
GROWTH: Final = 12 * MEGABYTE
"""Bytes by which the node may grow: what the stuck clients are owed may all be theirs alone, 1 MB each for resending
and some hundred kilobytes that wait, and Python wants a little for itself."""


@pytest.mark.thorough
async def test_who_stops_reading_is_closed_for_its_silence_and_hurts_nobody(tmp_path: Path, figures: Figures) -> None:
    topics = [f"few/{number}" for number in range(FEW)]
    settings: dict[str, Any] = {"rate_packets": 0, "ping_interval": 1, "ping_timeout": SILENCE}
    async with (
        cluster(tmp_path, nodes=2, **settings) as stack,
        connect(stack.node_url(ELSEWHERE)) as session,
        healthy(stack, "few/*") as readers,
        stuck(f"{stack.url}?node={NODE}", "few/*") as clients,
        Watch(stack) as watch,
    ):
        publisher = Publisher(session, topics, size=VALUE, burst=FEW)
        await publisher.publish_until(lambda: publisher.rounds >= BASELINE)
        before, calm = watch.memory, taken(readers)
        watch.reset()

        for client in clients:
            await client.stop()
        stopped = publisher.rounds
        closing = asyncio.create_task(eventually(lambda: all_closed(watch, PING_TIMEOUT), "they are closed"))
        await publisher.publish_until(closing.done)
        await closing
        during = taken(readers)
        await publisher.publish_until(lambda: publisher.rounds >= stopped + 3 * BASELINE)

        owed = (publisher.rounds - stopped) * FEW * VALUE * STUCK
        growth = watch.memory - before
        assert owed > 5 * GROWTH, "an unbounded queue would not have been noticed"
        assert growth < GROWTH
        assert watch.kept <= (STUCK + HEALTHY) * (MEGABYTE + 2 * VALUE)
        assert watch.waiting <= (STUCK + HEALTHY) * FEW
        assert_not_delayed(calm, during)

        # They read what is left, come back, and are told.
        lost = 0
        for client in clients:
            client.note(await client.reader.rest())
            assert client.reader.close_code == PING_TIMEOUT.code
            lost += await come_back_after_a_gap(stack, client, topics, publisher)
        await eventually(lambda: all_at(readers, publisher.rounds), "all is read")
        assert [reader.skipped for reader in readers] == [0] * HEALTHY
        figures(
            f"{STUCK} clients stopped reading {FEW} topics at {FEW / PACE:.0f} updates/s; of {owed / MEGABYTE:.0f} MB "
            f"for them the node grew by {growth / MEGABYTE:.1f} MB from {before / MEGABYTE:.0f} MB, at most "
            f"{watch.waiting} packets waited; closed with {PING_TIMEOUT.code}; delays of {HEALTHY} others: before "
            f"{describe(calm)}, meanwhile {describe(during)}; back with current values, {lost} packets declared lost"
        )


async def come_back_after_a_gap(stack: Stack, client: Stuck, topics: Sequence[str], publisher: Publisher) -> int:
    """Resume a session whose buffers overflowed, and leave; returns how many packets were declared lost."""
    missed = sum(publisher.rounds - seen for seen in client.seen.values())
    async with RawClient(stack.node_url(NODE)) as back:
        welcome = await back.resume(client.token, attempt=1, received=client.reader.received, oldest=2)
        assert (welcome["outcome"], welcome["reason"]) == ("failed_over", "gap")
        lost: int = welcome["lost"]
        # Not more than there was to lose, and of each topic the update at least that the client had to be sent next.
        assert len(topics) <= lost <= missed
        snapshots = [await back.expect("update") for _ in topics]
        assert sorted(snapshot["topic"] for snapshot in snapshots) == sorted(topics)
        assert all(snapshot["snapshot"] for snapshot in snapshots)
        client.note(snapshots)
        assert set(client.seen.values()) == {publisher.rounds}
        await publisher.publish()
        client.note([await back.expect("update") for _ in topics])
        assert set(client.seen.values()) == {publisher.rounds}
        await back.send({"type": "bye"})
        await back.closed()
    return lost


def all_at(readers: Sequence[Healthy], number: int) -> bool:
    return all(set(each.rounds.values()) == {number} for each in readers)


async def all_closed(watch: Watch, code: CloseCode) -> bool:
    return await watch.closed(code) == STUCK


def assert_not_delayed(calm: Sequence[float], during: Sequence[float]) -> None:
    """Others wait no longer than before, but for the noise of a machine that has more to do than this test."""
    assert len(during) > len(calm) // 2
    assert statistics.median(during) < 2 * statistics.median(calm) + scaled(0.025)
    assert max(during) < max(calm) + SILENCE / 5, "somebody waited for a stuck client"


# --- Slow, and never closed -------------------------------------------------------------------------------------------

STOPS: Final = 4
"""Times that a client stops reading for a while."""
PATIENCE_TO_FOLD: Final = 60.0
"""Seconds within which a node must have filled the buffers of a client that does not read."""
LEFT_OUT: Final = 200
"""Updates left out for it before it reads on: a hole that nobody can overlook."""


async def test_every_jump_of_versions_on_a_connection_that_lasts_is_told_by_the_update(
    tmp_path: Path, figures: Figures
) -> None:
    """Reported: a slow reader got version 8611 after 7886, on an unbroken connection, without a word."""
    topics = [f"few/{number}" for number in range(FEW)]
    async with (
        cluster(tmp_path, nodes=2, rate_packets=0) as stack,
        connect(stack.node_url(ELSEWHERE)) as session,
        SlowReader(f"{stack.url}?node={NODE}") as reader,
    ):
        await reader.hello("slow")
        await reader.send({"id": 1, "request": 1, "type": "subscribe", "selector": "few/*"})
        assert (await reader.expect("reply"))["request"] == 1
        publisher = Publisher(session, topics, size=VALUE, burst=FEW)
        jumps = Jumps()

        async def left_out() -> int:
            return int((await stack.metrics(NODE)).get("gateway_conflated_updates_total", 0))

        for _ in range(STOPS):
            enough = await left_out() + LEFT_OUT

            async def has_enough(enough: int = enough) -> bool:
                return await left_out() >= enough

            folding = asyncio.create_task(eventually(has_enough, "updates are left out", within=PATIENCE_TO_FOLD))
            await publisher.publish_until(folding.done)
            await folding
            # Reads on until it has everything, acknowledging on the way.
            while any(jumps.last.get(topic, 0) < publisher.rounds for topic in topics):
                packet = await reader.receive()
                assert packet is not None, f"closed with {reader.close_code}"
                jumps.take_in(packet)
                if "id" in packet and packet["id"] % 16 == 0:
                    await reader.send({"type": "ack", "received": packet["id"]})

        assert jumps.unexplained == []
        assert jumps.folded >= STOPS * LEFT_OUT
        assert jumps.updates + jumps.folded == publisher.rounds * FEW

        async def is_counted() -> bool:
            return await left_out() == jumps.folded

        # Not asserted at once: who asks for metrics very often gets a page of a moment ago.
        await eventually(is_counted, "the metric says what the client was told")
        figures(
            f"a client stopped reading {STOPS} times: {jumps.updates} updates came and {jumps.folded} were told to be "
            f"left out, in {jumps.holes} holes of up to {jumps.widest}: all of {publisher.rounds * FEW}"
        )


class Jumps:
    """The account of a subscriber: what came, and what the marks explain.

    Attributes:
        last: the newest version by topic.
        unexplained: jumps that their update does not explain exactly.
    """

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.unexplained: list[str] = []
        self.updates = self.folded = self.holes = self.widest = 0

    def take_in(self, packet: Packet) -> None:
        if packet["type"] != "update":
            return
        topic, version, folded = packet["topic"], packet["version"], packet.get("folded", 0)
        last = self.last.get(topic, 0)
        if version != last + 1 + folded:
            self.unexplained.append(f"{topic}: {last} to {version}, {folded} folded")
        self.last[topic] = version
        self.updates += 1
        self.folded += folded
        self.holes += bool(folded)
        self.widest = max(self.widest, folded)


# --- Too much ---------------------------------------------------------------------------------------------------------

MANY: Final = 4000
"""Topics, each of which is updated once while a client does not read: 8 MB, about twice what kernels take."""
BRIEF: Final = 2000
BURST: Final = 100
"""Publishes at once: 2,000 updates and 4 MB a second, to each subscriber."""
WAITING: Final = 500
"""Packets that may wait: nothing against the updates of all topics."""
FLOOD: Final[dict[str, Any]] = {
    "rate_packets": 0,
    "limit_outbox_packets": WAITING,
    # So large that only the transport pushes back, and that what was meant for a closed client is kept for it.
    "limit_resend_packets": 4 * MANY,
    "limit_resend_bytes": 64 * MEGABYTE,
    # All of it is in one partition.
    "limit_partition_bytes": 64 * MEGABYTE,
}


@pytest.mark.thorough
async def test_who_cannot_be_spared_anything_is_closed_at_the_bound(tmp_path: Path, figures: Figures) -> None:
    topics = [f"many/{number}" for number in range(MANY)]
    async with (
        cluster(tmp_path, nodes=2, **FLOOD) as stack,
        connect(stack.node_url(ELSEWHERE)) as session,
        healthy(stack, "many/*") as readers,
        stuck(stack.node_url(NODE), "many/*") as clients,
        Watch(stack) as watch,
    ):
        publisher = Publisher(session, topics, size=BRIEF, burst=BURST)
        await publisher.publish()
        await eventually(lambda: all(set(each.seen.values()) == {1} for each in clients), "everybody is up to date")
        calm, before = taken(readers), watch.memory
        watch.reset()

        for client in clients:
            await client.stop()
        await publisher.publish()
        await eventually(lambda: all_at(readers, 2), "all is read")
        await eventually(lambda: all_closed(watch, SLOW_CONSUMER), "they are closed")
        during, growth = taken(readers), watch.memory - before
        assert [reader.skipped for reader in readers] == [0] * HEALTHY
        assert_not_delayed(calm, during)
        # What comes in one read may wait for a moment, also for those who are not slow.
        assert watch.waiting <= (STUCK + HEALTHY) * (WAITING + READ_ENTRIES)
        assert growth < 2 * MANY * BRIEF, "what is kept for several clients is kept once"

        resent = [await come_back_without_a_gap(stack, client, topics) for client in clients]
        figures(
            f"{STUCK} clients stopped reading while {MANY} topics were updated, {BURST / PACE:.0f} a second; closed "
            f"with {SLOW_CONSUMER.code}, at most {watch.waiting} packets waited, the node grew by "
            f"{growth / MEGABYTE:.1f} MB; delays of {HEALTHY} others: before {describe(calm)}, meanwhile "
            f"{describe(during)}; all reattached, {sum(resent)} updates resent, each update once"
        )


async def come_back_without_a_gap(stack: Stack, client: Stuck, topics: Sequence[str]) -> int:
    """Read what is left, reattach, and leave; returns how many packets were resent."""
    rest = await client.reader.rest()
    assert client.reader.close_code == SLOW_CONSUMER.code
    assert len(rest) < MANY
    async with RawClient(stack.node_url(NODE)) as back:
        welcome = await back.resume(client.token, attempt=1, received=client.reader.received, oldest=2)
        assert (welcome["outcome"], welcome["lost"], welcome["conflated"]) == ("reattached", 0, 0)
        resent: int = welcome["resent"]
        rest += [await back.receive() for _ in range(resent)]
        # Every update of the round once, in order, over two connections, and none as a snapshot.
        updates = [each for each in rest if each["type"] == "update" and each["value"]["round"] == 2]
        assert sorted(packet["topic"] for packet in updates) == sorted(topics)
        assert [packet["id"] for packet in updates] == list(range(updates[0]["id"], updates[0]["id"] + MANY))
        assert not any("snapshot" in packet for packet in updates)
        await back.send({"type": "bye"})
        await back.closed()
    return resent


# --- Answers ----------------------------------------------------------------------------------------------------------

ASKED: Final = 4000
"""Publishes of a client that never reads an answer."""
TOGETHER: Final = 100
ASKING: Final = "asked/count"


@pytest.mark.promise("P5")
async def test_who_never_reads_answers_is_closed_too_and_is_answered_when_it_asks_again(
    tmp_path: Path, figures: Figures
) -> None:
    """Answers take no other's place either; and what was executed before the close is not executed again (P5)."""
    settings: dict[str, Any] = {"rate_packets": 0, "limit_outbox_packets": WAITING}
    async with (
        cluster(tmp_path, nodes=2, **settings) as stack,
        GridReader(stack.grid_url) as grid,
        SlowReader(stack.node_url(NODE)) as deaf,
        Watch(stack) as watch,
    ):
        welcome = await deaf.hello("deaf")
        with suppress(ConnectionError):
            for first in range(1, ASKED, TOGETHER):
                await deaf.send(*(ask(number, number) for number in range(first, first + TOGETHER)))
        await eventually(lambda: closed_one(watch), "it is closed")
        executed = len(await grid.log(ASKING))
        assert WAITING < executed < ASKED
        assert watch.waiting <= WAITING + 2 * READ_ENTRIES
        await deaf.rest()
        assert deaf.close_code == SLOW_CONSUMER.code

        async with RawClient(stack.node_url(NODE)) as back:
            again = await back.resume(welcome["token"], attempt=1, received=deaf.received, oldest=1)
            assert (again["outcome"], again["reason"]) == ("failed_over", "gap")
            assert again["lost"] > 0
            replies: list[Packet] = []
            for first in range(1, ASKED, TOGETHER):
                requests = range(first, first + TOGETHER)
                await back.send(
                    *(ask(number, number, received=len(replies), resubmitted=True) for number in requests),
                )
                replies += [await back.expect("reply") for _ in requests]
            await back.send({"type": "bye"})
            await back.closed()
        log = await grid.log(ASKING)
        assert [entry.value for entry in log] == list(range(1, ASKED + 1))
        assert [(reply["request"], reply["event"]) for reply in replies] == [(each.value, each.event) for each in log]
        figures(
            f"a client published and never read: closed with {SLOW_CONSUMER.code} after {executed} publishes; all "
            f"{ASKED} asked again, each in the grid once and answered as it was executed; {again['lost']} packets "
            f"lost, declared"
        )


def ask(number: int, request: int, **fields: Any) -> Packet:
    return {"id": number, "request": request, "type": "publish", "topic": ASKING, "value": request, **fields}


async def closed_one(watch: Watch) -> bool:
    return await watch.closed(SLOW_CONSUMER) == 1
