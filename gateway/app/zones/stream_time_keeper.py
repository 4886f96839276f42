"""Notes when events were published, while the cluster has links; the master of the cluster does it, alone (P18)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from gateway.app.context import Context
from gateway.app.zones.knowledge import ZoneKnowledge
from gateway.ports import GridUnavailable

NOTE_SECONDS: Final = 2.0
"""Seconds between two notes: by so much the time may be too late of a value that was published a moment ago. A note is
a command for each topic partition, and 3 KiB are written where something was published since. A cluster without links
has none of it (P11)."""


class StreamTimeKeeper:
    """Has the grid note how far the streams are.

    Args:
        context: of the node.
        knowledge: whether the cluster has links.
    """

    def __init__(self, context: Context, knowledge: ZoneKnowledge) -> None:
        self._origins = context.grid.origins
        self._knowledge = knowledge
        self._cluster = context.cluster
        self._linked = asyncio.Event()
        knowledge.on_change(self._look)

    async def run(self) -> None:
        """Note for ever, while the cluster has links."""
        while True:
            await self._linked.wait()
            if self._cluster.is_master:
                with suppress(GridUnavailable):
                    await self._origins.note_times()
            await asyncio.sleep(NOTE_SECONDS)

    def _look(self) -> None:
        if self._knowledge.is_linked:
            self._linked.set()
        else:
            self._linked.clear()
