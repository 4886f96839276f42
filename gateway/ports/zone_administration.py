"""Zones and joins as administrators see and change them; see ``administration`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gateway.core.wire.errors import GatewayError
from gateway.core.zones.records import ZoneUid
from gateway.core.zones.routes import ClusterId


class ZoneView(NamedTuple):
    """A zone that this cluster knows.

    Attributes:
        uid: which one.
        name: for people; not unique.
        current: whether this cluster is in it.
        active: whether it has members.
        members: how many it has.
        made: when this cluster wrote what it knows of it, in seconds since 1970.
    """

    uid: str
    name: str
    current: bool
    active: bool
    members: int
    made: float


class ClusterView(NamedTuple):
    """This cluster, as others have to know it.

    Attributes:
        cluster: its id.
        name: for people; empty if it has none.
        urls: where its nodes take links of other clusters.
        fingerprints: SHA-256 of the certificates that they show.
    """

    cluster: str
    name: str
    urls: tuple[str, ...]
    fingerprints: tuple[str, ...]


class ZoneLinkView(NamedTuple):
    """A link, as the node that has it tells of it; see ``ZoneLinkReport``."""

    node: str
    name: str
    direction: str
    state: str
    detail: str
    since: float
    events: int
    bytes: int
    behind: int
    unacknowledged: int
    duplicates: int
    selectors: int


class MemberView(NamedTuple):
    """A member of a zone.

    Attributes:
        cluster: its id.
        name: for people; empty if it has none.
        here: whether it is this cluster.
        urls: where its nodes take links.
        fingerprints: SHA-256 of the certificates that they show.
        revision: of what it has told of itself.
        links: between it and this cluster.
    """

    cluster: str
    name: str
    here: bool
    urls: tuple[str, ...]
    fingerprints: tuple[str, ...]
    revision: int
    links: tuple[ZoneLinkView, ...]


class JoinView(NamedTuple):
    """A static join.

    Attributes:
        name: of it.
        direction: ``out`` or ``in``.
        selectors: what crosses.
        urls: of ``out``, where the other cluster takes links.
        fingerprints: SHA-256 of the certificates that the other side may have.
        most_hops: joins that an event may have crossed when it arrives over this one.
        made: when it was written, in seconds since 1970.
        links: of it.
    """

    name: str
    direction: str
    selectors: tuple[str, ...]
    urls: tuple[str, ...]
    fingerprints: tuple[str, ...]
    most_hops: int
    made: float
    links: tuple[ZoneLinkView, ...]


class JoinTerms(NamedTuple):
    """What somebody says of a join; see ``JoinView``.

    Attributes:
        direction: likewise.
        selectors: likewise.
        urls: likewise.
        fingerprints: likewise.
        secret: that both sides know; None to keep that of the join that is there.
        most_hops: likewise.
    """

    direction: str
    selectors: tuple[str, ...]
    urls: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    secret: str | None = None
    most_hops: int | None = None


class Introduction(NamedTuple):
    """What a member of a zone has told of it to a cluster that wants to join.

    Attributes:
        uid: of the zone.
        name: of the zone.
        cluster: who has told it.
    """

    uid: ZoneUid
    name: str
    cluster: ClusterId


class NotIntroduced(GatewayError):
    """No member of the zone could be asked, or it refused; the message says which, and why."""


class ZoneIntroducer(Protocol):
    """Asks a member of a zone for the zone."""

    async def introduce(self, urls: Sequence[str], *, reference: str, key: str) -> Introduction:
        """Ask at the first of some URLs that answers.

        Args:
            urls: where members take links.
            reference: uid or name of the zone.
            key: of ``zone_key``.

        Raises:
            NotIntroduced: see there.
        """


class ZoneAdministration(Protocol):
    """Zones, their members, and joins (003-19 to 003-25)."""

    async def this_cluster(self) -> ClusterView:
        """Tell what others have to know of this cluster.

        Raises:
            GridUnavailable: to be tried again.
        """

    async def zones(self) -> Sequence[ZoneView]:
        """List the zones that this cluster knows, by name.

        Raises:
            GridUnavailable: to be tried again.
        """

    async def create(self, name: str, secret: str) -> ZoneView:
        """Make a zone. It has no members, and a zone of the same name may be there.

        Raises:
            BadParameter: it is no name, or the secret is too short.
            Conflict: there are too many.
            GridUnavailable: to be tried again; then there may be two.
        """

    async def join(self, zone: str, *, urls: Sequence[str], secret: str | None) -> ZoneView:
        """Make this cluster a member of a zone.

        Args:
            zone: uid or name. A name that nobody knows makes a zone (003-24).
            urls: where members of the zone take links; of a zone that others are in.
            secret: of the zone; None for one that is known here.

        Raises:
            BadParameter: something cannot be so, or the secret is missing.
            Conflict: the name is that of several zones, the cluster is in another one, there are too many, or no member
                could be asked.
            GridUnavailable: to be tried again.
        """

    async def leave(self) -> None:
        """Have this cluster leave its zone.

        Raises:
            NotThere: it is in none.
            GridUnavailable: to be tried again.
        """

    async def current(self) -> ZoneView:
        """Tell in which zone this cluster is (003-22).

        Raises:
            NotThere: it is in none.
            GridUnavailable: to be tried again.
        """

    async def members(self) -> Sequence[MemberView]:
        """List the members of the zone of this cluster.

        Raises:
            NotThere: it is in none.
            GridUnavailable: to be tried again.
        """

    async def joins(self) -> Sequence[JoinView]:
        """List the joins of this cluster, by name.

        Raises:
            GridUnavailable: to be tried again.
        """

    async def find_join(self, name: str) -> JoinView:
        """Show one.

        Raises:
            NotThere: there is none.
            GridUnavailable: to be tried again.
        """

    async def put_join(self, name: str, terms: JoinTerms) -> JoinView:
        """Make a join, or change it.

        Raises:
            BadParameter: something cannot be so, or the secret is missing.
            Conflict: there are too many.
            GridUnavailable: to be tried again.
        """

    async def remove_join(self, name: str) -> None:
        """Delete a join.

        Raises:
            NotThere: there is none.
            GridUnavailable: to be tried again.
        """
