"""What nodes tell of queues: each message once, and nothing is asked where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.app.cluster.queue_watch import MOST_QUEUES, QUEUES_AT_ONCE, QueueFigures, QueueWatch
from gateway.app.runtime.cluster_view import ClusterView
from gateway.catalogue import queue_metrics as catalogue
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Incarnation, NodeId, NodeRef, TopicPath
from gateway.ports import GridUnavailable, LeaseTable, QueueState

NODES = tuple(NodeRef(NodeId(f"n{number}"), Incarnation("a")) for number in range(3))
NOW = 1_000_000.0


class Grid:
    """Queues by name; counts what it is asked."""

    def __init__(self, queues: dict[str, QueueState]) -> None:
        self.states = {TopicPath(name): state for name, state in queues.items()}
        self.asked = 0
        self.away = False

    async def names(self, partition: int, *, after: TopicPath | None, count: int) -> list[TopicPath]:
        self.asked += 1
        if self.away:
            raise GridUnavailable
        mine = sorted(each for each in self.states if topic_partition(each, 1) == partition)
        return [each for each in mine if after is None or each > after][:count]

    async def look(self, queue: TopicPath) -> QueueState | None:
        return self.states.get(queue)


class Context:
    """What a watch needs of a node."""

    def __init__(self, grid: Grid, me: NodeRef, *, has_queues: bool = True) -> None:
        self.cluster = ClusterView(me)
        self.grid = type("Parts", (), {"queues": grid})()
        self.clock = type("Clock", (), {"wall": staticmethod(lambda: NOW), "random": staticmethod(lambda: 0.5)})()
        self.destinations = type("Table", (), {"has_queues": has_queues})()
        self.metrics = self
        self.gauges: dict[tuple[str, str], Any] = {}

    def watch(self, metric: Any, read: Any, *, label: str = "") -> None:
        self.gauges[metric.name, label] = read


def watch_of(context: Any, alive: tuple[NodeRef, ...] = NODES) -> QueueWatch:
    context.cluster.table = LeaseTable(alive, ())
    return QueueWatch(context)


def states(count: int = 200) -> dict[str, QueueState]:
    return {
        f"root{number}/q": QueueState(
            ready=number % 3, held=1, dead=number % 2, consumers=number % 4, oldest=int((NOW - number) * 1000)
        )
        for number in range(count)
    }


@pytest.mark.promise("P15")
async def test_all_nodes_together_tell_of_each_queue_once() -> None:
    grid = Grid(states())
    watches = [watch_of(Context(grid, node)) for node in NODES]
    for each in watches:
        await each.look()
    wanted = QueueFigures()
    for state in grid.states.values():
        wanted.add(state, NOW)
    figures = [each.figures for each in watches]
    assert all(each.queues for each in figures)
    for name in ("queues", "ready", "held", "dead", "unattended"):
        assert sum(getattr(each, name) for each in figures) == getattr(wanted, name) > 0
    assert max(each.oldest for each in figures) == wanted.oldest == pytest.approx(199)


@pytest.mark.promise("P11")
async def test_where_no_path_is_a_queue_the_grid_is_asked_nothing() -> None:
    grid = Grid(states())
    watch = watch_of(Context(grid, NODES[0], has_queues=False))
    await watch.look()
    assert (watch.figures, grid.asked) == (QueueFigures(), 0)


async def test_what_was_seen_stays_while_the_grid_is_away_and_is_what_the_gauges_show() -> None:
    grid = Grid(states())
    context = Context(grid, NODES[0])
    watch = watch_of(context, (NODES[0],))
    await watch.look()
    grid.away = True
    await watch.look()
    assert context.gauges[catalogue.QUEUES.name, ""]() == 200
    assert context.gauges[catalogue.QUEUE_MESSAGES.name, "held"]() == 200
    assert {label for name, label in context.gauges if name == catalogue.QUEUE_MESSAGES.name} == {
        "ready",
        "delayed",
        "held",
        "dead",
    }


@pytest.mark.promise("P20")
async def test_a_look_is_bounded() -> None:
    grid = Grid({f"root/q{number:05}": QueueState(ready=1) for number in range(MOST_QUEUES + 3 * QUEUES_AT_ONCE)})
    watch = watch_of(Context(grid, NODES[0]), (NODES[0],))
    await watch.look()
    assert MOST_QUEUES <= watch.figures.queues < MOST_QUEUES + QUEUES_AT_ONCE
