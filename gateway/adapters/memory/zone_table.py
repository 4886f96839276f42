"""What an in-memory grid knows of zones: records, interest, who has which link. One method per atomic step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from gateway.adapters.memory.lease_table import Leases
from gateway.adapters.memory.named_leases import NamedLeases
from gateway.core.topics.selectors import Selector
from gateway.core.types import GridGeneration, NodeRef
from gateway.core.zones.compaction import MOST_SELECTORS
from gateway.core.zones.records import (
    MEMBERSHIP,
    MOST_JOINS,
    MOST_MEMBERS,
    MOST_ZONES,
    Join,
    Member,
    Membership,
    Record,
    Zone,
    ZoneUid,
)
from gateway.core.zones.routes import ClusterId
from gateway.ports import (
    MOST_CARRIED,
    Carrier,
    LeaseLost,
    LinkName,
    OtherZone,
    StreamPosition,
    TooManyRecords,
    ZoneTable,
)

_MOST: Final[Mapping[type[Record], int]] = {
    Zone: MOST_ZONES,
    Member: MOST_MEMBERS,
    Join: MOST_JOINS,
    Membership: 1,
}


@dataclass(slots=True)
class _Told:
    """What a node has told of its interest.

    Attributes:
        selectors: that its sessions select.
        keep: seconds for which it counts when the node is gone.
        until: when it ends; None while the node has a lease, or before that was found.
    """

    selectors: AbstractSet[Selector]
    keep: float
    until: float | None = None


class Zones:
    """All of it. *now* is the grid's clock in seconds.

    Attributes:
        revision: counts the changes of records.
        interest_revision: counts the changes of interest.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.interest_revision = 0
        self._records: dict[str, Record] = {}
        self._interest: dict[NodeRef, _Told] = {}
        self._carried: NamedLeases[LinkName, Carrier] = NamedLeases(most=MOST_CARRIED, holder=Carrier)
        self._cursors: dict[LinkName, tuple[int, dict[int, StreamPosition]]] = {}

    # --- Records ------------------------------------------------------------------------------------------------------

    def table(self) -> ZoneTable:
        """Tell everything."""
        return ZoneTable.of(self._records.values())

    def put(self, records: Sequence[Record]) -> int:
        """See ``ZoneStore.put``."""
        wanted = [each for each in records if self._is_higher(each)]
        self._check_room(wanted)
        return self._write(wanted)

    def remove_join(self, name: str) -> bool:
        """See ``ZoneStore.remove_join``."""
        if self._records.pop(f"join {name}", None) is None:
            return False
        self.revision += 1
        return True

    def enter(self, zone: Zone, member: Member, made: float) -> None:
        """See ``ZoneStore.enter``."""
        current = self._current()
        if current is not None and current != zone.uid:
            raise OtherZone(current)
        wanted: list[Record] = [] if current == zone.uid else [Membership(zone=zone.uid, made=made)]
        known = self._records.get(zone.row)
        if not isinstance(known, Zone) or replace(zone, made=known.made) != known:
            wanted.append(zone)
        before = self._records.get(member.row)
        if isinstance(before, Member):
            member = replace(member, revision=max(member.revision, before.revision))
            if member != before:
                member = replace(member, revision=before.revision + 1)
        if member != before:
            wanted.append(member)
        self._check_room(wanted)
        self._write(wanted)

    def leave(self, cluster: ClusterId, made: float) -> ZoneUid | None:
        """See ``ZoneStore.leave``."""
        current = self._current()
        if current is None:
            return None
        wanted: list[Record] = [Membership(zone=None, made=made)]
        member = self._records.get(Member(zone=current, cluster=cluster).row)
        if isinstance(member, Member):
            wanted.append(Member(zone=current, cluster=cluster, revision=member.revision + 1, left=True))
        self._write(wanted)
        return current

    def merge(self, members: Sequence[Member], own: ClusterId) -> int:
        """See ``ZoneStore.merge``."""
        written, full = 0, False
        for each in members:
            known = self._records.get(each.row)
            if each.cluster == own:
                if isinstance(known, Member) and known.revision < each.revision:
                    written += self._write([replace(known, revision=each.revision + 1)])
            elif self._is_higher(each):
                try:
                    self._check_room([each])
                except TooManyRecords:
                    full = True
                else:
                    written += self._write([each])
        if full:
            raise TooManyRecords(f"the grid holds at most {MOST_MEMBERS:,} members of zones")
        return written

    def restore(self, records: Sequence[Record]) -> int:
        """See ``ZoneStore.restore``."""
        written = 0
        for each in records:
            if self._is_higher(each):
                try:
                    self._check_room([each])
                except TooManyRecords:
                    continue
                written += self._write([each])
        return written

    def _current(self) -> ZoneUid | None:
        membership = self._records.get(MEMBERSHIP)
        return membership.zone if isinstance(membership, Membership) else None

    def _is_higher(self, record: Record) -> bool:
        known = self._records.get(record.row)
        return known is None or known.rank < record.rank

    def _check_room(self, records: Iterable[Record]) -> None:
        counts = Counter(type(each) for each in self._records.values())
        counts.update(
            type(each) for each in {each.row: each for each in records}.values() if each.row not in self._records
        )
        for kind, count in counts.items():
            if count > _MOST[kind]:
                raise TooManyRecords(f"the grid holds at most {_MOST[kind]:,} records of this kind")

    def _write(self, records: Sequence[Record]) -> int:
        for each in records:
            self._records[each.row] = each
            self.revision += 1
        return len(records)

    # --- Interest -----------------------------------------------------------------------------------------------------

    def interest(self) -> Mapping[NodeRef, AbstractSet[Selector]]:
        """Tell what nodes have told."""
        return {node: told.selectors for node, told in self._interest.items()}

    def put_interest(self, node: NodeRef, selectors: Collection[Selector], keep: float, leases: Leases) -> None:
        """See ``ZoneStore.put_interest``."""
        if node not in leases:
            raise LeaseLost(f"{node} has no lease, so that nobody would forget its interest when it is gone")
        known, wanted = self._interest.get(node), frozenset(selectors)
        if len(wanted) > MOST_SELECTORS:
            raise ValueError(f"a node tells at most {MOST_SELECTORS:,} selectors")
        if not wanted:
            if self._interest.pop(node, None) is not None:
                self.interest_revision += 1
        elif known is None or known.selectors != wanted:
            self._interest[node] = _Told(wanted, keep)
            self.interest_revision += 1
        else:
            known.keep, known.until = keep, None

    def change_interest(
        self,
        node: NodeRef,
        added: Collection[Selector],
        dropped: Collection[Selector],
        keep: float,
        leases: Leases,
    ) -> None:
        """See ``ZoneStore.change_interest``."""
        known = self._interest.get(node)
        selectors = frozenset() if known is None else known.selectors
        self.put_interest(node, (selectors | set(added)) - set(dropped), keep, leases)

    def sweep_interest(self, leases: Leases, now: float) -> int:
        """See ``ZoneStore.sweep_interest``."""
        gone = [node for node in self._interest if node not in leases]
        for node in gone:
            told = self._interest[node]
            if told.until is None:
                told.until = now + told.keep
            if told.until <= now:
                del self._interest[node]
                self.interest_revision += 1
        return sum(node not in leases for node in self._interest)

    # --- Carriers and cursors -----------------------------------------------------------------------------------------

    def carry(
        self, node: NodeRef, names: Collection[LinkName], lease: float, generation: GridGeneration, now: float
    ) -> Mapping[LinkName, Carrier]:
        """See ``ZoneStore.carry``."""
        carried = self._carried.take(node, names, lease, generation, now)
        if carried is None:
            raise TooManyRecords(f"the links of a cluster are at most {MOST_CARRIED:,}, shares of them included")
        return carried

    def release(self, node: NodeRef, names: Collection[LinkName]) -> None:
        """See ``ZoneStore.release``."""
        self._carried.release(node, names)

    def carriers(self, now: float) -> Mapping[LinkName, Carrier]:
        """See ``ZoneStore.carriers``."""
        return self._carried.holders(now)

    def cursors(self, link: LinkName) -> Mapping[int, StreamPosition]:
        """See ``ZoneStore.cursors``."""
        return dict(self._cursors.get(link, (0, {}))[1])

    def advance(self, link: LinkName, term: int, positions: Mapping[int, StreamPosition]) -> bool:
        """See ``ZoneStore.advance``."""
        known, before = self._cursors.get(link, (0, {}))
        if term < known:
            return False
        self._cursors[link] = (term, {**before, **positions})
        return True

    def forget_link(self, link: LinkName) -> None:
        """See ``ZoneStore.forget_link``."""
        self._cursors.pop(link, None)
        self._carried.forget(link)

    def inventory(self) -> set[str]:
        """Name everything that belongs to a node or a link."""
        names = {f"interest of {node}" for node in self._interest}
        names |= {f"carrier of {link}" for link in self._carried}
        return names | {f"cursors of {link}" for link in self._cursors}
