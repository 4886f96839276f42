"""Zones in the grid of one cluster: who is in which, what is joined, who is interested, who has which link (P18).

See ``gateway.ports`` for the rules that hold for all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NewType, Protocol, Self

from gateway.core.topics.selectors import Selector
from gateway.core.types import NodeRef
from gateway.core.wire.errors import GatewayError
from gateway.core.zones.records import Join, Member, Membership, Record, Zone, ZoneUid
from gateway.core.zones.routes import ClusterId
from gateway.ports.topics import StreamPosition

LinkName = NewType("LinkName", str)
"""Name of a link, or of a share of one, within this cluster. Its nodes agree on it; it has no blanks."""

MOST_CARRIED: Final = 1_024
"""Links and shares of links of a cluster, together: those to 64 clusters, spread over 16 nodes each."""


TERMS_OF_A_GENERATION: Final = 2**20
"""Terms of carriers begin anew with each generation of the grid, above all of those before it: a million takeovers."""


class TooManyRecords(GatewayError):
    """The grid holds as many zones, members or joins as it may; nothing was written."""


class OtherZone(GatewayError):
    """The cluster is in another zone, and it can be in one only (003-02); nothing was written.

    Attributes:
        zone: in which one.
    """

    def __init__(self, zone: ZoneUid) -> None:
        super().__init__(f"the cluster is in zone {zone}; a cluster is in one zone at most, so leave that one first")
        self.zone = zone


@dataclass(frozen=True, slots=True)
class ZoneTable:
    """All that the grid of a cluster knows of zones, and that this release can read.

    Attributes:
        zones: those that are known here, by uid.
        membership: in which one this cluster is; None if that was never said.
        members: of all these zones, those that have left included.
        joins: of this cluster, by name.
        lost_writes: the grid may have lost writes since the table before, so that what is missing here need not have
            been removed.
    """

    zones: Mapping[ZoneUid, Zone] = field(default_factory=dict)
    membership: Membership | None = None
    members: Mapping[tuple[ZoneUid, ClusterId], Member] = field(default_factory=dict)
    joins: Mapping[str, Join] = field(default_factory=dict)
    lost_writes: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, records: Iterable[Record], *, lost_writes: bool = False) -> Self:
        """Make a table of records, of which no two have the same name."""
        zones, members, joins = {}, {}, {}
        membership = None
        for each in records:
            match each:
                case Zone():
                    zones[each.uid] = each
                case Member():
                    members[each.zone, each.cluster] = each
                case Join():
                    joins[each.name] = each
                case Membership():
                    membership = each
        return cls(zones, membership, members, joins, lost_writes)

    @property
    def zone(self) -> Zone | None:
        """The zone in which this cluster is; None if it is in none."""
        uid = None if self.membership is None else self.membership.zone
        return None if uid is None else self.zones.get(uid)

    def members_of(self, zone: ZoneUid) -> list[Member]:
        """List the members of a zone that have not left, in the order of their ids."""
        return [each for (uid, _), each in sorted(self.members.items()) if uid == zone and not each.left]

    @property
    def records(self) -> list[Record]:
        """Everything."""
        membership = [] if self.membership is None else [self.membership]
        return [*self.zones.values(), *membership, *self.members.values(), *self.joins.values()]


@dataclass(frozen=True, slots=True)
class Carrier:
    """Who has a link, or a share of one.

    Attributes:
        node: which run of which node.
        term: grows with each node that takes it; of two that both believe to have it, the one of the larger term does.
        left: seconds until somebody else may take it, by the clock of the grid.
    """

    node: NodeRef
    term: int
    left: float = field(default=0.0, compare=False)


class ZoneStore(Protocol):
    """What a cluster knows of zones, its interest, and who has its links.

    What a call has written is with every follower within a second, and mostly within some milliseconds. All of it works
    also when the grid's memory is full.
    """

    # --- Zones, members, joins ----------------------------------------------------------------------------------------

    def follow(self) -> AsyncIterator[ZoneTable]:
        """Yield everything, and again everything after each change, for ever; for one listener.

        Changes that come together are yielded together. While the grid is unreachable it waits.
        """

    async def read(self) -> ZoneTable:
        """Read everything now, with what was written by calls that have returned.

        Raises:
            GridUnavailable: see the module.
        """

    async def put(self, *records: Zone | Member | Join) -> int:
        """Write records, each in the place of an earlier one of the same zone, member or name, if its rank is higher.

        All of it is one step. Of two with the same rank the one that is there stays.

        Returns:
            How many were written.

        Raises:
            TooManyRecords: see there.
            GridUnavailable: see the module.
        """

    async def remove_join(self, name: str) -> bool:
        """Delete a join.

        Returns:
            False if there was none. Of a step whose answer was lost, asking again tells False, too.

        Raises:
            GridUnavailable: see the module.
        """

    async def enter(self, zone: Zone, member: Member, *, made: float) -> None:
        """Make this cluster a member of a zone, in one step: write the zone if it is not known, member and membership.

        The member is written with a revision above the one that is known of it, such as of an earlier time there.

        Args:
            zone: which one. It takes the place of what is known of it.
            member: this cluster.
            made: now, in seconds since 1970.

        Raises:
            OtherZone: it is in another one.
            TooManyRecords: see there.
            GridUnavailable: see the module.
        """

    async def leave(self, cluster: ClusterId, *, made: float) -> ZoneUid | None:
        """Be in no zone any more, in one step: this cluster's member is one that has left. The zone stays known.

        Args:
            cluster: this one.
            made: now, in seconds since 1970.

        Returns:
            Which zone that was; None if there was none.

        Raises:
            GridUnavailable: see the module.
        """

    async def merge(self, members: Sequence[Member], *, own: ClusterId) -> int:
        """Take what another cluster tells of members: each that is known here with a lower revision, or not at all.

        What is told of this cluster itself counts for nothing. But if that has a higher revision than what is known
        here, because the grid lost writes, the own one is raised above it, so that others believe it again.

        Args:
            members: as they were told; checked (``check_member``).
            own: this cluster.

        Returns:
            How many were changed.

        Raises:
            TooManyRecords: some did not fit; those that did were written.
            GridUnavailable: see the module.
        """

    async def restore(self, records: Sequence[Record]) -> int:
        """Put back those that a grid which lost writes holds not at all, or with a lower rank.

        Those that are more than the grid may hold are left out.

        Returns:
            How many were written.

        Raises:
            GridUnavailable: see the module.
        """

    # --- Interest -----------------------------------------------------------------------------------------------------

    async def put_interest(self, node: NodeRef, selectors: Collection[Selector], *, keep: float) -> None:
        """Tell what the sessions of a node select: all of it.

        Args:
            node: which run of which node.
            selectors: all of them.
            keep: seconds for which that counts when the node has no lease any more, from when ``sweep_interest`` finds
                that: its sessions are owed what they select until their windows are over.

        Raises:
            LeaseLost: the node has no lease; nothing was written.
            ValueError: they are more than ``MOST_SELECTORS`` (``gateway.core.zones.compaction``); likewise.
            GridUnavailable: see the module.
        """

    async def change_interest(
        self, node: NodeRef, *, added: Collection[Selector], dropped: Collection[Selector], keep: float
    ) -> None:
        """Tell by what the sessions of a node select more or less than was told before.

        Raises:
            LeaseLost: the node has no lease; nothing was written.
            ValueError: they would be more than ``MOST_SELECTORS``; likewise.
            GridUnavailable: see the module.
        """

    def follow_interest(self) -> AsyncIterator[Mapping[NodeRef, AbstractSet[Selector]]]:
        """Yield what the sessions of all nodes select, and again all of it after each change, for ever.

        For one listener. The set of a node that has not changed is the same object as before. What this release cannot
        read is left out. While the grid is unreachable it waits.
        """

    async def sweep_interest(self) -> int:
        """Forget what nodes have told that have had no lease for as long as they said.

        Returns:
            How many nodes without a lease there still are of which something is kept.

        Raises:
            GridUnavailable: see the module.
        """

    # --- Carriers -----------------------------------------------------------------------------------------------------

    async def carry(self, node: NodeRef, names: Collection[LinkName], *, lease: float) -> Mapping[LinkName, Carrier]:
        """Take links that nobody has, and keep those that the node has, for *lease* seconds from now.

        One step for all of them. Whoever has one keeps it for as long as it asks in time.

        Returns:
            Who has each of *names* now.

        Raises:
            TooManyRecords: more than ``MOST_CARRIED`` are carried.
            GridUnavailable: see the module.
        """

    async def release(self, node: NodeRef, names: Collection[LinkName]) -> None:
        """Give links back that the node has, so that somebody else can take them at once.

        Raises:
            GridUnavailable: see the module.
        """

    async def carriers(self) -> Mapping[LinkName, Carrier]:
        """Tell who has which link.

        Raises:
            GridUnavailable: see the module.
        """

    # --- Cursors ------------------------------------------------------------------------------------------------------

    async def cursors(self, link: LinkName) -> Mapping[int, StreamPosition]:
        """Tell up to where a link has come in each topic partition; those that were never told are missing.

        Raises:
            GridUnavailable: see the module.
        """

    async def advance(self, link: LinkName, term: int, positions: Mapping[int, StreamPosition]) -> bool:
        """Note up to where a link has come. It may also go back.

        Args:
            link: which one.
            term: of its carrier.
            positions: by partition.

        Returns:
            False if a carrier of a later term has noted something; then nothing was written.

        Raises:
            GridUnavailable: see the module.
        """

    async def forget_link(self, link: LinkName) -> None:
        """Forget all that was noted of a link, and who has it.

        Raises:
            GridUnavailable: see the module.
        """
