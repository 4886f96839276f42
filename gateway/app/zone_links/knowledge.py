"""What a node knows of zones at this moment, for whoever has a link to serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from gateway.core.topics.selectors import Selector
from gateway.core.types import NodeRef
from gateway.core.zones.compaction import MOST_SELECTORS, compact
from gateway.core.zones.interest import ClusterInterest
from gateway.core.zones.records import Join, JoinDirection, Member
from gateway.core.zones.routes import ClusterId, Place
from gateway.ports import ZoneTable

UNKNOWN: ClusterId = ClusterId("")
"""In the place of the cluster's id, before the grid has told it."""


class Knowledge:
    """Zones, members and joins, and the interest of this cluster.

    Args:
        most: selectors by which the interest is told, at most.

    Attributes:
        cluster: id of this cluster; ``UNKNOWN`` at first.
        name: of it, for people.
        table: what the grid holds.
        losses: another number whenever the grid has lost writes.
        interest: the fewest selectors that say what this cluster selects: its sessions, and its joins (003-32).
    """

    def __init__(self, *, most: int = MOST_SELECTORS) -> None:
        self.cluster = UNKNOWN
        self.name = ""
        self.table = ZoneTable()
        self.losses = 0
        self.interest: frozenset[Selector] = frozenset()
        self._most = most
        self._union: ClusterInterest[NodeRef | str] = ClusterInterest()
        self._watchers: dict[Callable[[], None], None] = {}

    @property
    def is_ready(self) -> bool:
        """Whether anything is known yet."""
        return self.cluster != UNKNOWN

    @property
    def here(self) -> Place:
        """Where events are that are in this cluster: its zone, or the cluster itself."""
        zone = self.table.zone
        return Place(self.cluster if zone is None else zone.uid)

    @property
    def own(self) -> Member | None:
        """What this cluster tells of itself in its zone; None if it is in none."""
        zone = self.table.zone
        return None if zone is None else self.table.members.get((zone.uid, self.cluster))

    @property
    def others(self) -> list[Member]:
        """The other members of this cluster's zone."""
        zone = self.table.zone
        if zone is None:
            return []
        return [each for each in self.table.members_of(zone.uid) if each.cluster != self.cluster]

    def joins(self, direction: JoinDirection) -> list[Join]:
        """List the joins of a direction, by name."""
        return [each for _, each in sorted(self.table.joins.items()) if each.direction is direction]

    # --- What is learnt -----------------------------------------------------------------------------------------------

    def learn_identity(self, cluster: ClusterId, name: str) -> None:
        """The grid has told the id of this cluster."""
        if (cluster, name) != (self.cluster, self.name):
            self.cluster, self.name = cluster, name
            self._tell()

    def learn_table(self, table: ZoneTable) -> None:
        """The grid has told of zones."""
        self.table = table
        joins = {f"join {each.name}": each.selectors for each in self.joins(JoinDirection.OUT)}
        sources = {each for each in self._union.sources if isinstance(each, str)}
        for gone in sources - joins.keys():
            self._union.drop(gone)
        for name, selectors in joins.items():
            self._union.put(name, selectors)
        self._compact()
        self._tell()

    def learn_interest(self, told: Mapping[NodeRef, AbstractSet[Selector]]) -> None:
        """The grid has told what the sessions of all nodes select."""
        changed = False
        for gone in {each for each in self._union.sources if isinstance(each, NodeRef)} - told.keys():
            changed |= self._union.drop(gone)
        for node, selectors in told.items():
            changed |= self._union.put(node, selectors)
        if changed:
            self._compact()
            self._tell()

    def _compact(self) -> None:
        self.interest = compact(self._union.selectors, most=self._most)

    # --- Who is told --------------------------------------------------------------------------------------------------

    def watch(self, tell: Callable[[], None]) -> None:
        """Have *tell* called whenever anything may have changed; it does not wait."""
        self._watchers[tell] = None

    def unwatch(self, tell: Callable[[], None]) -> None:
        """Do so no more."""
        self._watchers.pop(tell, None)

    def _tell(self) -> None:
        for tell in tuple(self._watchers):
            tell()
