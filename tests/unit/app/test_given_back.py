"""What a node gives back to a grid that has lost values, while the partition's stream goes on (P6, P13).

Found: Redis was emptied, then refused writes for seconds, and then stood still. The values of a partition were read
again each time that giving back was refused, and sessions got a current value in place of each three updates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from gateway.app.delivery import replicas
from gateway.app.delivery.partition import Partition
from gateway.app.delivery.replicas import Change
from gateway.core.types import TopicPath, Version
from gateway.ports import GridUnavailable, TopicValue
from tests.support.clock import eventually
from tests.unit.app.test_matching import Store, World, batch, followed, value

pytestmark = pytest.mark.promise("P6", "P13")

PARTITION = 0
KEPT, LOST = value(1), value(2)
"""What the grid shows when it is read again, and what it has lost."""


class GridStore(Store):
    """Shows one value, and takes back another one when it may be written to.

    Attributes:
        refuses: whether it refuses that.
        refused: how often it has.
        shown: what it shows of the topic that was lost in place of what was given back; None for that.
    """

    def __init__(self) -> None:
        super().__init__({})
        self.refuses = True
        self.refused = 0
        self.shown: TopicValue | None = None

    async def restore(self, values: Sequence[TopicValue]) -> int:
        if self.refuses:
            self.refused += 1
            raise GridUnavailable("NOREPLICAS")
        return await super().restore(values)

    async def read(self, topics: Sequence[TopicPath]) -> list[TopicValue | None]:
        return [self.shown if self.shown is not None and self.shown.topic == each else None for each in topics]


class Watched(World):
    """Notes whether changes came as updates."""

    def __init__(self, store: GridStore) -> None:
        super().__init__()
        self.replicas._store = cast("Any", store)
        self.changes: list[tuple[str, int, bool]] = []

    def _changed(self, partition: Partition, changes: Sequence[Change]) -> None:
        super()._changed(partition, changes)
        self.changes += [(each.topic, each.version, live) for each, live in changes]


async def reading_again(world: Watched, store: GridStore) -> asyncio.Task[None]:
    """Have two values known, and the partition read again from a grid that has one of them."""
    turns = await followed(world, [PARTITION])
    world.take_in(batch([KEPT, LOST]))
    await world.all_applied()
    world.changes.clear()
    store.pages = {PARTITION: [KEPT]}
    world.replicas.read_again(PARTITION)
    await eventually(
        lambda: store.refused > 0 or bool(store.restored) or not world.replicas._partitions[PARTITION].reader
    )
    return turns


async def test_updates_go_on_while_the_grid_refuses_to_take_values_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "RETRY_READ", 0.0)
    store = GridStore()
    world = Watched(store)
    turns = await reading_again(world, store)
    follows = world.tail.follows
    for version in (2, 3):
        world.take_in(batch([value(1, version)]))
        refused = store.refused
        await eventually(lambda refused=refused: store.refused > refused)  # type: ignore[misc]
    store.refuses, store.shown = False, LOST._replace(version=Version(3))
    await world.replicas.complete([PARTITION])
    turns.cancel()
    assert world.tail.follows == follows, "its place in the stream is not given up"
    assert [each for each in world.changes if each[0] == KEPT.topic] == [("a/1", 2, True), ("a/1", 3, True)]


async def test_what_was_published_since_comes_by_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grid shows the last of three updates, and the stream has brought none of them yet."""
    monkeypatch.setattr(replicas, "RETRY_READ", 0.0)
    store = GridStore()
    store.refuses, store.shown = False, value(2, 4)
    world = Watched(store)
    turns = await reading_again(world, store)
    await world.replicas.complete([PARTITION])
    assert [each for each in world.changes if each[0] == LOST.topic] == []
    world.take_in(batch([value(2, version) for version in (2, 3, 4)]))
    await world.all_applied()
    turns.cancel()
    mine = [each for each in world.changes if each[0] == LOST.topic]
    assert mine == [("a/2", 2, True), ("a/2", 3, True), ("a/2", 4, True)]
