"""Takes sessions out of queues that have ended, after a part of the grid has gone back (P15, P7).

On a Redis Cluster a session and the queues that it consumes from may be on different masters. If the one with the queue
is replaced by a replica that lacks the last moments, the queue has a consumer again whose session has ended by then:
nobody would ever settle what that holds. So after each loss the nodes look, each at its share of the partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.app.cluster.sweep import Sweep
from gateway.app.context import Context
from gateway.catalogue import log_events as events
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import SessionId, TopicPath
from gateway.ports import GridState, GridUnavailable

LOOK_SECONDS: Final = 20.0
"""Seconds between two looks, on average. A session has to be missing in two of them: meanwhile nodes that hold it write
it again."""

QUEUES_AT_ONCE: Final = 100
"""Queues whose consumers one step asks for: a millisecond of Redis."""

SESSIONS_AT_ONCE: Final = 100
"""Sessions that one step looks for: some milliseconds of Redis, if their lists are long."""


class QueueSweeper:
    """Sweeps the queues of its share of the partitions, after losses alone.

    Args:
        context: of the node.
        may_sweep: tells whether what this node holds has been written again.
    """

    def __init__(self, context: Context, *, may_sweep: Callable[[], bool]) -> None:
        self._clock = context.clock
        self._log = context.log
        self._grid = context.grid
        self._destinations = context.destinations
        self._cluster = context.cluster
        self._may_sweep = may_sweep
        self._sweep = Sweep(context.grid)
        self._missing: set[tuple[TopicPath, SessionId]] = set()

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(self._clock.about(LOOK_SECONDS))
            await self.sweep()

    async def sweep(self) -> None:
        """Look once, if the grid has lost writes since all was in order, as far as the grid allows."""
        if self._grid.state is not GridState.UP or not self._destinations.has_queues:
            return
        due = self._sweep.due(self._cluster.share(TOPIC_PARTITIONS))
        if not due or not self._may_sweep():
            return
        missing: set[tuple[TopicPath, SessionId]] = set()
        try:
            for number in due:
                found = await self._missing_in(number)
                for each in found & self._missing:
                    await self._dismiss(*each)
                if found <= self._missing:
                    self._sweep.done(number)
                missing |= found - self._missing
        except GridUnavailable:
            return
        self._missing = missing

    async def _missing_in(self, number: int) -> set[tuple[TopicPath, SessionId]]:
        """Find consumers of a partition's queues of which there is no session."""
        consumers: list[tuple[TopicPath, SessionId]] = []
        after: TopicPath | None = None
        while True:
            names = await self._grid.queues.names(number, after=after, count=QUEUES_AT_ONCE)
            found = await asyncio.gather(*map(self._grid.queues.consumers, names))
            consumers += [(queue, each) for queue, sessions in zip(names, found, strict=True) for each in sessions]
            if len(names) < QUEUES_AT_ONCE:
                break
            after = names[-1]
        missing: set[tuple[TopicPath, SessionId]] = set()
        for start in range(0, len(consumers), SESSIONS_AT_ONCE):
            some = consumers[start : start + SESSIONS_AT_ONCE]
            records = await asyncio.gather(*(self._grid.sessions.find(each) for _, each in some))
            missing |= {each for each, record in zip(some, records, strict=True) if record is None}
        return missing

    async def _dismiss(self, queue: TopicPath, session: SessionId) -> None:
        if await self._grid.queues.dismiss(queue, session):
            self._log.emit(events.QUEUE_CONSUMER_DISMISSED, queue=queue, session=session)
