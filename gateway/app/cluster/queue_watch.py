"""Looks at how queues are, for the metrics: each node at its share of the partitions, and only if there are queues."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from gateway.app.context import Context
from gateway.catalogue import queue_metrics as catalogue
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import TopicPath
from gateway.ports import GridUnavailable, QueueState

LOOK_SECONDS: Final = 30.0
"""Seconds between two looks, on average: alerts speak of minutes."""

QUEUES_AT_ONCE: Final = 100
"""Queues that one step looks at: a millisecond of Redis."""

MOST_QUEUES: Final = 2_000
"""Queues that a look of one node is about: some 20 ms of Redis. What is beyond is left out of the metrics (P20)."""

_MS: Final = 1000
"""Milliseconds in a second, in which the grid says when."""


@dataclass(slots=True)
class QueueFigures:
    """How some queues are, added up.

    Attributes:
        queues: how many.
        ready: messages that wait for a consumer; the next three likewise.
        delayed: those that wait for their time.
        held: those that consumers hold.
        dead: dead letters.
        unattended: queues in which messages wait, and from which nobody consumes.
        oldest: seconds for which the message has waited that has waited longest.
    """

    queues: int = 0
    ready: int = 0
    delayed: int = 0
    held: int = 0
    dead: int = 0
    unattended: int = 0
    oldest: float = 0.0

    def add(self, state: QueueState, now: float) -> None:
        """Add a queue; *now* is in seconds since 1970."""
        self.queues += 1
        self.ready += state.ready
        self.delayed += state.delayed
        self.held += state.held
        self.dead += state.dead
        self.unattended += state.ready > 0 and state.consumers == 0
        if state.oldest is not None:
            self.oldest = max(self.oldest, now - state.oldest / _MS)


class QueueWatch:
    """Looks at the queues of its share of the partitions, again and again.

    Where nobody says that a path is a queue there is none, and the grid is asked nothing (P11).

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._queues = context.grid.queues
        self._destinations = context.destinations
        self._cluster = context.cluster
        self.figures = QueueFigures()
        watch = context.metrics.watch
        watch(catalogue.QUEUES, lambda: self.figures.queues)
        watch(catalogue.QUEUES_UNATTENDED, lambda: self.figures.unattended)
        watch(catalogue.QUEUE_OLDEST_SECONDS, lambda: self.figures.oldest)
        watch(catalogue.QUEUE_MESSAGES, lambda: self.figures.ready, label="ready")
        watch(catalogue.QUEUE_MESSAGES, lambda: self.figures.delayed, label="delayed")
        watch(catalogue.QUEUE_MESSAGES, lambda: self.figures.held, label="held")
        watch(catalogue.QUEUE_MESSAGES, lambda: self.figures.dead, label="dead")

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._clock.about(LOOK_SECONDS))
            await self.look()

    async def look(self) -> None:
        """Look once. What was seen last stays while the grid is unreachable, which has alerts of its own."""
        found = QueueFigures()
        if self._destinations.has_queues:
            try:
                for number in self._cluster.share(TOPIC_PARTITIONS):
                    await self._look_in(number, found)
            except GridUnavailable:
                return
        self.figures = found

    async def _look_in(self, number: int, found: QueueFigures) -> None:
        """Look at the queues of a partition."""
        after: TopicPath | None = None
        while found.queues < MOST_QUEUES:
            names = await self._queues.names(number, after=after, count=QUEUES_AT_ONCE)
            for state in await asyncio.gather(*(self._queues.look(each) for each in names)):
                if state is not None:
                    found.add(state, self._clock.wall())
            if len(names) < QUEUES_AT_ONCE:
                return
            after = names[-1]
