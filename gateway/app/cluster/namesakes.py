"""Other living nodes that have the name of this one.

A name is a place: clients come back to it, HAProxy has one server for it, and administrators mean one process by it. So
of two, the one that came later takes no new sessions, and both say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.app.context import Context
from gateway.catalogue import log_events as events
from gateway.catalogue.metrics import NAMESAKES
from gateway.core.types import NodeRef
from gateway.ports import LeaseTable, NodeEntry

LIVING_LEASES: Final = 2.0
"""Leases for which another run of this node must hold its own beside this one before it counts as living. A node that
was killed and started again sees that of its former process for one lease, and for one more if it was granted anew."""


class Namesakes:
    """Finds other living nodes of the same name.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._me = context.me
        self._nodes = context.grid.nodes
        self._clock = context.clock
        self._log = context.log
        self._patience = LIVING_LEASES * context.parameters.lease
        self._since: dict[NodeRef, float] = {}
        self._living: dict[NodeRef, NodeEntry | None] = {}
        self._comes_later = False
        context.metrics.watch(NAMESAKES, lambda: float(len(self._living)))

    async def look(self, table: LeaseTable) -> None:
        """Look for them.

        Args:
            table: the leases, as the renewal saw them that this follows.

        Raises:
            GridUnavailable: what was found before stays until the next look.
        """
        now = self._clock.monotonic()
        there = [each for each in table.alive if each.node == self._me.node and each != self._me]
        self._since = {each: self._since.get(each, now) for each in there}
        living = [each for each, since in self._since.items() if now - since > self._patience]
        if not living:
            self._living, self._comes_later = {}, False
            return
        entries = {entry.node: entry for entry in await self._nodes.entries()}
        mine = entries.get(self._me)
        known, self._living = self._living, {each: entries.get(each) for each in living}
        self._comes_later = any(
            mine is not None and other is not None and other.joined < mine.joined for other in self._living.values()
        )
        for each in living:
            if each not in known:
                self._log.emit(
                    events.NODE_NAME_TAKEN,
                    node=str(self._me),
                    other=str(each),
                    other_admin=_admin(self._living[each]),
                    takes_sessions=not self._comes_later,
                )

    def reasons(self) -> Sequence[str]:
        """Tell why no new sessions should come here: the name is another node's, which was there before."""
        return self._sentences() if self._comes_later else ()

    def warnings(self) -> Sequence[str]:
        """Tell of nodes that came later and use the name of this one."""
        return () if self._comes_later else self._sentences()

    def _sentences(self) -> list[str]:
        return [
            f"another node has the name {self._me.node} (admin port {_admin(entry) or 'unknown'}); give each a name of "
            "its own by the setting node"
            for entry in self._living.values()
        ]


def _admin(entry: NodeEntry | None) -> str:
    return "" if entry is None or entry.report is None else entry.report.admin
