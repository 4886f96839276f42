"""Topics that take long to be matched keep others waiting for a portion, and other partitions for nothing (P20)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.app.delivery import matching
from gateway.app.delivery.matching import (
    MATCHING_SECONDS,
    QUEUE_BYTES,
    QUEUE_SECONDS,
    QUEUE_VALUES,
    MatchingQueue,
    MatchingQueues,
)
from gateway.app.delivery.partition import Partition
from gateway.app.delivery.replicas import Change, Replicas
from gateway.core.topics.selection_index import SelectionIndex
from gateway.core.topics.selections import Selections
from gateway.core.types import EventId, GridGeneration, TopicPath, Version
from gateway.ports import StreamPosition, TailBatch, TopicStore, TopicTail, TopicValue
from tests.support.clock import eventually
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P20")

PORTION = 5
"""Topics that are looked up until others get their turn, if each takes as long as here."""

FEW_TURNS = 3
"""In which an update comes, whatever is published in other partitions."""


class SlowIndex(SelectionIndex[str]):
    """Takes time for each topic that it does not know; it passes on a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.looked_up: list[str] = []

    def match(self, topic: TopicPath) -> tuple[str, ...]:
        if not self.knows(topic):
            self.now += MATCHING_SECONDS / PORTION * 1.001
            self.looked_up.append(topic)
        return super().match(topic)

    def monotonic(self) -> float:
        return self.now


class Store:
    """A grid whose partitions have some values, a page each; what a stream brings it knows once given back."""

    def __init__(self, values: Mapping[int, Sequence[TopicValue]]) -> None:
        self.pages = values
        self.restored: dict[TopicPath, TopicValue] = {}

    async def position(self, partition: int) -> StreamPosition:
        return StreamPosition(GridGeneration(1), 0)

    async def values(self, partition: int) -> AsyncIterator[Sequence[TopicValue]]:
        if partition in self.pages:
            yield self.pages[partition]

    async def restore(self, values: Sequence[TopicValue]) -> int:
        self.restored |= {value.topic: value._replace(version=Version(value.version + 2)) for value in values}
        return len(values)

    async def read(self, topics: Sequence[TopicPath]) -> list[TopicValue | None]:
        return [self.restored.get(topic) for topic in topics]


class Tail:
    """What was asked of it."""

    def __init__(self) -> None:
        self.paused: set[int] = set()
        self.pauses = 0
        self.follows = 0

    def follow(self, partition: int, position: StreamPosition) -> None:
        self.follows += 1
        self.paused.discard(partition)

    def unfollow(self, partition: int) -> None:
        self.paused.discard(partition)

    def pause(self, partition: int) -> None:
        assert partition not in self.paused
        self.paused.add(partition)
        self.pauses += 1

    def resume(self, partition: int) -> None:
        assert partition in self.paused
        self.paused.remove(partition)


class World:
    """Copies of partitions, and what they tell of changes, with the turn of the loop in which they did.

    Attributes:
        failures: of the tasks that read partitions, in any world: raised there, nobody would hear of them.
    """

    failures: ClassVar[list[Exception]] = []

    def __init__(self, values: Mapping[int, Sequence[TopicValue]] | None = None) -> None:
        self.index = SlowIndex()
        self.index.set("ann", Selections.from_wire(("+*/**",)))
        self.turn = 0
        self.told: list[tuple[int, list[str]]] = []
        self.after_second: Callable[[], object] = lambda: None
        self.done: list[TailBatch] = []
        self.lost: list[tuple[int, Exception]] = []
        self.fails_at = ""
        self.tail = Tail()
        self.queues = MatchingQueues(self.index, cast("Any", self.index))
        self.replicas = Replicas(
            cast("TopicStore", Store(values or {})),
            cast("TopicTail", self.tail),
            queues=self.queues,
            changed=self._changed,
            failed=self.failures.append,
            lost=lambda partition, bug: self.lost.append((partition, bug)),
        )

    def _changed(self, _: Partition, changes: Sequence[Change]) -> None:
        assert all(self.index.knows(value.topic) for value, _ in changes), "nothing is looked up while it is sent"
        topics: list[str] = [value.topic for value, _ in changes]
        if self.fails_at in topics:
            raise ArithmeticError(self.fails_at)
        self.told.append((self.turn, topics))
        if len(self.told) == 2:
            self.after_second()

    def take_in(self, batch: TailBatch) -> None:
        self.replicas.take_in(batch, lambda: self.done.append(batch))

    async def all_applied(self) -> None:
        while self.queues:  # noqa: ASYNC110 - it is the turns that count
            await asyncio.sleep(0)

    async def turns_pass(self, count: int) -> None:
        end = self.turn + count
        while self.turn < end:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    @property
    def topics(self) -> list[str]:
        return [topic for _, topics in self.told for topic in topics]

    @property
    def turns(self) -> list[int]:
        return [turn for turn, _ in self.told]

    def turn_of(self, topic: str) -> int:
        return next(turn for turn, topics in self.told if topic in topics)

    def topics_of(self, root: str) -> list[str]:
        return [topic for topic in self.topics if topic.startswith(f"{root}/")]


