"""A batch of topics that take long to be matched keeps others from their turn for one portion, and no longer (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from gateway.app.matching import MATCHING_SECONDS, Matching
from gateway.app.replicas import Change, Replicas
from gateway.core.selection_index import SelectionIndex
from gateway.core.selections import Selections
from gateway.core.types import EventId, GridGeneration, TopicPath, Version
from gateway.ports import StreamPosition, TailBatch, TopicStore, TopicTail, TopicValue

PORTION = 5
"""Topics that are looked up until others get their turn, if each takes as long as here."""


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
    """A grid whose only partition has some values."""

    def __init__(self, values: Sequence[TopicValue] = ()) -> None:
        self.page = values

    async def position(self, partition: int) -> StreamPosition:
        return StreamPosition(GridGeneration(1), 0)

    async def values(self, partition: int) -> AsyncIterator[Sequence[TopicValue]]:
        if self.page:
            yield self.page


class Tail:
    def follow(self, partition: int, position: StreamPosition) -> None: ...

    def unfollow(self, partition: int) -> None: ...


class World:
    """The copy of a partition, and what it tells of changes, with the turn of the loop in which it did."""

    def __init__(self, values: Sequence[TopicValue] = ()) -> None:
        self.index = SlowIndex()
        self.index.set("ann", Selections.from_wire(("+a/**",)))
        self.turn = 0
        self.told: list[tuple[int, list[str]]] = []
        self.after_second: Callable[[], object] = lambda: None
        self.replicas = Replicas(
            cast("TopicStore", Store(values)),
            cast("TopicTail", Tail()),
            matching=Matching(self.index, cast("Any", self.index)),
            changed=self._changed,
            failed=lambda error: pytest.fail(repr(error)),
        )

    def _changed(self, changes: Sequence[Change]) -> None:
        assert all(self.index.knows(value.topic) for value, _ in changes), "nothing is looked up while it is sent"
        self.told.append((self.turn, [value.topic for value, _ in changes]))
        if len(self.told) == 2:
            self.after_second()

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


def value(number: int, version: int = 1) -> TopicValue:
    return TopicValue(TopicPath(f"a/{number}"), Version(version), EventId(f"0-1-{version * 1000 + number}"), b"1")


def batch(values: Sequence[TopicValue]) -> TailBatch:
    return TailBatch(0, tuple(values), StreamPosition(GridGeneration(1), 1))


async def followed(world: World) -> asyncio.Task[None]:
    world.replicas.hold([0])
    await world.replicas.complete([0])
    return asyncio.create_task(world.count_turns())


async def test_others_get_their_turn_while_new_topics_are_matched() -> None:
    world = World()
    turns = await followed(world)
    await world.replicas.take_in(batch([value(number) for number in range(52)]))
    turns.cancel()
    assert world.topics == [f"a/{number}" for number in range(52)], "all, in order"
    assert len(set(world.turns)) == len(world.told) == 11
    assert max(len(topics) for _, topics in world.told) == PORTION


async def test_what_is_known_comes_in_one_piece_however_much_it_is() -> None:
    world = World()
    turns = await followed(world)
    await world.replicas.take_in(batch([value(number) for number in range(20)]))
    world.told.clear()
    world.index.looked_up.clear()
    await world.replicas.take_in(batch([value(number % 20, 2 + number // 20) for number in range(2_000)]))
    turns.cancel()
    assert len(world.told) == 1
    assert world.index.looked_up == []


async def test_many_small_batches_add_up() -> None:
    """A reader of the grid may hand over dozens of them without a pause."""
    world = World()
    turns = await followed(world)
    for number in range(4 * PORTION):
        await world.replicas.take_in(batch([value(number)]))
    turns.cancel()
    assert [world.turns.count(turn) for turn in sorted(set(world.turns))] == [PORTION] * 4


async def test_values_read_from_the_grid_are_matched_in_portions_as_well() -> None:
    world = World([value(number) for number in range(22)])
    turns = asyncio.create_task(world.count_turns())
    world.replicas.hold([0])
    await world.replicas.complete([0])
    turns.cancel()
    assert world.topics == [f"a/{number}" for number in range(22)]
    assert len(set(world.turns)) == 5


@pytest.mark.parametrize("anew", [False, True], ids=["given-up", "read-anew"])
async def test_nothing_old_comes_after_the_partition_was_left(anew: bool) -> None:
    """A topic of the rest may have been removed since then: it must not come back."""
    world = World()
    turns = await followed(world)
    leave = (lambda: world.replicas.read_again(0)) if anew else (lambda: world.replicas.release([0]))
    world.after_second = lambda: asyncio.get_running_loop().call_soon(leave)
    await world.replicas.take_in(batch([value(number) for number in range(50)]))
    turns.cancel()
    assert PORTION <= len(world.topics) <= 3 * PORTION


async def test_what_is_looked_up_again_after_a_pause_does_not_add_up() -> None:
    """A client of this node may select something new all the time, so that what was resolved is forgotten."""
    world = World()
    turns = await followed(world)

    async def select() -> None:
        for number in range(1_000):
            world.index.set("bob", Selections.from_wire((f"+*/x{number}/**",)))
            await asyncio.sleep(0)

    selecting = asyncio.create_task(select())
    await world.replicas.take_in(batch([value(number) for number in range(50)]))
    turns.cancel()
    selecting.cancel()
    assert max(len(topics) for _, topics in world.told) == PORTION
    assert world.topics == [f"a/{number}" for number in range(50)]
