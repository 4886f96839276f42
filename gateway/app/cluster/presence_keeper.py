"""Keeps trees with presence in step with the sessions of this node, and tells their counts (ADR 0142)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from gateway.app.cluster.sweep import Sweep
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.fencing import NotWritten
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.portions import portions
from gateway.app.session.session import Session
from gateway.catalogue import presence_metrics as catalogue
from gateway.core.destinations.membership import trees_of
from gateway.core.topics.selections import Selections
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.types import GridGeneration, SessionId, TopicPath
from gateway.ports import GridRefused, GridState, GridUnavailable

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks, on average: by so much and half as much again may a count come later than a second. While
somebody watches from this node, a look is one command on one Redis, and one for each partition on a Redis Cluster."""

TOLD_AT_ONCE: Final = 100
"""Counts of each partition that a look tells."""

AFTERWARDS: Final = 30.0
"""Seconds for which it is looked once no tree has presence any more: members leave, and counts follow."""

SETTLED_AT_ONCE: Final = 50
"""Sessions that are seen to at the same time: some steps of the grid each, some milliseconds together."""

LOOKED_AT_ONCE: Final = 500
"""Sessions of which it is asked in one turn of the loop whether there is anything to do: a millisecond."""

SWEPT_AT_ONCE: Final = 100
"""Members of which it is asked together whether the grid holds their sessions."""


class PresenceKeeper:
    """Sees to members that a request of their client does not see to.

    * A session has come from another node, which may have died between two writes: it enters again.
    * What paths are has changed: sessions leave trees and enter others.
    * The grid has lost writes: sessions enter again, and whoever is a member without a session is taken out.
    * Sessions here have come to watch, or go on to: the grid is told so.
    * A tree has changed so fast that its count was not told at once: it is told now, if somebody watches.

    Where no tree has presence it asks the grid nothing, and next to nothing where nobody watches.

    Args:
        context: of the node.
        sessions: the sessions held here.
        store: where it is written.
        may_tell: tells whether it is known what paths are and what the grid holds.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        store: FencedStore,
        *,
        may_tell: Callable[[], bool],
    ) -> None:
        self._clock = context.clock
        self._grid = context.grid
        self._table = context.destinations
        self._sessions = sessions
        self._watch = sessions.delivery.watchers.presence
        self._store = store
        self._cluster = context.cluster
        self._may_tell = may_tell
        self._reviewed: tuple[int, GridGeneration] | None = None
        self._sweep = Sweep(context.grid)
        self._until = 0.0
        context.metrics.watch(
            catalogue.PRESENCE_MEMBERS, lambda: float(sum(len(each.present) for each in sessions if each.present))
        )

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._clock.about(LOOK_SECONDS))
            await self.look()

    async def look(self) -> None:
        """Do what there is to do now, as far as the grid allows."""
        now = self._clock.monotonic()
        if self._table.has_presence:
            self._until = now + AFTERWARDS
        elif now > self._until:
            return
        if self._grid.state is not GridState.UP or not self._store.replicated:
            return
        try:
            await self._settle_arrived()
            await self._review()
            if self._may_tell():
                await self._watch.look()
                if watched := self._watch.watched():
                    await self._grid.presence.tell_due(watched, limit=TOLD_AT_ONCE)
                await self._take_out_strange()
        except GridUnavailable:
            pass  # what is left is there in the next look

    # --- Sessions of this node ----------------------------------------------------------------------------------------

    async def _settle_arrived(self) -> None:
        arrived = list(self._store.unsettled)
        for start in range(0, len(arrived), SETTLED_AT_ONCE):
            some = arrived[start : start + SETTLED_AT_ONCE]
            await self._settle(some)
            for each in some:
                self._store.unsettled.pop(each, None)

    async def _review(self) -> None:
        """Look at all sessions, if what paths are has changed, or the grid may have lost some."""
        state = (self._table.revision, self._grid.generation)
        if self._reviewed == state:
            return
        complete = True
        async for some in portions(self._sessions, LOOKED_AT_ONCE):
            found: list[Session] = []
            for each in some:
                if each.dropped or each.ending:
                    continue
                if self._store.must_restore(each):
                    complete = False  # ``GridRecovery`` is at it
                elif not self._store.is_settled(each):
                    found.append(each)
            for start in range(0, len(found), SETTLED_AT_ONCE):
                await self._settle(found[start : start + SETTLED_AT_ONCE])
        if complete:
            self._reviewed = state

    async def _settle(self, sessions: Iterable[Session]) -> None:
        """Have trees hold sessions as they should.

        Raises:
            GridUnavailable: some have yet to be seen to.
        """
        results = await asyncio.gather(*map(self._settle_one, sessions), return_exceptions=True)
        for each in results:
            if isinstance(each, BaseException) and not isinstance(each, NotWritten | GridRefused):
                raise each

    async def _settle_one(self, session: Session) -> None:
        async with session.selecting:
            if not session.dropped and not session.ending:
                await self._store.settle_presence(session)

    # --- Of all nodes -------------------------------------------------------------------------------------------------

    async def _take_out_strange(self) -> None:
        """After the grid has lost writes, take out members whose sessions have ended, or select the tree no more."""
        for partition in self._sweep.due(self._cluster.share(TOPIC_PARTITIONS)):
            for tree in await self._grid.presence.trees(partition):
                await self._take_out_of(tree)
            self._sweep.done(partition)

    async def _take_out_of(self, tree: TopicPath) -> None:
        step: str | None = None
        while True:
            page = await self._grid.presence.members(tree, step=step, count=SWEPT_AT_ONCE)
            is_member = await asyncio.gather(*(self._is_member(each, tree) for each in page.sessions))
            strange = [each for each, known in zip(page.sessions, is_member, strict=True) if not known]
            if strange:
                await self._grid.presence.discard(tree, strange)
            step = page.next
            if step is None:
                return

    async def _is_member(self, session: SessionId, tree: TopicPath) -> bool:
        record = await self._grid.sessions.find(session)
        return record is not None and tree in trees_of(Selections.from_wire(record.selections), self._table)
