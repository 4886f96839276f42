"""What is replayed to a session and what it is sent live meet without a hole and without a repeat (P13)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gateway.app.delivery import read_barrier, recent_entries
from gateway.app.delivery.replay import gathering, replays
from gateway.app.delivery.replay.replay import Replay
from gateway.app.session.session import Session
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import TOPIC_PARTITIONS, topic_partition
from gateway.core.types import EventId, TopicPath
from gateway.ports import TailBatch
from tests.support.delivery import GENERATION, DeliveryBench, Reader

ROOTS: Final = ("p", "q")
NAMES: Final = (*"uvwxyz", *map(str, range(20)))
SELECTORS: Final = ("p/*", "q/*", "p/x", "**", "q/y", "*/z")
STEP: Final = 0.0005
"""Seconds of a look at the clock, so that a batch is applied by halves and matching takes several turns."""
RECENT: Final = 8
"""Entries of what its tail brought that a partition keeps, so that streams are read again."""

PARTITIONS: Final = {root: topic_partition(TopicPath(f"{root}/x"), 1) for root in ROOTS}

steps = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(ROOTS), st.lists(st.sampled_from(NAMES), min_size=1, max_size=30)),
    st.tuples(
        st.just("publish late"), st.sampled_from(ROOTS), st.lists(st.sampled_from(NAMES), min_size=1, max_size=9)
    ),
    st.tuples(st.just("bring"), st.none(), st.none()),
    st.tuples(st.just("turns"), st.integers(1, 6), st.none()),
    st.tuples(
        st.sampled_from(["come back", "come from elsewhere"]),
        st.lists(st.sampled_from(SELECTORS), min_size=1, max_size=3, unique=True),
        st.fixed_dictionaries({root: st.integers(0, 60) for root in ROOTS}),
    ),
    st.tuples(st.just("read"), st.none(), st.none()),
)


class Returning:
    """A session that comes back, and what it was promised.

    Args:
        bench: where.
        selectors: what it selects.
        back: by root, how many events before the end of the stream its client was.
        elsewhere: whether another node has served it, which may have shown all that the grid has.
    """

    def __init__(
        self, bench: DeliveryBench, selectors: Sequence[str], back: Mapping[str, int], *, elsewhere: bool = False
    ) -> None:
        self._bench = bench
        self.reader = Reader()
        self.reader.room = False  # what comes waits, and must not be folded for that
        self.session = bench.session()
        self.session.selections = _selections(selectors)
        # Who was here has not seen what is not here yet.
        ends = {number: len(bench.grid.streams[number]) for number in PARTITIONS.values()}
        self.seen: dict[TopicPath, int] = {}
        if elsewhere:
            self.session.elsewhere_until = bench.clock.monotonic()
            for number in ends:
                self.seen |= {topic: value.version for topic, value in bench.grid.values_of[number].items()}
        else:
            ends = {number: min(end, _applied(bench, number, end)) for number, end in ends.items()}
        self.places = {PARTITIONS[root]: max(0, ends[PARTITIONS[root]] - back[root]) for root in ROOTS}
        self.replay: Replay | None = None
        self._coming = asyncio.create_task(self._come_back())

    async def _come_back(self) -> None:
        """Do what the ladder does, from the resume to the turn in which the session goes on."""
        places = dict.fromkeys(range(TOPIC_PARTITIONS), 0) | self.places
        positions = {each: EventId(f"{each}-{GENERATION}-{place}") for each, place in places.items()}
        delivery = self._bench.delivery
        replay = await delivery.replays.collect(self.session, positions)
        delivery.replays.settle(replay)
        self.session.connection = self.reader  # type: ignore[assignment]
        delivery.replay(self.session, replay, {})
        self.replay = replay
        if not replay.packets():
            self.reader.room = True  # nothing is promised of what waits

    async def judge(self) -> Replay:
        """Let it read all there is, and compare."""
        await self._coming
        assert self.replay is not None
        await self._bench.all_sent(self.session, self.reader)
        came: defaultdict[int, list[tuple[int, bool, int]]] = defaultdict(list)
        for _, update in self.reader.updates:
            number, _, sequence = map(int, update.event.split("-"))
            came[number].append((sequence, update.snapshot, update.folded))
            if update.snapshot:
                assert update.version >= self.seen.get(TopicPath(update.topic), 0), "older than what it has seen"
        for number, place in self.places.items():
            owed = [
                sequence
                for sequence, value in enumerate(self._bench.grid.streams[number], 1)
                if sequence > place and self.session.selections.selects(value.topic)
            ]
            if number not in self.replay.refused:
                assert came[number] == [(each, False, 0) for each in owed]
            else:
                self._judge_values(number)
        return self.replay

    def _judge_values(self, number: int) -> None:
        """Of what is not replayed it has the current values, and no version goes back."""
        versions: defaultdict[str, list[int]] = defaultdict(list)
        for _, update in self.reader.updates:
            if topic_partition(TopicPath(update.topic), 1) == number:
                versions[update.topic].append(update.version)
        assert all(each == sorted(set(each)) for each in versions.values())
        assert {topic: each[-1] for topic, each in versions.items()} == {
            topic: value.version
            for topic, value in self._bench.grid.values_of[number].items()
            if self.session.selections.selects(topic)
        }


def _applied(bench: DeliveryBench, number: int, otherwise: int) -> int:
    """Tell up to where a node has sent what the stream of a partition brought, half a batch included."""
    partition = bench.delivery.replicas.whole(number)
    if partition is None:
        return otherwise
    place = partition.handed_out
    assert place is not None
    return place.sequence


def _selections(selectors: Sequence[str]) -> Selections:
    selections = Selections([])
    for each in selectors:
        selections = selections.select(parse_selector(each))
    return selections


class Walk:
    """A node, streams that go on, and sessions that come back."""

    def __init__(self, kept: int) -> None:
        self.bench = DeliveryBench(step=STEP)
        self.bench.grid.kept = kept
        self.returning: list[Returning] = []
        self.late: list[TailBatch] = []

    async def hold(self) -> Session:
        """Have the node follow both streams already."""
        session = self.bench.session()
        await self.bench.subscribe(session, "**")
        return session

    def publish(self, root: str, names: Sequence[str], *, late: bool = False) -> None:
        """Publish, and bring it by the stream if that is followed: at once, behind what is late, or later."""
        number = PARTITIONS[root]
        follows = self.bench.delivery.replicas.get(number) is not None and number in self.bench.grid.follows
        batch = self.bench.grid.publish([f"{root}/{name}" for name in names])
        if follows:
            self.late.append(batch)
        if not late:
            self.bring()

    def bring(self) -> None:
        """Bring what is late."""
        batches, self.late = self.late, []
        for batch in batches:
            self.bench.delivery.replicas.take_in(batch, lambda: None)

    async def step(self, what: str, how: object, more: object) -> None:
        match what, how, more:
            case "publish", str(), list():
                self.publish(how, more)
            case "publish late", str(), list():
                self.publish(how, more, late=True)
            case "bring", _, _:
                self.bring()
            case "turns", int(), _:
                await self.bench.turns(how)
            case "come back" | "come from elsewhere", list(), dict():
                self.returning.append(Returning(self.bench, how, more, elsewhere=what == "come from elsewhere"))
                await self.bench.turns()
            case _:
                for each in self.returning:
                    if each.replay is not None:
                        await self.bench.all_sent(each.session, each.reader)

    async def end(self) -> list[Replay]:
        self.bring()
        found = [await each.judge() for each in self.returning]
        assert not self.bench.failures
        assert not self.bench.too_slow
        await self.bench.close()
        return found


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_entries, "RECENT_ENTRIES", RECENT)
    monkeypatch.setattr(read_barrier, "REST", 0.0)
    monkeypatch.setattr(gathering, "GATHER", 0.0)
    monkeypatch.setattr(replays, "PATIENCE", 1e6)  # by a clock that goes with each look at it
    monkeypatch.setattr(gathering, "LONGEST_REST", 0.0)


@pytest.mark.promise("P13")
@given(st.booleans(), st.sampled_from([30, 1_000_000]), st.lists(steps, min_size=5, max_size=40))
async def test_every_update_comes_once_whenever_and_from_wherever_a_session_comes_back(
    follows: bool,
    kept: int,
    walk: list[tuple[str, object, object]],
) -> None:
    one = Walk(kept)
    for root in ROOTS:
        one.publish(root, NAMES)
    if follows:
        await one.hold()
    for what, how, more in walk:
        await one.step(what, how, more)
    for replay in await one.end():
        event("whole" if replay.is_whole else "refused", str(sorted(replay.refused.values())))
        event("something was missed" if replay.packets() else "nothing was missed")
    event(f"streams read again: {one.bench.grid.reads > 0}")
    event(f"ends asked for: {one.bench.delivery.barrier.asked > 0}")


@pytest.mark.promise("P13")
async def test_a_session_that_comes_back_in_the_middle_of_a_batch_gets_both_halves() -> None:
    """A property that never met the seam would prove nothing."""
    one = Walk(kept=1_000)
    await one.hold()
    one.publish("p", [f"new-{number}" for number in range(60)])  # each has to be looked up, which takes several turns
    partition = one.bench.partition("p/x")
    assert partition.queue is not None
    halves = 0
    while partition.position.sequence < 60:
        applied = len(partition.queue.applied())
        if 0 < applied < 60:
            halves += 1
            one.returning.append(Returning(one.bench, ["p/*"], {"p": 60, "q": 0}))
        await one.bench.turns()

    replays_of = await one.end()

    assert halves
    assert [(each.refused, bool(each.packets())) for each in replays_of] == [({}, True)] * halves
