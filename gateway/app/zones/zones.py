"""What a node does for zones besides links: it knows of them, tells its interest, and keeps its cluster known."""

from __future__ import annotations

from typing import Final

from gateway.app.context import Context
from gateway.app.registry.sessions import Sessions
from gateway.app.zones.interest_writer import InterestWriter
from gateway.app.zones.knowledge import ZoneKnowledge
from gateway.app.zones.linked_master import LinkedMaster
from gateway.app.zones.own_member import LOOK_SECONDS, OwnMember
from gateway.catalogue import zone_metrics as catalogue

NOTE_SECONDS: Final = 2.0
"""Seconds between two notes of how far the streams have come (``core/zones/stream_times.py``): by so much the time of a
value may be too late that was published a moment ago. A note is a command for each topic partition, and 3 KiB are
written where something was published since."""


class Zones:
    """What a node does for zones.

    Args:
        context: of the node.
        sessions: held here.

    Attributes:
        knowledge: what is known of them.
        interest: what is told of this node's sessions.
    """

    def __init__(self, context: Context, sessions: Sessions) -> None:
        self._background = context.background
        self.knowledge = ZoneKnowledge(context)
        self.interest = InterestWriter(context, sessions, self.knowledge)
        own_member = OwnMember(context, self.knowledge)
        self._own_member = LinkedMaster(context, self.knowledge, own_member.look, every=LOOK_SECONDS)
        note_times = context.grid.origins.note_times
        self._stream_times = LinkedMaster(context, self.knowledge, note_times, every=NOTE_SECONDS)
        context.metrics.watch(catalogue.ZONE_MEMBERS, self._members)
        context.metrics.watch(catalogue.ZONE_JOINS, lambda: len(self.knowledge.table.joins))
        context.metrics.watch(catalogue.ZONE_INTEREST_SELECTORS, lambda: self.interest.told)

    def start(self) -> None:
        """Begin to hear of them; the rest begins when the cluster has links."""
        self._background.forever(self.knowledge.follow, "zones")
        self._background.forever(self.knowledge.follow_interest, "zone-interest")
        self._background.forever(self.interest.run, "interest")
        self._background.forever(self.interest.durables.run, "durable-interest")
        self._background.forever(self._own_member.run, "own-member")
        self._background.forever(self._stream_times.run, "stream-times")

    def _members(self) -> float:
        zone = self.knowledge.table.zone
        return 0.0 if zone is None else float(len(self.knowledge.table.members_of(zone.uid)))