@pytest.fixture(autouse=True)
def no_partition_could_not_be_read() -> Iterator[None]:
    World.failures.clear()
    yield
    assert not World.failures


def value(number: int, version: int = 1, root: str = "a", text: bytes = b"1") -> TopicValue:
    return TopicValue(TopicPath(f"{root}/{number}"), Version(version), EventId(f"0-1-{version * 10**6 + number}"), text)


def batch(values: Sequence[TopicValue], partition: int = 0) -> TailBatch:
    return TailBatch(partition, tuple(values), StreamPosition(GridGeneration(1), 1))


def crowd(partition: int, count: int, start: int = 0) -> TailBatch:
    """Make a batch of topics that nobody has seen, each of which takes a fifth of a turn."""
    return batch([value(number, root=f"crowd{partition}") for number in range(start, start + count)], partition)


async def followed(world: World, partitions: Sequence[int] = (0,)) -> asyncio.Task[None]:
    world.replicas.hold(partitions)
    await world.replicas.complete(partitions)
    return asyncio.create_task(world.count_turns())


# --- Others of the node -----------------------------------------------------------------------------------------------


async def test_others_get_their_turn_while_new_topics_are_matched() -> None:
    world = World()
    turns = await followed(world)
    world.take_in(batch([value(number) for number in range(52)]))
    await world.all_applied()
    turns.cancel()
    assert world.topics == [f"a/{number}" for number in range(52)], "all, in order"
    assert len(set(world.turns)) == len(world.told) == 11
    assert max(len(topics) for _, topics in world.told) == PORTION
    assert len(world.done) == 1


