"""Suspects nodes that are not heard any more over their links, and looks at their leases until it is known (P17).

Nothing is taken from a suspect. Who has failed is said by the grid alone: by a lease that has ended there. Without
suspicion a node learns that with the next renewal of its own lease; a suspect is looked at in the moment in which its
lease ends. While nobody is suspected, nothing is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from gateway.app.cluster.node_links import NodeLinks
from gateway.app.context import Context
from gateway.app.journal.node_events import NodeSuspected, SuspicionCleared
from gateway.catalogue import takeover_metrics as catalogue
from gateway.core.pacing.suspicion import Suspicions
from gateway.core.types import NodeRef
from gateway.ports import GridUnavailable, LeaseTable
from gateway.ports.peers import Down, Up

LOOKS: Final = 4
"""Times in a heartbeat that this node looks who was heard: a suspicion comes, and goes, so much later at most."""


class SuspicionWatch:
    """Suspects other nodes, and has the grid say whether they have failed.

    Args:
        context: of the node.
        links: to the other nodes.
        on_change: called when somebody is suspected, or is not any more.
        on_failed: all called with nodes whose leases have ended.
    """

    def __init__(
        self,
        context: Context,
        links: NodeLinks,
        *,
        on_change: Callable[[], None],
        on_failed: Sequence[Callable[..., None]],
    ) -> None:
        takeover = context.parameters.takeover
        self._me = context.me
        self._grid = context.grid
        self._clock = context.clock
        self._announce = context.announce
        self._links = links
        self._on_change = on_change
        self._on_failed = on_failed
        self._pause = takeover.heartbeat / LOOKS
        self._suspicions = Suspicions(
            heartbeat=takeover.heartbeat, suspect_after=takeover.suspect_after, confirm=takeover.confirm
        )
        self._alive: tuple[NodeRef, ...] = ()
        self._linked: dict[NodeRef, float] = {}
        """When links came up, of nodes that have not hung up since: their leases may be seen only later."""
        links.on_change(self._changed)
        context.metrics.watch(catalogue.SUSPECTS, lambda: float(len(self._suspicions.suspects)))

    @property
    def suspects(self) -> tuple[NodeRef, ...]:
        """Those that this node suspects, sorted."""
        return tuple(sorted(self._suspicions.suspects))

    def follow(self, table: LeaseTable) -> None:
        """This node has looked who is there."""
        self._alive = tuple(each for each in table.alive if each != self._me)
        for node in [each for each in self._linked if each not in self._alive and not self._links.state(each).up]:
            del self._linked[node]
        if self._suspicions.follow(self._alive):
            self._on_change()

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            self._observe()
            await self._look()
            await asyncio.sleep(self._until_next())

    def _changed(self, event: Up | Down) -> None:
        if isinstance(event, Up):
            self._linked[event.peer] = self._clock.monotonic()
        elif event.planned:
            self._linked.pop(event.peer, None)
            self._suspicions.left(event.peer)

    def _observe(self) -> None:
        now = self._clock.monotonic()
        heard: dict[NodeRef, float] = {}
        for node in self._alive:
            state = self._links.state(node)
            if state.up:
                heard[node] = now - state.silence
            elif node in self._linked:
                heard[node] = self._linked[node]
        changed = self._suspicions.observe(heard, now)
        for each in changed.suspected:
            self._announce(NodeSuspected(each.node, now - each.heard))
        for each in changed.cleared:
            self._announce(SuspicionCleared(each.node, now - each.since))
        if changed.suspected or changed.cleared:
            self._on_change()

    async def _look(self) -> None:
        due = self._suspicions.due(self._clock.monotonic())
        if not due:
            return
        left: dict[NodeRef, float | None] = dict.fromkeys(due)
        with suppress(GridUnavailable):  # nobody has failed as long as nobody can say so
            left = dict(zip(due, await self._grid.nodes.look(*due), strict=True))
        now = self._clock.monotonic()
        failed = [node for node in due if self._suspicions.looked(node, left[node], now)]
        if failed:
            for tell in self._on_failed:
                tell(*failed)

    def _until_next(self) -> float:
        look = self._suspicions.next_look()
        return self._pause if look is None else min(self._pause, max(0.0, look - self._clock.monotonic()))
