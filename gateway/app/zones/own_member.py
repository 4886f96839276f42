"""Keeps what other clusters are told of this one in step with its nodes; the master of the cluster does it, alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gateway.app.context import Context
from gateway.app.zones.knowledge import ZoneKnowledge
from gateway.core.zones.records import MOST_URLS, Member
from gateway.ports import NodeEntry

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks at the reports of the nodes, by the master of a cluster that has links: a new node is told
to others within so long. That is one read in that time, and none in a cluster without links (P11)."""


class OwnMember:
    """Writes the place of this cluster in its zone, and forgets interest of nodes that are gone.

    Args:
        context: of the node.
        knowledge: what is known of zones.
    """

    def __init__(self, context: Context, knowledge: ZoneKnowledge) -> None:
        self._grid = context.grid
        self._knowledge = knowledge

    async def look(self) -> None:
        """Write what has changed.

        Raises:
            GridUnavailable: to be tried again.
        """
        await self._grid.zones.sweep_interest()
        knowledge = self._knowledge
        zone = knowledge.table.zone
        if zone is None:
            return
        known = knowledge.table.members.get((zone.uid, knowledge.cluster))
        if known is None or known.left:
            return
        wanted = member_of(known, knowledge.name, await self._grid.nodes.entries())
        if wanted != known:
            await self._grid.zones.put(replace(wanted, revision=known.revision + 1))


def member_of(member: Member, name: str, entries: Sequence[NodeEntry]) -> Member:
    """Describe a cluster by what its nodes tell: the first ``MOST_URLS`` of those that live."""
    reports = [each.report for each in entries if each.alive and each.report is not None]
    places = [each for each in reports if each.zone_url][:MOST_URLS]
    fingerprints = dict.fromkeys(each.zone_fingerprint for each in places if each.zone_fingerprint)
    return replace(
        member,
        name=name,
        urls=tuple(dict.fromkeys(each.zone_url for each in places)),
        fingerprints=tuple(fingerprints),
    )