async def test_what_is_known_comes_in_one_piece_however_much_it_is() -> None:
    world = World()
    turns = await followed(world)
    world.take_in(batch([value(number) for number in range(20)]))
    await world.all_applied()
    world.told.clear()
    world.index.looked_up.clear()
    world.take_in(batch([value(number % 20, 2 + number // 20) for number in range(2_000)]))
    turns.cancel()
    assert len(world.told) == 1, "without waiting"
    assert world.index.looked_up == []


async def test_many_small_batches_add_up() -> None:
    """A reader of the grid may hand over dozens of them without a pause."""
    world = World()
    turns = await followed(world)
    for number in range(4 * PORTION):
        world.take_in(batch([value(number)]))
    await world.all_applied()
    turns.cancel()
    assert [world.turns.count(turn) for turn in sorted(set(world.turns))] == [PORTION] * 4
    assert len(world.done) == 4 * PORTION


async def test_a_place_without_values_has_its_turn_behind_what_waits() -> None:
    """Another program may append to a stream what is skipped; whoever waits for that place must not wait for ever."""
    world = World()
    turns = await followed(world)
    first = TailBatch(0, tuple(value(number) for number in range(2 * PORTION)), at(2 * PORTION))
    places = [TailBatch(0, (), at(2 * PORTION + more)) for more in (1, 2)]
    last = TailBatch(0, (value(2 * PORTION),), at(2 * PORTION + 3))
    for each in (first, *places):
        world.take_in(each)
    assert world.done == []
    await world.all_applied()
    assert world.done == [first, *places]
    world.take_in(last)
    await world.all_applied()
    assert world.topics == [f"a/{number}" for number in range(2 * PORTION + 1)]
    nothing = TailBatch(0, (), at(2 * PORTION + 4))
    world.take_in(nothing)
    turns.cancel()
    assert world.done == [first, *places, last, nothing], "at once, as nothing waits"
    async with time_limit():
        await world.replicas.reach(0, nothing.position)


async def test_values_read_from_the_grid_are_matched_in_portions_as_well() -> None:
    world = World({0: [value(number) for number in range(22)]})
    turns = asyncio.create_task(world.count_turns())
    world.replicas.hold([0])
    await world.replicas.complete([0])
    turns.cancel()
    assert world.topics == [f"a/{number}" for number in range(22)]
    assert len(set(world.turns)) == 5


async def test_partitions_that_are_read_together_share_each_turn() -> None:
    """A node that gains interest in everything reads all partitions at once."""
    world = World({number: crowd(number, 20).values for number in range(8)})
    turns = asyncio.create_task(world.count_turns())
    world.replicas.hold(range(8))
    await world.replicas.complete(range(8))
    turns.cancel()
    in_each_turn: defaultdict[int, int] = defaultdict(int)
    for turn, topics in world.told:
        in_each_turn[turn] += len(topics)
    assert sum(in_each_turn.values()) == 160
    assert max(in_each_turn.values()) <= PORTION + 1
    ends = [world.turn_of(f"crowd{number}/19") for number in range(8)]
    assert max(ends) - min(ends) <= 8, "nobody has to wait for all others"


@pytest.mark.parametrize("anew", [False, True], ids=["given-up", "read-anew"])
async def test_nothing_old_comes_after_the_partition_was_left(anew: bool) -> None:
    """A topic of the rest may have been removed since then: it must not come back."""
    world = World()
    turns = await followed(world)
    leave = (lambda: world.replicas.read_again(0)) if anew else (lambda: world.replicas.release([0]))
    world.after_second = lambda: asyncio.get_running_loop().call_soon(leave)
    world.take_in(batch([value(number) for number in range(50)]))
    world.take_in(batch([value(number) for number in range(50, 60)]))
    await world.all_applied()
    await world.turns_pass(20)
    turns.cancel()
    assert PORTION <= len(world.topics) <= 4 * PORTION
    assert world.done == []


async def test_what_is_looked_up_again_after_a_pause_does_not_add_up() -> None:
    """A client of this node may select something new all the time, so that what was resolved is forgotten."""
    world = World()
    turns = await followed(world)

    async def select() -> None:
        for number in range(1_000):
            world.index.set("bob", Selections.from_wire((f"+*/x{number}/**",)))
            await asyncio.sleep(0)

    selecting = asyncio.create_task(select())
    world.take_in(batch([value(number) for number in range(50)]))
    await world.all_applied()
    turns.cancel()
    selecting.cancel()
    assert max(len(topics) for _, topics in world.told) == PORTION
    assert world.topics == [f"a/{number}" for number in range(50)]


# --- Other partitions -------------------------------------------------------------------------------------------------


async def test_a_known_topic_does_not_wait_for_new_topics_of_another_partition() -> None:
    world = World()
    turns = await followed(world, [0, 1])
    world.take_in(batch([value(1, root="b")], 1))
    world.take_in(crowd(0, 1_000))
    asked = world.turn
    world.take_in(batch([value(1, 2, root="b")], 1))
    assert world.turn_of("b/1") <= asked
    assert world.topics.count("b/1") == 2, "it has come already"
    await world.all_applied()
    turns.cancel()
    assert len(world.topics) == 1_002


@pytest.mark.parametrize("crowds", [1, 12])
async def test_a_new_topic_waits_for_few_turns_however_many_are_new_in_other_partitions(crowds: int) -> None:
    world = World()
    turns = await followed(world, range(crowds + 1))
    for partition in range(crowds):
        world.take_in(crowd(partition, 200))
    await world.turns_pass(crowds)  # each of them has had its first turn
    asked = world.turn
    world.take_in(batch([value(1, root="b")], crowds))
    await world.all_applied()
    turns.cancel()
    assert world.turn_of("b/1") - asked <= FEW_TURNS
    for partition in range(crowds):
        assert world.topics_of(f"crowd{partition}") == [f"crowd{partition}/{number}" for number in range(200)]
    assert len(world.done) == crowds + 1


async def test_who_has_new_topics_all_the_time_takes_turns_with_the_others() -> None:
    """A crowd that comes in small pieces is not preferred to one that came at once."""
    world = World()
    turns = await followed(world, [0, 1])
    world.take_in(crowd(0, 60))
    for number in range(60):
        world.take_in(crowd(1, 5, 5 * number))
        await world.turns_pass(1)
    waited = world.turn_of("crowd0/59") - world.turn_of("crowd0/0")
    await world.all_applied()
    turns.cancel()
    assert waited <= 60 // PORTION * 2 + FEW_TURNS, "it has had half of the time"
    assert world.topics_of("crowd1") == [f"crowd1/{number}" for number in range(300)]


async def test_a_bug_in_one_partition_is_told_and_the_others_go_on() -> None:
    world = World()
    turns = await followed(world, [0, 1])
    world.fails_at = "crowd0/30"
    world.take_in(crowd(0, 60))
    world.take_in(crowd(1, 60))
    await world.all_applied()
    assert [(partition, str(bug)) for partition, bug in world.lost] == [(0, "crowd0/30")]
    assert len(world.topics_of("crowd0")) < 60
    assert len(world.topics_of("crowd1")) == 60
    world.fails_at = "crowd1/99"
    with pytest.raises(ArithmeticError):
        world.take_in(crowd(1, 20, 97))
    turns.cancel()
    assert not world.queues, "nothing of that batch waits any more"


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 12), min_size=1, max_size=30), st.integers(0, 3)),
        max_size=12,
    )
)
async def test_in_each_partition_everything_comes_once_and_in_order(
    batches: list[tuple[int, list[int], int]],
) -> None:
    """Some topics are known and some are new, and batches come faster than they are looked up, or not."""
    world = World()
    turns = await followed(world, range(4))
    published: defaultdict[int, list[str]] = defaultdict(list)
    versions: defaultdict[str, int] = defaultdict(int)
    for partition, numbers, pause in batches:
        values = []
        for number in numbers:
            topic = f"crowd{partition}/{number}"
            versions[topic] += 1
            values.append(value(number, versions[topic], f"crowd{partition}"))
            published[partition].append(topic)
        world.take_in(batch(values, partition))
        await world.turns_pass(pause)
    await world.all_applied()
    turns.cancel()
    for partition, topics in published.items():
        assert world.topics_of(f"crowd{partition}") == topics
    assert sorted(each.partition for each in world.done) == sorted(partition for partition, _, _ in batches)


