"""What durable subscriptions select: they are owed events also while no session uses them.

The grid knows them all, so one node reads them: the master of the cluster, now and then while there are links. What was
opened since is known to the node that opened it, which counts it until the master has had the time to read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.app.context import Context
from gateway.app.zones.knowledge import ZoneKnowledge
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.core.wire.errors import InvalidSelector
from gateway.ports import DurableName, GridUnavailable

READ_SECONDS: Final = 15.0
"""Seconds between two readings of all durable subscriptions, by the master of a cluster with links: 64 short reads."""

HELD_SECONDS: Final = 4 * READ_SECONDS
"""Seconds for which one counts that was opened here, and for which those count that were read by a master of before:
until another one has read them."""

MOST_HELD: Final = 10_000
"""Selectors that count because they were opened here; of more, the first ones wait for the master to read them."""

PAGE: Final = 500
"""Durable subscriptions that are read at once: a millisecond of Redis."""


class DurableInterest:
    """The selectors of the cluster's durable subscriptions, as far as this node has to tell them.

    Args:
        context: of the node.
        knowledge: whether the cluster has links.
        on_change: called when they have changed.
    """

    def __init__(
        self,
        context: Context,
        knowledge: ZoneKnowledge,
        *,
        on_change: Callable[[], None],
    ) -> None:
        self._durables = context.grid.durables
        self._clock = context.clock
        self._cluster = context.cluster
        self._on_change = on_change
        self._knowledge = knowledge
        self._linked = asyncio.Event()
        self._read: frozenset[Selector] = frozenset()
        self._read_at = 0.0
        self._held: dict[Selector, float] = {}
        knowledge.on_change(self._look)

    @property
    def selectors(self) -> frozenset[Selector]:
        """What is to be told."""
        return self._read.union(self._held)

    def hold(self, selector: Selector) -> None:
        """Somebody has opened a durable subscription here."""
        is_new = self._held.pop(selector, None) is None
        self._held[selector] = self._clock.monotonic() + HELD_SECONDS
        if len(self._held) > MOST_HELD:
            del self._held[next(iter(self._held))]
        if is_new:
            self._on_change()

    async def run(self) -> None:
        """Read them for ever, while the cluster has links."""
        while True:
            await self._linked.wait()
            with suppress(GridUnavailable):
                await self.look()
            await asyncio.sleep(READ_SECONDS)

    async def look(self) -> None:
        """Read them, if this node is to do it, and forget what others tell by now.

        Raises:
            GridUnavailable: to be tried again; what was read before counts meanwhile.
        """
        before, now = self.selectors, self._clock.monotonic()
        if self._cluster.is_master:
            self._read, self._read_at = await self._all(), now
        elif now - self._read_at > HELD_SECONDS:
            self._read = frozenset()
        self._held = {selector: until for selector, until in self._held.items() if until > now}
        if self.selectors != before:
            self._on_change()

    async def _all(self) -> frozenset[Selector]:
        found: set[str] = set()
        for partition in range(TOPIC_PARTITIONS):
            after: DurableName | None = None
            while True:
                page = await self._durables.page(partition, after=after, count=PAGE)
                found.update(each.terms.selector for each in page)
                if len(page) < PAGE:
                    break
                after = page[-1].name
        selectors: set[Selector] = set()
        for text in found:
            with suppress(InvalidSelector):  # of a later release
                selectors.add(parse_selector(text))
        return frozenset(selectors)

    def _look(self) -> None:
        if self._knowledge.is_linked:
            self._linked.set()
        else:
            self._linked.clear()
