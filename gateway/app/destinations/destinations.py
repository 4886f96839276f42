"""What paths are, as a node knows it: complete before it is ready, kept in step with the grid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from gateway.app.context import Context
from gateway.app.journal.node_events import DestinationsChanged
from gateway.catalogue import destination_metrics as catalogue
from gateway.catalogue import log_events as events
from gateway.core.destinations.destination import Destination, Origin, name_of
from gateway.core.destinations.limits import Kind
from gateway.core.destinations.table import DestinationTable
from gateway.core.topics.selectors import Selector
from gateway.ports import AllDestinations, Applied, DestinationNews, DestinationRemoved, GridUnavailable

GRID_RETRY: Final = 0.2
"""Seconds before something is written again that the grid did not take: a step asks a grid that is away nothing."""

OWN_NEWS: Final = 1.0
"""Seconds for which who changes something waits until this node has heard of it, too; mostly it takes milliseconds."""


class Destinations:
    """What paths are, as this node knows it; the table itself is in its context, for whoever asks for each publish.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._store = context.grid.destinations
        self._clock = context.clock
        self._background = context.background
        self._announce = context.announce
        self._log = context.log
        self._table: DestinationTable = context.destinations
        self._heard = asyncio.Event()
        self._loaded = asyncio.Event()
        for kind in Kind:
            context.metrics.watch(catalogue.DESTINATIONS, partial(self._count, kind), label=kind.value)

    @property
    def table(self) -> DestinationTable:
        """All destinations, to be read only."""
        return self._table

    @property
    def loaded(self) -> bool:
        """Whether the grid has been read: until then nobody can tell what a path is."""
        return self._loaded.is_set()

    # --- Changing -----------------------------------------------------------------------------------------------------

    async def set(self, destination: Destination) -> Destination:
        """Say what the paths of a selector are, in the place of what its origin said before.

        When this returns, the grid holds it and this node knows it; all others do within a second.

        Returns:
            The destination as it is held.

        Raises:
            TooManyDestinations: nothing was written.
            GridUnavailable: to be tried again; it may have been done.
        """
        destination = replace(destination, made=self._clock.wall())
        changed = await self._store.put(destination)
        if changed:
            self._announce(DestinationsChanged(destination.origin, described=(destination,)))
        name = destination.name
        await self._until(lambda: (known := self._table.named(name)) is not None and known.says_the_same(destination))
        return self._table.named(name) or destination

    async def remove(self, origin: Origin, selector: Selector) -> bool:
        """Take back what an origin says of a selector.

        Returns:
            False if it says nothing.

        Raises:
            GridUnavailable: to be tried again; it may have been done.
        """
        name = name_of(origin, selector)
        known = self._table.named(name)
        removed = await self._store.remove(name)
        if removed:
            self._announce(DestinationsChanged(origin, removed=(selector,)))
        await self._until(lambda: self._table.named(name) is None)
        # Somebody else may have been faster, or the answer of an earlier try was lost.
        return removed or known is not None

    async def apply_file(self, destinations: Sequence[Destination]) -> Applied:
        """Make *destinations* all that the file says, as soon as the grid is there.

        Raises:
            TooManyDestinations: nothing was written.
        """
        made = self._clock.wall()
        said = [replace(each, made=made) for each in destinations]
        names = {each.name for each in said}
        before, applied = await self._apply(said)
        if applied.written or applied.removed:
            self._announce(
                DestinationsChanged(
                    Origin.FILE,
                    described=tuple(each for each in said if not any(each.says_the_same(known) for known in before)),
                    removed=tuple(each.selector for each in before if each.name not in names),
                )
            )
        return applied

    async def _apply(self, said: Sequence[Destination]) -> tuple[Sequence[Destination], Applied]:
        await self._loaded.wait()
        while True:
            before = self._table.of(Origin.FILE)
            try:
                return before, await self._store.apply(Origin.FILE, said)
            except GridUnavailable:
                await asyncio.sleep(GRID_RETRY)

    # --- Background ---------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Hear what is said of paths, for ever."""
        async for news in self._store.follow():
            self._hear(news)
            self._heard.set()

    def _hear(self, news: DestinationNews) -> None:
        if not isinstance(news, AllDestinations):
            for change in news.changes:
                if isinstance(change, DestinationRemoved):
                    self._table.drop(change.name)
                else:
                    self._table.put(change)
            return
        held = {each.name: each for each in news.destinations}
        missing = [each for each in self._table if each.name not in held or held[each.name].made < each.made]
        for each in list(self._table):
            if each.name not in held:
                self._table.drop(each.name)
        for each in held.values():
            self._table.put(each)
        if news.lost_writes and missing:
            for each in missing:
                self._table.put(each)
            self._background.once(self._restore(missing), "restore-destinations")
        if not self.loaded or news.lost_writes:
            self._log.emit(events.DESTINATIONS_READ, destinations=len(self._table), lost_writes=news.lost_writes)
        self._loaded.set()

    async def _restore(self, missing: Sequence[Destination]) -> None:
        """Put back what the grid has lost, unless it was taken back meanwhile."""
        while True:
            left = [each for each in missing if self._table.named(each.name) == each]
            try:
                written = await self._store.restore(left)
            except GridUnavailable:
                await asyncio.sleep(GRID_RETRY)
                continue
            self._log.emit(events.DESTINATIONS_RESTORED, destinations=written)
            return

    async def _until(self, known: Callable[[], bool]) -> None:
        """Wait until this node has heard what the grid holds already, but not for ever: another change may follow."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OWN_NEWS):
                while not known():
                    self._heard.clear()
                    await self._heard.wait()

    def _count(self, kind: Kind) -> float:
        return float(self._table.count(kind))