# --- Places in streams ------------------------------------------------------------------------------------------------


def at(sequence: int) -> StreamPosition:
    return StreamPosition(GridGeneration(1), sequence)


async def test_the_place_of_a_partition_is_that_of_the_last_batch_that_was_applied() -> None:
    world = World()
    turns = await followed(world)
    partition = world.replicas.get(0)
    assert partition is not None
    assert partition.position == at(0), "from which it is followed"
    first = TailBatch(0, tuple(value(number) for number in range(PORTION)), at(PORTION))
    second = TailBatch(0, tuple(value(number) for number in range(PORTION, 4 * PORTION)), at(4 * PORTION))
    world.take_in(first)
    assert partition.position == at(PORTION)
    world.take_in(second)
    assert partition.position == at(PORTION), "a part of the second one waits"
    assert partition.recent.count == PORTION
    await world.all_applied()
    turns.cancel()
    assert partition.position == at(4 * PORTION)
    assert partition.recent.after(at(0)) == [*first.values, *second.values]


async def test_a_batch_of_a_stream_that_is_followed_anew_moves_no_place() -> None:
    world = World()
    turns = await followed(world)
    partition = world.replicas.get(0)
    assert partition is not None
    world.take_in(TailBatch(0, tuple(value(number) for number in range(4 * PORTION)), at(4 * PORTION)))
    world.replicas._follow(partition, at(90))
    await world.all_applied()
    await world.turns_pass(5)
    turns.cancel()
    assert partition.position == at(90)
    assert partition.recent.after(at(90)) == []
    assert partition.recent.after(at(89)) is None, "there is a hole before"


