"""Tells the grid what the sessions of this node select, while the cluster has links to others (003-09 to 003-13).

Sessions whose window runs count, too: they are owed what they select. So do durable subscriptions. A change is gathered
with those that follow it, and the difference to what was told before is written; while nothing changes, nothing is
(P11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import Final

from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.zones.durable_interest import DurableInterest
from gateway.app.zones.knowledge import GRID_RETRY, ZoneKnowledge
from gateway.core.topics.selectors import Selector
from gateway.core.types import GridGeneration
from gateway.core.zones.compaction import compact
from gateway.ports import GridUnavailable, LeaseLost

GATHERING: Final = 0.1
"""Seconds for which changes are gathered: many sessions select the same within them, and a second until others know of
it is what is promised (Z5)."""

SHARE: Final = 20
"""Of what finding the union took, so many times as long passes before it is found again: a twentieth of a core at most,
where somebody selects hundreds of thousands of topics and changes one of them all the time."""

NO_GENERATION: Final = GridGeneration(0)
"""Of a grid that was told nothing."""


class InterestWriter:
    """Writes the interest of this node's sessions.

    Args:
        context: of the node.
        sessions: held here.
        knowledge: whether the cluster has links.

    Attributes:
        durables: what durable subscriptions select.
    """

    def __init__(self, context: Context, sessions: Sessions, knowledge: ZoneKnowledge) -> None:
        self._me = context.me
        self._grid = context.grid
        self._clock = context.clock
        self._keep = context.parameters.max_window
        self._delivery = sessions.delivery
        self._knowledge = knowledge
        self._changed = asyncio.Event()
        self._watches = False
        self._busy = False
        self._told: AbstractSet[Selector] = frozenset()
        self._told_in = NO_GENERATION
        self.durables = DurableInterest(context, knowledge, on_change=self._changed.set)
        knowledge.on_change(self._look)

    async def run(self) -> None:
        """Tell what is selected, for ever."""
        while True:
            await self._changed.wait()
            self._busy = True
            await asyncio.sleep(GATHERING)
            self._changed.clear()
            began = self._clock.monotonic()
            wanted = await self._union()
            cost = self._clock.monotonic() - began
            try:
                await self._tell(wanted)
            except (GridUnavailable, LeaseLost):
                # A node that has lost its lease joins again, and then this is told.
                self._told_in = NO_GENERATION
                self._changed.set()
                await asyncio.sleep(GRID_RETRY)
            self._busy = False
            await asyncio.sleep(SHARE * cost)

    def tell_anew(self) -> None:
        """The grid has lost writes, or the lease was: whatever was told may be gone."""
        self._told_in = NO_GENERATION
        if self._watches:
            self._changed.set()

    @property
    def told(self) -> int:
        """How many selectors the grid was told."""
        return len(self._told)

    @property
    def is_quiet(self) -> bool:
        """Whether all that has changed was told, or needed no telling."""
        return not self._changed.is_set() and not self._busy

    def _look(self) -> None:
        """Begin, or end, with the links of the cluster; tell anew what somebody has taken for that of a dead node."""
        linked = self._knowledge.is_linked
        if self._told and self._watches and self._me not in self._knowledge.interest:
            self.tell_anew()
        if linked and not self._watches:
            self._watches = True
            self._told_in = NO_GENERATION
            self._delivery.watch_selected(self._changed.set)
            self._changed.set()
        elif not linked and self._watches:
            self._watches = False
            self._delivery.watch_selected(None)
            self._changed.set()

    async def _union(self) -> frozenset[Selector]:
        """Find what is selected, as few selectors as others are told. Of many that takes a thread of its own."""
        if not self._watches:
            return frozenset()
        selected = (*self._delivery.selected, *self.durables.selectors)
        if not selected:
            return frozenset()
        return await asyncio.to_thread(compact, selected)

    async def _tell(self, wanted: frozenset[Selector]) -> None:
        generation = self._grid.generation
        if generation != self._told_in:
            await self._grid.zones.put_interest(self._me, wanted, keep=self._keep)
        elif wanted != self._told:
            await self._grid.zones.change_interest(
                self._me, added=wanted - self._told, dropped=self._told - wanted, keep=self._keep
            )
        self._told, self._told_in = wanted, generation
