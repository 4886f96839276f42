"""When a node says that somebody watches presence: for who is here, in time, and to a grid that may have forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.app.context import Context
from gateway.app.delivery.presence_watch import SAID_AGAIN, WATCHED_FOR, PresenceWatch
from gateway.app.session.session import Session
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from gateway.ports import GridUnavailable, TellMembers, Untold

COUNT = "$presence/rooms/7/$count"
ROOM = topic_partition(TopicPath(COUNT), 1)


class Grid:
    """A grid in which one partition has two trees, that takes down what it is asked.

    Attributes:
        said: of which partitions it was told that somebody watches.
        told: of which trees was told.
        complete: partitions of which somebody has said that all is told.
    """

    def __init__(self) -> None:
        self.generation = 1
        self.presence = self
        self.said: list[list[int]] = []
        self.told: list[str] = []
        self.complete: set[int] = set()
        self.fails = False

    async def watch(self, partitions: Sequence[int], *, duration: float) -> list[Untold]:
        assert duration == WATCHED_FOR
        self.said.append(list(partitions))
        return [Untold(each, "1") for each in partitions if each not in self.complete]

    async def trees(self, partition: int) -> list[TopicPath]:
        return [TopicPath("rooms/7"), TopicPath("rooms/8")] if partition == ROOM else []

    async def tell_members(self, tell: TellMembers) -> str | None:
        if self.fails:
            raise GridUnavailable("it went away")
        self.told.append(tell.tree)
        return None if tell.step == "2" else "2"

    async def all_told(self, untold: Untold) -> None:
        self.complete.add(untold.partition)


class Bench:
    """A watch of a node, its grid and its clock."""

    def __init__(self) -> None:
        self.grid = Grid()
        self.now = 100.0
        self.table = SimpleNamespace(has_presence=True, presence=lambda _tree: None)
        parameters = SimpleNamespace(topic_depth=1, partition_topics=0, partition_bytes=0)
        clock = SimpleNamespace(monotonic=lambda: self.now)
        context: Any = SimpleNamespace(grid=self.grid, clock=clock, destinations=self.table, parameters=parameters)
        self.watch = PresenceWatch(cast("Context", context))

    def selects(self, session: str, *selectors: str) -> None:
        selections = Selections()
        for each in selectors:
            selections = selections.select(parse_selector(each))
        self.watch.selects(cast("Session", session), selections)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_all_is_told_once(bench: Bench) -> None:
    assert await bench.watch.watch({ROOM})
    assert sorted(bench.grid.told) == ["rooms/7", "rooms/7", "rooms/8", "rooms/8"], "all steps of both"
    assert bench.grid.complete == {ROOM}
    assert not await bench.watch.watch({ROOM})
    assert bench.grid.said == [[ROOM]]
    assert bench.watch.watched() == [ROOM]


async def test_it_is_said_again_for_who_is_here(bench: Bench) -> None:
    bench.selects("alice", COUNT, "rooms/**")
    bench.selects("bob", "$presence/rooms/*/$members/*")
    await bench.watch.look()
    await bench.watch.look()
    assert bench.grid.said == [[ROOM]]
    bench.now += WATCHED_FOR - SAID_AGAIN
    await bench.watch.look()
    assert bench.grid.said == [[ROOM]] * 2
    bench.watch.forget(cast("Session", "alice"))
    bench.selects("bob", "rooms/**")
    bench.now += WATCHED_FOR - SAID_AGAIN
    await bench.watch.look()
    assert bench.grid.said == [[ROOM]] * 2, "nobody is here who wants to know"
    bench.now += SAID_AGAIN
    assert bench.watch.watched() == []


async def test_a_grid_that_may_have_forgotten_is_told_again(bench: Bench) -> None:
    bench.selects("alice", COUNT)
    await bench.watch.look()
    bench.grid.generation += 1
    await bench.watch.look()
    assert bench.grid.said == [[ROOM]] * 2


async def test_what_was_not_told_to_the_end_is_told_later(bench: Bench) -> None:
    bench.grid.fails = True
    with pytest.raises(GridUnavailable):
        await bench.watch.watch({ROOM})
    assert not bench.grid.complete
    assert bench.watch.watched() == []
    bench.grid.fails = False
    assert await bench.watch.watch({ROOM})


async def test_nothing_is_asked_where_no_tree_is_marked(bench: Bench) -> None:
    bench.table.has_presence = False
    bench.selects("alice", COUNT)
    await bench.watch.look()
    assert not await bench.watch.watch({ROOM})
    assert bench.grid.said == []


async def test_selectors_of_other_topics_are_no_business_of_it(bench: Bench) -> None:
    bench.selects("alice", "rooms/**", "$gateway/**")
    await bench.watch.look()
    assert bench.grid.said == []
    assert len(bench.watch.partitions([parse_selector("$presence/*/*/$count")])) == 64