# --- Memory -----------------------------------------------------------------------------------------------------------


async def test_of_a_partition_with_much_to_look_up_nothing_more_is_read() -> None:
    world = World()
    turns = await followed(world, [0, 1])
    came = 0
    while 0 not in world.tail.paused:
        world.take_in(crowd(0, 100, came))
        came += 100
        assert came <= QUEUE_VALUES + 100
    assert world.tail.paused == {0}, "the other is read on"
    while world.tail.paused:
        await world.turns_pass(1)
    left = came - len(world.topics_of("crowd0"))
    assert 0 < left <= QUEUE_VALUES / 2 + 100, "what is read next comes before it has run dry"
    await world.all_applied()
    turns.cancel()
    assert world.topics_of("crowd0") == [f"crowd0/{number}" for number in range(came)]
    assert world.tail.pauses == 1


async def test_bytes_are_bounded_as_well() -> None:
    world = World()
    turns = await followed(world)
    large = b"1" * (QUEUE_BYTES // 10)
    for number in range(24):
        world.take_in(batch([value(number, text=large)]))
        if world.tail.paused:
            break
    assert world.tail.paused
    assert PORTION + 9 <= number + 1 <= PORTION + 10
    await world.all_applied()
    turns.cancel()
    assert not world.tail.paused


async def test_who_follows_anew_is_read_at_once_and_told_nothing_of_the_past() -> None:
    world = World()
    turns = await followed(world)
    world.take_in(crowd(0, QUEUE_VALUES + 50))
    assert world.tail.paused
    world.replicas.read_again(0)
    await eventually(lambda: world.tail.follows == 2)
    assert not world.tail.paused
    world.take_in(crowd(0, 10, 5_000))
    await world.all_applied()
    turns.cancel()
    assert world.topics_of("crowd0")[-10:] == [f"crowd0/{number}" for number in range(5_000, 5_010)]
    assert not world.tail.paused


async def test_what_is_known_and_has_piled_up_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SERVED_VALUES", 10)
    world = World()
    turns = await followed(world)
    world.take_in(batch([value(1)]))
    await world.turns_pass(1)
    world.told.clear()
    world.take_in(batch([*crowd(0, PORTION + 1).values, *(value(1, 2 + number) for number in range(100))]))
    await world.all_applied()
    turns.cancel()
    assert max(len(topics) for _, topics in world.told) == 10
    assert len(world.topics) == PORTION + 101


async def test_a_lane_that_is_dropped_while_it_is_applied_tells_nothing_more() -> None:
    index = SlowIndex()
    queues = MatchingQueues(index, cast("Any", index))
    applied: list[int] = []

    def apply(values: Sequence[TopicValue]) -> None:
        applied.append(len(values))
        queues.drop(queue)

    queue = MatchingQueue(apply, lambda bug: pytest.fail(repr(bug)))
    assert not queues.put(queue, [value(number) for number in range(30)])
    queue.when_done(lambda: pytest.fail("not all has been applied"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert applied == [PORTION]
    assert not queues
    assert queue.values == queue.size == 0


def test_a_turn_is_for_several_lanes() -> None:
    assert QUEUE_SECONDS < MATCHING_SECONDS
