"""The nodes of the cluster, their leases, and who takes over from whom."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from gateway.core.types import GridGeneration, NodeRef
from gateway.core.wire.codes import MirrorMode
from gateway.ports.session_records import ALL_SAVED, Ownership, SavedUntil


@dataclass(frozen=True, slots=True)
class Master:
    """The one node of a cluster that is its master.

    Attributes:
        node: which run of which node.
        term: grows with each master; of two nodes that both believe to be it, the one of the larger term is.
    """

    node: NodeRef
    term: int


class MasterWish(StrEnum):
    """What a node that renews its lease wants of the role of the master."""

    TAKE = "take"
    """To have it, if nobody has."""
    KEEP = "keep"
    """To have it only if it has it already."""
    YIELD = "yield"
    """Not to have it."""


@dataclass(frozen=True, slots=True)
class LeaseTable:
    """The nodes of the cluster as one renewal saw them.

    Attributes:
        alive: nodes whose lease holds, sorted; the caller is among them.
        expired: nodes whose lease ended and whose sessions nobody has finished putting on the clock.
        watched: whether a node has said that somebody watches the system's topics there, and that is not over.
        master: of the cluster; None if nobody is.
        saved: up to when each of them has told that the grid holds all that happened to its sessions.
    """

    alive: tuple[NodeRef, ...]
    expired: tuple[NodeRef, ...]
    watched: bool = False
    master: Master | None = field(default=None, compare=False)
    saved: SavedUntil = field(default=ALL_SAVED, compare=False)


_NO_GENERATION: Final = GridGeneration(0)
"""Before the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverProgress:
    """How far a takeover has come, as it is kept beside the right to it: the next winner goes on from there.

    Attributes:
        stage: name of the stage that is under way; empty if none was begun.
        step: the first step of that stage that may not be done.
        sessions: that were put on the clock.
        generation: of the grid in which that was done; in another one it may be undone.
    """

    stage: str = ""
    step: int = 0
    sessions: int = 0
    generation: GridGeneration = _NO_GENERATION


NO_PROGRESS: Final = TakeoverProgress()
"""Nothing was begun."""


@dataclass(frozen=True, slots=True)
class ExpiredLease:
    """The lease of a node that is being taken over, by the grid's clock.

    Attributes:
        length: seconds for which it was last extended; when that happened, the node lived.
        ago: seconds since it ended.
        progress: of whoever began the takeover.
        unsaved: the grid was unreachable after the node had last told that all is saved: what happened to its sessions
            in that outage, the grid does not know.
    """

    length: float
    ago: float
    progress: TakeoverProgress = NO_PROGRESS
    unsaved: bool = False


@dataclass(frozen=True, slots=True)
class Takeover:
    """A takeover that is under way, or whose transient things have yet to be cleaned up.

    Attributes:
        expired: the node that is taken over.
        by: who has the right to do it; None if it was done, and the time to clean up has not come.
        left: seconds for which *by* has that right, if it lives; without *by*, until the time to clean up. Zero or less
            if that is over.
        progress: how far it has come.
    """

    expired: NodeRef
    by: NodeRef | None
    left: float
    progress: TakeoverProgress


