"""What crosses the links of this node with other clusters: counted as it does, and told about once a minute.

The sender counts what it sends, and the receiver what becomes of it. What is sent once more after a link broke is
counted again by both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.app.journal.traffic import add_up

LINKS_TOLD: Final = 50
"""Links with a record of their own, the busiest ones; see ``traffic.ROOTS_TOLD``."""

LINKS_COUNTED: Final = 1_024
"""Links that are counted apart: as many as a node may have, with some that came and went."""

THE_REST: Final = "*"
"""Stands for all links without a record of their own, and for their other ends."""


class CountedLink(NamedTuple):
    """Which link, and which end of it.

    Attributes:
        link: its name.
        remote: the other cluster, or the join, for people.
        direction: ``out`` if this node sends, ``in`` if it takes.
    """

    link: str
    remote: str
    direction: str


@dataclass(slots=True)
class LinkTally:
    """What was counted for one link.

    Attributes:
        events: that were sent, or came.
        bytes: of their values.
        taken: of those that came, the ones that are in the grid now.
        repeated: of those that came, the ones that had come before, or were older than what is here.
        refused: of those that came, the ones that may not be taken.
        behind: the most entries of streams that had yet to be looked at.
    """

    events: int = 0
    bytes: int = 0
    taken: int = 0
    repeated: int = 0
    refused: int = 0
    behind: int = 0

    @property
    def has_something(self) -> bool:
        """Whether there is something to tell."""
        return bool(self.events or self.taken or self.repeated or self.refused or self.behind)

    def add(self, other: LinkTally) -> None:
        """Add what another one has counted."""
        add_up(self, other, most="behind")


class ZoneTraffic:
    """Counts what crosses links until it is taken out."""

    def __init__(self) -> None:
        self._links: dict[CountedLink, LinkTally] = {}
        self._rest: dict[str, LinkTally] = {}

    def of(self, link: CountedLink) -> LinkTally:
        """Find what is counted of a link until it is taken out next; to be asked for each time."""
        tally = self._links.get(link)
        if tally is None:
            if len(self._links) >= LINKS_COUNTED:
                return self._rest.setdefault(link.direction, LinkTally())
            tally = self._links[link] = LinkTally()
        return tally

    def take(self) -> Mapping[CountedLink, LinkTally]:
        """Take out what was counted since the last time: of the busiest links, and of the rest for each direction."""
        busiest = sorted(self._links.items(), key=lambda each: (each[1].events, each[1].behind), reverse=True)
        rest = self._rest
        for link, tally in busiest[LINKS_TOLD:]:
            rest.setdefault(link.direction, LinkTally()).add(tally)
        told = dict(busiest[:LINKS_TOLD])
        told |= {CountedLink(THE_REST, THE_REST, direction): tally for direction, tally in rest.items()}
        self._links, self._rest = {}, {}
        return {link: tally for link, tally in told.items() if tally.has_something}
