"""What a node knows of zones: complete before anything is made of it, kept in step with the grid."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final

from gateway.app.context import Context
from gateway.catalogue import zone_log_events as events
from gateway.core.topics.selectors import Selector
from gateway.core.types import NodeRef
from gateway.core.zones.records import Record
from gateway.core.zones.routes import ClusterId
from gateway.ports import GridUnavailable, ZoneTable

GRID_RETRY: Final = 0.2
"""Seconds before something is asked again that the grid did not answer."""

OWN_NEWS: Final = 1.0
"""Seconds for which who changes something waits until this node has heard of it, too; mostly it takes milliseconds."""

CLUSTER_BYTES: Final = 12
"""Random bytes of the id of a cluster, where nobody has given it one: no two ever share one."""


class ZoneKnowledge:
    """Follows what the grid knows of zones, and what the nodes of the cluster are interested in while that matters.

    Args:
        context: of the node.

    Attributes:
        table: zones, members and joins.
        interest: what the sessions of each node select; empty while the cluster has no links.
        cluster: id of this cluster; empty until the grid has been reached.
        name: of this cluster, for people.
    """

    def __init__(self, context: Context) -> None:
        self._grid = context.grid
        self._background = context.background
        self._log = context.log
        self.name = context.parameters.cluster_name
        self.table = ZoneTable()
        self.interest: Mapping[NodeRef, AbstractSet[Selector]] = {}
        self.cluster = ClusterId("")
        self._listeners: list[Callable[[], None]] = []
        self._heard = asyncio.Event()
        self._loaded = asyncio.Event()
        self._linked = asyncio.Event()

    @property
    def is_linked(self) -> bool:
        """Whether the cluster is in a zone, or has joins: only then anything is told to others."""
        return self.table.zone is not None or bool(self.table.joins)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have *listener* called after each change of the table, of interest, or of the id of the cluster."""
        self._listeners.append(listener)

    async def loaded(self) -> None:
        """Wait until the grid has been read, and the id of the cluster is known."""
        await self._loaded.wait()

    async def until(self, known: Callable[[], bool]) -> None:
        """Wait until this node has heard what the grid holds already, but not for ever: another change may follow."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OWN_NEWS):
                while not known():
                    self._heard.clear()
                    await self._heard.wait()

    # --- Background ---------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Hear what is known of zones, for ever."""
        async for told in self._grid.zones.follow():
            table = told
            if table.lost_writes or not self.cluster:
                await self._identify()
            missing = self._missing(table) if table.lost_writes else ()
            if missing:
                # What is missing was lost, and nobody has taken it back.
                known = {each.row: each for each in table.records} | {each.row: each for each in missing}
                table = ZoneTable.of(known.values())
                self._background.once(self._restore(missing), "restore-zones")
            self.table = table
            if self.is_linked:
                self._linked.set()
            else:
                self._linked.clear()
                self.interest = {}
            self._loaded.set()
            self._tell()

    async def follow_interest(self) -> None:
        """Hear what the nodes of the cluster are interested in, for ever, while it has links."""
        while True:
            await self._linked.wait()
            news = aiter(self._grid.zones.follow_interest())
            async for interest in news:
                if not self._linked.is_set():
                    break
                self.interest = interest
                self._tell()

    async def _identify(self) -> None:
        """Ask for the id of the cluster; a grid that lost all data gets it back."""
        while True:
            try:
                suggested = self.cluster or secrets.token_urlsafe(CLUSTER_BYTES)
                self.cluster = ClusterId(await self._grid.nodes.cluster(suggested))
            except GridUnavailable:
                await asyncio.sleep(GRID_RETRY)
            else:
                return

    def _missing(self, table: ZoneTable) -> Sequence[Record]:
        held = {each.row: each for each in table.records}
        return [each for each in self.table.records if each.row not in held or held[each.row].rank < each.rank]

    async def _restore(self, missing: Sequence[Record]) -> None:
        """Put back what the grid has lost."""
        while True:
            try:
                written = await self._grid.zones.restore(missing)
            except GridUnavailable:
                await asyncio.sleep(GRID_RETRY)
                continue
            self._log.emit(events.ZONES_RESTORED, records=written)
            return

    def _tell(self) -> None:
        self._heard.set()
        for listener in self._listeners:
            listener()