class ZoneLinkState(StrEnum):
    """How a link to another cluster is."""

    UP = "up"
    DOWN = "down"
    """It cannot be reached, or is being tried."""
    REFUSED = "refused"
    """One of the two does not want the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneLinkReport:
    """What a node tells of a link to another cluster that it has.

    Attributes:
        name: of the link.
        remote: id of the other cluster, or the name of the join.
        remote_name: of the other cluster, for people; empty if it is not known.
        direction: ``out`` if events go there, ``in`` if they come.
        state: how it is.
        detail: why it is not up, for people.
        since: since when it is so, in seconds since 1970.
        events: that have crossed, since the node started.
        bytes: likewise.
        behind: entries of streams that have yet to be looked at.
        unacknowledged: events that were sent and not acknowledged.
        duplicates: events that were not taken, as they were there already.
        selectors: that were told, or heard, of interest.
    """

    name: str
    remote: str
    remote_name: str = ""
    direction: str = "out"
    state: str = ZoneLinkState.DOWN.value
    detail: str = ""
    since: float = 0.0
    events: int = 0
    bytes: int = 0
    behind: int = 0
    unacknowledged: int = 0
    duplicates: int = 0
    selectors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What a node tells the others of itself, about as often as it renews its lease.

    Attributes:
        listen: where its clients connect, as host:port.
        admin: where the other nodes reach its admin port, as a URL without a path.
        version: of the gateway it runs.
        started: when it started, in seconds since 1970 by its own clock.
        draining: whether its clients are being moved, or have been.
        reasons: why it is not ready for new sessions, for people; none if it is.
        connected: sessions with a client.
        disconnected: sessions whose window runs.
        lag: seconds by which its event loop was late when it last looked.
        link: where other nodes have a link to it, as host:port; empty if it has none.
        link_protocols: versions of the protocol of links that it speaks.
        session_bytes: that its sessions take in the grid, and those that it has given back.
        largest: bytes of those whose sessions take much, by principal.
        failure_domain: what it fails with, such as its rack; empty if it does not say.
        suspects: the nodes with a lease that it does not hear any more, as texts of their names and incarnations.
        urls: where clients reach it, of what it advertises.
        zone_url: where it takes links of other clusters; empty if it takes none.
        zone_fingerprint: SHA-256 of the certificate that it shows there, in hexadecimal.
        zone_links: the links to other clusters that it has.
    """

    listen: str
    admin: str
    version: str
    started: float
    draining: bool = False
    reasons: tuple[str, ...] = ()
    connected: int = 0
    disconnected: int = 0
    lag: float = 0.0
    link: str = ""
    link_protocols: tuple[int, ...] = ()
    session_bytes: int = 0
    largest: Mapping[str, int] = field(default_factory=dict)
    failure_domain: str = ""
    suspects: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    zone_url: str = ""
    zone_fingerprint: str = ""
    zone_links: tuple[ZoneLinkReport, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One run of one node, as the grid knows it.

    Attributes:
        node: which.
        alive: whether its lease holds.
        report: what it last told of itself; None if it told nothing yet.
        joined: of two nodes, the one with the larger number took its lease later; nothing else follows from it.
    """

    node: NodeRef
    alive: bool
    report: NodeReport | None
    joined: int = field(default=0, compare=False)


LOST_SECONDS: Final = 3600.0
"""How long a lost node is remembered: somebody who is called at night finds it in the list."""

LOST_NODES: Final = 64
"""Lost nodes that are remembered, so that one that dies again and again does not fill the list."""


@dataclass(frozen=True, slots=True)
class LostNode:
    """One run of one node that died: its lease ended, and others have taken over from it.

    Attributes:
        node: which.
        ago: seconds since its lease ended.
        report: what it last told of itself; None if it told nothing.
    """

    node: NodeRef
    ago: float
    report: NodeReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """Which node keeps copies of the sessions of another one, and how complete they are.

    Attributes:
        node: which run of which node has them.
        mode: what the copied node waits for.
        whole: sessions whose copies are complete.
        of: sessions that are to be copied.
    """

    node: NodeRef
    mode: MirrorMode
    whole: int
    of: int


GONE_BACKUPS: Final = 64
"""Nodes that are gone and whose backups are remembered: more than that do not go within a window, but for one that dies
again and again."""


class NodeDirectory(Protocol):
    """Who is there: leases by the grid's clock, and who takes over from whom."""

    def time_in_doubt(self) -> bool:
        """Tell whether this node has just come, and what looks over may be so by a clock that was set (P7, P17).

        It ends no window, takes over from nobody and becomes no master until the others have had the time to find out,
        a lease at most.
        """

    async def join(self, node: NodeRef, *, lease: float, saved_ago: float | None = None) -> None:
        """Take a lease of *lease* seconds, also after it expired.

        Args:
            node: which.
            lease: its length in seconds.
            saved_ago: as of ``renew``.

        Raises:
            GridUnavailable: see the module.
        """

    async def renew(
        self,
        node: NodeRef,
        *,
        lease: float,
        watch: float = 0.0,
        wish: MasterWish = MasterWish.KEEP,
        saved_ago: float | None = None,
    ) -> LeaseTable:
        """Extend the lease and look around.

        There is one master at most. Whoever has the role keeps it for as long as its lease holds, unless it yields.

        Args:
            node: which.
            lease: its length in seconds.
            watch: seconds for which everybody who renews shall see ``watched``, from now on; 0 leaves it as it is.
            wish: what the node wants of the role of the master.
            saved_ago: seconds since the moment up to which all that happened to the node's sessions is in the grid. It
                counts from now, however late the grid gets to it. None leaves what was told before: a node that never
                tells is believed to have saved everything.

        Raises:
            LeaseLost: the lease expired and a survivor may have taken over; ``join`` again, then verify every session.
            GridUnavailable: see the module. Also of a grid that was emptied: that it holds no lease means nothing.
        """

    async def leave(self, node: NodeRef) -> None:
        """Give the lease back after a drain; nobody needs to take over.

        Raises:
            GridUnavailable: see the module.
        """

    async def take_over(self, expired: NodeRef, *, by: NodeRef, within: float) -> ExpiredLease | None:
        """Win the right to take over from *expired*.

        Exactly one caller gets the expired lease. The next one may win if that caller has not said anything of it for
        *within* seconds, or holds no lease itself any more. The others get None, as everybody does if the node has come
        back.

        Raises:
            GridUnavailable: see the module.
        """

    async def keep_takeover(self, expired: NodeRef, *, by: NodeRef, within: float, progress: TakeoverProgress) -> bool:
        """Keep how far a takeover or its cleaning up has come, and extend the right to it: *within* seconds from now.

        Returns:
            Whether *by* has the right; False, and nothing is kept, if another one has it, or the node has come back.

        Raises:
            GridUnavailable: see the module.
        """

    async def finish_takeover(self, expired: NodeRef, *, by: NodeRef, clean_after: float = 0.0) -> None:
        """Declare that *expired* is taken over; it will not be listed as expired again, but as lost.

        Called again after ``clean``, it declares that all is cleaned up: nothing is kept of the takeover any more.

        Args:
            expired: which.
            by: who; no effect if it does not have the right.
            clean_after: seconds after which ``clean`` may be called; 0 if there is nothing to be cleaned up.

        Raises:
            GridUnavailable: see the module.
        """

    async def clean(self, expired: NodeRef, *, by: NodeRef, within: float) -> TakeoverProgress | None:
        """Win the right to clean up what is transient of a node that was taken over, once the time for it has come.

        As for ``take_over``: exactly one caller gets it, and the next one may win after *within* seconds, or if the
        winner's lease has ended. None for the others, before the time, and if the node has come back.

        Raises:
            GridUnavailable: see the module.
        """

    async def takeovers(self) -> Sequence[Takeover]:
        """List the takeovers that are under way, and those whose transient things are there still; sorted.

        Raises:
            GridUnavailable: see the module.
        """

    async def look(self, *nodes: NodeRef) -> Sequence[float | None]:
        """Look at leases: seconds until each of them ends, zero or less if it has; None of a node that has none.

        Raises:
            GridUnavailable: see the module.
        """

    async def grant(self, nodes: Sequence[NodeRef], *, lease: float) -> Sequence[NodeRef]:
        """Give a lease to nodes that have none, held or expired: the grid may have lost it but kept their sessions.

        Whoever of them lives renews it, or takes one of its own. The lease of one that is dead expires, and its
        sessions are taken over as anybody's; nobody knows what it has saved.

        Args:
            nodes: which.
            lease: its length in seconds.

        Returns:
            Those that were given one now.

        Raises:
            GridUnavailable: see the module.
        """

    async def report(self, node: NodeRef, report: NodeReport) -> None:
        """Tell the others of *node*; replaces what it told before, and goes away with its lease.

        Nothing is kept of a node without a lease.

        Raises:
            GridUnavailable: see the module.
        """

    async def entries(self) -> Sequence[NodeEntry]:
        """List the nodes that hold a lease, and those that expired and were not taken over yet; sorted.

        Raises:
            GridUnavailable: see the module.
        """

    async def lost(self) -> Sequence[LostNode]:
        """List the nodes that died and were taken over within the last ``LOST_SECONDS``; sorted.

        Only for people: ``LOST_NODES`` of them at most, those that died last, and none that a node of an earlier
        release took over. One that has a lease again is not lost.

        Raises:
            GridUnavailable: see the module.
        """

    async def tell_backup(self, node: NodeRef, backup: Backup | None, *, keep: float) -> bool:
        """Tell which node keeps copies of the sessions of *node*; replaces what it told before.

        What it told outlives its lease: whoever claims its sessions asks who has copies of them.

        Args:
            node: whose sessions.
            backup: who has the copies; None if nobody has.
            keep: seconds for which that is remembered when *node* has no lease any more: its longest window. Of nodes
                that are gone, ``GONE_BACKUPS`` are remembered; those are forgotten that were to be forgotten first.

        Returns:
            Whether it is remembered; False, and nothing is done, if the lease of *node* does not hold.

        Raises:
            GridUnavailable: see the module.
        """

    async def backups(self, *nodes: NodeRef) -> Mapping[NodeRef, Backup]:
        """Tell who keeps copies of the sessions of *nodes*, or of any node if none is named.

        Those without a backup are missing; so are those whose backup an unknown release has told in its own way.

        Raises:
            GridUnavailable: see the module.
        """

    async def cluster(self, suggested: str) -> str:
        """Tell the id of the cluster whose grid this is. Of a grid that has none, it is *suggested* from now on.

        It is the same for all nodes, and stays when nodes, generations and processes change. A grid that lost all data
        gets it back from the first node that knew it.

        Args:
            suggested: the id that the caller knows, or a random one: up to 64 letters, digits, dashes and underscores.

        Raises:
            GridUnavailable: see the module.
        """

    async def tell_claimed(self, to: NodeRef, *ownerships: Ownership) -> None:
        """Tell a living former owner that sessions were claimed from it, so that it drops its copies now.

        At most once and best effort: fencing does not depend on it. Delivered by ``claimed_elsewhere``.

        Raises:
            GridUnavailable: see the module.
        """

    def claimed_elsewhere(self, node: NodeRef) -> AsyncIterator[Ownership]:
        """Yield what others told *node* by ``tell_claimed``; goes on by itself when the grid was unreachable."""
