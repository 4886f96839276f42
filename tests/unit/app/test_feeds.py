"""However many sessions want values together, a turn of the loop has a bounded share of the work (P9, P20)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from gateway.adapters.memory import MemoryMetrics
from gateway.app.delivery.feeds.feeds import FEED_SECONDS, FEEDS_SECONDS, MOST_FEEDS, Feeds
from gateway.app.delivery.partition import Partition
from gateway.app.session.session import Session
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.types import PacketId, RequestNumber, TopicPath
from tests.support.machines import PARAMETERS, PLENTY, opened

pytestmark = pytest.mark.promise("P20")

PORTION = 10
TOPIC_SECONDS = FEED_SECONDS / PORTION
ROOMY = replace(PARAMETERS, resend_packets=1_000, resend_bytes=100_000)


class Reader:
    """A session as far as feeds know it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.machine: SessionMachine = opened(parameters=ROOMY)
        self.connection: object | None = self
        self.asked_in: int | None = None
        self.done_in: int | None = None


class World:
    """Sessions that are fed; looking at a topic takes time on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turn = 0
        self.looked_at: list[tuple[int, str]] = []
        self.failures: list[Exception] = []
        self.written: dict[Reader, None] = {}
        self.waiting: list[Session] = []
        self.feeds = Feeds(
            cast("Any", self), MemoryMetrics(), write=self._write, wait=self.waiting.append, failed=self._fail
        )
        self._count = asyncio.create_task(self._count_turns())

    def monotonic(self) -> float:
        return self.now

    async def _count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    def _write(self, session: Session) -> None:
        reader = cast("Reader", session)
        if not self.written:
            asyncio.get_running_loop().call_soon(self._flush)
        self.written[reader] = None

    def _fail(self, _: Session, bug: Exception) -> None:
        self.failures.append(bug)

    def _flush(self) -> None:
        written, self.written = self.written, {}
        for reader in written:
            if reader.connection is not None:
                self.flush(reader)

    def flush(self, reader: Reader, room: int = PLENTY) -> None:
        """Do what the flusher does; the client acknowledges what it reads."""
        reader.machine.flush(room)
        if room:
            reader.machine.receive_ack(reader.machine.last_numbered, 0.0)
        self.feeds.flushed(cast("Session", reader))

    def ask(self, reader: Reader, topics: int, **how: Any) -> Values:
        """Have a session sent so many values."""
        reader.asked_in = self.turn
        feed = Values(self, reader, topics, **how)
        self.feeds.add(cast("Session", reader), feed)
        return feed

    async def turns_until(self, reader: Reader) -> int:
        """Wait until a reader has all; returns for how many turns of the loop that took."""
        while reader.done_in is None:  # noqa: ASYNC110 - it is the turns that count
            await asyncio.sleep(0)
        assert reader.asked_in is not None
        return reader.done_in - reader.asked_in

    def most_in_a_turn(self) -> float:
        """Seconds of work in the turn that had most of it."""
        return max(Counter(turn for turn, _ in self.looked_at).values()) * TOPIC_SECONDS

    def of(self, reader: Reader) -> int:
        return Counter(name for _, name in self.looked_at)[reader.name]

    def close(self) -> None:
        self._count.cancel()


class Values:
    """A feed of so many values."""

    def __init__(self, world: World, reader: Reader, topics: int, *, each: str = "t", fails_at: int = -1) -> None:
        self._world = world
        self._reader = reader
        self.left = topics
        self._each = each
        self._fails_at = fails_at

    @property
    def is_done(self) -> bool:
        return not self.left

    @property
    def subscribe(self) -> tuple[RequestNumber, str] | None:
        return None

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset()

    def pull(self, until: float, *, packets: int, size: int) -> Sequence[Run]:
        portion: list[Run] = []
        while self.left and len(portion) < min(PORTION, packets) and size > 0:
            if self.left == self._fails_at:
                raise ArithmeticError(self.left)
            self._world.now += TOPIC_SECONDS
            self._world.looked_at.append((self._world.turn, self._reader.name))
            portion.append(Run.of(Outgoing(f"{self._each}{self.left}", b'"n":1}')))
            self.left -= 1
            if self._world.now >= until:
                break
        if not self.left:
            self._reader.done_in = self._world.turn
        return portion

    def owes(self, partition: Partition, topic: TopicPath) -> bool:
        return topic[0] == self._each and int(topic[1:]) <= self.left


def readers(count: int) -> list[Reader]:
    return [Reader(f"s{number}") for number in range(count)]


async def test_many_feeds_share_each_turn_and_end_together() -> None:
    world = World()
    crowd = readers(40)
    for each in crowd:
        world.ask(each, 100)
    for each in crowd:
        await world.turns_until(each)
    world.close()
    assert len(world.looked_at) == 4_000
    assert world.most_in_a_turn() <= FEEDS_SECONDS + 2 * FEED_SECONDS
    # They take turns: while all have something to do, nobody is ahead by more than what one may do at once, twice.
    done: Counter[str] = Counter()
    for _, name in world.looked_at[: 40 * 90]:
        done[name] += 1
    assert max(done.values()) - min(done.values()) <= 2 * 10


async def test_one_alone_is_not_kept_waiting() -> None:
    world = World()
    one, two, three = readers(3)
    world.ask(one, 3)
    world.ask(two, 3)
    assert await world.turns_until(one) == await world.turns_until(two) == 0
    world.ask(three, 99)
    took = await world.turns_until(three)
    world.close()
    # A portion each time, and a turn until it has gone out.
    assert took <= 2 * 10 + 2


async def test_a_small_one_does_not_wait_for_the_end_of_large_ones() -> None:
    world = World()
    crowd, small = readers(10), Reader("small")
    for each in crowd:
        world.ask(each, 1_000)
    for _ in range(20):
        await asyncio.sleep(0)
    world.ask(small, 1)
    assert await world.turns_until(small) <= len(crowd) + 3
    assert all(each.done_in is None for each in crowd)
    for each in crowd:
        await world.turns_until(each)
    world.close()


async def test_small_ones_without_end_do_not_keep_a_large_one_from_its_turns() -> None:
    world = World()
    large = Reader("large")
    world.ask(large, 200)
    crowd: list[Reader] = []
    for number in range(60):
        some = [Reader(f"small{number}.{at}") for at in range(20)]
        for each in some:
            world.ask(each, 3)
        crowd += some
        await asyncio.sleep(0)
    assert world.of(large) >= 20
    for each in (large, *crowd):
        await world.turns_until(each)
    world.close()
    assert world.most_in_a_turn() <= FEEDS_SECONDS + 2 * FEED_SECONDS


async def test_who_leaves_while_it_waits_holds_nobody_up() -> None:
    world = World()
    crowd = readers(10)
    for each in crowd:
        world.ask(each, 99)
    for _ in range(5):
        await asyncio.sleep(0)
    for each in crowd[:9]:
        world.feeds.drop(cast("Session", each))
    assert await world.turns_until(crowd[9]) > 0
    await asyncio.sleep(0)
    world.close()
    assert not len(world.feeds)
    assert world.of(crowd[9]) == 99


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.promise("P9")
async def test_a_reader_that_takes_nothing_has_one_portion_and_its_feed_stands_still() -> None:
    world = World()
    slow = Reader("slow")
    world.flush = lambda reader, room=0: World.flush(world, reader, room)  # type: ignore[method-assign]
    feed = world.ask(slow, 99)
    await settled()
    assert (slow.machine.waiting, feed.left) == (PORTION, 99 - PORTION)
    assert world.feeds.waiting(cast("Session", slow)) == (PORTION, PORTION * len(b'"n":1}'))

    World.flush(world, slow, PLENTY)
    await settled()
    assert (slow.machine.waiting, feed.left) == (PORTION, 99 - 2 * PORTION)
    world.close()


@pytest.mark.promise("P9")
async def test_half_of_what_is_kept_for_a_client_is_left_for_updates() -> None:
    """Else the first update would cost it the reattach, if it left now."""
    world = World()
    reader = Reader("reader")
    session = cast("Session", reader)
    reader.machine = opened(parameters=replace(PARAMETERS, resend_packets=30))

    def flush_without_acknowledgement(reader: Reader, _: int = PLENTY) -> None:
        reader.machine.flush(PLENTY)
        world.feeds.flushed(cast("Session", reader))

    world.flush = flush_without_acknowledgement  # type: ignore[assignment, method-assign]
    feed = world.ask(reader, 99)
    await settled()
    assert (reader.machine.unacknowledged, feed.left) == (15, 84)
    assert world.waiting == [session], "it is looked at again"

    reader.machine.receive_ack(PacketId(6), 0.0)
    world.feeds.flushed(session)
    await settled()
    assert (reader.machine.unacknowledged, feed.left) == (15, 78)

    # Updates take more than half: the feed has a share of what is acknowledged.
    reader.machine.submit_run(Run.of(*[Outgoing(None, b'"n":1}')] * 12))
    reader.machine.flush(PLENTY)
    reader.machine.receive_ack(PacketId(14), 0.0)
    world.feeds.flushed(session)
    await settled()
    assert feed.left == 78 - (14 - 6) // 2
    reader.machine.detach()
    assert reader.machine.discarded == 0
    world.close()


async def test_what_waits_besides_keeps_its_place_and_does_not_hold_the_feed_up_for_ever() -> None:
    """A slow reader of busy topics always has something waiting; its feed gets on all the same."""
    world = World()
    slow = Reader("slow")
    world.flush = lambda reader, room=0: World.flush(world, reader, room)  # type: ignore[method-assign]
    feed = world.ask(slow, 30)
    for round_ in range(100):
        await settled()
        slow.machine.submit_run(Run.of(Outgoing("busy", b'"n":%d}' % round_)))
        slow.machine.flush(1)
        slow.machine.receive_ack(slow.machine.last_numbered, 0.0)
        world.feeds.flushed(cast("Session", slow))
        assert slow.machine.waiting
        if feed.is_done:
            break
    assert feed.is_done
    world.close()


async def test_a_portion_of_which_some_was_withheld_does_not_hold_the_feed_up() -> None:
    world = World()
    reader = Reader("reader")
    world.flush = lambda reader, room=0: World.flush(world, reader, room)  # type: ignore[method-assign]
    feed = world.ask(reader, 3 * PORTION)
    await settled()
    reader.machine.withhold(lambda _: True)
    World.flush(world, reader, PLENTY)
    await settled()
    assert feed.left == PORTION
    world.close()


async def test_the_feed_of_an_absent_client_goes_on_when_it_is_back() -> None:
    world = World()
    reader = Reader("reader")
    feed = world.ask(reader, 99)
    reader.connection = None
    reader.machine.detach()
    await settled()
    left = feed.left
    assert left == 99 - PORTION

    held = reader.machine.last_numbered
    reader.machine.resume()
    reader.machine.reattach(received=PacketId(held), now=0.0)
    reader.connection = reader
    world.flush(reader)
    await world.turns_until(reader)
    world.close()


async def test_feeds_of_a_session_come_one_after_the_other() -> None:
    world = World()
    reader = Reader("reader")
    first, second = world.ask(reader, 30, each="a"), world.ask(reader, 30, each="b")
    session, partition = cast("Session", reader), Partition(0)
    assert world.feeds.owes(session, partition, TopicPath("a1"))
    assert world.feeds.owes(session, partition, TopicPath("b30"))
    assert not world.feeds.owes(session, partition, TopicPath("a30")), "it has just been handed in"
    while not second.is_done:
        assert first.is_done or second.left == 30
        await asyncio.sleep(0)
    await settled()
    assert session not in world.feeds
    world.close()


async def test_a_session_with_many_feeds_waits_before_its_next_one() -> None:
    world = World()
    reader = Reader("reader")
    session = cast("Session", reader)
    await world.feeds.room(session)
    for _ in range(MOST_FEEDS):
        world.ask(reader, 30)
    waiting = asyncio.create_task(world.feeds.room(session))
    await asyncio.sleep(0)
    assert not waiting.done()
    await waiting
    for _ in range(MOST_FEEDS):
        world.ask(reader, 30)
    leaving = asyncio.create_task(world.feeds.room(session))
    await asyncio.sleep(0)
    world.feeds.drop(session)
    await leaving
    world.close()


async def test_a_bug_in_a_feed_is_that_session_s_alone() -> None:
    world = World()
    broken, whole = readers(2)
    world.ask(broken, 30, fails_at=20)
    world.ask(whole, 30)
    await world.turns_until(whole)
    assert [str(each) for each in world.failures] == ["20"]
    assert cast("Session", broken) not in world.feeds
    world.close()


async def test_sessions_are_parted_into_the_same_objects_while_nothing_changes() -> None:
    world = World()
    sessions = cast("tuple[Session, ...]", tuple(readers(3)))
    assert world.feeds.part(sessions) == (sessions, ())
    assert world.feeds.part(sessions)[0] is sessions

    world.ask(cast("Reader", sessions[1]), 99)
    parted = world.feeds.part(sessions)
    assert parted == ((sessions[0], sessions[2]), (sessions[1],))
    assert all(one is other for one, other in zip(parted, world.feeds.part(sessions), strict=True))

    world.feeds.drop(sessions[1])
    assert world.feeds.part(sessions) == (sessions, ())
    world.close()


async def test_a_feed_that_has_nothing_is_none() -> None:
    world = World()
    reader = Reader("reader")
    world.ask(reader, 0)
    assert cast("Session", reader) not in world.feeds
    world.close()
