"""Has the grid tell who has subscribed to trees of topics, as long as somebody wants to know it (ADR 0142).

While nobody does, the grid keeps who is a member and tells nobody. Partitions of trees are watched for a while at a
time, and a node says so again for those in which its sessions select topics of presence. When it begins, what came
before is told: first who is there, then how many they are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from gateway.app.context import Context
from gateway.app.session.session import Session
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import Selector, partitions
from gateway.core.topics.topics import PRESENCE_ROOT
from gateway.core.types import GridGeneration, TopicPath
from gateway.ports import TellMembers

WATCHED_FOR: Final = 600.0
"""Seconds for which a partition is watched, each time that a node says so. So long presence also costs more once the
last one has gone who watched; and whoever comes back within it finds all that is told in its place."""

SAID_AGAIN: Final = 300.0
"""Seconds before the end at which it is said again: a grid that is unreachable for less makes nobody miss anything."""

MEMBERS_AT_ONCE: Final = 100
"""Members that a step of the grid tells of: some milliseconds of Redis at most, so that others come through."""

TREES_AT_ONCE: Final = 50
"""Trees that are told of at the same time."""


class PresenceWatch:
    """Which partitions of trees are watched from here.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._grid = context.grid
        self._table = context.destinations
        self._parameters = context.parameters
        self._by_session: dict[Session, frozenset[int]] = {}
        self._selected: Counter[int] = Counter()
        self._until: dict[int, float] = {}
        self._generation: GridGeneration | None = None
        self._watching = asyncio.Lock()

    def selects(self, session: Session, selections: Selections) -> None:
        """A session is sent from now on what *selections* select; ``look`` sees to it if some of it is presence."""
        if not selections.of_system:
            if session in self._by_session:
                self.forget(session)
            return
        self.forget(session)
        if numbers := self.partitions(each.selector for each in selections.entries if each.selects):
            self._by_session[session] = numbers
            self._selected.update(numbers)

    def forget(self, session: Session) -> None:
        """A session is not this node's any more."""
        for number in self._by_session.pop(session, ()):
            self._selected[number] -= 1
            if not self._selected[number]:
                del self._selected[number]

    def partitions(self, selectors: Iterable[Selector]) -> frozenset[int]:
        """Tell in which partitions the topics of presence are that selectors select."""
        depth = self._parameters.topic_depth
        own = [partitions(each, depth) for each in selectors if each.segments[0] == PRESENCE_ROOT]
        return frozenset[int]().union(*own)

    def watched(self) -> list[int]:
        """Name the partitions that are watched now, as far as this node has to do with it."""
        now = self._clock.monotonic()
        return [number for number, until in self._until.items() if until > now]

    async def watch(self, numbers: Collection[int]) -> bool:
        """Make sure that all is told that is to be told in some partitions, and goes on to be for a while.

        Returns:
            Whether something may have been told just now.

        Raises:
            GridUnavailable: nobody knows.
        """
        if not numbers or not self._table.has_presence or not self._missing(numbers, 0.0):
            return False
        async with self._watching:
            missing = self._missing(numbers, 0.0)
            return bool(missing) and await self._watch(missing)

    async def look(self) -> None:
        """See to what sessions here select.

        Raises:
            GridUnavailable: to be looked at again.
        """
        if self._selected and self._table.has_presence and self._missing(self._selected, SAID_AGAIN):
            async with self._watching:
                await self._watch(self._missing(self._selected, SAID_AGAIN))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _missing(self, numbers: Collection[int], ahead: float) -> list[int]:
        """Name those of some partitions that are watched for no more than so many seconds."""
        if self._generation != self._grid.generation:
            self._until.clear()  # the grid may have lost that they are
            self._generation = self._grid.generation
        now = self._clock.monotonic()
        return [number for number in numbers if self._until.get(number, 0.0) <= now + ahead]

    async def _watch(self, numbers: Collection[int]) -> bool:
        until, generation = self._clock.monotonic() + WATCHED_FOR, self._generation
        told = False
        for untold in await self._grid.presence.watch(list(numbers), duration=WATCHED_FOR):
            trees = await self._grid.presence.trees(untold.partition)
            for start in range(0, len(trees), TREES_AT_ONCE):
                await asyncio.gather(*map(self._tell, trees[start : start + TREES_AT_ONCE]))
            await self._grid.presence.all_told(untold)
            told = told or bool(trees)
        if self._generation == generation:
            self._until.update(dict.fromkeys(numbers, until))
        return told

    async def _tell(self, tree: TopicPath) -> None:
        limits, parameters = self._table.presence(tree), self._parameters
        most = 0 if limits is None else limits.presence_members
        step: str | None = None
        while True:
            step = await self._grid.presence.tell_members(
                TellMembers(tree, step, most, parameters.partition_topics, parameters.partition_bytes, MEMBERS_AT_ONCE)
            )
            if step is None:
                return
